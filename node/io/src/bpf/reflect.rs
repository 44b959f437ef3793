//! Reflector in the network driver, with the program of node/bpf/reflect.bpf.c.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};

use dwell_units::Nanos;
use dwell_wire::icmp::checksum;
use libbpf_rs::{Map, MapCore, MapFlags, MapHandle, Object, ProgramInput};

use super::link::{self, Place};
use super::occupant::refusal;
use super::probe::XdpMode;
use super::reflect_sessions::{DriverSessions, SessionHash};
use super::reflect_spec::{
    DestinationKey, DriverClock, DriverCounters, DriverDestination, DriverLink, DriverRun, Verdict,
    XdpReflectorSpec, octets,
};
use super::{BpfError, object};
use crate::host::random;

const PROGRAM: &[u8] = include_bytes!("../../../bpf/reflect.bpf.o");

/// The program without [`XdpReflectorSpec::recognise_merged`].
const PLAIN_PROGRAM: &[u8] = include_bytes!("../../../bpf/reflect_plain.bpf.o");

/// Length of struct reflect, and of its bitmap of ports.
const CONFIG_LEN: usize = 8_224;
const PORTS_LEN: usize = 8_192;

/// Room that the kernel needs beside a frame of a test run: two headers and struct
/// skb_shared_info (net/bpf/test_run.c), rounded up.
const MAX_RUN_LEN: usize = 3_500;

/// Maximum length of the frame whose run time is measured: has room on kernels with more fragments in
/// struct skb_shared_info (CONFIG_MAX_SKB_FRAGS), too.
const MAX_TIMED_LEN: usize = 3_000;

/// Length of an Ethernet header.
const ETHERNET_LEN: usize = 14;

/// Length of an IPv4 packet with a STAMP request and an empty padding TLV.
const MIN_STAMP_LEN: u32 = 76;

/// Length of the longest IPv4 packet that the program answers: LENGTH in node/bpf/reflect.bpf.h, and
/// the header.
const MAX_PACKET_LEN: u32 = 9_236;

/// Number of the last service, for measuring the program.
const LAST_SERVICE: u32 = 63;

type Address = [u8; 16];

/// A loaded program. It replies while it is attached, and is detached when this is dropped or the
/// process ends.
#[derive(Debug)]
pub struct XdpReflector {
    // The first field, so that the program is detached before the rest is dropped.
    link: Option<OwnedFd>,
    object: Object,
    interface: u32,
    destinations: HashMap<DestinationKey, [u8; 24]>,
    own: HashSet<Address>,
    state: State,
    hash: SessionHash,
    /// A source port that gets replies, for measuring the program.
    answered_port: u16,
}

/// Data of the program that change while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    clock: DriverClock,
    link: DriverLink,
    native: bool,
    /// The bits [`own_bit`] of the own addresses.
    own: u64,
}

