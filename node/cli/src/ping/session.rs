//! Opens the socket of a setup and runs it: the timing loop on its own thread, the recorder on this
//! one.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_engine::pinger::{Pinger, ProbeSchedule};
use dwell_engine::protocol::{
    MAX_HANDSHAKE_LEN, OpenError, OpenStep, Opening, Protocol, Reflection, SenderConfig,
    SenderVisitor, StreamReply, visit_sender,
};
use dwell_io::clock::{self, monotonic};
use dwell_io::cpu::{self, Placement};
use dwell_io::datagram::{DatagramSocket, is_broadcast};
use dwell_io::icmp::{IcmpPort, IcmpSocketKind};
use dwell_io::interface::{self, Interface};
use dwell_io::machine;
use dwell_io::pacer::WaitMode;
use dwell_io::port::{Connection, Port, SocketOptions, StampRequest, TxStampRequest, Wait};
use dwell_io::process;
use dwell_io::tcp::TcpPort;
use dwell_protocol::{IcmpSocket, Pattern, PingJob, ProbeStamps};
use dwell_record::NicDropped;
use dwell_sample::Sample;
use dwell_stats::PathDelays;
use dwell_units::Nanos;
use dwell_wire::icmp::Family;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rtrb::Producer;

use super::driver_stamps::{DriverRecorder, Flow};
use super::explain::Watch;
use super::floor;
use super::framing::{Framing, PortRing, StreamPort};
use super::icmp_error::NetworkError;
use super::reach::Reached;
use super::recorder::{ClientStream, Recorder};
use super::setup::PingSetup;
use super::timing_loop::{
    ClientProgress, Driver, Feedback, HopDelays, LoopOptions, LoopResult, RunEvent, STOP_GRACE,
    Shared,
};
use crate::host::RunQueueWait;
use crate::nic::NicWatch;
use crate::{Failure, placement, secret};

/// Capacity of the sample ring: two turns of the recorder, with a reserve for bursts of replies. A
/// closed loop may reach 300,000 samples per second.
fn ring(departures: ProbeSchedule) -> usize {
    const MAX_RING_LEN: i64 = 1 << 16;
    match departures {
        ProbeSchedule::Open { interval } => {
            (4 * RECORD_INTERVAL.0 / interval.0.max(1)).clamp(1 << 10, MAX_RING_LEN) as usize
        }
        ProbeSchedule::Closed { pause, spacing } if pause.max(spacing) >= RECORD_INTERVAL => {
            1 << 10
        }
        ProbeSchedule::Closed { .. } => MAX_RING_LEN as usize,
    }
}

/// Size of the receive buffer for probes of `capacity` bytes. A reply may be longer than a probe;
/// one extra byte detects a truncated one.
pub(super) fn buffer_len(capacity: usize) -> usize {
    capacity.max(2_048) + 1
}

/// The outcome of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) ended: LoopResult,
    pub(super) placement: Placement,
    /// Delay that the program itself adds to a round trip.
    pub(super) floor: Option<Nanos>,
    pub(super) peer: SocketAddr,
    /// First address of the target in the other family, if it was not tried.
    pub(super) untried: Option<SocketAddr>,
    pub(super) local: SocketAddr,
    /// Outgoing interface.
    pub(super) interface: Option<Interface>,
    /// Run-queue wait of the timing thread.
    pub(super) wait: Option<RunQueueWait>,
    /// Packets dropped by the interface during the run.
    pub(super) nics: Option<Vec<NicDropped>>,
    /// Kind of socket, for the result.
    pub(super) socket: &'static str,
    /// TCP connections at their end, by client.
    pub(super) connections: Vec<Connection>,
    /// Clients whose socket failed, or whose connection the other end closed.
    pub(super) failed_clients: u64,
}

/// Opens the socket and measures.
pub(super) fn run(
    job: &PingJob,
    setup: &PingSetup,
    reached: Reached,
    shared: &Arc<Shared>,
    recorder: &mut Recorder,
) -> Result<Outcome, Failure> {
    let Reached { peer, untried, stream } = reached;
    let interface = interface(setup, peer);
    let options = SocketOptions {
        receive_ttl: recorder.shows_ttl,
        ..port_options(job, setup, interface.as_ref())
    };
    let opener = Opener { job, setup, peer, options };
    let config = sender_config(job, setup)?;
    let session = config.session;
    let start = Start { opener, stream, shared, recorder, untried, interface, session };
    visit_sender(setup.target.scheme, config, start)
}

