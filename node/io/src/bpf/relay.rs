//! UDP relay over IPv4 in the driver, with the program of node/bpf/relay.bpf.c.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use dwell_units::Nanos;
use libbpf_rs::{MapCore as _, MapFlags, Object};

use super::link::{self, Place};
use super::probe::XdpMode;
use super::spec::{Checksums, RELAY_FLOWS, XdpCounters, XdpFlow, XdpRelaySpec};
use super::{BpfError, object};
use crate::host::interface;
use crate::sys::address::DISCARD_PORT;

const PROGRAM: &[u8] = include_bytes!("../../../bpf/relay.bpf.o");

/// First source port of packets to `to`: above the kernel's ephemeral ports
/// (net.ipv4.ip_local_port_range ends at 60999).
const FIRST_PORT: u16 = 61_000;

/// LISTENS in node/bpf/dwell.bpf.h.
const LISTENS: usize = 8;

/// Maximum number of clients whose next hops are resolved at once.
const MAX_RESOLVED_CLIENTS: usize = 64;

/// Time that the far end may take to refuse the probe packet.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(200);

/// A relay, which runs until it is dropped.
pub struct XdpRelay {
    // The first field, so that programs are detached before the rest is dropped.
    links: Vec<OwnedFd>,
    modes: Vec<XdpMode>,
    object: Object,
    /// Connected to the discard port of `to`, so that the kernel resolves the next hop.
    resolver: UdpSocket,
    own: Ipv4Addr,
    spec: XdpRelaySpec,
    not_relayed: Vec<Ipv4Addr>,
}

impl XdpRelay {
    /// Loads and attaches the program. It uses the kernel's forwarding table, so forwarding must be
    /// enabled on every interface. Takes 200 ms if the far end does not refuse a packet to a closed
    /// port.
    ///
    /// # Errors
    /// The privilege is missing, the kernel refuses the program, another XDP program is attached to
    /// an interface, there is no route to `to`, an interface is missing or does not forward, or the
    /// number of flows is out of range.
    pub fn start(spec: &XdpRelaySpec) -> Result<Self, BpfError> {
        let no_route =
            |error| BpfError::Attach { place: format!("the route to {}", spec.to), error };
        if !RELAY_FLOWS.contains(&spec.flows) {
            let reason =
                format!("{} flows requested; the range is 1 to {}", spec.flows, RELAY_FLOWS.end());
            return Err(BpfError::Refused { reason });
        }
        let (resolver, own) = towards(spec.to).map_err(no_route)?;
        let interfaces = interface::all().map_err(no_route)?;
        let named = |index: u32| interfaces.iter().find(|found| found.index == index);
        let driver = |index: u32| named(index).and_then(|found| found.driver.as_deref());
        let mut used = spec.interfaces.iter().filter_map(|&index| named(index));
        if let Some(found) = used.find(|found| !found.is_forwarding()) {
            return Err(BpfError::NoForwarding(found.name.clone()));
        }
        let is_virtual = |&index: &u32| matches!(driver(index), None | Some("veth" | "tun"));
        let is_cleared = match spec.checksums {
            Checksums::ByDriver => spec.interfaces.iter().any(is_virtual),
            Checksums::Updated => false,
            Checksums::Cleared => true,
        };
        let (listens, left_out) = listens(*spec.listen.ip()).map_err(no_route)?;
        let constants = constants(spec, own, &listens, is_cleared);
        let object = object::load(PROGRAM, |object| {
            for mut map in object.maps_mut() {
                match &*map.name().to_string_lossy() {
                    "flows" => map.set_max_entries(u32::from(spec.flows))?,
                    "numbers" => map.set_max_entries(2 * u32::from(spec.flows).max(512))?,
                    name if name.ends_with(".rodata") => map.set_initial_value(&constants)?,
                    _ => {}
                }
            }
            Ok(())
        })?;
        let mut relay = Self {
            links: Vec::new(),
            modes: Vec::new(),
            object,
            resolver,
            own,
            spec: spec.clone(),
            not_relayed: left_out,
        };
        for &interface in &spec.interfaces {
            // Frames redirected natively to a veth are lost unless its peer has XDP too.
            let modes: &[XdpMode] = match driver(interface) {
                Some("veth") => &[XdpMode::Generic],
                _ => &[XdpMode::Native, XdpMode::Generic],
            };
            let name = named(interface).map_or_else(String::new, |found| found.name.clone());
            relay.attach(interface, modes).map_err(|error| {
                let taken = matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST));
                let why = if taken { " (another XDP program is attached)" } else { "" };
                BpfError::Attach { place: format!("XDP on interface {name}{why}"), error }
            })?;
        }
        Ok(relay)
    }

    /// Returns the counters since the start.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn counters(&self) -> Result<XdpCounters, BpfError> {
        let map = self.map("counters")?;
        let cpus = map.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(unreadable)?;
        let mut sum = [0_u64; 5];
        for cpu in cpus.iter().flatten() {
            let (words, _) = cpu.as_chunks();
            sum.iter_mut().zip(words).for_each(|(sum, word)| *sum += u64::from_ne_bytes(*word));
        }
        let [forward, backward, flows, evicted, no_way] = sum;
        Ok(XdpCounters { forward, backward, flows, evicted, no_way })
    }

    /// Returns the current flows.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn flows(&self) -> Result<Vec<XdpFlow>, BpfError> {
        let map = self.map("flows")?;
        let mut flows = Vec::new();
        for number in 0..self.spec.flows {
            let found = map.lookup(&u32::from(number).to_ne_bytes(), MapFlags::ANY);
            let Some(bytes) = found.map_err(unreadable)? else { continue };
            let Some(bytes) = bytes.first_chunk::<32>() else { continue };
            let word = |at: usize| bytes[at..].first_chunk().map_or(0, |w| u64::from_ne_bytes(*w));
            if word(0) == 0 {
                continue;
            }
            let ip =
                |at: usize| Ipv4Addr::from(bytes[at..].first_chunk().copied().unwrap_or([0; 4]));
            flows.push(XdpFlow {
                client: SocketAddrV4::new(ip(16), u16::from_be_bytes([bytes[24], bytes[25]])),
                listen: SocketAddrV4::new(ip(20), self.spec.listen.port()),
                out: SocketAddrV4::new(self.own, FIRST_PORT + number),
                packets: word(8),
            });
        }
        Ok(flows)
    }

    /// Makes the kernel resolve the next hops to `to` and to the clients again, for when packets
    /// find no route because the kernel has forgotten one.
    pub fn resolve_next_hops(&self) {
        // An error here is about the previous packet.
        let _ = self.resolver.send(&[]);
        let Ok(socket) = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) else { return };
        let flows = self.flows().unwrap_or_default();
        let clients: BTreeSet<_> = flows.iter().map(|flow| *flow.client.ip()).collect();
        for client in clients.into_iter().take(MAX_RESOLVED_CLIENTS) {
            let _ = socket.send_to(&[], (client, DISCARD_PORT));
        }
    }

    /// XDP mode of each interface.
    pub fn modes(&self) -> &[XdpMode] {
        &self.modes
    }

    /// Addresses of this machine beyond the maximum; packets to them are not relayed.
    pub fn not_relayed(&self) -> &[Ipv4Addr] {
        &self.not_relayed
    }

    fn attach(&mut self, interface: u32, modes: &[XdpMode]) -> io::Result<()> {
        let program = self.object.progs().next().ok_or(io::ErrorKind::NotFound)?;
        let mut outcome = Err(io::ErrorKind::NotFound.into());
        for &mode in modes {
            outcome = link::create(program.as_fd(), Place::Xdp { interface, mode });
            if outcome.is_ok() {
                self.modes.push(mode);
                break;
            }
        }
        self.links.push(outcome?);
        Ok(())
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>, BpfError> {
        let map = self.object.maps().find(|map| map.name() == name);
        map.ok_or_else(|| BpfError::Read { reason: format!("map '{name}' is missing") })
    }
}

