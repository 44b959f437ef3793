//! Datagrams that a reflector on a hostile network may receive.

use dwell_node_cli::Scheme;
use dwell_wire::hmac::{self, Key, SecretKey};
use dwell_wire::roundtrip::{self, Control, Message};
use dwell_wire::stamp::{self, Mode, Request};
use dwell_wire::text::REQUEST;
use dwell_wire::tlv::{self, kind};
use rand::{Rng, RngExt};
use serde::Serialize;

/// Datagrams per pool; the attacker repeats them.
const POOL_SIZE: usize = 32_768;

/// Maximum payload of an Ethernet frame of 1,500 bytes.
const MAX_LEN: usize = 1_472;

/// Maximum length of a STAMP request without its HMAC TLV.
const MAX_TLV_LEN: usize = 400;

/// The key of the authenticated reflector, in hexadecimal digits.
pub(super) const KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// A UDP protocol of the reflectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Protocol {
    Stamp,
    StampKey,
    Udp,
    Roundtrip,
    Text,
}

impl Protocol {
    pub(super) const ALL: [Self; 5] =
        [Self::Stamp, Self::StampKey, Self::Udp, Self::Roundtrip, Self::Text];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::StampKey => "stamp with key",
            open => open.scheme().name(),
        }
    }

    pub(super) const fn scheme(self) -> Scheme {
        match self {
            Self::Stamp | Self::StampKey => Scheme::Stamp,
            Self::Udp => Scheme::Udp,
            Self::Roundtrip => Scheme::Roundtrip,
            Self::Text => Scheme::TextUdp,
        }
    }

    pub(super) const fn port(self) -> u16 {
        7_301 + self as u16
    }

    /// Maximum length of a reply that may exceed its request; 0 if none may.
    pub(super) const fn longer_reply(self) -> u64 {
        let spec = self.scheme().spec();
        match spec.max_extra_bytes() {
            0 => 0,
            extra => spec.payload.default + extra,
        }
    }
}

/// How the datagrams of a pool are generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Valid,
    Mutated,
    Truncated,
    Random,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Valid, Self::Mutated, Self::Truncated, Self::Random];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Mutated => "mutated",
            Self::Truncated => "truncated",
            Self::Random => "random",
        }
    }

    /// Whether the attacker changes one more byte of every datagram.
    pub(super) const fn is_mutated(self) -> bool {
        matches!(self, Self::Mutated | Self::Random)
    }
}

/// Generates a pool for the attacker: datagrams, each after its length as a big-endian u16.
pub(super) fn pool(protocol: Protocol, kind: Kind, random: &mut impl Rng) -> Vec<u8> {
    let mut pool = Vec::new();
    for _ in 0..POOL_SIZE {
        let datagram = datagram(protocol, kind, random);
        pool.extend((datagram.len() as u16).to_be_bytes());
        pool.extend(datagram);
    }
    pool
}

fn datagram(protocol: Protocol, kind: Kind, random: &mut impl Rng) -> Vec<u8> {
    let mut datagram = match kind {
        Kind::Random => noise(random),
        _ => request(protocol, random),
    };
    match kind {
        Kind::Mutated => {
            for _ in 0..random.random_range(1..=8) {
                let at = random.random_range(0..datagram.len());
                datagram[at] = random.random();
            }
        }
        Kind::Truncated => datagram.truncate(random.random_range(0..datagram.len())),
        Kind::Valid | Kind::Random => {}
    }
    datagram
}

/// Half of the datagrams are as short as most probes.
fn noise(random: &mut impl Rng) -> Vec<u8> {
    let max = if random.random() { 150 } else { MAX_LEN };
    let mut noise = vec![0; random.random_range(0..=max)];
    random.fill_bytes(&mut noise);
    noise
}

