//! Detection of packets that two reflectors would send to each other endlessly.
//!
//! Between two dwell reflectors the TTL ends the loop: [`reply_ttl`]. A foreign echo server sends
//! with a fresh TTL; [`LoopGuard`] recognises a packet that keeps returning.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::net::{IpAddr, SocketAddr};

use dwell_units::{Instant, Monotonic, Nanos};
use dwell_wire::stamp::{Likeness, Mode, likeness_to_reply};

use super::Refusal;
use super::table::{Key, Lookup, Table};

/// Maximum number of identical requests of one source that are answered within [`COUNT_INTERVAL`].
const MAX_IDENTICAL: u32 = 1_000;

/// Time over which identical requests are counted.
const COUNT_INTERVAL: Nanos = Nanos::from_secs(1);

/// Time for which a source is not answered after too many identical requests.
const SILENCE_DURATION: Nanos = Nanos::from_secs(60);

/// Maximum number of requests counted at the same time.
const MAX_REQUESTS: usize = 4_096;

/// Maximum number of silenced sources remembered.
const MAX_SILENCED: usize = 1_024;

/// Returns the TTL or hop limit of an echo reply: one less than that of its request. A request with
/// a TTL of 1 or less, or an unknown one, is not answered, so an exchange ends after at most 255
/// packets.
pub fn reply_ttl(arrived: Option<u8>) -> Result<u8, Refusal> {
    match arrived {
        Some(ttl @ 2..) => Ok(ttl - 1),
        _ => Err(Refusal::Loop),
    }
}

/// Counts identical requests per source address and port. More than 1,000 within a second silence
/// the source for 60 s.
///
/// A request is identified by a hash under a random key, and the tables have a fixed size, so
/// spoofed sources cost no memory. New requests evict those seen least often, so a looping packet
/// stays counted.
#[derive(Debug)]
pub struct LoopGuard {
    hashes: RandomState,
    requests: Table<Count>,
    /// Time at which a source is answered again.
    silenced: Table<Instant<Monotonic>>,
    /// The latest of these times.
    silenced_until: Instant<Monotonic>,
}

/// Identical requests since the first of the current window.
#[derive(Clone, Copy, Debug)]
struct Count {
    since: Instant<Monotonic>,
    requests: u32,
}

impl Default for LoopGuard {
    fn default() -> Self {
        Self {
            hashes: RandomState::new(),
            requests: Table::new(MAX_REQUESTS),
            silenced: Table::new(MAX_SILENCED),
            silenced_until: Instant::EPOCH,
        }
    }
}

impl LoopGuard {
    /// Counts `request` of `from`. Returns an error if it must not be answered.
    pub fn admit(
        &mut self,
        from: SocketAddr,
        request: &[u8],
        now: Instant<Monotonic>,
    ) -> Result<(), Refusal> {
        let mut hasher = self.hash_source(from);
        if now < self.silenced_until
            && self.silenced.get(key(&hasher)).is_some_and(|until| now < until)
        {
            return Err(Refusal::Silenced);
        }
        hasher.write(request);
        let request = key(&hasher);
        let rank = |count: &Count| {
            let is_current = now - count.since < COUNT_INTERVAL;
            (if is_current { count.requests } else { 0 }, count.since)
        };
        let first = Count { since: now, requests: 1 };
        let count = match self.requests.look_up(request, rank) {
            Lookup::Absent(slot) => {
                *slot = Some((request, first));
                return Ok(());
            }
            Lookup::Found(count) => count,
        };
        if now - count.since >= COUNT_INTERVAL {
            *count = first;
            return Ok(());
        }
        count.requests += 1;
        if count.requests <= MAX_IDENTICAL {
            return Ok(());
        }
        // After the silence, counting starts again.
        count.requests = 0;
        let source = key(&self.hash_source(from));
        self.silenced_until = now + SILENCE_DURATION;
        match self.silenced.look_up(source, |until| *until) {
            Lookup::Found(until) => *until = self.silenced_until,
            Lookup::Absent(slot) => *slot = Some((source, self.silenced_until)),
        }
        Err(Refusal::Silenced)
    }

    /// Starts a hash with a source address and port.
    fn hash_source(&self, from: SocketAddr) -> DefaultHasher {
        let mut hasher = self.hashes.build_hasher();
        // One word instead of the parts of an address.
        match from.ip() {
            IpAddr::V4(v4) => {
                hasher.write_u64(u64::from(u32::from(v4)) << 16 | u64::from(from.port()));
            }
            IpAddr::V6(v6) => {
                hasher.write_u128(v6.into());
                hasher.write_u64(from.port().into());
            }
        }
        hasher
    }
}

impl LoopGuard {
    /// Counts an echo request of `from`. Returns an error if it must not be answered.
    ///
    /// A foreign STAMP or TWAMP-light reflector answers an echo with a new packet each time. A
    /// certain reply is refused; packets with the timestamps of a reply count as identical.
    pub fn admit_echo(
        &mut self,
        from: SocketAddr,
        request: &[u8],
        now: Instant<Monotonic>,
    ) -> Result<(), Refusal> {
        let mut counted = request;
        for mode in [Mode::Unauthenticated, Mode::Authenticated] {
            match likeness_to_reply(request, mode) {
                Likeness::Full => return Err(Refusal::Loop),
                Likeness::Partial => counted = &[],
                Likeness::None => {}
            }
        }
        self.admit(from, counted, now)
    }
}

