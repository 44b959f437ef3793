//! Two measures of how delay varies from packet to packet. They are different things and never
//! stand in for each other; the third, PDV (RFC 5481), is [`crate::Figures::relative_to`].
//!
//! - [`Ipdv`]: the difference of *adjacent probes' delays* (RFC 3393 with the selection function
//!   "adjacent in sending order"), as a magnitude, which is how irtt prints it. A distribution.
//! - [`Jitter`]: the running average of RFC 3550 section 6.4.1, over *arrivals*. One number, which
//!   remembers about the last sixteen arrivals and forgets the rest.

use dwell_units::Nanos;

use crate::distribution::Distribution;
use crate::recent::Recent;

/// IPDV as |D(i) - D(i-1)| of probes adjacent in id, whatever order their delays become known in.
/// A pair with a lost member is absent, as is one whose delays become known more than 4,096 ids
/// apart.
#[derive(Clone, Debug)]
pub struct Ipdv {
    delays: Recent<Nanos>,
    magnitudes: Distribution,
}

/// Interarrival jitter: J += (|D| - J) / 16, in arrival order (RFC 3550 section 6.4.1 and appendix
/// A.8). D is the difference of two successive arrivals' delays; with a round-trip delay in place
/// of RTP's transit time the unknown clock offset is not there to cancel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jitter {
    previous: Option<Nanos>,
    estimate: Option<f64>,
}

impl Default for Ipdv {
    fn default() -> Self {
        Self::new()
    }
}

impl Ipdv {
    /// No delay seen.
    pub const fn new() -> Self {
        Self { delays: Recent::new(), magnitudes: Distribution::new() }
    }

    /// The delay of probe `id` has become known. A second delay for the same id is ignored.
    pub fn record(&mut self, id: u64, delay: Nanos) {
        if self.delays.get(id).is_some() {
            return;
        }
        for neighbour in [id.checked_sub(1), id.checked_add(1)].into_iter().flatten() {
            if let Some(other) = self.delays.get(neighbour) {
                self.magnitudes.record(distance(delay, other));
            }
        }
        self.delays.put(id, delay);
    }

    /// The magnitudes so far.
    pub fn magnitudes(&self) -> &Distribution {
        &self.magnitudes
    }
}

impl Jitter {
    /// A packet with this delay has arrived, after all those recorded before.
    pub fn record(&mut self, delay: Nanos) {
        if let Some(previous) = self.previous.replace(delay) {
            let difference = distance(delay, previous).0 as f64;
            let estimate = self.estimate.get_or_insert(0.0);
            *estimate += (difference - *estimate) / 16.0;
        }
    }

    /// The estimate in nanoseconds; `None` before the second arrival.
    pub fn nanos(&self) -> Option<f64> {
        self.estimate
    }
}

/// |a - b|, at most the longest duration there is: the difference of two far-end stamps may be
/// anything.
fn distance(a: Nanos, b: Nanos) -> Nanos {
    Nanos(i64::try_from(a.0.abs_diff(b.0)).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(distribution: &Distribution) -> Vec<i64> {
        let mut values = Vec::new();
        distribution.for_each(|value, n| values.extend((0..n).map(|_| value.0)));
        values.sort_unstable();
        values
    }

    #[test]
    fn a_pair_with_a_lost_member_is_absent() {
        let mut ipdv = Ipdv::new();
        for (id, delay) in [(0, 10), (1, 14), (3, 100), (4, 90)] {
            ipdv.record(id, Nanos(delay));
        }
        assert_eq!(all(ipdv.magnitudes()), [4, 10]);
    }

    #[test]
    fn the_extremes_of_a_hostile_stamp_do_not_overflow() {
        let mut ipdv = Ipdv::new();
        let mut jitter = Jitter::default();
        for (id, delay) in [(u64::MAX - 1, i64::MIN), (u64::MAX, i64::MAX)] {
            ipdv.record(id, Nanos(delay));
            jitter.record(Nanos(delay));
        }
        assert_eq!(all(ipdv.magnitudes()), [i64::MAX]);
        assert_eq!(jitter.nanos(), Some(i64::MAX as f64 / 16.0));
    }

    #[test]
    fn jitter_needs_two_arrivals_and_follows_the_formula() {
        let mut jitter = Jitter::default();
        jitter.record(Nanos(1_000));
        assert_eq!(jitter.nanos(), None);
        jitter.record(Nanos(1_160));
        assert_eq!(jitter.nanos(), Some(10.0));
        jitter.record(Nanos(1_000));
        assert_eq!(jitter.nanos(), Some(10.0 + 150.0 / 16.0));
    }

    proptest! {
        #[test]
        fn ipdv_does_not_depend_on_the_order_in_which_delays_become_known(
            delays in proptest::collection::vec(proptest::option::weighted(0.8, 0..1_000_000_i64), 0..300),
            order in any::<prop::sample::Index>(),
            seed in proptest::collection::vec(any::<u32>(), 300),
        ) {
            let mut naive: Vec<_> = delays
                .windows(2)
                .filter_map(|pair| Some((pair[1]? - pair[0]?).abs()))
                .collect();
            naive.sort_unstable();

            let mut arrivals: Vec<_> =
                delays.iter().enumerate().filter_map(|(id, d)| Some((id as u64, (*d)?))).collect();
            arrivals.sort_by_key(|(id, _)| seed[*id as usize]);
            if !arrivals.is_empty() {
                // A second reply to one of them changes nothing.
                let again = *order.get(&arrivals);
                arrivals.push((again.0, again.1 + 5));
            }
            let mut ipdv = Ipdv::new();
            arrivals.iter().for_each(|&(id, delay)| ipdv.record(id, Nanos(delay)));
            prop_assert_eq!(all(ipdv.magnitudes()), naive);
        }

        #[test]
        fn jitter_equals_the_recursion_of_the_rfc(
            delays in proptest::collection::vec(-1_000_000..1_000_000_i64, 2..200),
        ) {
            let naive = delays.windows(2).fold(0.0, |j, pair| {
                j + ((pair[1] - pair[0]).abs() as f64 - j) / 16.0
            });
            let mut jitter = Jitter::default();
            delays.iter().for_each(|&delay| jitter.record(Nanos(delay)));
            prop_assert_eq!(jitter.nanos(), Some(naive));
        }
    }
}
