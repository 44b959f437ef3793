//! Validated job of a relay: all checks that need no open socket.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use dwell_engine::protocol::RelayTransport;
use dwell_engine::relay::cipher::Key;
use dwell_engine::relay::datagram_ctr::{Prefix, SaltSource};
use dwell_engine::relay::packet_ids::Ids;
use dwell_engine::relay::salts::{Domain, Salts};
use dwell_engine::relay::stream_ctr::StreamTransform;
use dwell_engine::relay::stream_gcm::{RecordOpener, RecordSealer};
use dwell_engine::relay::{PayloadTransform, is_loop};
use dwell_io::{datagram, random};
use dwell_protocol::{
    Cipher, ClearPrefix, IdFormat, KeySource, RelayEngine, RelayJob, RelayMode, RelayParameters,
    Stamps,
};
use dwell_units::Nanos;
use dwell_wire::iperf2;

use super::xdp;
use crate::secret::{self, Secret};
use crate::{Failure, Scheme, Target, placement};

/// Maximum of `--flows`.
const MAX_FLOWS: u32 = 1 << 20;

/// Maximum number of TCP connections: each takes two threads.
pub(super) const MAX_CONNECTIONS: u32 = 512;

/// Default idle time of a datagram client.
const DEFAULT_IDLE: Nanos = Nanos::from_secs(60);

/// Default idle time of a connection: RFC 5382 (REQ-5) requires 2 h 4 min of a NAT, slightly more
/// than the 2 h TCP keep-alive interval (RFC 1122, 4.2.3.6).
const DEFAULT_CONNECTION_IDLE: Nanos = Nanos::from_secs(124 * 60);

/// A validated job.
pub(super) struct RelaySetup {
    pub(super) scheme: Scheme,
    pub(super) transport: RelayTransport,
    pub(super) listen: SocketAddr,
    pub(super) to: SocketAddr,
    mode: RelayMode,
    cipher: Cipher,
    key: Option<Key>,
    pub(super) clear: ClearPrefix,
    id: IdFormat,
    /// Maximum number of clients.
    pub(super) flows: u32,
    /// Idle time after which a client is forgotten.
    pub(super) idle: Nanos,
}

/// Processing of one direction of a connection.
pub(super) enum StreamCipher {
    /// Unchanged, or AES in counter mode.
    Unauthenticated(StreamTransform),
    /// Sealed into records.
    Seal(RecordSealer),
    /// Opened from records.
    Open(RecordOpener),
}

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowDirection {
    /// From a client to the far end.
    Forward,
    /// From the far end to the client.
    Backward,
}

impl RelaySetup {
    pub(super) fn new(job: &RelayJob) -> Result<Self, Failure> {
        let usage = |text: String| Err(Failure::usage(text));
        placement::check(&job.place)?;
        let (scheme, transport, listen) = address("--listen", &job.listen, None)?;
        let (same, _, to) = address("--to", &job.to, Some(listen))?;
        if same != scheme {
            return usage(format!(
                "--listen {} and --to {}: one is {}, the other {}; a relay does not change the \
                 protocol",
                job.listen,
                job.to,
                scheme.name(),
                same.name()
            ));
        }
        if to.ip().is_unspecified() {
            return usage(format!("--to {}: names no machine; give an address", job.to));
        }
        for (flag, url, address) in [("--listen", &job.listen, listen), ("--to", &job.to, to)] {
            if is_multicast_or_broadcast(address.ip()) {
                return usage(format!(
                    "{flag} {url}: {} is a broadcast or multicast address; a relay connects two \
                     machines; give a unicast address",
                    address.ip()
                ));
            }
        }
        if is_loop(listen, to, datagram::is_ours) {
            return usage(format!(
                "--to {} is where this relay listens: packets would loop for ever; choose another \
                 port",
                job.to
            ));
        }
        if job.flows == 0 || job.flows > MAX_FLOWS {
            return usage(format!("invalid value {} for --flows: 1 to {MAX_FLOWS}", job.flows));
        }
        if job.idle.is_some_and(|idle| !idle.is_positive()) {
            return usage("invalid value 0s for --idle: give a time like 60s".to_owned());
        }
        if job.hold.is_some_and(|hold| !(Nanos(0)..=Nanos::from_secs(1)).contains(&hold.time)) {
            return usage("invalid value for --hold: 0s to 1s, like program:200us".to_owned());
        }
        if transport == RelayTransport::Streams {
            check_streams(job)?;
        }
        let RelayParameters { engine, cipher, stamps, .. } = job.parameters;
        if job.merge == Some(true) && (!engine.can_merge() || stamps == Stamps::Kernel) {
            return usage(
                "--merge is for --engine batch without --stamps kernel: a segmented buffer is \
                 stamped once"
                    .to_owned(),
            );
        }
        xdp::check(job, listen, to)?;
        let key = match job.mode {
            RelayMode::Translate if matches!(job.key, KeySource::File(_)) => {
                return usage("--key-file is for --mode encrypt and decrypt".to_owned());
            }
            RelayMode::Translate if cipher != Cipher::default() => {
                return usage("--cipher is for --mode encrypt and decrypt".to_owned());
            }
            RelayMode::Translate => None,
            RelayMode::Encrypt | RelayMode::Decrypt => Some(key(&job.key)?),
        };
        let (flows, idle) = match transport {
            RelayTransport::Streams => (job.flows.min(MAX_CONNECTIONS), DEFAULT_CONNECTION_IDLE),
            RelayTransport::Datagrams => (job.flows, DEFAULT_IDLE),
        };
        let idle = job.idle.unwrap_or(idle);
        let (mode, clear, id) = (job.mode, job.clear(), job.id);
        Ok(Self { scheme, transport, listen, to, mode, cipher, key, clear, id, flows, idle })
    }

