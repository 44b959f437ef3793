//! Authenticated datagrams: the clear bytes, the rest encrypted with AES-128-GCM, then a trailer of
//! salt (8 bytes), packet counter (4) and tag (16). `docs/relay.md` describes the format.
//!
//! Salt and counter are the nonce; the clear bytes are associated data. A payload of only clear
//! bytes is sealed too, because its receiver would otherwise accept a forged one.

use std::fmt;
use std::ops::Range;

use super::aead::{Aead, NONCE_LEN, TAG_LEN};
use super::cipher::Key;
use super::datagram_ctr::{Prefix, SealError};
use super::salt_windows::{SaltWindows, Stale};
use super::salts::{Domain, SALT_LEN, Salts};

/// Bytes added to a sealed datagram.
pub const TRAILER_LEN: usize = NONCE_LEN + TAG_LEN;

/// Number of packets per salt. Windows compare counters in serial arithmetic, which is exact below
/// 2^31.
const SALT_PACKETS: u32 = 1 << 31;

/// Seals the datagrams of one direction.
pub struct AuthenticSealer {
    aead: Aead,
    prefix: Prefix,
    salts: Salts,
    salt: u64,
    /// Counter of the next packet.
    counter: u32,
}

impl AuthenticSealer {
    /// Creates a sealer and draws the first salt.
    pub fn new(key: &Key, prefix: Prefix, mut salts: Salts) -> Self {
        let salt = salts.draw();
        Self { aead: Aead::derived(key), prefix, salts, salt, counter: 0 }
    }

    /// Seals the payload at `at` of `buffer` and returns its new range. It grows at its end by
    /// [`TRAILER_LEN`] bytes.
    ///
    /// # Errors
    /// [`SealError::TooLong`] if `buffer` has no room for them; the payload is unchanged.
    pub fn seal(&mut self, buffer: &mut [u8], at: Range<usize>) -> Result<Range<usize>, SealError> {
        let end = at.end + TRAILER_LEN;
        let sealed = buffer.get_mut(at.start..end).ok_or(SealError::TooLong)?;
        let (payload, trailer) = sealed.split_at_mut(at.len());
        let clear = self.prefix.of(payload).min(payload.len());
        if self.counter == SALT_PACKETS {
            (self.salt, self.counter) = (self.salts.draw(), 0);
        }
        let nonce = nonce(self.salt, self.counter);
        self.counter += 1;
        let (associated, data) = payload.split_at_mut(clear);
        let tag = self.aead.seal(&nonce, associated, data);
        trailer[..NONCE_LEN].copy_from_slice(&nonce);
        trailer[NONCE_LEN..].copy_from_slice(&tag);
        Ok(at.start..end)
    }
}

impl fmt::Debug for AuthenticSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticSealer").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Opens the datagrams of one direction, each one once.
#[derive(Debug)]
pub struct AuthenticOpener {
    aead: Aead,
    prefix: Prefix,
    domain: Domain,
    known: SaltWindows,
}

impl AuthenticOpener {
    /// Creates an opener that accepts packets of any sender with this key.
    pub fn new(key: &Key, prefix: Prefix, domain: Domain) -> Self {
        Self { aead: Aead::derived(key), prefix, domain, known: SaltWindows::default() }
    }

    /// Opens the packet at `at` of `buffer` and returns the range of its payload.
    ///
    /// # Errors
    /// The reason why the packet is refused; it is unchanged.
    pub fn open(&mut self, buffer: &mut [u8], at: Range<usize>) -> Result<Range<usize>, SealError> {
        let end = at.end.checked_sub(TRAILER_LEN).filter(|end| *end >= at.start);
        let end = end.ok_or(SealError::Unsealed)?;
        let (payload, trailer) = buffer[at.start..at.end].split_at_mut(end - at.start);
        let (nonce, tag) = trailer.split_first_chunk().expect("a trailer has a nonce");
        let tag = tag.first_chunk().expect("a trailer has a tag");
        let (salt, counter) = parts(nonce);
        if !self.domain.has(salt) {
            return Err(SealError::Unauthentic);
        }
        self.known.check(salt, counter)?;
        let clear = self.prefix.of(payload).min(payload.len());
        let (associated, data) = payload.split_at_mut(clear);
        self.aead.open(nonce, associated, data, tag).map_err(|_| SealError::Unauthentic)?;
        // Accepted only after the tag is verified: a forged counter must not move the window.
        self.known.accept(salt, counter);
        Ok(at.start..end)
    }
}