fn unreadable(error: libbpf_rs::Error) -> BpfError {
    BpfError::Read { reason: error.to_string() }
}

/// Opens a socket to `to` and makes the kernel resolve the next hop: an XDP program can only look
/// up a known one.
fn towards(to: SocketAddrV4) -> io::Result<(UdpSocket, Ipv4Addr)> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((*to.ip(), DISCARD_PORT))?;
    socket.set_read_timeout(Some(REFUSAL_TIMEOUT))?;
    socket.send(&[])?;
    // Refusal and silence are both fine: by now the next hop is resolved.
    let _ = socket.recv(&mut [0; 1]);
    let own = match socket.local_addr()? {
        SocketAddr::V4(own) => *own.ip(),
        SocketAddr::V6(_) => return Err(io::ErrorKind::AddrNotAvailable.into()),
    };
    Ok((socket, own))
}

/// Encodes struct relay.
fn constants(
    spec: &XdpRelaySpec,
    own: Ipv4Addr,
    listens: &[Ipv4Addr],
    is_cleared: bool,
) -> [u8; 64] {
    let Nanos(idle) = spec.idle;
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(&idle.max(0).cast_unsigned().to_ne_bytes());
    bytes[8..12].copy_from_slice(&spec.to.ip().octets());
    bytes[12..16].copy_from_slice(&own.octets());
    bytes[16..20].copy_from_slice(&u32::from(spec.flows).to_ne_bytes());
    bytes[20..22].copy_from_slice(&spec.listen.port().to_be_bytes());
    bytes[22..24].copy_from_slice(&spec.to.port().to_be_bytes());
    bytes[24..26].copy_from_slice(&FIRST_PORT.to_ne_bytes());
    bytes[26..28].copy_from_slice(&u16::from(is_cleared).to_ne_bytes());
    bytes[28..32].copy_from_slice(&(listens.len() as u32).to_ne_bytes());
    for (place, address) in bytes[32..].chunks_exact_mut(4).zip(listens) {
        place.copy_from_slice(&address.octets());
    }
    bytes
}

/// Returns the addresses to listen on, and the local addresses beyond the limit.
fn listens(asked: Ipv4Addr) -> io::Result<(Vec<Ipv4Addr>, Vec<Ipv4Addr>)> {
    if !asked.is_unspecified() {
        return Ok((vec![asked], Vec::new()));
    }
    let mut all = interface::ipv4_addresses()?;
    let beyond = all.split_off(all.len().min(LISTENS));
    Ok((all, beyond))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::netns;

    #[test]
    fn non_forwarding_interface_error_names_sysctl() {
        if !netns::may_create() {
            println!(
                "SKIP bpf::relay::tests::non_forwarding_interface_error_names_sysctl: \
                 needs root"
            );
            return;
        }
        netns::within_new(|| {
            let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(up.unwrap().success());
            std::fs::write("/proc/sys/net/ipv4/conf/lo/forwarding", "0").unwrap();
            let started = XdpRelay::start(&XdpRelaySpec {
                listen: "127.0.0.1:7001".parse().unwrap(),
                to: "127.0.0.2:7001".parse().unwrap(),
                interfaces: vec![1],
                flows: 1,
                idle: Nanos::from_secs(1),
                checksums: Checksums::ByDriver,
            });
            let error = started.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("sysctl net.ipv4.conf.lo.forwarding=1"), "{error}");
        })
        .unwrap();
    }
}
