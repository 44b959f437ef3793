//! Matches replies to probes by order, for protocols without an id in the packet. One lost reply
//! would shift all later matches; the two rules of Ramstetter recover from that: a round trip above
//! a threshold belongs to a later probe, and a long silence empties the queue.

use std::collections::VecDeque;

use dwell_units::{Instant, Nanos, Realtime};

/// Maximum number of probes that wait for a reply. When full, the oldest is discarded.
const MAX_WAITING: usize = 1 << 12;

/// Probes that wait for a reply, in the order of sending.
#[derive(Debug)]
pub struct OrderMatch {
    /// Maximum round trip of a match.
    threshold: Nanos,
    /// Time without replies after which waiting probes are discarded.
    silence: Nanos,
    waiting: VecDeque<(u64, Instant<Realtime>)>,
    last_reply: Option<Instant<Realtime>>,
}

impl OrderMatch {
    /// Discards matches with a round trip above `threshold`, and waiting probes if a probe leaves
    /// more than `silence` after the last reply.
    pub fn new(threshold: Nanos, silence: Nanos) -> Self {
        Self { threshold, silence, waiting: VecDeque::new(), last_reply: None }
    }

    /// Adds a probe that left at `at`.
    pub fn sent(&mut self, id: u64, at: Instant<Realtime>) {
        if self.last_reply.is_some_and(|last| at - last > self.silence) {
            self.waiting.clear();
        }
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back((id, at));
    }

    /// Returns the probe that the reply at `at` answers: the oldest one with a round trip of at most
    /// the threshold. `None` if no probe fits; the reply then counts for none.
    pub fn received(&mut self, at: Instant<Realtime>) -> Option<u64> {
        self.last_reply = Some(at);
        while let Some((id, sent)) = self.waiting.front().copied() {
            if at < sent {
                return None;
            }
            self.waiting.pop_front();
            if at - sent <= self.threshold {
                return Some(id);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn at(millis: i64) -> Instant<Realtime> {
        Instant::from_nanos(millis * MS)
    }

    /// Probes every 100 ms with a round trip of 10 ms; these replies are lost. Returns the matches
    /// of the probes from `from` on.
    fn matches(threshold: i64, silence: i64, lost: &[u64], from: u64) -> Vec<(u64, Option<u64>)> {
        let mut order = OrderMatch::new(Nanos(threshold * MS), Nanos(silence * MS));
        let mut found = Vec::new();
        for id in 0..20 {
            order.sent(id, at(id as i64 * 100));
            if !lost.contains(&id) {
                found.push((id, order.received(at(id as i64 * 100 + 10))));
            }
        }
        found.retain(|(id, _)| *id >= from);
        found
    }

    fn exact(from: u64, lost: &[u64]) -> Vec<(u64, Option<u64>)> {
        (from..20).filter(|id| !lost.contains(id)).map(|id| (id, Some(id))).collect()
    }

    #[test]
    fn lost_reply_shifts_matches_without_mitigation() {
        let shifted = matches(100_000, 100_000, &[5], 6);
        assert!(shifted.iter().all(|(id, found)| *found == Some(id - 1)), "{shifted:?}");
    }

    #[test]
    fn threshold_recovers_from_a_lost_reply_at_once() {
        assert_eq!(matches(50, 100_000, &[5], 0), exact(0, &[5]));
        assert_eq!(matches(50, 100_000, &[5, 6, 7, 12], 0), exact(0, &[5, 6, 7, 12]));
    }

    #[test]
    fn silence_flushes_probes_that_no_reply_will_answer() {
        // The threshold alone is too long to see the loss.
        assert_eq!(matches(100_000, 150, &[5, 6], 7), exact(7, &[]));
    }

    #[test]
    fn reply_before_any_waiting_probe_matches_none() {
        let mut order = OrderMatch::new(Nanos(50 * MS), Nanos(150 * MS));
        assert_eq!(order.received(at(5)), None);
        order.sent(0, at(10));
        assert_eq!(order.received(at(9)), None, "a stray reply");
        assert_eq!(order.received(at(20)), Some(0));
        assert_eq!(order.received(at(21)), None, "a duplicate");
    }

    #[test]
    fn queue_of_waiting_probes_is_bounded() {
        let mut order = OrderMatch::new(Nanos(i64::MAX), Nanos(i64::MAX));
        (0..2 * MAX_WAITING as u64).for_each(|id| order.sent(id, at(0)));
        assert_eq!(order.received(at(1)), Some(MAX_WAITING as u64));
    }
}