/// A socket and a sender for probes outside the measurement.
pub(super) struct Ends {
    pub(super) port: Box<dyn Port + Send>,
    pub(super) sender: Box<dyn Protocol + Send>,
}

/// Opens the ends of a protocol for probes outside the measurement.
pub(super) fn open_ends(
    job: &PingJob,
    setup: &PingSetup,
    peer: SocketAddr,
) -> Result<Ends, Failure> {
    let options = SocketOptions { stamps: StampRequest::User, ..port_options(job, setup, None) };
    Opener { job, setup, peer, options }.ends()
}

/// Opens the ends of a protocol for a stream, with the timestamps of a measurement, and its session.
pub(super) fn open_stream(
    job: &PingJob,
    setup: &PingSetup,
    peer: SocketAddr,
    stop: &AtomicBool,
) -> Result<Ends, Failure> {
    let options = port_options(job, setup, interface(setup, peer).as_ref());
    let Ends { mut port, mut sender } = Opener { job, setup, peer, options }.ends()?;
    open_session(&mut port, &mut sender, setup, peer, stop)?;
    Ok(Ends { port, sender })
}

/// Inputs of the sender of a setup. The session distinguishes the probes of this run from others.
fn sender_config(job: &PingJob, setup: &PingSetup) -> Result<SenderConfig, Failure> {
    // Needs to differ between runs only; it is not a secret.
    let seed = RandomState::new().build_hasher().finish();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let session = random.next_u64();
    let mut payload = vec![0; setup.size].into_boxed_slice();
    if setup.pattern == Pattern::Random {
        random.fill_bytes(&mut payload);
    }
    let key = match &setup.target.scheme.spec().authentication {
        Some(mode) => secret::find(job.key_file.as_deref())?.map(|secret| secret.key(mode)),
        None => None,
    };
    Ok(SenderConfig {
        session,
        payload,
        key: key.transpose()?,
        clock: machine::boot_id().and_then(|id| id[..12].try_into().ok()),
        utc_error: clock::utc_error(),
        path_slots: job.path.map_or(0, usize::from),
        interval: match setup.config.departures {
            ProbeSchedule::Open { interval } => interval,
            ProbeSchedule::Closed { spacing, .. } => spacing,
        },
        duration: job.parameters.duration,
        dscp: job.parameters.dscp.unwrap_or(0),
    })
}

/// Opens the sockets of a target.
struct Opener<'a> {
    job: &'a PingJob,
    setup: &'a PingSetup,
    peer: SocketAddr,
    options: SocketOptions,
}

impl Opener<'_> {
    /// Opens a socket and creates a sender, without their types.
    fn ends(&self) -> Result<Ends, Failure> {
        let config = sender_config(self.job, self.setup)?;
        visit_sender(self.setup.target.scheme, config, BoxedEnds(self))
    }

    fn icmp(&self) -> Result<IcmpPort, Failure> {
        icmp(self.job.parameters.icmp_socket, self.peer, &self.options, self.setup)
    }

    fn datagrams(&self) -> Result<DatagramSocket, Failure> {
        DatagramSocket::connect(self.peer, &self.options).map_err(|error| self.failure(error))
    }

    fn ports(&self) -> Result<PortRing, Failure> {
        PortRing::connect(self.peer, self.options.clone()).map_err(|error| self.failure(error))
    }

    /// Splits the connection `stream`, or a new one, into messages.
    fn stream(&self, stream: Option<TcpPort>) -> Result<StreamPort, Failure> {
        let Self { setup, options, .. } = self;
        let spec = setup.target.scheme.spec();
        let connected = match stream {
            Some(stream) => Ok(stream),
            None => connect(self.peer, setup.config.timeout, options),
        };
        let stream = connected.map_err(|error| error.into_failure(setup, options))?;
        let framing = match spec.reflection {
            Reflection::Stream(StreamReply::Acknowledge) => Framing::acknowledges(setup.size),
            _ => Framing::Fixed(setup.size),
        };
        Ok(StreamPort::new(stream, framing, buffer_len(setup.size)))
    }

    fn family(&self) -> Family {
        family(self.peer)
    }

    fn failure(&self, error: io::Error) -> Failure {
        open_failure(error, self.setup, &self.options)
    }
}

/// Opens the socket of any sender, without its type.
struct BoxedEnds<'a>(&'a Opener<'a>);