impl From<Stale> for SealError {
    fn from(stale: Stale) -> Self {
        match stale {
            Stale::Replayed => Self::Replayed,
            Stale::TooOld => Self::TooOld,
            Stale::Full => Self::TooManySalts,
        }
    }
}

/// Nonce of a packet or record.
pub(super) fn nonce(salt: u64, counter: u32) -> [u8; NONCE_LEN] {
    let mut nonce = [0; NONCE_LEN];
    nonce[..SALT_LEN].copy_from_slice(&salt.to_be_bytes());
    nonce[SALT_LEN..].copy_from_slice(&counter.to_be_bytes());
    nonce
}

/// Salt and counter of a nonce.
fn parts(nonce: &[u8; NONCE_LEN]) -> (u64, u32) {
    let (salt, counter) = nonce.split_first_chunk().expect("8 of 12 bytes");
    (u64::from_be_bytes(*salt), u32::from_be_bytes(*counter.first_chunk().expect("4 of 12 bytes")))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::super::salt_windows::WINDOW;
    use super::*;

    const START: u64 = 0x1234_5678_9abc_def0;

    fn key() -> Key {
        Key::new([7; 16])
    }

    fn sealer(clear: usize) -> AuthenticSealer {
        let salts = Salts::new(Domain::DatagramForward, START);
        AuthenticSealer::new(&key(), Prefix::Fixed(clear), salts)
    }

    fn opener(clear: usize) -> AuthenticOpener {
        AuthenticOpener::new(&key(), Prefix::Fixed(clear), Domain::DatagramForward)
    }

    fn seal(sealer: &mut AuthenticSealer, payload: &[u8]) -> Vec<u8> {
        let mut buffer = [payload, &[0xee; TRAILER_LEN]].concat();
        let at = sealer.seal(&mut buffer, 0..payload.len()).unwrap();
        buffer[at].to_vec()
    }

    fn open(opener: &mut AuthenticOpener, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut buffer = sealed.to_vec();
        match opener.open(&mut buffer, 0..sealed.len()) {
            Ok(at) => Ok(buffer[at].to_vec()),
            Err(error) => {
                assert_eq!(buffer, sealed, "a refused packet is unchanged");
                Err(error)
            }
        }
    }

    proptest! {
        #[test]
        fn sealed_packets_open_once_in_any_order(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..80),
            clear in prop_oneof![Just(0_usize), Just(12), Just(16), Just(108)],
            arrivals in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
        ) {
            let (mut sealer, mut opener) = (sealer(clear), opener(clear));
            let sealed: Vec<_> = payloads.iter().map(|p| seal(&mut sealer, p)).collect();
            for (payload, sealed) in payloads.iter().zip(&sealed) {
                prop_assert_eq!(sealed.len(), payload.len() + TRAILER_LEN);
                let clear = clear.min(payload.len());
                prop_assert_eq!(&sealed[..clear], &payload[..clear]);
            }
            let mut seen = HashSet::new();
            // Packets that arrive again are duplicates; those that never arrive are lost.
            for arrival in arrivals {
                let n = arrival.index(sealed.len());
                let opened = open(&mut opener, &sealed[n]);
                if seen.insert(n) {
                    prop_assert_eq!(opened.as_ref(), Ok(&payloads[n]));
                } else {
                    prop_assert_eq!(opened, Err(SealError::Replayed));
                }
            }
        }

        #[test]
        fn changed_packet_is_refused_wherever_the_change_is(
            payload in prop::collection::vec(any::<u8>(), 0..200),
            clear in 0_usize..130, bit in any::<prop::sample::Index>(), moved in 1_usize..4
        ) {
            let (mut sealer, mut opener) = (sealer(clear), opener(clear));
            let sealed = seal(&mut sealer, &payload);
            let mut flipped = sealed.clone();
            let bit = bit.index(8 * sealed.len());
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(open(&mut opener, &flipped), Err(SealError::Unauthentic));
            prop_assert!(open(&mut opener, &sealed[..sealed.len() - moved]).is_err());
            prop_assert!(open(&mut opener, &[&sealed[..], &[0; 4][moved..]].concat()).is_err());
            prop_assert_eq!(open(&mut opener, &sealed), Ok(payload));
        }

        #[test]
        fn any_bytes_are_opened_without_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200), clear in 0_usize..130
        ) {
            prop_assert!(open(&mut opener(clear), &bytes).is_err());
        }
    }

    #[test]
    fn payload_of_clear_bytes_only_is_authenticated() {
        for len in [0, 1, 11, 12] {
            let (mut sealer, mut opener) = (sealer(12), opener(12));
            let payload = vec![9; len];
            let sealed = seal(&mut sealer, &payload);
            assert_eq!(open(&mut opener, &payload), Err(SealError::Unsealed));
            for bit in 0..8 * sealed.len() {
                let mut flipped = sealed.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(open(&mut opener, &flipped).is_err(), "bit {bit} of {len} bytes");
            }
            assert_eq!(open(&mut opener, &sealed), Ok(payload));
        }
    }

    #[test]
    fn packet_sent_back_to_its_sender_is_refused() {
        let mut back = AuthenticOpener::new(&key(), Prefix::Fixed(12), Domain::DatagramBackward);
        let sealed = seal(&mut sealer(12), &[1; 100]);
        assert_eq!(open(&mut back, &sealed), Err(SealError::Unauthentic));
    }

    #[test]
    fn forged_counters_do_not_move_the_window() {
        let (mut sealer, mut opener) = (sealer(12), opener(12));
        assert_eq!(open(&mut opener, &seal(&mut sealer, &[1; 50])), Ok(vec![1; 50]));
        let mut forged = seal(&mut sealer, &[2; 50]);
        let counter_at = 50 + SALT_LEN;
        for counter in [WINDOW * 2, SALT_PACKETS - 1, u32::MAX - 1] {
            forged[counter_at..counter_at + 4].copy_from_slice(&counter.to_be_bytes());
            assert_eq!(open(&mut opener, &forged), Err(SealError::Unauthentic));
        }
        assert_eq!(open(&mut opener, &seal(&mut sealer, &[3; 50])), Ok(vec![3; 50]));
    }

    #[test]
    fn packet_older_than_the_window_is_refused() {
        let (mut sealer, mut opener) = (sealer(12), opener(12));
        let sealed: Vec<_> = (0..=WINDOW + 1).map(|_| seal(&mut sealer, &[4; 40])).collect();
        assert!(open(&mut opener, &sealed[WINDOW as usize + 1]).is_ok());
        assert_eq!(open(&mut opener, &sealed[0]), Err(SealError::TooOld));
        assert_eq!(open(&mut opener, &sealed[1]), Err(SealError::TooOld));
        assert!(open(&mut opener, &sealed[2]).is_ok(), "the oldest in the window");
    }

    #[test]
    fn new_salt_is_drawn_before_the_counter_wraps() {
        let (mut sealer, mut opener) = (sealer(12), opener(12));
        sealer.counter = SALT_PACKETS - 3;
        let mut nonces = HashSet::new();
        let mut all = Vec::new();
        for n in 0..8_u8 {
            let sealed = seal(&mut sealer, &[n; 40]);
            assert!(nonces.insert(sealed[40..40 + NONCE_LEN].to_vec()), "a nonce is used once");
            assert_eq!(open(&mut opener, &sealed), Ok(vec![n; 40]));
            all.push(sealed);
        }
        let salts: HashSet<_> = nonces.iter().map(|nonce| nonce[..SALT_LEN].to_vec()).collect();
        assert_eq!(salts.len(), 2);
        for sealed in &all {
            assert_eq!(open(&mut opener, sealed), Err(SealError::Replayed), "also of the old salt");
        }
    }

    #[test]
    fn payload_without_room_for_the_trailer_is_too_long() {
        let mut buffer = [5; 100];
        let sealed = sealer(12).seal(&mut buffer, 0..100 - TRAILER_LEN + 1);
        assert_eq!((sealed, buffer), (Err(SealError::TooLong), [5; 100]));
    }
}