impl XdpReflector {
    /// Loads the program without attaching it.
    ///
    /// # Errors
    /// The privilege is missing or the kernel refuses the program.
    pub fn load(spec: &XdpReflectorSpec) -> Result<Self, BpfError> {
        let mut secrets = [0; 16];
        random::fill(&mut secrets).map_err(|error| BpfError::Read { reason: error.to_string() })?;
        let config = config(spec, &secrets);
        let program = if spec.recognise_merged { PROGRAM } else { PLAIN_PROGRAM };
        let object = object::load(program, |object| {
            for mut map in object.maps_mut() {
                if map.name().to_string_lossy().ends_with(".rodata") {
                    map.set_initial_value(&config)?;
                }
            }
            Ok(())
        })?;
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|n| config[at + n]));
        let is_answered =
            |port: &u16| spec.unanswered_ports[usize::from(port / 64)] >> (port % 64) & 1 == 0;
        let reflector = Self {
            link: None,
            object,
            interface: spec.interface,
            destinations: HashMap::new(),
            own: HashSet::new(),
            state: State { clock: DriverClock::default(), link: spec.link, native: false, own: 0 },
            hash: SessionHash { seed: word(0), multiplier: word(8) },
            answered_port: (1_024..=u16::MAX).find(is_answered).unwrap_or(0),
        };
        reflector.write_state()?;
        Ok(reflector)
    }

    /// Attaches the program, after detaching it from its previous mode.
    ///
    /// # Errors
    /// The interface or its driver has no such mode, another XDP program is attached, or the
    /// privilege is missing.
    pub fn attach(&mut self, mode: XdpMode) -> Result<(), BpfError> {
        self.detach()?;
        self.set_state(State { native: mode == XdpMode::Native, ..self.state })?;
        let program = self.object.progs().next().ok_or_else(|| missing("the program"))?;
        let place = Place::Xdp { interface: self.interface, mode };
        let link =
            link::create(program.as_fd(), place).map_err(|error| refusal(self.interface, error))?;
        self.link = Some(link);
        Ok(())
    }

    /// Detaches the program from the interface at once; its counters stay readable. Dropping the link
    /// is not enough while another thread has a copy of its descriptor.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn detach(&mut self) -> Result<(), BpfError> {
        let Some(link) = self.link.take() else { return Ok(()) };
        let place = "XDP in its previous mode".to_owned();
        link::detach(link.as_fd()).map_err(|error| BpfError::Attach { place, error })
    }

    /// Sets the destinations whose requests the program answers.
    ///
    /// # Errors
    /// The table is full or cannot be written.
    pub fn set_destinations(&mut self, wanted: &[DriverDestination]) -> Result<(), BpfError> {
        let wanted = wanted.iter().map(DriverDestination::encoded).collect();
        update(&map(&self.object, "services")?, &self.destinations, &wanted)?;
        self.destinations = wanted;
        Ok(())
    }

    /// Sets the addresses that are no sources of requests: those of this machine, and broadcast
    /// addresses of its networks.
    ///
    /// # Errors
    /// The table is full or cannot be written.
    pub fn set_own_addresses(&mut self, own: &[IpAddr]) -> Result<(), BpfError> {
        let own: HashSet<Address> = own.iter().map(|address| octets(*address)).collect();
        let entries = |own: &HashSet<Address>| own.iter().map(|key| (*key, [1, 0, 0, 0])).collect();
        let bits = own.iter().fold(0, |bits, address| bits | 1 << own_bit(address));
        // No address is in the table without its bit.
        self.set_state(State { own: self.state.own | bits, ..self.state })?;
        update(&map(&self.object, "own_addresses")?, &entries(&self.own), &entries(&own))?;
        self.own = own;
        self.set_state(State { own: bits, ..self.state })
    }

    /// Sets the offset and the error of the clock that T2 and T3 are read from.
    ///
    /// # Errors
    /// The table cannot be written.
    pub fn set_clock(&mut self, clock: DriverClock) -> Result<(), BpfError> {
        self.set_state(State { clock, ..self.state })
    }

    /// Sets the state of the interface.
    ///
    /// # Errors
    /// The table cannot be written.
    pub fn set_link(&mut self, link: DriverLink) -> Result<(), BpfError> {
        self.set_state(State { link, ..self.state })
    }

    fn set_state(&mut self, state: State) -> Result<(), BpfError> {
        if self.state == state {
            return Ok(());
        }
        let previous = std::mem::replace(&mut self.state, state);
        self.write_state().inspect_err(|_| self.state = previous)
    }

    /// Writes struct reflect_state.
    fn write_state(&self) -> Result<(), BpfError> {
        let State { clock, link, native, own } = self.state;
        let mut value = [0; 32];
        value[..8].copy_from_slice(&clock.tai_offset.0.to_ne_bytes());
        value[8..12].copy_from_slice(&link.mtu.to_ne_bytes());
        value[12..18].copy_from_slice(&link.mac);
        value[18..20].copy_from_slice(&clock.error_estimate.to_be_bytes());
        value[20] = native.into();
        value[24..].copy_from_slice(&own.to_ne_bytes());
        map(&self.object, "state")?.update(&[0; 4], &value, MapFlags::ANY).map_err(failed)
    }

    /// Counters of the service with this number.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn counters(&self, service: u32) -> Result<DriverCounters, BpfError> {
        let key = service.to_ne_bytes();
        let cpus =
            map(&self.object, "counters")?.lookup_percpu(&key, MapFlags::ANY).map_err(failed)?;
        let mut sum = [0; 8];
        for cpu in cpus.iter().flatten() {
            let (words, _) = cpu.as_chunks();
            sum.iter_mut().zip(words).for_each(|(sum, word)| *sum += u64::from_ne_bytes(*word));
        }
        Ok(DriverCounters::from_array(sum))
    }

    /// The sessions of the program.
    ///
    /// # Errors
    /// The table cannot be opened.
    pub fn sessions(&self) -> Result<DriverSessions, BpfError> {
        let sets = MapHandle::try_from(&map(&self.object, "sessions")?).map_err(failed)?;
        Ok(DriverSessions::new(sets, self.hash))
    }

    /// Run time of the program for the longest STAMP packet that it answers, with cold caches: the
    /// median of 101 runs, of which each includes the start of a run. If a test run has no room for
    /// that packet, the time of a shorter one is scaled in proportion. Clears the destinations.
    ///
    /// # Errors
    /// The kernel refuses a run, or the program sends no reply.
    pub fn run_time(&mut self) -> Result<Nanos, BpfError> {
        let to = SocketAddr::from(([192, 0, 2, 1], 862));
        let service = LAST_SERVICE;
        let stamp = DriverDestination { to, kind: 1, service, local_gap: 0, global_gap: 0 };
        self.set_destinations(&[stamp])?;
        let link = self.state.link;
        let longest = link.mtu.clamp(MIN_STAMP_LEN, MAX_PACKET_LEN);
        let len = longest.min((MAX_TIMED_LEN - ETHERNET_LEN) as u32);
        let frame = stamp_frame(link.mac, self.answered_port, len as u16);
        self.set_link(DriverLink { mtu: longest, ..link })?;
        let runs = (0..101).map(|_| match self.run(&frame, 1)? {
            DriverRun { verdict: Verdict::Reply, duration, .. } => Ok(duration),
            DriverRun { verdict, .. } => {
                let reason = format!("the program answers its test packet with {verdict:?}");
                Err(BpfError::Read { reason })
            }
        });
        let mut times = runs.collect::<Result<Vec<_>, _>>()?;
        times.sort();
        self.set_link(link)?;
        self.set_destinations(&[])?;
        let median = times[times.len() / 2].as_nanos();
        let scaled = (median * u128::from(longest)).div_ceil(u128::from(len));
        Ok(Nanos(i64::try_from(scaled).unwrap_or(i64::MAX)))
    }

    /// Runs the program on a frame `repeat` times, without any interface (BPF_PROG_TEST_RUN). All
    /// runs have one buffer, so a reply is the request of the next run.
    ///
    /// # Errors
    /// The frame is shorter than 14 or longer than 3,500 bytes, or the kernel refuses the run.
    pub fn run(&mut self, frame: &[u8], repeat: u32) -> Result<DriverRun, BpfError> {
        let mut out = vec![0; MAX_RUN_LEN];
        let program = self.object.progs_mut().next().ok_or_else(|| missing("program"))?;
        let input = ProgramInput {
            data_in: Some(frame),
            data_out: Some(&mut out),
            repeat,
            ..ProgramInput::default()
        };
        let output = program.test_run(input).map_err(failed)?;
        let verdict = match output.return_value {
            1 => Verdict::Drop,
            2 => Verdict::Pass,
            3 => Verdict::Reply,
            other => return Err(BpfError::Read { reason: format!("XDP verdict {other}") }),
        };
        let frame = output.data.map_or_else(Vec::new, |data| data.to_vec());
        Ok(DriverRun { verdict, frame, duration: output.duration })
    }
}

