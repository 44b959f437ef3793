//! What a relay will do: everything that can be judged from its job, before any socket is opened.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use dwell_engine::relay::cipher::Key;
use dwell_engine::relay::id::Ids;
use dwell_engine::relay::records::{RecordOpener, RecordSealer};
use dwell_engine::relay::salts::{Domain, Salts};
use dwell_engine::relay::seal::{Draw, Prefix};
use dwell_engine::relay::stream::StreamWork;
use dwell_engine::relay::{Work, is_loop};
use dwell_io::{datagram, random, udp};
use dwell_plan::{Cipher, Clear, IdFormat, KeySource, RelayEngine, RelayJob, RelayMode, Stamps};
use dwell_units::Nanos;
use dwell_wire::iperf2;

use super::xdp;
use crate::secret::{self, Secret};
use crate::{Failure, PlaceArgs, Scheme, Target};

/// Most flows that may be asked for.
const MOST_FLOWS: u32 = 1 << 20;

/// Connections at the same time: each takes two threads.
pub(super) const MOST_CONNECTIONS: u32 = 512;

/// How long a client of datagrams is remembered, if the job does not say.
const IDLE: Nanos = Nanos::from_secs(60);

/// How long a connection may be silent, if the job does not say: what RFC 5382 (REQ-5) asks of a NAT,
/// a little longer than the two hours after which the ends ask each other (RFC 1122, 4.2.3.6).
const IDLE_CONNECTION: Nanos = Nanos::from_secs(124 * 60);

/// A job, judged.
pub(super) struct Plan {
    pub(super) scheme: Scheme,
    pub(super) listen: SocketAddr,
    pub(super) to: SocketAddr,
    mode: RelayMode,
    cipher: Cipher,
    key: Option<Key>,
    pub(super) clear: Clear,
    id: IdFormat,
    /// Most clients at a time.
    pub(super) flows: u32,
    /// A client that was idle for longer is forgotten.
    pub(super) idle: Nanos,
}

/// What is done to one direction of a connection.
pub(super) enum StreamCipher {
    /// Nothing, or AES in counter mode.
    Unauthenticated(StreamWork),
    /// Sealed as records.
    Seal(RecordSealer),
    /// Opened from records.
    Open(RecordOpener),
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From a client to where it goes.
    Forward,
    /// Back.
    Backward,
}

