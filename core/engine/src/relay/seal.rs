//! Enciphered datagrams. First come the bytes that stay clear, then a nonce of 12 bytes (8 of
//! salt, 4 of a packet counter, big-endian), then the rest, enciphered with AES-128-CTR from the
//! counter block salt | packet counter | 0. `docs/relay.md` describes the format.
//!
//! A pair of salt and packet counter is never used twice with one key: the salt is drawn for each
//! process and direction, and again before the packet counter would wrap.

use std::fmt;
use std::hint::black_box;
use std::ops::Range;

use super::cipher::{BLOCK, Key, Keystream};

/// Bytes that an enciphered datagram is longer.
pub const NONCE: usize = 12;

const SALT: usize = 8;

/// Packets whose keystream is prepared before they come.
const AHEAD: usize = 32;

/// The longest keystream that is prepared: a packet of Ethernet's MTU. What lies beyond is made
/// when the packet comes.
const LONGEST: usize = 1_536;

/// Bytes that come into a cache at once; on machines where it is more, some are asked for twice.
const CACHE_LINE: usize = 64;

/// Times a salt is drawn again when the receiver would take it for a part of the header. One in
/// many is; a source that never gives another is broken.
const DRAWS: usize = 64;

/// How many bytes of a payload stay clear. The receiver must come to the same answer from the
/// enciphered payload, whose clear bytes are the same.
pub type ClearLength = fn(&[u8]) -> usize;

/// The bytes that stay clear.
#[derive(Clone, Copy, Debug)]
pub enum Prefix {
    /// So many.
    Fixed(usize),
    /// As the payload tells.
    Told(ClearLength),
}

impl Prefix {
    pub(super) fn of(self, payload: &[u8]) -> usize {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Told(by) => by(payload),
        }
    }
}

/// Draws a salt: from the system's source of random numbers, in anything but a test.
pub type Draw = Box<dyn FnMut() -> [u8; SALT] + Send>;

/// A packet that is so many behind is not late: counting began anew.
const FAR_BACK: u32 = 1 << 16;

/// Why a datagram cannot be ciphered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It has nothing beyond the clear bytes, so there is nothing to cipher. It passes as it is,
    /// and the far end sees by its length that it did.
    #[error("nothing beyond the clear bytes")]
    Short,
    /// Too short for what encrypting adds, so it was not encrypted.
    #[error("no nonce")]
    Unsealed,
    /// The receiver would take every salt drawn for a part of the header.
    #[error("no salt")]
    NoSalt,
    /// No room for what sealing adds.
    #[error("too long")]
    TooLong,
    /// The tag does not hold: forged, changed, sealed with another key, or for another direction.
    #[error("not authentic")]
    Unauthentic,
    /// Accepted before.
    #[error("replayed")]
    Replayed,
    /// Older than the replay window.
    #[error("older than the replay window")]
    TooOld,
    /// As many salts were seen as can be remembered, and this is another one.
    #[error("too many salts")]
    TooManySalts,
}

/// Enciphers datagrams of one direction.
pub struct Sealer {
    key: Key,
    prefix: Prefix,
    draw: Draw,
    ahead: Ahead,
}

impl Sealer {
    /// Draws the first salt.
    pub fn new(key: Key, prefix: Prefix, mut draw: Draw) -> Self {
        let salt = draw();
        Self { key, prefix, draw, ahead: Ahead::new(salt, 0) }
    }