impl BoxedEnds<'_> {
    fn of(
        port: impl Port + Send + 'static,
        sender: impl Protocol + Send + 'static,
    ) -> Result<Ends, Failure> {
        Ok(Ends { port: Box::new(port), sender: Box::new(sender) })
    }
}

impl SenderVisitor for BoxedEnds<'_> {
    type Output = Result<Ends, Failure>;

    fn visit_icmp<P: Protocol + Send + 'static>(
        self,
        sender: impl FnOnce(Family, Option<u16>) -> P,
    ) -> Self::Output {
        let port = self.0.icmp()?;
        let sender = sender(self.0.family(), port.kernel_id());
        Self::of(port, sender)
    }

    fn visit_datagrams<P: Protocol + Send + 'static>(self, sender: P) -> Self::Output {
        Self::of(self.0.datagrams()?, sender)
    }

    fn visit_ports<P: Protocol + Send + 'static>(self, sender: P) -> Self::Output {
        Self::of(self.0.ports()?, sender)
    }

    fn visit_stream<P: Protocol + Send + 'static>(self, sender: P) -> Self::Output {
        Self::of(self.0.stream(None)?, sender)
    }
}

/// A failed connection.
#[derive(Debug)]
pub(super) struct ConnectError {
    error: io::Error,
    /// Network error about it.
    reported: Option<NetworkError>,
}

/// Connects to `peer` within `timeout`.
pub(super) fn connect(
    peer: SocketAddr,
    timeout: Nanos,
    options: &SocketOptions,
) -> Result<TcpPort, ConnectError> {
    let mut reported = None;
    let mut each = |notice| {
        reported = reported.or(NetworkError::of(&notice, family(peer)));
    };
    let connected = TcpPort::connect_with_notices(peer, timeout, options, &mut each);
    connected.map_err(|error| ConnectError { error, reported })
}

impl ConnectError {
    /// The error if no address answered in time.
    pub(super) fn timed_out() -> Self {
        Self { error: io::ErrorKind::TimedOut.into(), reported: None }
    }

    pub(super) fn into_failure(self, setup: &PingSetup, options: &SocketOptions) -> Failure {
        let Self { error, reported } = self;
        let Some(reported) = reported else { return open_failure(error, setup, options) };
        let advice =
            reported.advice(&setup.target).map_or(String::new(), |text| format!("; {text}"));
        Failure::from(anyhow::anyhow!("no connection to {}: {reported}{advice}", setup.target))
    }
}

/// Options of the socket to the target.
pub(super) fn port_options(
    job: &PingJob,
    setup: &PingSetup,
    interface: Option<&Interface>,
) -> SocketOptions {
    SocketOptions {
        source: setup.origin.source,
        interface: setup.origin.interface.clone(),
        ttl: job.parameters.ttl,
        dscp: job.parameters.dscp,
        stamps: match job.parameters.stamps {
            ProbeStamps::User => StampRequest::User,
            _ if interface.is_some_and(Interface::has_stamping_card) => StampRequest::Card,
            ProbeStamps::Auto | ProbeStamps::Kernel | ProbeStamps::Driver => StampRequest::Kernel,
        },
        nagle: job.parameters.nagle,
        quick_ack: job.parameters.quick_ack,
        tx_stamps: match job.parameters.sched_stamps {
            true => TxStampRequest::DriverAndQdisc,
            false => TxStampRequest::Driver,
        },
        ..SocketOptions::default()
    }
}

pub(super) fn family(peer: SocketAddr) -> Family {
    if peer.is_ipv4() { Family::V4 } else { Family::V6 }
}

/// Opens the socket of a sender and starts the measurement.
struct Start<'a> {
    opener: Opener<'a>,
    /// The connection, if already established.
    stream: Option<TcpPort>,
    shared: &'a Arc<Shared>,
    recorder: &'a mut Recorder,
    untried: Option<SocketAddr>,
    interface: Option<Interface>,
    session: u64,
}

