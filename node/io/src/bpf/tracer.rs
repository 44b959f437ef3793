//! Timestamps packets at hooks, with the programs of node/bpf/stamps.bpf.c.

use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;

use dwell_units::Nanos;
use libbpf_rs::{MapCore as _, MapFlags, Object, RingBuffer, RingBufferBuilder};

use super::event::Event;
use super::link::{self, Place};
use super::probe::XdpMode;
use super::{BpfError, Hook, HookKind, Hooks, Pass, Protocol, TraceSpec, TracerNote, object};
use crate::{clock, interface};

/// Programs of each kind of hook: node/bpf/stamps_KIND.bpf.c.
const fn programs(kind: HookKind) -> &'static [u8] {
    match kind {
        HookKind::Netfilter => include_bytes!("../../../bpf/stamps_netfilter.bpf.o"),
        HookKind::Tcx => include_bytes!("../../../bpf/stamps_tcx.bpf.o"),
        HookKind::Xdp => include_bytes!("../../../bpf/stamps_xdp.bpf.o"),
    }
}

/// Maps that the objects of all kinds share.
const SHARED_MAPS: [&str; 2] = ["events", "dropped"];

/// Ring bytes per measurement point: 130,000 events, which is 650 ms at 200,000 packets/s, in case
/// the reader is delayed.
const RING_BYTES_PER_POINT: u32 = 8 << 20;

/// Maximum number of events taken from the ring at once.
const READ_BATCH: usize = 1_024;

/// Constants of linux/netfilter.h.
const FAMILIES: [(u32, &str); 2] = [(2, "4"), (10, "6")];
const PRE_ROUTING: u32 = 0;
const POST_ROUTING: u32 = 4;

/// Number of netfilter priorities to try if other programs hold the outermost ones.
const MAX_PRIORITY_TRIES: i32 = 64;

/// Timestamps packets until it is dropped. Programs write events without waking the reader: read
/// the ring at least every 100 ms.
pub struct Tracer {
    // The first field, so that programs are detached before the rest is dropped.
    links: Vec<OwnedFd>,
    ring: RingBuffer<'static>,
    batch: Rc<RefCell<Vec<Event>>>,
    /// The programs of each kind of hook, at least one.
    objects: Vec<(HookKind, Object)>,
    hooks: Hooks,
    tai_offset: Nanos,
    notes: Vec<TracerNote>,
}

impl Tracer {
    /// Loads and attaches the programs. The trace goes without the hooks that this kernel lacks, and
    /// notes name them with the reason. If XDP is unavailable on an interface, for instance because
    /// another program occupies it, the interface goes without and a note says so.
    ///
    /// # Errors
    /// The privilege is missing, attaching fails, or no kind of hook is available.
    pub fn start(spec: &TraceSpec) -> Result<Self, BpfError> {
        Self::start_with(spec, programs)
    }

    fn start_with(
        spec: &TraceSpec,
        programs: impl Fn(HookKind) -> &'static [u8],
    ) -> Result<Self, BpfError> {
        let mut objects = Vec::new();
        let mut missing = Vec::new();
        for kind in HookKind::ALL.into_iter().filter(|&kind| spec.hooks.has(kind)) {
            let shared = objects.first().map(|(_, object)| object);
            let object = check_support(kind).and_then(|()| load(programs(kind), spec, shared));
            if let Some(object) = sort_out(kind, object, &mut missing)? {
                objects.push((kind, object));
            }
        }
        let Some((_, first)) = objects.first() else { return Err(no_hooks(missing)) };
        let tai_offset = clock::tai_offset();
        let batch = Rc::new(RefCell::new(Vec::with_capacity(READ_BATCH)));
        let ring = ring(first, Rc::clone(&batch), tai_offset)?;
        let kinds: Vec<_> = objects.iter().map(|(kind, _)| *kind).collect();
        let (links, hooks, notes) = (Vec::new(), Hooks::NONE, Vec::new());
        let mut tracer = Self { links, ring, batch, objects, hooks, tai_offset, notes };
        for kind in kinds {
            let attached = tracer.attach(kind, &spec.interfaces);
            if sort_out(kind, attached, &mut missing)?.is_some() {
                tracer.hooks = tracer.hooks.with(kind);
            }
        }
        if tracer.hooks == Hooks::NONE {
            return Err(no_hooks(missing));
        }
        let unavailable = missing.into_iter().map(|(hooks, error)| {
            let reason = error.to_string().replace('\n', "; ");
            TracerNote::HooksUnavailable { hooks, reason }
        });
        tracer.notes.splice(0..0, unavailable);
        Ok(tracer)
    }

