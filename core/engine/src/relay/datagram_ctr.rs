//! Encrypted datagrams: the clear bytes, a nonce of 12 bytes (8 of salt, 4 of a packet counter,
//! big-endian), then the rest, encrypted with AES-128-CTR. The first counter block is the salt, the
//! packet counter and 4 zero bytes. `docs/relay.md` describes the format.
//!
//! A pair of salt and packet counter is never used twice with one key: a salt is drawn for each
//! process and direction, and again before the packet counter would wrap.

use std::fmt;
use std::hint::black_box;
use std::ops::Range;

use super::cipher::{BLOCK, Key, Keystream};

/// Bytes added to an encrypted datagram.
pub const NONCE_LEN: usize = 12;

const SALT_LEN: usize = 8;

/// Number of packets whose keystream is prepared in advance.
const PREPARED_KEYSTREAMS: usize = 32;

/// Maximum length of a prepared keystream: a packet of Ethernet's MTU. The rest is computed when
/// the packet arrives.
const MAX_KEYSTREAM_LEN: usize = 1_536;

/// Length of a cache line. Where lines are longer, some are touched twice.
const CACHE_LINE: usize = 64;

/// Maximum number of times a salt is redrawn because the receiver would mistake it for part of the
/// header. This is rare; a source that never returns a suitable salt is broken.
const MAX_REDRAWS: usize = 64;

/// Returns the number of clear bytes of a payload. The receiver must get the same result from the
/// encrypted payload, whose clear bytes are the same.
pub type ClearLength = fn(&[u8]) -> usize;

/// Clear bytes at the start of a payload.
#[derive(Clone, Copy, Debug)]
pub enum Prefix {
    /// A fixed number.
    Fixed(usize),
    /// Determined from the payload.
    FromPayload(ClearLength),
}

impl Prefix {
    pub(super) fn of(self, payload: &[u8]) -> usize {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::FromPayload(by) => by(payload),
        }
    }
}

/// Draws a salt from the system's random number generator (except in tests).
pub type SaltSource = Box<dyn FnMut() -> [u8; SALT_LEN] + Send>;

/// Difference of packet counters from which a lower counter is a restart, not a late packet.
const MIN_RESTART_DISTANCE: u32 = 1 << 16;

/// Reason why a datagram cannot be encrypted or decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The payload has nothing beyond its clear bytes. It is forwarded unchanged, which the
    /// receiver recognises by its length.
    #[error("nothing beyond the clear bytes")]
    Short,
    /// Too short to have been encrypted.
    #[error("too short to be sealed")]
    Unsealed,
    /// The receiver would mistake every drawn salt for part of the header.
    #[error("no usable salt")]
    NoSalt,
    /// No room for the bytes that sealing adds.
    #[error("no room for nonce and tag")]
    TooLong,
    /// The tag is invalid: forged, changed, sealed with another key, or for another direction.
    #[error("not authentic")]
    Unauthentic,
    /// Accepted before.
    #[error("replayed")]
    Replayed,
    /// Older than the replay window.
    #[error("older than the replay window")]
    TooOld,
    /// The salt is new, and the maximum number of salts has been seen.
    #[error("too many salts")]
    TooManySalts,
}

/// Encrypts the datagrams of one direction.
pub struct Sealer {
    key: Key,
    prefix: Prefix,
    draw: SaltSource,
    prepared_keystreams: PreparedKeystreams,
}

impl Sealer {
    /// Creates a sealer and draws the first salt.
    pub fn new(key: Key, prefix: Prefix, mut draw: SaltSource) -> Self {
        let salt = draw();
        Self { key, prefix, draw, prepared_keystreams: PreparedKeystreams::new(salt, 0) }
    }

    /// Encrypts the payload at `at` of `buffer` and returns its new range. It grows at its front,
    /// where at least [`NONCE_LEN`] bytes must be free.
    ///
    /// # Errors
    /// [`SealError::Short`] and [`SealError::NoSalt`]; the payload is unchanged.
    ///
    /// # Panics
    /// If there is no room.
    pub fn seal(&mut self, buffer: &mut [u8], at: Range<usize>) -> Result<Range<usize>, SealError> {
        let clear = self.prefix.of(&buffer[at.clone()]);
        if at.len() <= clear {
            return Err(SealError::Short);
        }
        if self.prepared_keystreams.next == u32::MAX {
            self.redraw();
        }
        let start = at.start - NONCE_LEN;
        let nonce = start + clear;
        buffer.copy_within(at.start..at.start + clear, start);
        let mut draws = 0;
        loop {
            buffer[nonce..nonce + SALT_LEN].copy_from_slice(&self.prepared_keystreams.salt);
            buffer[nonce + SALT_LEN..nonce + NONCE_LEN]
                .copy_from_slice(&self.prepared_keystreams.next.to_be_bytes());
            if self.is_unambiguous(&buffer[start..at.end], clear) {
                break;
            }
            if draws == MAX_REDRAWS {
                buffer.copy_within(start..nonce, at.start);
                return Err(SealError::NoSalt);
            }
            draws += 1;
            self.redraw();
        }
        let (salt, counter) = (self.prepared_keystreams.salt, self.prepared_keystreams.next);
        self.prepared_keystreams.apply(
            &self.key,
            salt,
            counter,
            &mut buffer[nonce + NONCE_LEN..at.end],
        );
        Ok(start..at.end)
    }

