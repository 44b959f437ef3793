//! Replay protection for STAMP's authenticated mode, which RFC 8762 leaves to implementations.
//!
//! A session is an address and an SSID, whatever the port, so a replay from another port meets the
//! window of the original. A bitmap marks the sequence numbers within the window. Where sequence
//! numbers alone do not decide, the request's timestamp does, because the HMAC covers it: a replay
//! is never newer than the newest request accepted.

use std::collections::HashMap;
use std::net::IpAddr;

use dwell_units::{Instant, Monotonic};
use dwell_wire::stamp::Request;

use crate::replay::{Place, Window};

/// Maximum number of sessions with a window. The longest idle ones make room for new ones.
const MAX_SESSIONS: usize = 4_096;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct ReplayGuard {
    size: u32,
    sessions: HashMap<(IpAddr, u16), Session>,
    /// The bitmaps of all sessions, one after the other.
    bits: Vec<u64>,
    /// Unused bitmaps.
    free: Vec<usize>,
    /// Newest timestamp of any evicted session, by SSID. Older requests are refused.
    evicted: HashMap<u16, u64>,
    /// Scratch space for choosing the sessions to evict.
    last_uses: Vec<Instant<Monotonic>>,
}

#[derive(Debug)]
struct Session {
    window: Window,
    /// Index of its bitmap.
    slot: usize,
    /// Newest accepted timestamp.
    newest: u64,
    /// Requests up to this timestamp are refused: their numbers precede a restart, or are so far
    /// back that they look like future ones.
    floor: Option<u64>,
    /// Newest timestamp before the current quarter of the number space was entered.
    before_quarter: Option<u64>,
    last: Instant<Monotonic>,
}

impl Session {
    /// Raises the floor when `seq` enters another quarter of the 2^32 numbers. In serial
    /// arithmetic, numbers of this quarter and the one before are behind; older ones may seem to be
    /// ahead.
    fn leave_quarter(&mut self, seq: u32) {
        match (seq >> 30).wrapping_sub(self.window.highest() >> 30) & 3 {
            0 => {}
            1 => {
                self.floor = self.before_quarter.or(self.floor);
                self.before_quarter = Some(self.newest);
            }
            _ => {
                self.floor = Some(self.newest);
                self.before_quarter = self.floor;
            }
        }
    }
}

impl ReplayGuard {
    /// Creates a guard with windows of `size` numbers.
    pub(super) fn new(size: u32) -> Self {
        Self {
            size,
            sessions: HashMap::with_capacity(MAX_SESSIONS),
            bits: vec![0; MAX_SESSIONS * Window::words(size)],
            free: (0..MAX_SESSIONS).collect(),
            evicted: HashMap::new(),
            last_uses: Vec::with_capacity(MAX_SESSIONS),
        }
    }

    /// Whether an authentic request is certainly new. Changes nothing.
    pub(super) fn is_fresh(&self, from: IpAddr, request: &Request) -> bool {
        let Request { seq, timestamp, ssid, .. } = *request;
        let Some(session) = self.sessions.get(&(from, ssid)) else {
            return self.evicted.get(&ssid).is_none_or(|floor| is_newer(timestamp, *floor));
        };
        if session.floor.is_some_and(|floor| !is_newer(timestamp, floor)) {
            return false;
        }
        match session.window.place(seq, self.bits(session.slot)) {
            Place::Ahead(_) | Place::Unmarked => true,
            // Either the sender restarted its numbers, or this is a replay.
            Place::Marked | Place::TooOld => is_newer(timestamp, session.newest),
        }
    }

    /// Marks a request that is fresh and will be answered.
    pub(super) fn accept(&mut self, from: IpAddr, request: &Request, now: Instant<Monotonic>) {
        let Request { seq, timestamp, ssid, .. } = *request;
        let words = Window::words(self.size);
        if let Some(session) = self.sessions.get_mut(&(from, ssid)) {
            let bits = &mut self.bits[session.slot * words..][..words];
            match session.window.place(seq, bits) {
                Place::Ahead(_) => {
                    session.leave_quarter(seq);
                    session.window.mark(seq, bits);
                }
                Place::Unmarked => session.window.mark(seq, bits),
                Place::Marked | Place::TooOld => {
                    session.floor = Some(session.newest);
                    session.before_quarter = None;
                    session.window = Window::start(self.size, seq, bits);
                }
            }
            if is_newer(timestamp, session.newest) {
                session.newest = timestamp;
            }
            session.last = now;
            return;
        }
        if self.free.is_empty() {
            self.evict_idle();
        }
        let Some(slot) = self.free.pop() else { return };
        let window = Window::start(self.size, seq, &mut self.bits[slot * words..][..words]);
        let floor = self.evicted.get(&ssid).copied();
        let (newest, before_quarter) = (timestamp, None);
        let session = Session { window, slot, newest, floor, before_quarter, last: now };
        self.sessions.insert((from, ssid), session);
    }

    fn bits(&self, slot: usize) -> &[u64] {
        let words = Window::words(self.size);
        &self.bits[slot * words..][..words]
    }