    /// Enciphers the payload at `at` of `buffer`; returns where it is now. It grows to the front:
    /// at least [`NONCE`] bytes must be free there.
    ///
    /// # Errors
    /// [`SealError::Short`] and [`SealError::NoSalt`]; the payload is as it was.
    ///
    /// # Panics
    /// Without that room.
    pub fn seal(&mut self, buffer: &mut [u8], at: Range<usize>) -> Result<Range<usize>, SealError> {
        let clear = self.prefix.of(&buffer[at.clone()]);
        if at.len() <= clear {
            return Err(SealError::Short);
        }
        if self.ahead.next == u32::MAX {
            self.redraw();
        }
        let start = at.start - NONCE;
        let nonce = start + clear;
        buffer.copy_within(at.start..at.start + clear, start);
        let mut draws = 0;
        loop {
            buffer[nonce..nonce + SALT].copy_from_slice(&self.ahead.salt);
            buffer[nonce + SALT..nonce + NONCE].copy_from_slice(&self.ahead.next.to_be_bytes());
            if self.is_understood(&buffer[start..at.end], clear) {
                break;
            }
            if draws == DRAWS {
                buffer.copy_within(start..nonce, at.start);
                return Err(SealError::NoSalt);
            }
            draws += 1;
            self.redraw();
        }
        let (salt, counter) = (self.ahead.salt, self.ahead.next);
        self.ahead.apply(&self.key, salt, counter, &mut buffer[nonce + NONCE..at.end]);
        Ok(start..at.end)
    }

    /// Prepares the keystream of one packet to come; returns whether there was one to prepare.
    pub fn prepare(&mut self) -> bool {
        self.ahead.prepare(&self.key)
    }

    /// Keeps what the next packet needs in the caches.
    pub fn keep_warm(&self) {
        self.ahead.keep_warm();
    }

    /// A nonce that looks like a part of a header must not mislead the receiver.
    fn is_understood(&self, sealed: &[u8], clear: usize) -> bool {
        matches!(self.prefix, Prefix::Fixed(_)) || self.prefix.of(sealed) == clear
    }

