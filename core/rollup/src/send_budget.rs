//! What a node may still send within its local limits: one budget for all its streams, so that neither
//! their number nor their restarts exceed a limit.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use dwell_units::{Instant, Monotonic, Nanos};

use crate::schedule::LocalLimits;

/// Time between two marks of the bytes sent.
const MARK_INTERVAL: Nanos = Nanos::from_secs(300);

/// Number of marks: those of a day.
const MARKS: usize = 288;

/// Packets that may leave at once at any rate: the warm-up of a stream, and its first probe.
const MIN_BURST_PACKETS: i64 = 10;

/// Time whose packets may leave at once.
const BURST_TIME: Nanos = Nanos::from_secs(1);

/// A budget of packets and bytes. In any time, packets exceed the limit's rate by at most a burst, of
/// one second or ten packets; in any 24 hours, the bytes are within their limit.
///
/// ```
/// use dwell_rollup::{LocalLimits, SendBudget};
/// use dwell_units::{Instant, Nanos};
///
/// let limits = LocalLimits { packets: "20pps".parse().ok(), ..LocalLimits::default() };
/// let start = Instant::from_parts(5, 0);
/// let budget = SendBudget::new(&limits, start);
/// assert!(budget.take(start, 20, 0));
/// assert!(!budget.take(start, 1, 0));
/// assert!(budget.take(start + Nanos::from_millis(50), 1, 0));
/// ```
#[derive(Debug)]
pub struct SendBudget {
    /// Time of a packet at the limit's rate in nanoseconds; 0: unlimited.
    packet_ns: i64,
    /// CLOCK_MONOTONIC at which the packets so far have left at the limit's rate.
    paid_until_ns: AtomicI64,
    /// Bytes sent since the start.
    bytes: AtomicU64,
    /// What they may become before the next mark.
    max_bytes: AtomicU64,
    /// Maximum number of bytes per day.
    daily_bytes: u64,
    marks: Mutex<Marks>,
}

/// Bytes that were sent until each mark of the last day.
#[derive(Debug)]
struct Marks {
    bytes: [u64; MARKS],
    next: usize,
    last: Instant<Monotonic>,
}

impl SendBudget {
    /// Creates the whole budget of a node.
    pub fn new(limits: &LocalLimits, now: Instant<Monotonic>) -> Self {
        let packet = limits.packets.map_or(Nanos::ZERO, |rate| rate.gap().unwrap_or(Nanos::MAX));
        let daily_bytes = limits.bytes_per_day.map_or(u64::MAX, |bytes| bytes.0);
        Self {
            packet_ns: packet.0,
            paid_until_ns: AtomicI64::new(i64::MIN),
            bytes: AtomicU64::new(0),
            max_bytes: AtomicU64::new(daily_bytes),
            daily_bytes,
            marks: Mutex::new(Marks { bytes: [0; MARKS], next: 0, last: now }),
        }
    }

    /// Takes packets, and bytes of packets and their replies. Returns false if a limit does not allow
    /// them now.
    pub fn take(&self, now: Instant<Monotonic>, packets: u32, bytes: u64) -> bool {
        let now = now.as_nanos();
        let cost = self.packet_ns.saturating_mul(packets.into());
        let burst = self.packet_ns.saturating_mul(MIN_BURST_PACKETS).max(BURST_TIME.0);
        let paid = self.paid_until_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |until| {
            let until = until.max(now).saturating_add(cost);
            (until.saturating_sub(now) <= burst).then_some(until)
        });
        let fits = |sent: u64| {
            sent.checked_add(bytes).filter(|sum| *sum <= self.max_bytes.load(Ordering::Relaxed))
        };
        paid.is_ok() && self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Gives back the bytes that were sent more than a day ago. To be called every few minutes.
    pub fn tend(&self, now: Instant<Monotonic>) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        while now - marks.last >= MARK_INTERVAL {
            let at = marks.next;
            let sent = self.bytes.load(Ordering::Relaxed);
            let day_ago = std::mem::replace(&mut marks.bytes[at], sent);
            marks.next = (at + 1) % MARKS;
            marks.last = marks.last + MARK_INTERVAL;
            self.max_bytes.store(self.daily_bytes.saturating_add(day_ago), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Instant<Monotonic> {
        Instant::from_parts(100, 0)
    }

    fn budget(packets: &str, bytes: &str) -> SendBudget {
        let limits = LocalLimits {
            packets: (!packets.is_empty()).then(|| packets.parse().unwrap()),
            bytes_per_day: (!bytes.is_empty()).then(|| bytes.parse().unwrap()),
            ..LocalLimits::default()
        };
        SendBudget::new(&limits, start())
    }

    #[test]
    fn packets_stay_within_rate_and_burst() {
        for (rate, burst, per_minute) in [("100pps", 100, 6_000), ("2pps", 10, 120)] {
            let budget = budget(rate, "");
            let mut sent = 0;
            for millis in 0..60_000 {
                let now = start() + Nanos::from_millis(millis);
                // As many as streams that restart all the time would send.
                sent += (0..5).filter(|_| budget.take(now, 1, 1_000)).count();
            }
            assert!((per_minute..=per_minute + burst).contains(&sent), "{rate}: {sent}");
            let later = start() + Nanos::from_secs(3_600);
            assert!(budget.take(later, burst as u32, 0) && !budget.take(later, 1, 0));
        }
        assert!(budget("", "").take(start(), u32::MAX, u64::MAX), "unlimited");
    }

    #[test]
    fn bytes_of_any_day_stay_within_their_limit() {
        let budget = budget("", "1MB");
        let mut sent: Vec<u64> = Vec::new();
        // Twice the limit is wanted, for five days; a minute per turn.
        for minute in 0..5 * 1_440 {
            let now = start() + Nanos::from_secs(60 * minute);
            budget.tend(now);
            sent.push((0..14).filter(|_| budget.take(now, 1, 100)).count() as u64 * 100);
        }
        let days: Vec<u64> = sent.windows(1_440).map(|day| day.iter().sum()).collect();
        assert!(days.iter().all(|day| *day <= 1_000_000), "{:?}", days.iter().max());
        assert!(days.iter().all(|day| *day > 980_000), "{:?}", days.iter().min());
    }

    #[test]
    fn schedule_at_the_limit_loses_few_probes() {
        let budget = budget("1pps", "8640000B");
        let refused = (0..86_400 * 2).filter(|n| {
            let now = start() + Nanos::from_secs(*n);
            budget.tend(now);
            !budget.take(now, 1, 100)
        });
        assert!(refused.count() < 86_400 / 250, "at most 0.4 %");
    }
}