impl SenderVisitor for Start<'_> {
    type Output = Result<Outcome, Failure>;

    fn visit_icmp<P: Protocol + Send + 'static>(
        self,
        sender: impl FnOnce(Family, Option<u16>) -> P,
    ) -> Self::Output {
        let port = self.opener.icmp()?;
        let socket = match port.kind() {
            IcmpSocketKind::Ping => "ping socket",
            IcmpSocketKind::Raw => "raw socket",
        };
        let id = port.kernel_id().unwrap_or(self.session as u16);
        let sender = sender(self.opener.family(), Some(id));
        self.measure(port, sender, socket, Some(id))
    }

    fn visit_datagrams<P: Protocol + Send + 'static>(self, sender: P) -> Self::Output {
        let port = self.opener.datagrams()?;
        self.measure(port, sender, "udp", None)
    }

    fn visit_ports<P: Protocol + Send + 'static>(self, sender: P) -> Self::Output {
        let port = self.opener.ports()?;
        self.measure(port, sender, "udp, ports in turn", None)
    }

    fn visit_stream<P: Protocol + Send + 'static>(mut self, sender: P) -> Self::Output {
        let port = self.opener.stream(self.stream.take());
        if self.opener.setup.target.scheme.spec().announces_connection {
            let failed = "failed to connect to server";
            crate::say(if port.is_ok() { "connected to server" } else { failed });
        }
        self.measure(port?, sender, "tcp", None)
    }
}

impl Start<'_> {
    fn measure<P: Port + Send, Q: Protocol + Send>(
        self,
        port: P,
        protocol: Q,
        socket: &'static str,
        echo_id: Option<u16>,
    ) -> Result<Outcome, Failure> {
        let Self { opener, shared, recorder, untried, interface, .. } = self;
        let Opener { job, setup, peer, .. } = opener;
        let open = |port: &mut dyn Port, protocol: &mut dyn Protocol| {
            open_session(port, protocol, setup, peer, &shared.stop)
        };
        let (mut port, mut protocol) = (port, protocol);
        open(&mut port, &mut protocol)?;
        let mut others = Vec::new();
        for _ in 1..job.parameters.clients() {
            let Ends { mut port, mut sender } = opener.ends()?;
            open(&mut port, &mut sender)?;
            others.push(Ends { port, sender });
        }
        recorder.begin(peer.ip(), setup.size);
        let local = port.local_addr();
        if job.parameters.stamps == ProbeStamps::Driver {
            let flow = Flow { local, peer, echo_id, outgoing: interface.as_ref() };
            recorder.add_driver_stamps(DriverRecorder::open(job, setup, &flow)?);
        }
        let (paths, found) = match job.path {
            Some(_) => {
                let (paths, found) = rtrb::RingBuffer::new(ring(setup.config.departures));
                (Some(paths), Some(found))
            }
            None => (None, None),
        };
        let watch = recorder.watch();
        let nics = NicWatch::start();
        let progress: Vec<_> = (0..=others.len()).map(|_| ClientProgress::default()).collect();
        let mut clients = Vec::new();
        let mut streams = Vec::new();
        for progress in &progress {
            let (samples, taken) = rtrb::RingBuffer::new(ring(setup.config.departures));
            let (events, feedback) = rtrb::RingBuffer::new(64);
            clients.push(Client { job, setup, peer, shared, progress, samples, events });
            streams.push(ClientStream::new(taken, feedback, progress));
        }
        let mut clients = clients.into_iter();
        let first = clients.next().expect("there is a client");
        let ends = std::thread::scope(|scope| {
            let main = std::thread::current();
            let timing = scope.spawn({
                let main = main.clone();
                move || {
                    let ended = first.run(port, protocol, paths, watch);
                    main.unpark();
                    ended
                }
            });
            let others: Vec<_> = clients
                .zip(others)
                .map(|(client, Ends { port, sender })| {
                    let main = main.clone();
                    scope.spawn(move || {
                        let ended = client.run(port, sender, None, None);
                        main.unpark();
                        ended
                    })
                })
                .collect();
            recorder.paths = found;
            recorder.path = PathDelays::of_slots(job.path.map_or(0, usize::from));
            let threads: Vec<_> = std::iter::once(timing).chain(others).collect();
            let finished = || threads.iter().all(|thread| thread.is_finished());
            recorder.follow(streams, shared, &finished);
            let ends = threads.into_iter().map(|it| it.join().expect("the loop does not panic"));
            ends.collect::<io::Result<Vec<_>>>()
        })?;
        let nics = nics.of(interface.as_ref());
        let failed_clients = ends.iter().filter(|end| end.ended.broken.is_some()).count() as u64;
        let connections = ends.iter().filter_map(|end| end.ended.connection).collect();
        let mut ends = ends.into_iter();
        let ClientEnd { mut ended, wait, placement, floor } =
            ends.next().expect("there is a client");
        ends.for_each(|end| ended.add(&end.ended));
        Ok(Outcome {
            ended,
            placement,
            floor,
            peer,
            untried,
            local,
            interface,
            wait,
            nics,
            socket,
            connections,
            failed_clients,
        })
    }
}