    /// Attaches the programs of one kind.
    fn attach(&mut self, kind: HookKind, interfaces: &[u32]) -> Result<(), BpfError> {
        if kind == HookKind::Netfilter {
            return self.attach_netfilter();
        }
        let all = interface::all().unwrap_or_default();
        for &number in interfaces {
            let found = all.iter().find(|found| found.index == number);
            let name = found.map_or_else(|| number.to_string(), |found| found.name.clone());
            match kind {
                HookKind::Tcx => self.attach_tcx(number, &name)?,
                _ => self.attach_xdp(number, &name),
            }
        }
        Ok(())
    }

    /// Calls `each` with the events since the last call and returns their number. The order is that
    /// of writing, which differs slightly from that of the timestamps.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn read(&mut self, each: &mut dyn FnMut(&Event)) -> Result<u64, BpfError> {
        let mut sum = 0;
        loop {
            let consumed = self.ring.consume_raw_n(READ_BATCH);
            let Ok(consumed) = usize::try_from(consumed) else {
                let error = io::Error::from_raw_os_error(-consumed);
                return Err(BpfError::Read { reason: error.to_string() });
            };
            let mut batch = self.batch.borrow_mut();
            sum += batch.len() as u64;
            batch.iter().for_each(&mut *each);
            batch.clear();
            if consumed < READ_BATCH {
                return Ok(sum);
            }
        }
    }

    /// Returns the number of events lost since the start because the ring was full.
    ///
    /// # Errors
    /// The counter cannot be read.
    pub fn dropped(&self) -> Result<u64, BpfError> {
        let unreadable = |reason: &str| BpfError::Read { reason: reason.to_owned() };
        let mut maps = self.objects.iter().flat_map(|(_, object)| object.maps());
        let map = maps.find(|map| map.name() == "dropped");
        let map = map.ok_or_else(|| unreadable("the drop counter is missing"))?;
        let cpus = map
            .lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| unreadable(&error.to_string()))?;
        let count = |bytes: &Vec<u8>| bytes.first_chunk().map_or(0, |n| u64::from_ne_bytes(*n));
        Ok(cpus.iter().flatten().map(count).sum())
    }

    /// Hooks at which packets are timestamped. XDP may be missing on some interfaces.
    pub fn hooks(&self) -> Hooks {
        self.hooks
    }

    /// Differences from what was requested.
    pub fn notes(&self) -> &[TracerNote] {
        &self.notes
    }

    /// Whether CLOCK_TAI and CLOCK_REALTIME have moved against each other since the start, which
    /// invalidates the timestamps.
    pub fn clock_moved(&self) -> bool {
        clock::tai_offset() != self.tai_offset
    }

    /// Attaches before all others at PRE_ROUTING and after all others at POST_ROUTING, if those
    /// priorities are free.
    fn attach_netfilter(&mut self) -> Result<(), BpfError> {
        for (family, suffix) in FAMILIES {
            for (hook, name) in [(PRE_ROUTING, "pre_routing"), (POST_ROUTING, "post_routing")] {
                let mut tries = (0..MAX_PRIORITY_TRIES).map(|n| match hook {
                    PRE_ROUTING => i32::MIN + 1 + n,
                    _ => i32::MAX - 1 - n,
                });
                let mut attach = || {
                    let priority = tries.next()?;
                    let place = Place::Netfilter { family, hook, priority };
                    Some(self.link(&format!("{name}{suffix}"), place))
                };
                let mut outcome = attach();
                while outcome.as_ref().is_some_and(|o| is_taken(o.as_ref().err())) {
                    outcome = attach().or(outcome);
                }
                let place = || format!("netfilter hook {name} of IPv{suffix}");
                let link = outcome.expect("at least one attempt was made");
                let link = link.map_err(|error| BpfError::Attach { place: place(), error })?;
                self.links.push(link);
            }
        }
        Ok(())
    }

    fn attach_tcx(&mut self, interface: u32, interface_name: &str) -> Result<(), BpfError> {
        for (egress, name) in [(false, "rx_tcx"), (true, "tx_tcx")] {
            let place = || format!("{name} of interface {interface_name}");
            let link = self.link(name, Place::Tcx { interface, egress });
            self.links.push(link.map_err(|error| no_tcx(error, &place))?);
        }
        Ok(())
    }

    /// Not every interface supports XDP, so its absence is not an error.
    fn attach_xdp(&mut self, interface: u32, name: &str) {
        let attach = |mode| self.link("rx_driver", Place::Xdp { interface, mode });
        let note = match attach(XdpMode::Native) {
            Ok(link) => return self.links.push(link),
            Err(error) if is_taken(Some(&error)) => {
                TracerNote::XdpTaken { interface: name.to_owned() }
            }
            Err(_) => match attach(XdpMode::Generic) {
                Ok(link) => {
                    self.links.push(link);
                    TracerNote::XdpGeneric { interface: name.to_owned() }
                }
                Err(error) => TracerNote::XdpUnavailable {
                    interface: name.to_owned(),
                    error: error.to_string(),
                },
            },
        };
        self.notes.push(note);
    }

    fn link(&self, program: &str, place: Place) -> io::Result<OwnedFd> {
        let mut programs = self.objects.iter().flat_map(|(_, object)| object.progs());
        let program = programs.find(|found| found.name() == program);
        let program = program.ok_or(io::ErrorKind::NotFound)?;
        link::create(program.as_fd(), place)
    }
}

