//! STAMP sessions of the reflector in the driver, found as in find_session() of
//! node/bpf/reflect_stamp.bpf.h.

use std::net::SocketAddr;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::reflect_spec::octets;

/// SESSION_SETS and SESSION_SPREAD in node/bpf/reflect.bpf.h.
const SETS: u64 = 2_048;
const SPREAD: u64 = 128;

/// Length of struct session.
const SESSION_LEN: usize = 32;

/// Sessions of the program, readable from any thread.
#[derive(Debug)]
pub struct DriverSessions {
    sets: MapHandle,
    hash: SessionHash,
}

/// Secrets of the program's hashes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionHash {
    pub(super) seed: u64,
    pub(super) multiplier: u64,
}

impl SessionHash {
    fn mixed(self, hash: u64, word: u64) -> u64 {
        let hash = (hash ^ word).wrapping_mul(self.multiplier);
        hash ^ hash >> 29
    }

    /// Returns the number of the set and the key of a session.
    fn locate(self, service: u32, from: SocketAddr, ssid: u16) -> (u32, u64) {
        let octets = octets(from.ip());
        let (words, _) = octets.as_chunks();
        let word = |n: usize| u64::from(u32::from_le_bytes(words[n]));
        let wire = |of: u16| u64::from(u16::from_le_bytes(of.to_be_bytes()));
        let hash = self.mixed(self.seed, word(0) << 32 | word(1));
        let hash = self.mixed(hash, u64::from(service) << 16 | wire(from.port()));
        let source = self.mixed(hash, word(2) << 32 | word(3)) | 1;
        let key = self.mixed(source, wire(ssid)) | 1;
        let owner = match from.ip().to_canonical().is_ipv4() {
            true => self.mixed(self.seed, word(3)),
            false => self.mixed(self.seed, word(0) << 32 | word(1) & 0x00ff_ffff),
        };
        let set = ((owner >> 32) + (key >> 32) % SPREAD) % SETS;
        (set as u32, key)
    }
}

impl DriverSessions {
    pub(super) fn new(sets: MapHandle, hash: SessionHash) -> Self {
        Self { sets, hash }
    }

    /// Number of replies of the program to a session of a service.
    pub fn replies(&self, service: u32, from: SocketAddr, ssid: u16) -> u32 {
        let (set, key) = self.hash.locate(service, from, ssid);
        let found = self.sets.lookup(&set.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        let set = found.unwrap_or_default();
        let (sessions, _) = set.as_chunks::<SESSION_LEN>();
        let session = sessions.iter().find(|session| session.starts_with(&key.to_ne_bytes()));
        session.map_or(0, |session| u32::from_ne_bytes(std::array::from_fn(|n| session[20 + n])))
    }
}
