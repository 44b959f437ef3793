//! The work of a relay: transformations of payloads, which are pure functions on buffers, and the
//! bounded flow table. Sockets, clocks and timestamps belong to the caller.

pub mod aead;
pub mod cipher;
pub mod datagram_ctr;
pub mod datagram_gcm;
pub mod flows;
pub mod packet_ids;
pub mod salt_windows;
pub mod salts;
pub mod stream_ctr;
pub mod stream_gcm;

use std::net::SocketAddr;
use std::ops::Range;

use cipher::Key;
use datagram_ctr::{NONCE_LEN, Opener, Prefix, SaltSource, SealError, Sealer};
use datagram_gcm::{AuthenticOpener, AuthenticSealer};
use salts::{Domain, Salts};

/// Bytes that must be free before a payload for [`PayloadTransform::pass`].
pub const HEADROOM: usize = NONCE_LEN;

/// Transformation of the payloads of one direction.
#[derive(Debug)]
pub enum PayloadTransform {
    /// None.
    Pass,
    /// Encrypts.
    Seal(Box<Sealer>),
    /// Decrypts.
    Open(Box<Opener>),
    /// Encrypts and authenticates.
    AuthenticSeal(Box<AuthenticSealer>),
    /// Verifies and decrypts.
    AuthenticOpen(Box<AuthenticOpener>),
}

/// Result of a transformation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transformed {
    /// Forward the payload at this range.
    On(Range<usize>),
    /// Forward the payload unchanged: it has nothing beyond its clear bytes.
    Short(Range<usize>),
    /// Do not forward the payload.
    Refused(SealError),
}

impl PayloadTransform {
    /// Encrypts with `key`; see [`Sealer::new`].
    pub fn seal(key: Key, prefix: Prefix, draw: SaltSource) -> Self {
        Self::Seal(Box::new(Sealer::new(key, prefix, draw)))
    }

    /// Decrypts with `key`.
    pub fn open(key: Key, prefix: Prefix) -> Self {
        Self::Open(Box::new(Opener::new(key, prefix)))
    }

    /// Encrypts and authenticates with `key`; see [`AuthenticSealer::new`].
    pub fn authentic_seal(key: &Key, prefix: Prefix, salts: Salts) -> Self {
        Self::AuthenticSeal(Box::new(AuthenticSealer::new(key, prefix, salts)))
    }

    /// Verifies and decrypts with `key`.
    pub fn authentic_open(key: &Key, prefix: Prefix, domain: Domain) -> Self {
        Self::AuthenticOpen(Box::new(AuthenticOpener::new(key, prefix, domain)))
    }

    /// Whether payloads become longer.
    pub fn grows(&self) -> bool {
        matches!(self, Self::Seal(_) | Self::AuthenticSeal(_))
    }

    /// Whether payloads are readable only afterwards.
    pub fn opens(&self) -> bool {
        matches!(self, Self::Open(_) | Self::AuthenticOpen(_))
    }

    /// Whether forged packets are refused.
    pub fn authenticates(&self) -> bool {
        matches!(self, Self::AuthenticOpen(_))
    }

    /// Transforms the payload at `at` of `buffer`. Needs [`HEADROOM`] free bytes before it, and
    /// [`datagram_gcm::TRAILER_LEN`] after it unless the datagram already has the maximum length.
    pub fn pass(&mut self, buffer: &mut [u8], at: Range<usize>) -> Transformed {
        let result = match self {
            Self::Pass => return Transformed::On(at),
            Self::Seal(sealer) => sealer.seal(buffer, at.clone()),
            Self::Open(opener) => opener.open(buffer, at.clone()),
            Self::AuthenticSeal(sealer) => sealer.seal(buffer, at.clone()),
            Self::AuthenticOpen(opener) => opener.open(buffer, at.clone()),
        };
        match result {
            Ok(now) => Transformed::On(now),
            Err(SealError::Short) => Transformed::Short(at),
            Err(error) => Transformed::Refused(error),
        }
    }

