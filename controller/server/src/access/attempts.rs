//! Rate limit of failed logins: per source address, and for all addresses together.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Failed logins that an address may make at once, and the time after which one of them is forgotten.
const MAX_FAILURES: u32 = 5;
const FAILURE_INTERVAL: Duration = Duration::from_secs(30);

/// The same for all addresses together.
const MAX_FAILURES_OVERALL: u32 = 100;
const FAILURE_INTERVAL_OVERALL: Duration = Duration::from_secs(1);

/// Maximum number of addresses that are remembered. Failures of further ones count overall only.
const MAX_ADDRESSES: usize = 4096;

/// The failed logins of the last minutes.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    addresses: HashMap<IpAddr, Failures>,
    overall: Failures,
}

/// Failures as a leaky bucket: the instant at which it will be empty.
#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    forgotten: Option<Instant>,
}

impl Attempts {
    /// Returns how long an address has to wait before its next login; `None` if it need not.
    pub(crate) fn wait(&self, now: Instant, address: IpAddr) -> Option<Duration> {
        let of = self.addresses.get(&source(address)).copied().unwrap_or_default();
        let own = of.wait(now, MAX_FAILURES, FAILURE_INTERVAL);
        own.max(self.overall.wait(now, MAX_FAILURES_OVERALL, FAILURE_INTERVAL_OVERALL))
    }

    /// Counts a failed login.
    pub(crate) fn count(&mut self, now: Instant, address: IpAddr) {
        self.overall.count(now, FAILURE_INTERVAL_OVERALL);
        let address = source(address);
        if self.addresses.len() >= MAX_ADDRESSES {
            self.addresses.retain(|_, failures| failures.forgotten > Some(now));
        }
        if self.addresses.len() < MAX_ADDRESSES || self.addresses.contains_key(&address) {
            self.addresses.entry(address).or_default().count(now, FAILURE_INTERVAL);
        }
    }
}

impl Failures {
    fn count(&mut self, now: Instant, interval: Duration) {
        self.forgotten = Some(self.forgotten.map_or(now, |at| at.max(now)) + interval);
    }

    /// Time until fewer than `max` failures are remembered.
    fn wait(&self, now: Instant, max: u32, interval: Duration) -> Option<Duration> {
        let remaining = self.forgotten?.saturating_duration_since(now);
        let wait = remaining.checked_sub((max - 1) * interval)?;
        (!wait.is_zero()).then_some(wait)
    }
}

/// What counts as one source: an IPv4 address, or an IPv6 network of 64 bits.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(n: u32) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 + n).into()
    }

    #[test]
    fn address_waits_after_its_failures_and_others_do_not() {
        let now = Instant::now();
        let mut attempts = Attempts::default();
        for _ in 0..MAX_FAILURES {
            assert_eq!(attempts.wait(now, address(1)), None);
            attempts.count(now, address(1));
        }
        assert_eq!(attempts.wait(now, address(1)), Some(FAILURE_INTERVAL));
        assert_eq!(attempts.wait(now, address(2)), None);
        assert_eq!(attempts.wait(now + FAILURE_INTERVAL, address(1)), None);
        attempts.count(now + FAILURE_INTERVAL, address(1));
        assert!(attempts.wait(now + FAILURE_INTERVAL, address(1)).is_some());
    }

    #[test]
    fn ipv6_network_is_one_source() {
        let now = Instant::now();
        let mut attempts = Attempts::default();
        for n in 0..MAX_FAILURES {
            attempts.count(now, format!("2001:db8::{n}").parse().unwrap());
        }
        assert!(attempts.wait(now, "2001:db8::ffff".parse().unwrap()).is_some());
        assert!(attempts.wait(now, "2001:db8:0:1::1".parse().unwrap()).is_none());
    }

    #[test]
    fn failures_of_many_addresses_are_limited_and_bounded() {
        let now = Instant::now();
        let mut attempts = Attempts::default();
        for n in 0..2 * MAX_ADDRESSES as u32 {
            attempts.count(now, address(n));
        }
        assert_eq!(attempts.addresses.len(), MAX_ADDRESSES);
        assert!(attempts.wait(now, address(u32::MAX >> 9)).is_some());
        let later = now + Duration::from_secs(24 * 60 * 60);
        assert_eq!(attempts.wait(later, address(1)), None);
        attempts.count(later, address(1));
        assert_eq!(attempts.addresses.len(), 1);
    }
}