/// Checks that the kernel supports programs at this kind of hook. Only netfilter is checked;
/// attaching fails at any other hook that is unsupported.
fn check_support(kind: HookKind) -> Result<(), BpfError> {
    let refused = |error: io::Error| error.raw_os_error() == Some(libc::EINVAL);
    match kind {
        HookKind::Netfilter if Pass::load(Hook::Netfilter).is_err_and(refused) => {
            let since = "6.4 with CONFIG_NETFILTER_BPF_LINK";
            Err(BpfError::TooOld { hooks: "netfilter", since })
        }
        _ => Ok(()),
    }
}

/// Loads an object. Its events go to the maps of `shared`, if given.
fn load(bytes: &[u8], spec: &TraceSpec, shared: Option<&Object>) -> Result<Object, BpfError> {
    object::load(bytes, |object| {
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let same = |other: &libbpf_rs::Map<'_>| other.name().to_string_lossy() == name;
            if SHARED_MAPS.contains(&&*name)
                && let Some(other) = shared.and_then(|shared| shared.maps().find(same))
            {
                map.reuse_fd(other.as_fd())?;
            } else if name == "events" {
                map.set_max_entries(ring_bytes(spec.hooks))?;
            } else if name.ends_with(".rodata") {
                map.set_initial_value(&filter(spec))?;
            }
        }
        Ok(())
    })
}

/// Moves the error of a kind that this kernel lacks to `missing`; returns the outcome of others.
fn sort_out<T>(
    kind: HookKind,
    outcome: Result<T, BpfError>,
    missing: &mut Vec<(HookKind, BpfError)>,
) -> Result<Option<T>, BpfError> {
    match outcome {
        Err(error) if error.is_unsupported() && !error.is_permission() => {
            missing.push((kind, error));
            Ok(None)
        }
        outcome => outcome.map(Some),
    }
}