    /// Prepares one step of the work for the next payload. Returns whether there was anything to
    /// prepare.
    pub fn prepare(&mut self) -> bool {
        match self {
            Self::Pass | Self::AuthenticSeal(_) | Self::AuthenticOpen(_) => false,
            Self::Seal(sealer) => sealer.prepare(),
            Self::Open(opener) => opener.prepare(),
        }
    }

    /// Touches the memory that the next payload needs, to keep it in the caches. For busy-polling
    /// callers.
    pub fn touch_caches(&self) {
        match self {
            Self::Pass | Self::AuthenticSeal(_) | Self::AuthenticOpen(_) => {}
            Self::Seal(sealer) => sealer.touch_caches(),
            Self::Open(opener) => opener.touch_caches(),
        }
    }
}

/// Whether packets sent to `to` return to a relay that listens on `listen`. `is_ours` tells whether
/// an address belongs to this machine. An IPv4-mapped IPv6 address is treated as the IPv4 address
/// (RFC 4291, section 2.5.5.2).
pub fn is_loop(listen: SocketAddr, to: SocketAddr, is_ours: impl Fn(SocketAddr) -> bool) -> bool {
    let [here, there] = [listen, to].map(|address| address.ip().to_canonical());
    let reaches = here == there || (here.is_unspecified() && is_ours(to));
    listen.port() == to.port() && reaches && here.is_ipv4() == there.is_ipv4()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_is_detected_through_wildcard_addresses() {
        let loops = |listen: &str, to: &str| {
            let ours = |to: SocketAddr| to.ip().to_canonical().to_string() == "192.0.2.1";
            is_loop(listen.parse().unwrap(), to.parse().unwrap(), ours)
        };
        assert!(loops("127.0.0.1:7", "127.0.0.1:7"));
        assert!(loops("0.0.0.0:7", "192.0.2.1:7"));
        assert!(loops("127.0.0.1:7", "[::ffff:127.0.0.1]:7"), "the same address");
        assert!(loops("0.0.0.0:7", "[::ffff:192.0.2.1]:7"));
        assert!(loops("[::ffff:127.0.0.1]:7", "127.0.0.1:7"));
        assert!(!loops("0.0.0.0:7", "192.0.2.2:7"), "another machine's");
        assert!(!loops("0.0.0.0:7", "192.0.2.1:8"), "another port");
        assert!(!loops("127.0.0.1:7", "127.0.0.2:7"), "another address");
        assert!(!loops("[::]:7", "192.0.2.1:7"), "IPv6 sockets take IPv6 only");
        assert!(!loops("[::]:7", "[::ffff:192.0.2.1]:7"), "this is IPv4");
    }

    #[test]
    fn relay_pair_restores_payloads_and_passes_short_ones() {
        let key = Key::new([1; 16]);
        let prefix = Prefix::Fixed(12);
        let mut seal = PayloadTransform::seal(key.clone(), prefix, Box::new(|| [3; 8]));
        let mut open = PayloadTransform::open(key, prefix);
        for len in [0, 12, 13, 100, 1_400] {
            let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let mut buffer = [&[0; HEADROOM][..], &payload].concat();
            let there = match seal.pass(&mut buffer, HEADROOM..HEADROOM + len) {
                Transformed::On(at) if len > 12 => at,
                Transformed::Short(at) if len <= 12 => at,
                other => panic!("{len}: {other:?}"),
            };
            match open.pass(&mut buffer, there) {
                Transformed::On(at) | Transformed::Short(at) => {
                    assert_eq!(buffer[at], payload, "{len}")
                }
                other => panic!("{len}: {other:?}"),
            }
        }
        let unsealed = open.pass(&mut [0; 30], 12..30);
        assert_eq!(unsealed, Transformed::Refused(SealError::Unsealed));
    }
}