    /// Prepares the keystream of one future packet. Returns whether there was one to prepare.
    pub fn prepare(&mut self) -> bool {
        self.prepared_keystreams.prepare(&self.key)
    }

    /// Touches the memory that the next packet needs, to keep it in the caches.
    pub fn touch_caches(&self) {
        self.prepared_keystreams.touch_caches();
    }

    /// Whether the receiver finds the same number of clear bytes. A nonce may look like a part of a
    /// header.
    fn is_unambiguous(&self, sealed: &[u8], clear: usize) -> bool {
        matches!(self.prefix, Prefix::Fixed(_)) || self.prefix.of(sealed) == clear
    }

    fn redraw(&mut self) {
        self.prepared_keystreams.reset((self.draw)(), 0);
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Decrypts the datagrams of one direction.
#[derive(Debug)]
pub struct Opener {
    key: Key,
    prefix: Prefix,
    /// Keystreams of the packets expected after the last one received.
    prepared_keystreams: PreparedKeystreams,
    has_received: bool,
}

impl Opener {
    /// Creates an opener. The sender's salt is unknown until the first packet.
    pub fn new(key: Key, prefix: Prefix) -> Self {
        Self {
            key,
            prefix,
            prepared_keystreams: PreparedKeystreams::new([0; SALT_LEN], 0),
            has_received: false,
        }
    }

    /// Decrypts the payload at `at` of `buffer` and returns its new range. It shrinks at its front.
    ///
    /// # Errors
    /// [`SealError::Short`] and [`SealError::Unsealed`]; the payload is unchanged.
    pub fn open(&mut self, buffer: &mut [u8], at: Range<usize>) -> Result<Range<usize>, SealError> {
        let clear = self.prefix.of(&buffer[at.clone()]);
        if at.len() <= clear {
            return Err(SealError::Short);
        }
        let rest = at.start + clear;
        let nonce: &[u8; NONCE_LEN] =
            buffer[rest..at.end].first_chunk().ok_or(SealError::Unsealed)?;
        let salt: [u8; SALT_LEN] = nonce[..SALT_LEN].try_into().expect("8 of 12 bytes");
        let counter = u32::from_be_bytes(nonce[SALT_LEN..].try_into().expect("4 of 12 bytes"));
        if at.len() == clear + NONCE_LEN {
            return Err(SealError::Unsealed);
        }
        // This also recovers from a counter that was far too high, such as that of a corrupted
        // packet.
        let is_far_back =
            self.prepared_keystreams.next.saturating_sub(counter) > MIN_RESTART_DISTANCE;
        if !self.has_received || self.prepared_keystreams.salt != salt || is_far_back {
            self.has_received = true;
            self.prepared_keystreams.reset(salt, counter);
        }
        self.prepared_keystreams.apply(
            &self.key,
            salt,
            counter,
            &mut buffer[rest + NONCE_LEN..at.end],
        );
        buffer.copy_within(at.start..rest, at.start + NONCE_LEN);
        Ok(at.start + NONCE_LEN..at.end)
    }

    /// Prepares the keystream of one expected packet. Returns whether there was one to prepare.
    pub fn prepare(&mut self) -> bool {
        self.has_received && self.prepared_keystreams.prepare(&self.key)
    }

    /// Touches the memory that the next packet needs, to keep it in the caches.
    pub fn touch_caches(&self) {
        self.prepared_keystreams.touch_caches();
    }
}

/// Keystreams of the next packets of one salt, computed in advance.
struct PreparedKeystreams {
    salt: [u8; SALT_LEN],
    /// One more than the highest packet counter so far.
    next: u32,
    /// End of the range of packets from `next` whose keystream is prepared.
    until: u32,
    /// Keystream of packet n, in slot n mod [`PREPARED_KEYSTREAMS`].
    slots: Box<[Slot; PREPARED_KEYSTREAMS]>,
    /// Length of the longest packet so far; longer keystreams are not prepared.
    max_len: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    bytes: [u8; MAX_KEYSTREAM_LEN],
    len: usize,
}

impl PreparedKeystreams {
    fn new(salt: [u8; SALT_LEN], next: u32) -> Self {
        let slots = vec![Slot { bytes: [0; MAX_KEYSTREAM_LEN], len: 0 }; PREPARED_KEYSTREAMS];
        let slots = slots
            .into_boxed_slice()
            .try_into()
            .unwrap_or_else(|_| unreachable!("the vector has PREPARED_KEYSTREAMS slots"));
        Self { salt, next, until: next, slots, max_len: 0 }
    }

    /// Discards prepared keystreams and expects packet `next` of `salt`.
    fn reset(&mut self, salt: [u8; SALT_LEN], next: u32) {
        (self.salt, self.next, self.until) = (salt, next, next);
    }

    fn apply(&mut self, key: &Key, salt: [u8; SALT_LEN], counter: u32, data: &mut [u8]) {
        self.max_len = self.max_len.max(data.len().min(MAX_KEYSTREAM_LEN));
        let start = block(salt, counter);
        if !(self.next..self.until).contains(&counter) {
            key.apply(&start, data);
        } else {
            let slot = &self.slots[counter as usize % PREPARED_KEYSTREAMS];
            let (first, rest) = data.split_at_mut(data.len().min(slot.len));
            first.iter_mut().zip(&slot.bytes).for_each(|(byte, key)| *byte ^= key);
            if !rest.is_empty() {
                // Slots hold whole blocks, so the rest starts at a block boundary.
                let mut start = start;
                start[12..].copy_from_slice(&((slot.len / BLOCK) as u32).to_be_bytes());
                key.apply(&start, rest);
            }
        }
        // A late packet does not move the range back.
        if counter >= self.next {
            self.next = counter.saturating_add(1);
            self.until = self.until.max(self.next);
        }
    }

    /// Reads the next keystream into the cache. It was computed [`PREPARED_KEYSTREAMS`] packets
    /// earlier, and at low rates has left the caches since.
    fn touch_caches(&self) {
        if self.next < self.until {
            let slot = &self.slots[self.next as usize % PREPARED_KEYSTREAMS];
            let lines = slot.bytes[..slot.len].iter().step_by(CACHE_LINE);
            black_box(lines.fold(0, |all, byte| all ^ byte));
        }
    }

    fn prepare(&mut self, key: &Key) -> bool {
        let ready = (self.until - self.next) as usize;
        if ready >= PREPARED_KEYSTREAMS || self.max_len == 0 || self.until == u32::MAX {
            return false;
        }
        let slot = &mut self.slots[self.until as usize % PREPARED_KEYSTREAMS];
        slot.len = self.max_len.next_multiple_of(BLOCK);
        key.write(&block(self.salt, self.until), &mut slot.bytes[..slot.len]);
        self.until += 1;
        true
    }
}

impl fmt::Debug for PreparedKeystreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead").field("next", &self.next).field("until", &self.until).finish()
    }
}