/// A STAMP request between documentation addresses (RFC 5737), with padding. `len` is the length of its
/// IPv4 packet, at least [`MIN_STAMP_LEN`].
fn stamp_frame(mac: [u8; 6], from_port: u16, len: u16) -> Vec<u8> {
    let mut frame = vec![0; ETHERNET_LEN + usize::from(len)];
    frame[..6].copy_from_slice(&mac);
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&len.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[192, 0, 2, 2, 192, 0, 2, 1]);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    // No UDP checksum.
    frame[34..36].copy_from_slice(&from_port.to_be_bytes());
    frame[36..38].copy_from_slice(&[0x03, 0x5e]);
    frame[38..40].copy_from_slice(&(len - 20).to_be_bytes());
    frame[86..88].copy_from_slice(&[0x80, 1]);
    frame[88..90].copy_from_slice(&(len - MIN_STAMP_LEN as u16).to_be_bytes());
    frame
}

/// Returns the number of a bit for an address: own_bit() in node/bpf/reflect.bpf.c.
fn own_bit(address: &Address) -> u32 {
    let (words, _) = address.as_chunks();
    let mixed = words.iter().fold(0, |mixed, word| mixed ^ u32::from_ne_bytes(*word));
    mixed.wrapping_mul(0x9e37_79b1) >> 26
}

/// Encodes struct reflect.
fn config(spec: &XdpReflectorSpec, secrets: &[u8; 16]) -> [u8; CONFIG_LEN] {
    let mut bytes = [0; CONFIG_LEN];
    bytes[..16].copy_from_slice(secrets);
    // An odd multiplier loses no bit of a hash.
    let lowest = if cfg!(target_endian = "little") { 8 } else { 15 };
    bytes[lowest] |= 1;
    let (ports, rest) = bytes[16..].split_at_mut(PORTS_LEN);
    for (place, word) in ports.chunks_exact_mut(8).zip(spec.unanswered_ports.iter()) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    if let Some(clock) = spec.clock {
        rest[..12].copy_from_slice(&clock);
        rest[12] = 1;
    }
    rest[13] = spec.is_loopback.into();
    rest[14] = spec.stateless.into();
    bytes
}

/// Writes the difference of two sets of entries, so that an entry that stays is never missing.
fn update<K, V>(map: &Map<'_>, old: &HashMap<K, V>, new: &HashMap<K, V>) -> Result<(), BpfError>
where
    K: AsRef<[u8]> + Eq + Hash,
    V: AsRef<[u8]> + PartialEq,
{
    for (key, value) in new.iter().filter(|(key, value)| old.get(key) != Some(value)) {
        map.update(key.as_ref(), value.as_ref(), MapFlags::ANY).map_err(failed)?;
    }
    for key in old.keys().filter(|key| !new.contains_key(key)) {
        map.delete(key.as_ref()).map_err(failed)?;
    }
    Ok(())
}

fn map<'object>(object: &'object Object, name: &str) -> Result<Map<'object>, BpfError> {
    object.maps().find(|map| map.name() == name).ok_or_else(|| missing(name))
}

fn missing(name: &str) -> BpfError {
    BpfError::Read { reason: format!("'{name}' is missing in the object file") }
}

fn failed(error: libbpf_rs::Error) -> BpfError {
    BpfError::Read { reason: error.to_string() }
}
