//! Salts: the part of a nonce that is unique to one process and direction for a given key.
//!
//! A process starts at a random number and counts up: one salt for each sealing direction of a UDP
//! relay, one for each direction of each TCP connection, and another before a packet counter would
//! wrap. Consecutive numbers keep the receiver's memory small, and ranges with random starts
//! collide less often than the same number of random salts.

/// Length of a salt in bytes.
pub const SALT_LEN: usize = 8;

/// Number of bits of the counter in a salt. The two bits above it name the domain.
const COUNTED_BITS: u32 = 62;

/// Maximum number of ranges of used salts.
const MAX_RANGES: usize = 4_096;

/// Purpose of a salt. It is part of every salt, so that no packet is accepted in the other
/// direction or on the other transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Datagrams from the encrypting relay to the decrypting one.
    DatagramForward = 0,
    /// Datagrams from the decrypting relay back.
    DatagramBackward = 1,
    /// Connections, from the encrypting relay to the decrypting one.
    StreamForward = 2,
    /// Connections, from the decrypting relay back.
    StreamBackward = 3,
}

impl Domain {
    /// Whether `salt` belongs to this domain.
    pub const fn has(self, salt: u64) -> bool {
        salt >> COUNTED_BITS == self as u64
    }
}

/// Draws the salts of one process and direction.
#[derive(Clone, Copy, Debug)]
pub struct Salts {
    domain: Domain,
    next: u64,
}

impl Salts {
    /// Creates a sequence that starts at `start`, which must be random.
    pub const fn new(domain: Domain, start: u64) -> Self {
        Self { domain, next: start }
    }

    /// Returns the next salt.
    pub const fn draw(&mut self) -> u64 {
        let salt = (self.domain as u64) << COUNTED_BITS | self.next & (u64::MAX >> 2);
        self.next = self.next.wrapping_add(1);
        salt
    }
}

/// Set of used salts, stored as ranges. Bounded: if another range would not fit, the two closest
/// ranges are merged, and the salts between them count as used. A used salt is never forgotten.
#[derive(Debug, Default)]
pub struct UsedSalts {
    /// First and last salt of each range, in ascending order, none adjacent to the next.
    ranges: Vec<(u64, u64)>,
}

impl UsedSalts {
    /// Marks a salt as used; returns whether it was unused.
    pub fn claim(&mut self, salt: u64) -> bool {
        let at = self.ranges.partition_point(|(first, _)| *first <= salt);
        let below = at.checked_sub(1).map(|n| self.ranges[n].1);
        if below.is_some_and(|last| last >= salt) {
            return false;
        }
        let extends_below = below.is_some_and(|last| last.checked_add(1) == Some(salt));
        let above = self.ranges.get(at).map(|(first, _)| *first);
        let extends_above = above.is_some_and(|first| salt.checked_add(1) == Some(first));
        match (extends_below, extends_above) {
            (true, true) => {
                self.ranges[at - 1].1 = self.ranges[at].1;
                self.ranges.remove(at);
            }
            (true, false) => self.ranges[at - 1].1 = salt,
            (false, true) => self.ranges[at].0 = salt,
            (false, false) => self.ranges.insert(at, (salt, salt)),
        }
        if self.ranges.len() > MAX_RANGES {
            self.join_closest();
        }
        true
    }

    fn join_closest(&mut self) {
        let gap = |n: &usize| self.ranges[n + 1].0 - self.ranges[*n].1;
        let Some(closest) = (0..self.ranges.len() - 1).min_by_key(gap) else { return };
        self.ranges[closest].1 = self.ranges[closest + 1].1;
        self.ranges.remove(closest + 1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn salts_of_two_domains_are_disjoint() {
        let domains = [
            Domain::DatagramForward,
            Domain::DatagramBackward,
            Domain::StreamForward,
            Domain::StreamBackward,
        ];
        for start in [0, 7, u64::MAX, u64::MAX >> 2] {
            for domain in domains {
                let mut salts = Salts::new(domain, start);
                let drawn: HashSet<_> = (0..10).map(|_| salts.draw()).collect();
                assert_eq!(drawn.len(), 10);
                for other in domains {
                    assert!(drawn.iter().all(|salt| other.has(*salt) == (other == domain)));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn salt_is_claimed_once_in_any_order(
            salts in prop::collection::vec(prop_oneof![0_u64..40, any::<u64>(), Just(u64::MAX)], 0..200)
        ) {
            let (mut used, mut model) = (UsedSalts::default(), HashSet::new());
            for salt in salts {
                prop_assert_eq!(used.claim(salt), model.insert(salt), "{}", salt);
            }
        }
    }

    #[test]
    fn full_table_forgets_no_used_salt_and_takes_new_ones() {
        let mut used = UsedSalts::default();
        // Every other salt is used, in twice as many ranges as fit.
        let old: Vec<u64> = (0..2 * MAX_RANGES as u64).map(|n| 2 * n).collect();
        for salt in &old {
            assert!(used.claim(*salt));
            assert!(used.ranges.len() <= MAX_RANGES);
        }
        assert!(old.iter().all(|salt| !used.claim(*salt)), "no used salt is forgotten");
        let next = old.last().unwrap() + 1;
        assert!((next..next + 1_000).all(|salt| used.claim(salt)), "a process continues");
        assert!(used.claim(1 << 61), "another process starts");
    }
}