/// A client: what its timing loop needs besides its socket.
struct Client<'a> {
    job: &'a PingJob,
    setup: &'a PingSetup,
    peer: SocketAddr,
    shared: &'a Shared,
    progress: &'a ClientProgress,
    samples: Producer<Sample>,
    events: Producer<RunEvent>,
}

/// The end of a client's timing loop.
struct ClientEnd {
    ended: LoopResult,
    wait: Option<RunQueueWait>,
    placement: Placement,
    floor: Option<Nanos>,
}

impl Client<'_> {
    /// Runs the timing loop on this thread.
    fn run<P: Port, Q: Protocol>(
        self,
        port: P,
        protocol: Q,
        paths: Option<Producer<HopDelays>>,
        watch: Option<Watch>,
    ) -> io::Result<ClientEnd> {
        let Self { job, setup, peer, shared, progress, samples, events } = self;
        let is_alone = job.parameters.clients() == 1;
        let options = LoopOptions {
            busy_poll: job.place.busy_poll,
            tx_stamps: job.parameters.stamps != ProbeStamps::User,
            stamps_required: job.parameters.stamps == ProbeStamps::Kernel
                && setup.config.warm_up > 0,
            // Many clients that spin would take the CPU from each other.
            wait_mode: if is_alone { WaitMode::SleepSpin } else { WaitMode::CatchUp },
            max_overdue: None,
            stop_grace: STOP_GRACE,
        };
        let mut buffer = vec![0; buffer_len(protocol.capacity())];
        let mut pinger = Pinger::new(protocol, setup.config, monotonic());
        // After all allocations, so that they are locked in memory.
        let real_time = placement::real_time(&job.place, setup.mostly_sleeps());
        let placement = cpu::place_thread(job.place.cpu, real_time)?;
        if is_alone {
            // On failure the measurement is only slower. A table of its own would keep the sockets
            // of other clients open.
            let _ = process::own_descriptors();
        }
        let floor = is_alone.then(floor::measure).flatten();
        if let Some(watch) = &watch {
            watch.follow_current_thread();
        }
        pinger.start_at(monotonic());
        let driver = Driver {
            port,
            pinger,
            options,
            samples,
            events,
            paths,
            shared,
            progress,
            feedback: Feedback::default(),
            family: family(peer),
            limits: None,
        };
        let (ended, wait) = RunQueueWait::of(|| driver.run(&mut buffer));
        Ok(ClientEnd { ended, wait, placement, floor })
    }
}

/// Opens a session if the protocol has a handshake.
fn open_session(
    port: &mut dyn Port,
    protocol: &mut dyn Protocol,
    setup: &PingSetup,
    peer: SocketAddr,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let (target, spec) = (&setup.target, setup.target.scheme.spec());
    let Some(handshake) = &spec.handshake else { return Ok(()) };
    let failed = |why: String| Failure::from(anyhow::anyhow!("no session with {target}: {why}"));
    let mut opening = Opening::new(handshake, monotonic());
    let mut message = [0; MAX_HANDSHAKE_LEN];
    let mut buffer = [0; 2_048];
    while !stop.load(Ordering::Relaxed) {
        match opening.poll(monotonic()) {
            OpenStep::Send => {
                let len = protocol.write_open(&mut message);
                port.send(&message[..len]).map_err(|error| failed(error.to_string()))?;
            }
            OpenStep::WaitUntil(until) => {
                port.sleep_until(until.min(monotonic() + RECORD_INTERVAL));
                let received = port.receive(&mut buffer, Wait::No)?;
                match received.map(|arrival| protocol.read_open(&buffer[..arrival.len])) {
                    Some(Ok(())) => return Ok(()),
                    Some(Err(OpenError::Closed)) => return Err(failed("it is refused".into())),
                    Some(Err(OpenError::Restricted(parameter))) => {
                        return Err(failed(format!("the value of {parameter} is not allowed")));
                    }
                    None | Some(Err(OpenError::Reject(_))) => {}
                }
                let mut reported = None;
                port.notices(NOTICE_BATCH, &mut |notice| {
                    reported = reported.or(NetworkError::of(&notice, family(peer)));
                });
                if let Some(error) = reported {
                    let advice =
                        error.advice(target).map_or(String::new(), |text| format!("; {text}"));
                    return Err(failed(format!("{error}{advice}")));
                }
            }
            OpenStep::TimedOut => return Err(failed(spec.silent_hint.into())),
        }
    }
    Err(Failure::interrupted())
}