/// Initial counter block of a packet.
fn block(salt: [u8; SALT_LEN], counter: u32) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..SALT_LEN].copy_from_slice(&salt);
    block[SALT_LEN..NONCE_LEN].copy_from_slice(&counter.to_be_bytes());
    block
}

const _: () = assert!(MAX_KEYSTREAM_LEN.is_multiple_of(BLOCK));

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn key() -> Key {
        Key::new([7; BLOCK])
    }

    fn sealer(prefix: Prefix, mut first: u64) -> Sealer {
        let draw = move || {
            first = first.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            first.to_be_bytes()
        };
        Sealer::new(key(), prefix, Box::new(draw))
    }

    fn seal(sealer: &mut Sealer, payload: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut buffer = [&[0xee; NONCE_LEN][..], payload].concat();
        let at = NONCE_LEN..buffer.len();
        let at = sealer.seal(&mut buffer, at)?;
        Ok(buffer[at].to_vec())
    }

    fn open(opener: &mut Opener, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut buffer = sealed.to_vec();
        let at = opener.open(&mut buffer, 0..sealed.len())?;
        Ok(buffer[at].to_vec())
    }

    proptest! {
        #[test]
        fn datagrams_round_trip_with_loss_and_reordering(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2_000), 1..60),
            clear in prop_oneof![Just(0_usize), Just(12), Just(16), Just(76), Just(108)],
            conditions in prop::collection::vec((any::<bool>(), 0_usize..8, 0_u8..4, 0_u8..4), 60),
        ) {
            let (mut sealer, mut opener) =
                (sealer(Prefix::Fixed(clear), 1), Opener::new(key(), Prefix::Fixed(clear)));
            let mut in_flight = Vec::new();
            for (payload, (lost, behind, before, _)) in payloads.iter().zip(&conditions) {
                (0..*before).for_each(|_| { sealer.prepare(); });
                match seal(&mut sealer, payload) {
                    Ok(sealed) => {
                        prop_assert_eq!(sealed.len(), payload.len() + NONCE_LEN);
                        prop_assert_eq!(&sealed[..clear], &payload[..clear]);
                        if !lost {
                            let place = in_flight.len() - behind.min(&in_flight.len());
                            in_flight.insert(place, (payload, sealed));
                        }
                    }
                    Err(error) => {
                        prop_assert_eq!(error, SealError::Short);
                        prop_assert!(payload.len() <= clear);
                        prop_assert_eq!(open(&mut opener, payload), Err(SealError::Short));
                    }
                }
            }
            for ((payload, sealed), (.., before)) in in_flight.iter().zip(&conditions) {
                (0..*before).for_each(|_| { opener.prepare(); });
                let opened = open(&mut opener, sealed);
                prop_assert_eq!(opened.as_ref(), Ok(*payload));
            }
        }

        #[test]
        fn any_bytes_are_opened_without_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200), clear in 0_usize..130
        ) {
            let mut opener = Opener::new(key(), Prefix::Fixed(clear));
            match open(&mut opener, &bytes) {
                Ok(opened) => prop_assert_eq!(opened.len() + NONCE_LEN, bytes.len()),
                Err(SealError::Short) => prop_assert!(bytes.len() <= clear),
                Err(_) => prop_assert!(bytes.len() <= clear + NONCE_LEN),
            }
        }
    }

    #[test]
    fn prepared_keystream_does_not_change_the_ciphertext() {
        let payload = [0; 100];
        let (mut plain, mut prepared) =
            (sealer(Prefix::Fixed(12), 1), sealer(Prefix::Fixed(12), 1));
        for _ in 0..100 {
            while prepared.prepare() {}
            let sealed = seal(&mut plain, &payload).unwrap();
            assert_eq!(seal(&mut prepared, &payload).unwrap(), sealed);
            let mut expected = [0; 88];
            let start = [&sealed[12..24], &[0; 4]].concat().try_into().unwrap();
            key().write(&start, &mut expected);
            assert_eq!(sealed[24..], expected);
        }
    }

    #[test]
    fn processes_with_one_key_never_share_a_nonce() {
        let mut seen = HashSet::new();
        for process in 0..50 {
            let mut sealer = sealer(Prefix::Fixed(0), process);
            for _ in 0..200 {
                let sealed = seal(&mut sealer, &[1; 20]).unwrap();
                assert!(seen.insert(sealed[..NONCE_LEN].to_vec()), "process {process}");
            }
        }
    }

    #[test]
    fn salt_is_redrawn_before_the_counter_wraps() {
        let mut sealer = sealer(Prefix::Fixed(0), 1);
        let mut opener = Opener::new(key(), Prefix::Fixed(0));
        sealer.prepared_keystreams.reset(sealer.prepared_keystreams.salt, u32::MAX - 3);
        let mut seen = HashSet::new();
        for n in 0..8_u8 {
            while sealer.prepare() {}
            let sealed = seal(&mut sealer, &[n; 40]).unwrap();
            assert_eq!(open(&mut opener, &sealed).unwrap(), [n; 40]);
            assert!(seen.insert(sealed[..NONCE_LEN].to_vec()));
            while opener.prepare() {}
        }
        let salts: HashSet<_> = seen.iter().map(|nonce| nonce[..SALT_LEN].to_vec()).collect();
        assert_eq!(salts.len(), 2);
    }

    #[test]
    fn salt_that_looks_like_a_header_is_redrawn() {
        // The prefix has 4 bytes, or 10 if the byte after them is even.
        let clear_len = |payload: &[u8]| match payload.get(4) {
            Some(byte) if byte % 2 == 0 => 10,
            _ => 4,
        };
        let mut opener = Opener::new(key(), Prefix::FromPayload(clear_len));
        for seed in 0..20 {
            let mut sealer = sealer(Prefix::FromPayload(clear_len), seed);
            for first in 0..4 {
                let payload = [first; 30];
                let sealed = seal(&mut sealer, &payload).unwrap();
                assert_eq!(open(&mut opener, &sealed).unwrap(), payload, "seed {seed}");
            }
        }
        let stuck = Sealer::new(key(), Prefix::FromPayload(clear_len), Box::new(|| [2; SALT_LEN]));
        let mut stuck = stuck;
        assert_eq!(seal(&mut stuck, &[1; 30]), Err(SealError::NoSalt));
    }
}