    /// Returns the number of sockets that the maximum number of clients needs.
    pub(super) fn sockets(&self) -> u64 {
        let each = match self.transport {
            RelayTransport::Datagrams => 1,
            RelayTransport::Streams => 2,
        };
        each * u64::from(self.flows)
    }

    /// Returns the processing of datagram payloads in this direction.
    pub(super) fn transform(&self, direction: FlowDirection) -> PayloadTransform {
        let Some(key) = self.key.clone() else { return PayloadTransform::Pass };
        let prefix = match self.clear {
            ClearPrefix::Auto => Prefix::FromPayload(iperf2::clear_len),
            ClearPrefix::Bytes(bytes) => Prefix::Fixed(bytes.into()),
        };
        match (self.cipher, self.enciphers(direction)) {
            (Cipher::Aes128Ctr, true) => PayloadTransform::seal(key, prefix, salt_source()),
            (Cipher::Aes128Ctr, false) => PayloadTransform::open(key, prefix),
            (Cipher::Aes128Gcm, true) => {
                PayloadTransform::authentic_seal(&key, prefix, self.salts(direction))
            }
            (Cipher::Aes128Gcm, false) => {
                PayloadTransform::authentic_open(&key, prefix, self.domain(direction))
            }
        }
    }

    /// Returns a salt generator for this direction, with a random start.
    pub(super) fn salts(&self, direction: FlowDirection) -> Salts {
        Salts::new(self.domain(direction), u64::from_be_bytes(random_bytes()))
    }

    /// Returns the cipher domain, which the encrypting and the decrypting relay must agree on.
    fn domain(&self, direction: FlowDirection) -> Domain {
        match (self.transport, direction) {
            (RelayTransport::Streams, FlowDirection::Forward) => Domain::StreamForward,
            (RelayTransport::Streams, FlowDirection::Backward) => Domain::StreamBackward,
            (RelayTransport::Datagrams, FlowDirection::Forward) => Domain::DatagramForward,
            (RelayTransport::Datagrams, FlowDirection::Backward) => Domain::DatagramBackward,
        }
    }

    /// Returns the processing of a connection's bytes in this direction.
    pub(super) fn stream_cipher(&self, direction: FlowDirection) -> StreamCipher {
        let (Some(key), ClearPrefix::Bytes(clear)) = (self.key.clone(), self.clear) else {
            return StreamCipher::Unauthenticated(StreamTransform::pass());
        };
        let clear = clear.into();
        match (self.cipher, self.enciphers(direction)) {
            (Cipher::Aes128Ctr, true) => {
                StreamCipher::Unauthenticated(StreamTransform::seal(key, clear, random_bytes()))
            }
            (Cipher::Aes128Ctr, false) => {
                StreamCipher::Unauthenticated(StreamTransform::open(key, clear))
            }
            (Cipher::Aes128Gcm, true) => StreamCipher::Seal(RecordSealer::new(&key, clear)),
            (Cipher::Aes128Gcm, false) => {
                StreamCipher::Open(RecordOpener::new(&key, clear, self.domain(direction)))
            }
        }
    }

    /// Returns the direction in which a relay with a cipher encrypts.
    pub(super) fn sealing_direction(&self) -> FlowDirection {
        if self.enciphers(FlowDirection::Forward) {
            FlowDirection::Forward
        } else {
            FlowDirection::Backward
        }
    }