impl Plan {
    pub(super) fn new(job: &RelayJob) -> Result<Self, Failure> {
        let usage = |text: String| Err(Failure::usage(text));
        PlaceArgs::from(job.place).check()?;
        let (scheme, listen) = address("--listen", &job.listen, None)?;
        let (same, to) = address("--to", &job.to, Some(listen))?;
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
            return usage(format!("--to {}: it names no machine; give its address", job.to));
        }
        for (flag, url, address) in [("--listen", &job.listen, listen), ("--to", &job.to, to)] {
            if is_of_many(address.ip()) {
                return usage(format!(
                    "{flag} {url}: {} is a broadcast or multicast address; a relay is between two \
                     machines, not many",
                    address.ip()
                ));
            }
        }
        if is_loop(listen, to, datagram::is_ours) {
            return usage(format!(
                "--to {} is where this relay listens: what it sends would come back for ever; \
                 choose another port",
                job.to
            ));
        }
        if job.flows == 0 || job.flows > MOST_FLOWS {
            return usage(format!("invalid value {} for --flows: 1 to {MOST_FLOWS}", job.flows));
        }
        if job.idle.is_some_and(|idle| !idle.is_positive()) {
            return usage("invalid value 0s for --idle: give a time like 60s".to_owned());
        }
        if job.hold.is_some_and(|hold| !(Nanos(0)..=Nanos::from_secs(1)).contains(&hold.time)) {
            return usage("invalid value for --hold: 0s to 1s, like program:200us".to_owned());
        }
        if scheme == Scheme::Tcp {
            check_streams(job)?;
        }
        if job.merge == Some(true)
            && (job.engine != RelayEngine::Batch || job.stamps == Stamps::Kernel)
        {
            return usage(
                "--merge is for --engine batch without the kernel's stamps: what is cut out of one \
                 packet is stamped once"
                    .to_owned(),
            );
        }
        xdp::check(job, listen, to)?;
        let key = match job.mode {
            RelayMode::Translate if matches!(job.key, KeySource::File(_)) => {
                return usage("--key-file is for --mode encrypt and decrypt".to_owned());
            }
            RelayMode::Translate if job.cipher != Cipher::default() => {
                return usage("--cipher is for --mode encrypt and decrypt".to_owned());
            }
            RelayMode::Translate => None,
            RelayMode::Encrypt | RelayMode::Decrypt => Some(key(&job.key)?),
        };
        let (flows, idle) = match scheme {
            Scheme::Tcp => (job.flows.min(MOST_CONNECTIONS), IDLE_CONNECTION),
            _ => (job.flows, IDLE),
        };
        let idle = job.idle.unwrap_or(idle);
        let (mode, cipher, clear, id) = (job.mode, job.cipher, job.clear, job.id);
        Ok(Self { scheme, listen, to, mode, cipher, key, clear, id, flows, idle })
    }

    /// Sockets that so many clients take.
    pub(super) fn sockets(&self) -> u64 {
        let each = if self.scheme == Scheme::Tcp { 2 } else { 1 };
        each * u64::from(self.flows)
    }

    /// What is done to the payloads of datagrams that go this way.
    pub(super) fn work(&self, way: Way) -> Work {
        let Some(key) = self.key.clone() else { return Work::Pass };
        let prefix = match self.clear {
            Clear::Auto => Prefix::Told(iperf2::clear_len),
            Clear::Bytes(bytes) => Prefix::Fixed(bytes.into()),
        };
        match (self.cipher, self.enciphers(way)) {
            (Cipher::Aes128Ctr, true) => Work::seal(key, prefix, draw()),
            (Cipher::Aes128Ctr, false) => Work::open(key, prefix),
            (Cipher::Aes128Gcm, true) => Work::authentic_seal(&key, prefix, self.salts(way)),
            (Cipher::Aes128Gcm, false) => Work::authentic_open(&key, prefix, self.domain(way)),
        }
    }

    /// Where salts for this way start in this process.
    pub(super) fn salts(&self, way: Way) -> Salts {
        Salts::new(self.domain(way), u64::from_be_bytes(drawn()))
    }

    /// The encrypting relay and the decrypting one agree on which way is forward.
    fn domain(&self, way: Way) -> Domain {
        match (self.scheme, way) {
            (Scheme::Tcp, Way::Forward) => Domain::StreamForward,
            (Scheme::Tcp, Way::Backward) => Domain::StreamBackward,
            (_, Way::Forward) => Domain::DatagramForward,
            (_, Way::Backward) => Domain::DatagramBackward,
        }
    }

    /// What is done to a connection's bytes that go this way.
    pub(super) fn stream_cipher(&self, way: Way) -> StreamCipher {
        let (Some(key), Clear::Bytes(clear)) = (self.key.clone(), self.clear) else {
            return StreamCipher::Unauthenticated(StreamWork::pass());
        };
        let clear = clear.into();
        match (self.cipher, self.enciphers(way)) {
            (Cipher::Aes128Ctr, true) => {
                StreamCipher::Unauthenticated(StreamWork::seal(key, clear, drawn()))
            }
            (Cipher::Aes128Ctr, false) => {
                StreamCipher::Unauthenticated(StreamWork::open(key, clear))
            }
            (Cipher::Aes128Gcm, true) => StreamCipher::Seal(RecordSealer::new(&key, clear)),
            (Cipher::Aes128Gcm, false) => {
                StreamCipher::Open(RecordOpener::new(&key, clear, self.domain(way)))
            }
        }
    }

    /// The way that a relay with a cipher seals.
    pub(super) fn sealing_way(&self) -> Way {
        if self.enciphers(Way::Forward) { Way::Forward } else { Way::Backward }
    }

    /// Whether what goes this way is enciphered; `false` too where nothing is.
    pub(super) fn enciphers(&self, way: Way) -> bool {
        match self.mode {
            RelayMode::Translate => false,
            RelayMode::Encrypt => way == Way::Forward,
            RelayMode::Decrypt => way == Way::Backward,
        }
    }

    /// Whether payloads are ciphered at all.
    pub(super) fn is_ciphering(&self) -> bool {
        self.key.is_some()
    }

    /// The cipher; `None` where payloads pass as they are.
    pub(super) fn cipher(&self) -> Option<Cipher> {
        self.is_ciphering().then_some(self.cipher)
    }

    /// How the packets of a new flow get their ids.
    pub(super) fn ids(&self) -> Ids {
        match self.id {
            IdFormat::Auto => Ids::guessed(),
            asked => Ids::of(crate::id::format(asked)),
        }
    }
}