/// Returns the error of a trace for which no hook is available.
fn no_hooks(mut missing: Vec<(HookKind, BpfError)>) -> BpfError {
    match missing.len() {
        0 => BpfError::NoHooks("none was requested".to_owned()),
        1 => missing.remove(0).1,
        _ => {
            let reasons = missing.iter().map(|(kind, error)| format!("{}: {error}", kind.name()));
            BpfError::NoHooks(reasons.collect::<Vec<_>>().join("; "))
        }
    }
}

/// Kernels before 6.6 have no tcx links and return EINVAL.
fn no_tcx(error: io::Error, place: &dyn Fn() -> String) -> BpfError {
    match error.raw_os_error() {
        Some(libc::EINVAL) => BpfError::TooOld { hooks: "tcx", since: "6.6" },
        _ => BpfError::Attach { place: place(), error },
    }
}

/// Whether another program occupies the place.
fn is_taken(error: Option<&io::Error>) -> bool {
    matches!(error.and_then(io::Error::raw_os_error), Some(libc::EBUSY | libc::EEXIST))
}

/// Returns a power of two of at least [`RING_BYTES_PER_POINT`] bytes per point.
fn ring_bytes(hooks: Hooks) -> u32 {
    let points = 2 * u32::from(hooks.netfilter) + 2 * u32::from(hooks.tcx) + u32::from(hooks.xdp);
    (points.max(1) * RING_BYTES_PER_POINT).next_power_of_two()
}

/// Encodes struct filter.
fn filter(spec: &TraceSpec) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[0] = spec.protocol.number();
    if spec.protocol != Protocol::Echo {
        bytes[2..4].copy_from_slice(&spec.port.unwrap_or(0).to_be_bytes());
    }
    match spec.host {
        None => {}
        Some(IpAddr::V4(host)) => {
            bytes[1] = 4;
            bytes[4..8].copy_from_slice(&host.octets());
        }
        Some(IpAddr::V6(host)) => {
            bytes[1] = 6;
            bytes[4..].copy_from_slice(&host.octets());
        }
    }
    bytes
}