    fn redraw(&mut self) {
        self.ahead.follow((self.draw)(), 0);
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Deciphers datagrams of one direction.
#[derive(Debug)]
pub struct Opener {
    key: Key,
    prefix: Prefix,
    /// The keystreams of the packets that are expected after the last that came.
    ahead: Ahead,
    heard: bool,
}

impl Opener {
    /// Knows nothing of the far end's salt yet.
    pub fn new(key: Key, prefix: Prefix) -> Self {
        Self { key, prefix, ahead: Ahead::new([0; SALT], 0), heard: false }
    }

    /// Deciphers the payload at `at` of `buffer`; returns where it is now: it shrinks at its front.
    ///
    /// # Errors
    /// [`SealError::Short`] and [`SealError::Unsealed`]; the payload is as it was.
    pub fn open(&mut self, buffer: &mut [u8], at: Range<usize>) -> Result<Range<usize>, SealError> {
        let clear = self.prefix.of(&buffer[at.clone()]);
        if at.len() <= clear {
            return Err(SealError::Short);
        }
        let rest = at.start + clear;
        let nonce: &[u8; NONCE] = buffer[rest..at.end].first_chunk().ok_or(SealError::Unsealed)?;
        let salt: [u8; SALT] = nonce[..SALT].try_into().expect("8 of 12 bytes");
        let counter = u32::from_be_bytes(nonce[SALT..].try_into().expect("4 of 12 bytes"));
        if at.len() == clear + NONCE {
            return Err(SealError::Unsealed);
        }
        // Also after a counter that was far too high, such as that of a damaged packet.
        let is_far_back = self.ahead.next.saturating_sub(counter) > FAR_BACK;
        if !self.heard || self.ahead.salt != salt || is_far_back {
            self.heard = true;
            self.ahead.follow(salt, counter);
        }
        self.ahead.apply(&self.key, salt, counter, &mut buffer[rest + NONCE..at.end]);
        buffer.copy_within(at.start..rest, at.start + NONCE);
        Ok(at.start + NONCE..at.end)
    }

    /// Prepares the keystream of one packet that is expected; returns whether there was one.
    pub fn prepare(&mut self) -> bool {
        self.heard && self.ahead.prepare(&self.key)
    }

    /// Keeps what the next packet needs in the caches.
    pub fn keep_warm(&self) {
        self.ahead.keep_warm();
    }
}

/// Keystreams of the packets after the last of one salt, made before they come.
struct Ahead {
    salt: [u8; SALT],
    /// The packet counter after the highest so far.
    next: u32,
    /// Packets from `next` up to here have their keystream prepared.
    until: u32,
    /// The keystream of packet n is in slot n mod [`AHEAD`].
    slots: Box<[Slot; AHEAD]>,
    /// Bytes that the longest packet lately needed; longer keystreams would be made in vain.
    wanted: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Ahead {
    fn new(salt: [u8; SALT], next: u32) -> Self {
        let slots = vec![Slot { bytes: [0; LONGEST], len: 0 }; AHEAD];
        let slots = slots.into_boxed_slice().try_into().unwrap_or_else(|_| unreachable!("AHEAD"));
        Self { salt, next, until: next, slots, wanted: 0 }
    }

    /// Forgets what was prepared and expects packet `next` of `salt`.
    fn follow(&mut self, salt: [u8; SALT], next: u32) {
        (self.salt, self.next, self.until) = (salt, next, next);
    }

    fn apply(&mut self, key: &Key, salt: [u8; SALT], counter: u32, data: &mut [u8]) {
        self.wanted = self.wanted.max(data.len().min(LONGEST));
        let start = block(salt, counter);
        if !(self.next..self.until).contains(&counter) {
            key.apply(&start, data);
        } else {
            let slot = &self.slots[counter as usize % AHEAD];
            let (first, rest) = data.split_at_mut(data.len().min(slot.len));
            first.iter_mut().zip(&slot.bytes).for_each(|(byte, key)| *byte ^= key);
            if !rest.is_empty() {
                // Slots hold whole blocks, so the rest begins with a block of its own.
                let mut start = start;
                start[12..].copy_from_slice(&((slot.len / BLOCK) as u32).to_be_bytes());
                key.apply(&start, rest);
            }
        }
        // A packet that came late is no reason to expect older ones.
        if counter >= self.next {
            self.next = counter.saturating_add(1);
            self.until = self.until.max(self.next);
        }
    }

    /// A keystream was made [`AHEAD`] packets before its own comes, and at slow rates has left the caches by then.
    fn keep_warm(&self) {
        if self.next < self.until {
            let slot = &self.slots[self.next as usize % AHEAD];
            let lines = slot.bytes[..slot.len].iter().step_by(CACHE_LINE);
            black_box(lines.fold(0, |all, byte| all ^ byte));
        }
    }

    fn prepare(&mut self, key: &Key) -> bool {
        let ready = (self.until - self.next) as usize;
        if ready >= AHEAD || self.wanted == 0 || self.until == u32::MAX {
            return false;
        }
        let slot = &mut self.slots[self.until as usize % AHEAD];
        slot.len = self.wanted.next_multiple_of(BLOCK);
        key.write(&block(self.salt, self.until), &mut slot.bytes[..slot.len]);
        self.until += 1;
        true
    }
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead").field("next", &self.next).field("until", &self.until).finish()
    }
}

/// The counter block that a packet's keystream begins with.
fn block(salt: [u8; SALT], counter: u32) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..SALT].copy_from_slice(&salt);
    block[SALT..NONCE].copy_from_slice(&counter.to_be_bytes());
    block
}

