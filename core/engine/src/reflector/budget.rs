//! The rate limit of one source, such as one TCP connection.

use dwell_units::{Instant, Monotonic, Nanos, PacketRate};

/// A budget of replies: the generic cell rate algorithm (ITU-T I.371), kept as one instant.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    gap: Nanos,
    burst: Nanos,
    /// When the budget is full again.
    full_at: Instant<Monotonic>,
}

impl Budget {
    /// Allows `rate`, and bursts of a tenth of a second; `None` at rate 0.
    pub fn new(rate: PacketRate) -> Option<Self> {
        let gap = rate.gap()?;
        Some(Self { gap, burst: Nanos::from_millis(100).max(gap), full_at: Instant::EPOCH })
    }

    /// Whether one more reply is allowed now; spends it if so.
    pub fn allows(&mut self, now: Instant<Monotonic>) -> bool {
        let next = self.full_at.max(now) + self.gap;
        let allowed = next - now <= self.burst;
        if allowed {
            self.full_at = next;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_is_limited_to_rate_and_burst() {
        let at = |i: i64| Instant::from_nanos(i * 100_000);
        let mut budget = Budget::new("1000pps".parse().unwrap()).unwrap();
        // 10,000 requests in one second.
        let allowed = (0..10_000).filter(|i| budget.allows(at(*i))).count();
        assert!((1_000..=1_101).contains(&allowed), "{allowed}");
    }
}