fn request(protocol: Protocol, random: &mut impl Rng) -> Vec<u8> {
    match protocol {
        Protocol::Stamp => stamp(None, random),
        Protocol::StampKey => stamp(Some(&key()), random),
        Protocol::Udp => {
            let mut message = vec![0; random.random_range(1..=MAX_LEN)];
            random.fill_bytes(&mut message);
            message
        }
        Protocol::Roundtrip => {
            let mut message = vec![0; roundtrip::LEN];
            let (seconds, nanoseconds) = (random.random(), random.random());
            Message { seconds, nanoseconds, id: random.random(), control: Control::Request }
                .emit(&mut message);
            message
        }
        Protocol::Text => {
            let ends: [&[u8]; 3] = [b"", b"\n", b"\r\n"];
            [REQUEST, ends[random.random_range(0..ends.len())]].concat()
        }
    }
}

/// The key of the authenticated reflector.
fn key() -> Key {
    Key::new(SecretKey::from_hex(KEY).expect("the constant is a key").bytes())
}

/// Generates a STAMP request with TLVs of arbitrary types.
fn stamp(key: Option<&Key>, random: &mut impl Rng) -> Vec<u8> {
    let mode = if key.is_some() { Mode::Authenticated } else { Mode::Unauthenticated };
    let mut packet = vec![0; mode.base()];
    let (seq, timestamp) = (random.random(), random.random());
    Request { seq, timestamp, error: 1, ssid: random.random() }.emit(&mut packet, mode);
    for _ in 0..random.random_range(0..6) {
        let (kind, value) = extension(random);
        if packet.len() + tlv::HEADER + value.len() <= MAX_TLV_LEN {
            push(&mut packet, kind, &value);
        }
    }
    if let Some(key) = key {
        let at = packet.len() - mode.base();
        push(&mut packet, kind::HMAC, &[0; hmac::LEN]);
        tlv::sign(key, seq.to_be_bytes(), &mut packet[mode.base()..], at);
        stamp::sign(key, &mut packet);
    }
    packet
}

fn extension(random: &mut impl Rng) -> (u8, Vec<u8>) {
    let mut known = |kind, magic: &[u8], len: usize| {
        let mut value = vec![0; len];
        random.fill_bytes(&mut value);
        value[..magic.len()].copy_from_slice(magic);
        (kind, value)
    };
    let all = [
        known(kind::TIMESTAMP_INFORMATION, &[], 4),
        known(kind::TIMESTAMP_INFORMATION, &[], 20),
        known(kind::CLASS_OF_SERVICE, &[], 4),
        known(kind::DIRECT_MEASUREMENT, &[], 12),
        known(kind::NODE_CLOCK, &tlv::NODE_CLOCK_MAGIC, tlv::NODE_CLOCK_LEN),
        known(kind::SOCKET_DROPS, &tlv::SOCKET_DROPS_MAGIC, tlv::SOCKET_DROPS_LEN),
        known(kind::PATH, &dwell_wire::telemetry::MAGIC, 40),
        known(kind::EXTRA_PADDING, &[], 30),
    ];
    match random.random_range(0..10) {
        // Unassigned type and arbitrary length.
        n @ 8.. => (random.random(), vec![n; random.random_range(0..60)]),
        n => all[usize::from(n)].clone(),
    }
}

fn push(packet: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let at = packet.len();
    packet.resize(at + tlv::HEADER + value.len(), 0);
    let (place, _) = tlv::begin(&mut packet[at..], kind, value.len() as u16);
    place.copy_from_slice(value);
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn every_pool_holds_datagrams_of_its_kind() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        for protocol in Protocol::ALL {
            for kind in Kind::ALL {
                for _ in 0..1_000 {
                    let datagram = datagram(protocol, kind, &mut random);
                    assert!(datagram.len() <= MAX_LEN, "{protocol:?} {kind:?}");
                }
            }
        }
    }

    #[test]
    fn valid_requests_with_a_key_are_authentic() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let key = key();
        for _ in 0..1_000 {
            let mut packet = stamp(Some(&key), &mut random);
            assert!(stamp::verify(&key, &packet));
            let seq = [packet[0], packet[1], packet[2], packet[3]];
            let area = &mut packet[Mode::Authenticated.base()..];
            assert_ne!(tlv::verify(&key, seq, area), tlv::Integrity::Bad);
        }
    }
}