/// The hash so far; never 0.
fn key(hasher: &impl Hasher) -> Key {
    Key::new(hasher.finish()).unwrap_or(Key::MIN)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const SEED: u64 = 0x6c6f_6f70_6775_6172;

    fn from(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn at(micros: i64) -> Instant<Monotonic> {
        Instant::from_nanos(micros * 1_000)
    }

    /// Returns how many of `requests` identical requests are answered, one every `gap`
    /// microseconds.
    fn answered(guard: &mut LoopGuard, source: SocketAddr, requests: i64, gap: i64) -> usize {
        let is_answered = |i: &i64| guard.admit(source, b"again", at(i * gap)).is_ok();
        (0..requests).filter(is_answered).count()
    }

    #[test]
    fn identical_requests_silence_their_source_for_60_s() {
        let mut guard = LoopGuard::default();
        let source = from("192.0.2.1:9000");
        assert_eq!(answered(&mut guard, source, 100_000, 10), 1_000);
        let mut other = |text, at| guard.admit(from(text), b"other", at);
        assert_eq!(other("192.0.2.1:9000", at(60_000_000)), Err(Refusal::Silenced));
        assert_eq!(other("192.0.2.1:9001", at(60_000_000)), Ok(()), "another port");
        assert_eq!(other("192.0.2.2:9000", at(60_000_000)), Ok(()), "another address");
        assert_eq!(other("192.0.2.1:9000", at(60_010_000)), Ok(()), "60 s later");
        assert_eq!(guard.admit(source, b"again", at(60_010_000)), Ok(()));
    }

    #[test]
    fn thousand_identical_requests_a_second_are_answered() {
        let mut guard = LoopGuard::default();
        assert_eq!(answered(&mut guard, from("[2001:db8::1]:9"), 10_000, 1_000), 10_000);
    }

    #[test]
    fn differing_requests_never_silence_their_source() {
        let mut guard = LoopGuard::default();
        let mut request = [0; 64];
        for id in 0..1_000_000_u64 {
            request[8..16].copy_from_slice(&id.to_be_bytes());
            let now = at(id as i64);
            assert_eq!(guard.admit(from("192.0.2.1:9000"), &request, now), Ok(()), "{id}");
        }
    }

    #[test]
    fn loop_is_silenced_within_a_second_of_a_spoofed_flood() {
        let mut guard = LoopGuard::default();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let mut refused_at = None;
        // One second: a packet returns every 500 us, among 100,000 spoofed packets.
        for step in 0..100_000_i64 {
            let spoofed = SocketAddr::new(rng.random::<u32>().to_be_bytes().into(), rng.random());
            assert_eq!(guard.admit(spoofed, b"flood", at(step * 10)), Ok(()), "seed {SEED:#x}");
            let looping = step % 50 == 0;
            if looping && guard.admit(from("192.0.2.1:9000"), b"loop", at(step * 10)).is_err() {
                refused_at.get_or_insert(step);
            }
        }
        assert!(refused_at.is_some(), "seed {SEED:#x}");
    }

    /// A reply of a foreign TWAMP-light reflector: new numbers and times, other padding.
    fn twamp_reply(n: u32, padding: u8) -> [u8; 48] {
        let mut reply = [padding; 48];
        let time = (0xeb01_78f1_u64 << 32) + u64::from(n) * 1_000;
        reply[..4].copy_from_slice(&n.to_be_bytes());
        reply[4..12].copy_from_slice(&(time + 500).to_be_bytes());
        reply[12..16].copy_from_slice(&[0x80, 1, 0, 0]);
        reply[16..24].copy_from_slice(&time.to_be_bytes());
        reply
    }

    #[test]
    fn echo_of_stamp_and_twamp_replies_ends() {
        let mut guard = LoopGuard::default();
        let source = from("192.0.2.1:20862");
        let mut is_admitted =
            |n: &u32| guard.admit_echo(source, &twamp_reply(*n, 0x5a), at(i64::from(*n) * 10));
        assert_eq!((0..10_000).filter(|n| is_admitted(n).is_ok()).count(), 1_000);
        let mut stamp = twamp_reply(1, 0);
        stamp[36..38].copy_from_slice(&[0x80, 1]);
        stamp[40] = 64;
        let other = from("192.0.2.2:20862");
        assert_eq!(guard.admit_echo(other, &stamp, at(0)), Err(Refusal::Loop));
    }

    #[test]
    fn echo_requests_with_constant_padding_are_admitted() {
        let mut guard = LoopGuard::default();
        for (n, fill) in (0..100_000_u32).zip([0, 0x41, 0xff].into_iter().cycle()) {
            let mut request = [fill; 64];
            request[..4].copy_from_slice(&n.to_be_bytes());
            let source = from("192.0.2.1:9000");
            assert_eq!(guard.admit_echo(source, &request, at(i64::from(n))), Ok(()), "{n}");
        }
    }

    #[test]
    fn echo_reply_ttl_is_one_less_and_never_0() {
        assert_eq!(reply_ttl(Some(255)), Ok(254));
        assert_eq!(reply_ttl(Some(2)), Ok(1));
        for last in [Some(1), Some(0), None] {
            assert_eq!(reply_ttl(last), Err(Refusal::Loop), "{last:?}");
        }
    }
}