const _: () = assert!(LONGEST.is_multiple_of(BLOCK));

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
        let mut buffer = [&[0xee; NONCE][..], payload].concat();
        let at = NONCE..buffer.len();
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
        fn deciphering_undoes_enciphering_whatever_is_lost_reordered_or_prepared(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2_000), 1..60),
            clear in prop_oneof![Just(0_usize), Just(12), Just(16), Just(76), Just(108)],
            fates in prop::collection::vec((any::<bool>(), 0_usize..8, 0_u8..4, 0_u8..4), 60),
        ) {
            let (mut sealer, mut opener) =
                (sealer(Prefix::Fixed(clear), 1), Opener::new(key(), Prefix::Fixed(clear)));
            let mut under_way = Vec::new();
            for (payload, (lost, behind, before, _)) in payloads.iter().zip(&fates) {
                (0..*before).for_each(|_| { sealer.prepare(); });
                match seal(&mut sealer, payload) {
                    Ok(sealed) => {
                        prop_assert_eq!(sealed.len(), payload.len() + NONCE);
                        prop_assert_eq!(&sealed[..clear], &payload[..clear]);
                        if !lost {
                            let place = under_way.len() - behind.min(&under_way.len());
                            under_way.insert(place, (payload, sealed));
                        }
                    }
                    Err(error) => {
                        prop_assert_eq!(error, SealError::Short);
                        prop_assert!(payload.len() <= clear);
                        prop_assert_eq!(open(&mut opener, payload), Err(SealError::Short));
                    }
                }
            }
            for ((payload, sealed), (.., before)) in under_way.iter().zip(&fates) {
                (0..*before).for_each(|_| { opener.prepare(); });
                let opened = open(&mut opener, sealed);
                prop_assert_eq!(opened.as_ref(), Ok(*payload));
            }
        }

        #[test]
        fn no_bytes_make_the_opener_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200), clear in 0_usize..130
        ) {
            let mut opener = Opener::new(key(), Prefix::Fixed(clear));
            match open(&mut opener, &bytes) {
                Ok(opened) => prop_assert_eq!(opened.len() + NONCE, bytes.len()),
                Err(SealError::Short) => prop_assert!(bytes.len() <= clear),
                Err(_) => prop_assert!(bytes.len() <= clear + NONCE),
            }
        }
    }

    #[test]
    fn a_packet_is_enciphered_from_salt_and_counter_and_not_from_what_was_prepared() {
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
    fn two_processes_with_the_same_key_never_share_a_nonce() {
        let mut seen = HashSet::new();
        for process in 0..50 {
            let mut sealer = sealer(Prefix::Fixed(0), process);
            for _ in 0..200 {
                let sealed = seal(&mut sealer, &[1; 20]).unwrap();
                assert!(seen.insert(sealed[..NONCE].to_vec()), "process {process}");
            }
        }
    }

    #[test]
    fn the_salt_is_drawn_again_before_the_counter_wraps() {
        let mut sealer = sealer(Prefix::Fixed(0), 1);
        let mut opener = Opener::new(key(), Prefix::Fixed(0));
        sealer.ahead.follow(sealer.ahead.salt, u32::MAX - 3);
        let mut seen = HashSet::new();
        for n in 0..8_u8 {
            while sealer.prepare() {}
            let sealed = seal(&mut sealer, &[n; 40]).unwrap();
            assert_eq!(open(&mut opener, &sealed).unwrap(), [n; 40]);
            assert!(seen.insert(sealed[..NONCE].to_vec()));
            while opener.prepare() {}
        }
        let salts: HashSet<_> = seen.iter().map(|nonce| nonce[..SALT].to_vec()).collect();
        assert_eq!(salts.len(), 2);
    }

    #[test]
    fn a_salt_that_the_receiver_would_take_for_a_header_is_drawn_again() {
        // The prefix is 4 bytes, or 10 if the byte behind them is even.
        let told = |payload: &[u8]| match payload.get(4) {
            Some(byte) if byte % 2 == 0 => 10,
            _ => 4,
        };
        let mut opener = Opener::new(key(), Prefix::Told(told));
        for seed in 0..20 {
            let mut sealer = sealer(Prefix::Told(told), seed);
            for first in 0..4 {
                let payload = [first; 30];
                let sealed = seal(&mut sealer, &payload).unwrap();
                assert_eq!(open(&mut opener, &sealed).unwrap(), payload, "seed {seed}");
            }
        }
        let stuck = Sealer::new(key(), Prefix::Told(told), Box::new(|| [2; SALT]));
        let mut stuck = stuck;
        assert_eq!(seal(&mut stuck, &[1; 30]), Err(SealError::NoSalt));
    }
}