/// Judges what is asked of a relay of connections, and only datagrams have.
fn check_streams(job: &RelayJob) -> Result<(), Failure> {
    let wrong = |text: &str| Err(Failure::usage(text));
    if job.clear == Clear::Auto {
        return wrong("--clear auto reads the headers of datagrams; give a number for tcp://");
    }
    if job.telemetry {
        return wrong("--telemetry fills slots of STAMP packets: it is for udp:// only");
    }
    if job.engine != RelayEngine::Socket || job.hold.is_some() {
        return wrong("--engine and --hold are for udp:// only");
    }
    if job.place.busy_poll {
        return wrong("--busy-poll is for udp:// only: the threads of connections sleep");
    }
    if job.stamps == Stamps::Kernel {
        return wrong(
            "--stamps kernel is for udp:// only: of a stream the kernel stamps segments; --stamps \
             auto takes the program's own",
        );
    }
    if !matches!(job.id, IdFormat::Auto | IdFormat::None) {
        return wrong("--id is for udp:// only: pieces of a stream are numbered as they come");
    }
    Ok(())
}

/// Salts from the kernel.
fn draw() -> Draw {
    Box::new(drawn)
}

/// Random bytes. A kernel that gives none cannot be relied on for anything.
fn drawn<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    random::fill(&mut bytes).expect("every Linux since 3.17 has random numbers");
    bytes
}

fn key(source: &KeySource) -> Result<Key, Failure> {
    let file = match source {
        KeySource::Random => return Ok(Key::new(drawn())),
        KeySource::File(path) => Some(path.as_path()),
        KeySource::Environment => None,
    };
    let Some(Secret { text, source }) = secret::find(file)? else {
        return Err(Failure::usage(
            "--mode encrypt and decrypt need a key: give --key-file FILE, or set the environment \
             variable DWELL_KEY (32 hexadecimal digits; `openssl rand -hex 16` makes some)",
        ));
    };
    Key::from_hex(&text).map_err(|error| Failure::usage(format!("{source}: {error}")))
}

/// Reads a URL and resolves its host, to the family of `like` where there is a choice.
fn address(
    flag: &str,
    url: &str,
    like: Option<SocketAddr>,
) -> Result<(Scheme, SocketAddr), Failure> {
    let wrong = |why: String| Failure::usage(format!("{flag} {url}: {why}"));
    let target = Target::with_scheme(url).map_err(|error| wrong(error.to_string()))?;
    if !matches!(target.scheme, Scheme::Udp | Scheme::Tcp) {
        return Err(wrong("a relay is for udp://ADDRESS:PORT or tcp://ADDRESS:PORT".to_owned()));
    }
    let resolved = (target.host.as_str(), target.port).to_socket_addrs();
    let found: Vec<_> = resolved
        .map_err(|error| {
            wrong(format!("cannot resolve '{}': {error}; give an address", target.host))
        })?
        .collect();
    let alike = found.iter().find(|a| like.is_some_and(|like| like.is_ipv4() == a.is_ipv4()));
    let address = alike.or(found.first()).copied();
    let mut address = address.ok_or_else(|| wrong(format!("'{}' has no address", target.host)))?;
    // An IPv4 address that is written as an IPv6 one is still that of IPv4.
    address.set_ip(address.ip().to_canonical());
    Ok((target.scheme, address))
}

fn is_of_many(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast() || udp::is_broadcast(v4),
        IpAddr::V6(v6) => v6.is_multicast(),
    }
}