    /// Evicts the quarter of sessions that have been idle for longest, and keeps their newest
    /// timestamps.
    fn evict_idle(&mut self) {
        self.last_uses.clear();
        self.last_uses.extend(self.sessions.values().map(|session| session.last));
        let (_, limit, _) = self.last_uses.select_nth_unstable(MAX_SESSIONS / 4);
        let limit = *limit;
        self.sessions.retain(|(_, ssid), session| {
            let stays = session.last > limit;
            if !stays {
                self.free.push(session.slot);
                let floor = self.evicted.entry(*ssid).or_insert(session.newest);
                if is_newer(session.newest, *floor) {
                    *floor = session.newest;
                }
            }
            stays
        });
    }
}

/// Compares timestamps of one clock, also across the end of an NTP era.
fn is_newer(timestamp: u64, than: u64) -> bool {
    (timestamp.wrapping_sub(than) as i64) > 0
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn ip(n: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 + n).to_be_bytes())
    }

    fn request(seq: u32, timestamp: u64, ssid: u16) -> Request {
        Request { seq, timestamp, error: 1, ssid }
    }

    fn take(guard: &mut ReplayGuard, from: u32, request: Request) -> bool {
        let now = Instant::from_nanos(request.timestamp as i64);
        let is_fresh = guard.is_fresh(ip(from), &request);
        if is_fresh {
            guard.accept(ip(from), &request, now);
        }
        is_fresh
    }

    proptest! {
        #[test]
        fn request_is_accepted_at_most_once_over_restarts_and_wraps(
            start in prop_oneof![Just(0_u32), Just(u32::MAX - 20), Just((1 << 31) - 20)],
            steps in prop::collection::vec(
                (prop_oneof![8 => Just(None), 1 => Just(Some(0_u32)), 1 => Just(Some(1 << 30))],
                 any::<prop::sample::Index>(), any::<bool>()), 1..300),
        ) {
            let mut guard = ReplayGuard::new(64);
            let (mut sent, mut accepted) = (Vec::new(), HashSet::new());
            let mut seq = start;
            for (time, (restart, replay, again)) in steps.into_iter().enumerate() {
                seq = match restart {
                    None => seq.wrapping_add(1),
                    Some(0) => 0,
                    Some(jump) => seq.wrapping_add(jump),
                };
                let new = request(seq, 1_000 + time as u64, 0);
                sent.push(new);
                prop_assert!(take(&mut guard, 1, new), "a genuine request in order: {:?}", new);
                accepted.insert(new.timestamp);
                if again {
                    let old = sent[replay.index(sent.len())];
                    prop_assert!(accepted.contains(&old.timestamp));
                    prop_assert!(!take(&mut guard, 1, old), "a replay: {:?}", old);
                }
            }
        }

        #[test]
        fn reordering_within_the_window_refuses_nothing(
            behind in prop::collection::vec(0_usize..64, 1..300), step_back in any::<bool>()
        ) {
            let mut guard = ReplayGuard::new(64);
            let mut order: Vec<u32> = Vec::new();
            for (seq, behind) in behind.iter().enumerate() {
                // Fewer packets than the window length overtake each packet.
                let at = order.len() - behind.min(&order.len());
                let overtakes = order[at..].iter().min().copied().unwrap_or(seq as u32);
                if seq as u32 - overtakes < 64 {
                    order.insert(at, seq as u32);
                } else {
                    order.push(seq as u32);
                }
            }
            for seq in &order {
                // The clock is set back during the session.
                let back = u64::from(step_back && *seq >= 100) * 1_000_000;
                let new = request(*seq, 2_000_000 + u64::from(*seq) - back, 9);
                prop_assert!(take(&mut guard, 1, new), "{} in {:?}", seq, order);
                prop_assert!(!take(&mut guard, 1, new), "{} again", seq);
            }
        }
    }

    #[test]
    fn senders_with_one_key_do_not_disturb_each_other() {
        let mut guard = ReplayGuard::new(64);
        for time in 0..1_000 {
            let seq = time as u32;
            assert!(take(&mut guard, 1, request(seq, time, 7)));
            assert!(take(&mut guard, 1, request(seq + 5_000, time, 8)), "another SSID");
            assert!(take(&mut guard, 2, request(seq, time / 2, 7)), "another address");
        }
    }

    #[test]
    fn evicted_session_continues_without_accepting_replays() {
        let mut guard = ReplayGuard::new(64);
        let captured: Vec<_> = (0..50).map(|n| request(n, 1_000 + u64::from(n), 7)).collect();
        assert!(captured.iter().all(|old| take(&mut guard, 1, *old)));
        // The captured requests are replayed from forged addresses until the table has overflowed
        // several times.
        for n in 0..5 * MAX_SESSIONS as u32 {
            let old = captured[n as usize % captured.len()];
            let _ = take(&mut guard, 2 + n, old);
            assert!(guard.sessions.len() <= MAX_SESSIONS);
        }
        // Later sessions evict all of these.
        for n in 0..2 * MAX_SESSIONS as u32 {
            assert!(take(&mut guard, 2 + n, request(0, (1 << 40) + u64::from(n), 9)));
        }
        assert!(!guard.sessions.contains_key(&(ip(1), 7)));
        assert!(captured.iter().all(|old| !take(&mut guard, 1, *old)), "still refused");
        assert!(take(&mut guard, 1, request(50, 1_050, 7)), "the sender continues");
        assert!(captured.iter().all(|old| !take(&mut guard, 1, *old)), "still refused afterwards");
    }
}
