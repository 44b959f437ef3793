//! A relay of UDP over IPv4 in the driver, by the program of node/bpf/relay.bpf.c.

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
use crate::address::DISCARD;
use crate::interface;

const PROGRAM: &[u8] = include_bytes!("../../../bpf/relay.bpf.o");

/// Packets that leave for `to` have ports from here on: above those that the kernel gives to
/// sockets (net.ipv4.ip_local_port_range ends at 60999).
const FIRST_PORT: u16 = 61_000;

/// LISTENS of node/bpf/dwell.bpf.h.
const LISTENS: usize = 8;

/// Clients whose next hops are looked for at a time.
const SOUGHT: usize = 64;

/// How long the far end may take to refuse it.
const PATIENCE: Duration = Duration::from_millis(200);

/// Relays until it is dropped.
pub struct XdpRelay {
    // Detached first.
    links: Vec<OwnedFd>,
    modes: Vec<XdpMode>,
    object: Object,
    way: UdpSocket,
    own: Ipv4Addr,
    spec: XdpRelaySpec,
    notes: Vec<String>,
}

impl XdpRelay {
    /// Loads the program and attaches it. The program asks the kernel's forwarding for the way, so
    /// that must be on at every interface. Takes 200 ms where the far end does not refuse what it
    /// has no socket for.
    ///
    /// # Errors
    /// No privilege, a kernel that refuses the program, another XDP program at an interface, no
    /// way to `to`, interfaces that are not there or do not forward, a number of flows out of
    /// range.
    pub fn start(spec: &XdpRelaySpec) -> Result<Self, BpfError> {
        let no_way = |error| BpfError::Attach { place: format!("the way to {}", spec.to), error };
        if !RELAY_FLOWS.contains(&spec.flows) {
            let reason = format!("{} flows; from 1 to {}", spec.flows, RELAY_FLOWS.end());
            return Err(BpfError::Refused { reason });
        }
        let (way, own) = towards(spec.to).map_err(no_way)?;
        let there = interface::all().map_err(no_way)?;
        let named = |index: u32| there.iter().find(|found| found.index == index);
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
        let (listens, left_out) = listens(*spec.listen.ip()).map_err(no_way)?;
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
            way,
            own,
            spec: spec.clone(),
            notes: Vec::new(),
        };
        if !left_out.is_empty() {
            let all: Vec<_> = left_out.iter().map(Ipv4Addr::to_string).collect();
            relay.notes.push(format!("nothing is relayed that is sent to {}", all.join(" ")));
        }
        for &interface in &spec.interfaces {
            // What a driver sends on natively to a veth gets lost, unless its peer has XDP too.
            let modes: &[XdpMode] = match driver(interface) {
                Some("veth") => &[XdpMode::Generic],
                _ => &[XdpMode::Native, XdpMode::Generic],
            };
            let called = named(interface).map_or_else(String::new, |found| found.name.clone());
            relay.attach(interface, modes).map_err(|error| {
                let taken = matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST));
                let why = if taken { ", where another XDP program is" } else { "" };
                BpfError::Attach { place: format!("XDP of interface {called}{why}"), error }
            })?;
        }
        Ok(relay)
    }

    /// What it has done so far.
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

    /// The flows that it knows now: at most as many as were allowed.
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

    /// Lets the kernel look for the next hops towards `to` and the clients again: for when packets
    /// find no way, because it has forgotten one.
    pub fn look_for_the_way(&self) {
        // An error is the answer to the packet before.
        let _ = self.way.send(&[]);
        let Ok(socket) = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) else { return };
        let flows = self.flows().unwrap_or_default();
        let clients: BTreeSet<_> = flows.iter().map(|flow| *flow.client.ip()).collect();
        for client in clients.into_iter().take(SOUGHT) {
            let _ = socket.send_to(&[], (client, DISCARD));
        }
    }

    /// How it is attached, by interface.
    pub fn modes(&self) -> &[XdpMode] {
        &self.modes
    }

    /// What is not as it was asked for.
    pub fn notes(&self) -> &[String] {
        &self.notes
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
        map.ok_or_else(|| BpfError::Read { reason: format!("there is no map '{name}'") })
    }
}

fn unreadable(error: libbpf_rs::Error) -> BpfError {
    BpfError::Read { reason: error.to_string() }
}

/// A socket towards there. The kernel finds the next hop for it, which a program in the driver can
/// only ask for when it is known.
fn towards(to: SocketAddrV4) -> io::Result<(UdpSocket, Ipv4Addr)> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((*to.ip(), DISCARD))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(&[])?;
    // Refused or not answered, both are well: the packet has found its way by then.
    let _ = socket.recv(&mut [0; 1]);
    let own = match socket.local_addr()? {
        SocketAddr::V4(own) => *own.ip(),
        SocketAddr::V6(_) => return Err(io::ErrorKind::AddrNotAvailable.into()),
    };
    Ok((socket, own))
}

/// struct relay.
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

/// Addresses to listen at, and those of this machine for which there is no room.
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
    use crate::netns;

    #[test]
    fn a_node_that_does_not_forward_is_told_what_to_switch_on() {
        if !netns::may_create() {
            println!(
                "SKIP bpf::relay::tests::a_node_that_does_not_forward_is_told_what_to_switch_on: \
                 needs root"
            );
            return;
        }
        netns::within_a_new_one(|| {
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