    /// Whether this direction is encrypted; `false` without a cipher.
    pub(super) fn enciphers(&self, direction: FlowDirection) -> bool {
        match self.mode {
            RelayMode::Translate => false,
            RelayMode::Encrypt => direction == FlowDirection::Forward,
            RelayMode::Decrypt => direction == FlowDirection::Backward,
        }
    }

    /// Whether payloads are encrypted or decrypted.
    pub(super) fn is_ciphering(&self) -> bool {
        self.key.is_some()
    }

    /// Returns the cipher; `None` if payloads pass unchanged.
    pub(super) fn cipher(&self) -> Option<Cipher> {
        self.is_ciphering().then_some(self.cipher)
    }

    /// Returns the packet numbering of a new flow.
    pub(super) fn ids(&self) -> Ids {
        match self.id {
            IdFormat::Auto => Ids::detecting(),
            requested => Ids::of(crate::id::format(requested)),
        }
    }
}

/// Rejects options of a TCP relay that apply to datagrams only.
fn check_streams(job: &RelayJob) -> Result<(), Failure> {
    let wrong = |text: &str| Err(Failure::usage(text));
    let RelayParameters { clear, engine, stamps, .. } = job.parameters;
    if clear == Some(ClearPrefix::Auto) {
        return wrong("--clear auto reads the headers of datagrams; give a number for tcp://");
    }
    if job.telemetry {
        return wrong("--telemetry fills slots of STAMP packets and is for udp:// only");
    }
    if engine != RelayEngine::default() || job.hold.is_some() {
        return wrong("--engine and --hold are for udp:// only");
    }
    if job.place.busy_poll {
        return wrong("--busy-poll is for udp:// only: threads of connections block");
    }
    if stamps == Stamps::Kernel {
        return wrong(
            "--stamps kernel is for udp:// only: the kernel timestamps segments, not parts of a \
             stream; use --stamps auto",
        );
    }
    if !matches!(job.id, IdFormat::Auto | IdFormat::None) {
        return wrong("--id is for udp:// only: reads of a stream are numbered in order");
    }
    Ok(())
}

/// Returns a source of salts from the kernel.
fn salt_source() -> SaltSource {
    Box::new(random_bytes)
}

/// Returns random bytes. A kernel that cannot provide them cannot be used at all.
fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    random::fill(&mut bytes).expect("getrandom works on Linux 3.17 and later");
    bytes
}

fn key(source: &KeySource) -> Result<Key, Failure> {
    let file = match source {
        KeySource::Random => return Ok(Key::new(random_bytes())),
        KeySource::File(path) => Some(path.as_path()),
        KeySource::Environment => None,
    };
    let Some(Secret { text, source }) = secret::find(file)? else {
        return Err(Failure::usage(
            "--mode encrypt and decrypt need a key: give --key-file FILE, or set the environment \
             variable DWELL_KEY (32 hexadecimal digits, as from `openssl rand -hex 16`)",
        ));
    };
    Key::from_hex(&text).map_err(|error| Failure::usage(format!("{source}: {error}")))
}

/// Parses a URL and resolves its host, preferring the address family of `like`. Returns its scheme,
/// what a relay forwards for it, and the address.
fn address(
    flag: &str,
    url: &str,
    like: Option<SocketAddr>,
) -> Result<(Scheme, RelayTransport, SocketAddr), Failure> {
    let wrong = |why: String| Failure::usage(format!("{flag} {url}: {why}"));
    let target = Target::with_scheme(url).map_err(|error| wrong(error.to_string()))?;
    let transport = target.scheme.spec().relay.ok_or_else(|| {
        let urls = Scheme::with(|spec| spec.relay.is_some());
        let urls: Vec<_> = urls.map(|scheme| format!("{scheme}://ADDRESS:PORT")).collect();
        wrong(format!("a relay is for {}", urls.join(" or ")))
    })?;
    let resolved = (target.host.as_str(), target.port).to_socket_addrs();
    let found: Vec<_> = resolved
        .map_err(|error| {
            wrong(format!("cannot resolve '{}': {error}; give an address", target.host))
        })?
        .collect();
    let alike = found.iter().find(|a| like.is_some_and(|like| like.is_ipv4() == a.is_ipv4()));
    let address = alike.or(found.first()).copied();
    let mut address = address.ok_or_else(|| wrong(format!("'{}' has no address", target.host)))?;
    // An IPv4-mapped IPv6 address is an IPv4 address.
    address.set_ip(address.ip().to_canonical());
    Ok((target.scheme, transport, address))
}

fn is_multicast_or_broadcast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast() || datagram::is_broadcast(v4),
        IpAddr::V6(v6) => v6.is_multicast(),
    }
}