fn ring(
    object: &Object,
    batch: Rc<RefCell<Vec<Event>>>,
    tai_offset: Nanos,
) -> Result<RingBuffer<'static>, BpfError> {
    let unreadable = |error: libbpf_rs::Error| BpfError::Read { reason: error.to_string() };
    let map = object.maps().find(|map| map.name() == "events");
    let map =
        map.ok_or_else(|| BpfError::Read { reason: "the event ring is missing".to_owned() })?;
    let mut builder = RingBufferBuilder::new();
    let take = move |bytes: &[u8]| {
        batch.borrow_mut().extend(Event::parse(bytes, tai_offset));
        0
    };
    builder.add(&map, take).map_err(unreadable)?;
    builder.build().map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use dwell_sample::Point;

    use super::*;
    use crate::host::netns;

    const LOOPBACK: u32 = 1;
    const ALL: Hooks = Hooks { netfilter: true, tcx: true, xdp: true };

    fn spec(protocol: Protocol, host: Option<&str>, port: Option<u16>) -> TraceSpec {
        let host = host.map(|host| host.parse().unwrap());
        TraceSpec { protocol, host, port, hooks: ALL, interfaces: vec![LOOPBACK] }
    }

    /// Runs `work` in a new network namespace, or prints why it cannot.
    fn in_new_namespace(test: &str, work: impl FnOnce() + Send) {
        if netns::may_create() {
            netns::within_new(work).unwrap();
        } else {
            println!("SKIP bpf::tracer::tests::{test}: needs root");
        }
    }

    #[test]
    fn missing_tcx_means_old_kernel_other_errors_stay() {
        let error_of =
            |errno| no_tcx(io::Error::from_raw_os_error(errno), &|| "rx_tcx of eth0".into());
        let old = error_of(libc::EINVAL);
        assert!(old.is_unsupported() && old.to_string().contains("6.6"), "{old}");
        let other = error_of(libc::EBUSY);
        assert!(!other.is_unsupported() && other.to_string().contains("eth0"), "{other}");
    }

    #[test]
    fn kernel_accepts_programs_for_every_kind_of_flow() {
        in_new_namespace("kernel_accepts_programs_for_every_kind_of_flow", || {
            for protocol in [Protocol::Udp, Protocol::Tcp, Protocol::Echo] {
                for host in [None, Some("192.0.2.1"), Some("2001:db8::1")] {
                    for port in [None, Some(5_001)] {
                        let spec = spec(protocol, host, port);
                        let started = Tracer::start(&spec).map(|tracer| tracer.links.len());
                        assert_eq!(started.unwrap(), 7, "{spec:?}");
                    }
                }
            }
        });
    }

    #[test]
    fn packet_is_traced_at_every_hook_and_other_hosts_at_none() {
        in_new_namespace("packet_is_traced_at_every_hook_and_other_hosts_at_none", || {
            let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(up.unwrap().success());
            let far = UdpSocket::bind("127.0.0.1:5001").unwrap();
            let near = UdpSocket::bind("127.0.0.1:0").unwrap();
            let mut ours = Tracer::start(&spec(Protocol::Udp, Some("127.0.0.1"), None)).unwrap();
            let other = spec(Protocol::Udp, Some("127.0.0.2"), Some(5_001));
            let mut others = Tracer::start(&other).unwrap();
            near.send_to(b"an id", far.local_addr().unwrap()).unwrap();
            far.recv(&mut [0; 8]).unwrap();
            let mut points = Vec::new();
            ours.read(&mut |event| {
                assert_eq!((event.head(), event.size), (&b"an id"[..], 5));
                assert_eq!(event.from, near.local_addr().unwrap());
                points.push(event.point);
            })
            .unwrap();
            points.sort();
            let at = [Point::RxDriver, Point::RxTcx, Point::PreRouting, Point::PostRouting];
            assert_eq!(points, [&at[..], &[Point::TxTcx]].concat());
            assert_eq!(others.read(&mut |event| panic!("{event:?}")).unwrap(), 0);
            assert_eq!((ours.dropped().unwrap(), ours.clock_moved()), (0, false));
            // The second tracer finds XDP occupied by the first.
            assert!(others.notes().iter().any(|note| matches!(note, TracerNote::XdpTaken { .. })));
        });
    }

    #[test]
    fn missing_kind_of_hook_leaves_the_others() {
        const MISSING: &[u8] = include_bytes!("../../../bpf/missing_function.bpf.o");
        in_new_namespace("missing_kind_of_hook_leaves_the_others", || {
            let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(up.unwrap().success());
            let spec = spec(Protocol::Udp, None, Some(5_001));
            for absent in HookKind::ALL {
                let some = |kind| if kind == absent { MISSING } else { programs(kind) };
                let mut tracer = Tracer::start_with(&spec, some).unwrap();
                assert!(!tracer.hooks().has(absent) && tracer.hooks().with(absent) == ALL);
                let [note, ..] = tracer.notes() else { panic!("{absent:?}: no note") };
                let TracerNote::HooksUnavailable { hooks, reason } = note else {
                    panic!("{note:?}")
                };
                assert!(*hooks == absent && reason.contains("dwell_no_such_function"), "{note:?}");
                let near = UdpSocket::bind("127.0.0.1:0").unwrap();
                near.send_to(b"an id", "127.0.0.1:5001").unwrap();
                let mut points = 0;
                tracer.read(&mut |_| points += 1).unwrap();
                assert_eq!(points, if absent == HookKind::Xdp { 4 } else { 3 }, "{absent:?}");
            }
            let Err(error) = Tracer::start_with(&spec, |_| MISSING) else { panic!("no hook") };
            let text = error.to_string();
            assert!(error.is_unsupported() && text.contains("xdp: "), "{text}");
            let none = Tracer::start(&TraceSpec { hooks: Hooks::NONE, ..spec });
            assert!(none.is_err_and(|error| error.is_unsupported()));
        });
    }

    #[test]
    fn ring_size_is_power_of_two_and_grows_with_points() {
        let netfilter = Hooks { netfilter: true, tcx: false, xdp: false };
        assert_eq!((ring_bytes(netfilter), ring_bytes(ALL)), (16 << 20, 64 << 20));
    }
}
