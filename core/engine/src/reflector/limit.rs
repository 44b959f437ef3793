//! The rate limit per source address and port.

use std::collections::HashMap;
use std::net::SocketAddr;

use dwell_units::{Instant, Monotonic, Nanos, PacketRate};

/// Sources whose budget is remembered at the same time.
const SOURCES: usize = 4_096;

/// A budget per source: the generic cell rate algorithm, one instant each. Bounded: a source whose
/// budget is full again is forgotten without loss, and when none is, newcomers wait.
#[derive(Debug)]
pub struct Limiter {
    gap: Nanos,
    burst: Nanos,
    /// When the budget of a source is full again.
    full_at: HashMap<SocketAddr, Instant<Monotonic>>,
}

impl Limiter {
    /// Allows `rate` per source, and bursts of a tenth of a second; `None` at rate 0.
    pub fn new(rate: PacketRate) -> Option<Self> {
        let gap = rate.gap()?;
        let burst = Nanos::from_millis(100).max(gap);
        Some(Self { gap, burst, full_at: HashMap::with_capacity(SOURCES) })
    }

    /// Whether `from` may be answered now; spends of its budget if so.
    pub fn allows(&mut self, from: SocketAddr, now: Instant<Monotonic>) -> bool {
        if self.full_at.len() >= SOURCES && !self.full_at.contains_key(&from) {
            self.full_at.retain(|_, full| *full > now);
            if self.full_at.len() >= SOURCES {
                return false;
            }
        }
        let full = self.full_at.entry(from).or_insert(now);
        let next = (*full).max(now) + self.gap;
        let allowed = next - now <= self.burst;
        if allowed {
            *full = next;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(port: u16) -> SocketAddr {
        SocketAddr::new("192.0.2.1".parse().unwrap(), port)
    }

    #[test]
    fn a_flood_is_cut_to_the_rate_and_spends_no_other_budget() {
        let mut limiter = Limiter::new("1000pps".parse().unwrap()).unwrap();
        // 10,000 packets in one second.
        let at = |i: i64| Instant::from_nanos(i * 100_000);
        let allowed = (0..10_000).filter(|i| limiter.allows(source(1), at(*i))).count();
        assert!((1_000..=1_101).contains(&allowed), "{allowed}");
        assert!(limiter.allows(source(2), at(10_000)), "another port has its own budget");
    }

    #[test]
    fn memory_is_bounded_and_recovers() {
        let mut limiter = Limiter::new("10pps".parse().unwrap()).unwrap();
        let now = Instant::from_nanos(0);
        let served = (0..=u16::MAX).filter(|port| limiter.allows(source(*port), now)).count();
        assert_eq!(served, SOURCES);
        let later = now + Nanos::from_secs(1);
        assert!(limiter.allows(source(60_000), later), "full budgets are forgotten");
    }
}