/// The interface that `-I` names, otherwise the one that the routing table chooses.
fn interface(setup: &PingSetup, peer: SocketAddr) -> Option<Interface> {
    match &setup.origin.interface {
        Some(name) => interface::all().ok()?.into_iter().find(|found| found.name == *name),
        None => interface::towards(peer).ok()?,
    }
}

fn icmp(
    choice: IcmpSocket,
    peer: SocketAddr,
    options: &SocketOptions,
    setup: &PingSetup,
) -> Result<IcmpPort, Failure> {
    let ping = || IcmpPort::connect_scoped(peer, IcmpSocketKind::Ping, options);
    let raw = || IcmpPort::connect_scoped(peer, IcmpSocketKind::Raw, options);
    let opened = match choice {
        IcmpSocket::Ping => ping(),
        IcmpSocket::Raw => raw(),
        IcmpSocket::Auto => ping().or_else(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => raw(),
            _ => Err(error),
        }),
    };
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied if is_broadcast_or_multicast(peer.ip()) => {
            broadcast_failure(setup)
        }
        io::ErrorKind::PermissionDenied => Failure::unsupported(
            "no ICMP socket is permitted: widen net.ipv4.ping_group_range \
             (sysctl -w net.ipv4.ping_group_range='0 2147483647'), or give CAP_NET_RAW (setcap \
             cap_net_raw+ep on the program, or root)",
        ),
        _ => open_failure(error, setup, options),
    })
}

/// Whether the address is multicast or, as far as the address itself shows, broadcast.
fn is_broadcast_or_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_broadcast() || v4.is_multicast() || is_broadcast(v4),
        IpAddr::V6(v6) => v6.is_multicast(),
    }
}

fn broadcast_failure(setup: &PingSetup) -> Failure {
    Failure::usage(format!(
        "{} is a broadcast or multicast address, or sending to it is not permitted; use the \
         address of one machine",
        setup.target
    ))
}

/// Describes a failure to open the socket; names the flag to change.
fn open_failure(error: io::Error, setup: &PingSetup, options: &SocketOptions) -> Failure {
    let target = &setup.target;
    match (error.kind(), &options.interface, options.source) {
        (io::ErrorKind::AddrNotAvailable, _, Some(source)) => Failure::usage(format!(
            "invalid value for -I: {source} is not an address of this machine"
        )),
        (_, Some(name), _) if error.raw_os_error() == Some(19) => {
            Failure::usage(format!("invalid value for -I: no interface '{name}' on this machine"))
        }
        // The kernel also returns EACCES for broadcast addresses.
        (io::ErrorKind::PermissionDenied, None, _) => broadcast_failure(setup),
        (io::ErrorKind::InvalidInput, None, _) if target.host.starts_with("ff") => {
            broadcast_failure(setup)
        }
        (io::ErrorKind::InvalidInput, None, _) if target.host.starts_with("fe80:") => {
            Failure::usage(format!(
                "{target}: a link-local address needs its interface, like [fe80::1%eth0]"
            ))
        }
        (io::ErrorKind::PermissionDenied, Some(name), _) => Failure::unsupported(format!(
            "cannot bind to interface '{name}': CAP_NET_RAW is missing; -I also accepts an address"
        )),
        (io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable, ..) => {
            Failure::from(anyhow::anyhow!("no route to {target}: {error}"))
        }
        (io::ErrorKind::ConnectionRefused, ..) => Failure::from(anyhow::anyhow!(
            "{target} refused the connection: nothing listens there; start `dwell reflect {target}` \
             on it"
        )),
        (io::ErrorKind::TimedOut, ..) => Failure::from(anyhow::anyhow!(
            "{target} did not answer within {}: no connection",
            setup.config.timeout
        )),
        _ => Failure::from(anyhow::Error::new(error).context(format!("cannot open {target}"))),
    }
}

/// Maximum number of error-queue entries per read.
const NOTICE_BATCH: usize = 32;

/// Interval between turns of the recorder.
pub(super) const RECORD_INTERVAL: Nanos = Nanos::from_millis(100);
