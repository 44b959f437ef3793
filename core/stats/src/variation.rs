//! Two measures of delay variation between packets, which are not interchangeable. The third one,
//! PDV (RFC 5481), is [`crate::Figures::relative_to`].
//!
//! - [`Ipdv`]: difference of the delays of *adjacent probes* (RFC 3393 with the selection function
//!   "adjacent in sending order"), as a magnitude like in irtt. A distribution.
//! - [`Jitter`]: running average of RFC 3550 section 6.4.1, over *arrivals*. One number, dominated
//!   by about the last sixteen arrivals.

use dwell_units::Nanos;
use pulp::{Arch, NullaryFnOnce};

use crate::distribution::Distribution;
use crate::recent_ids::{Recent, WINDOW_LEN};

/// IPDV as |D(i) - D(i-1)| of probes with adjacent ids, in whatever order their delays become
/// known. A pair is missing if one probe is lost or if their delays become known more than 4,096
/// ids apart.
///
/// ```
/// use dwell_stats::Ipdv;
/// use dwell_units::Nanos;
///
/// let mut ipdv = Ipdv::new();
/// // Probe 2 is lost, so only the delays of probes 0 and 1 form a pair.
/// [(0, 500), (1, 620), (3, 900)].map(|(id, delay)| ipdv.record(id, Nanos(delay)));
/// assert_eq!((ipdv.magnitudes().count(), ipdv.magnitudes().max()), (1, Some(Nanos(120))));
/// ```
#[derive(Clone, Debug)]
pub struct Ipdv {
    delays: Recent<Nanos>,
    /// The newest delays recorded in order of id, not yet inserted into `delays`. Delays usually
    /// arrive in order, and then `delays` is not needed.
    in_order: Vec<(u64, Nanos)>,
    /// Largest id so far and its delay.
    newest: Option<(u64, Nanos)>,
    /// First delays, whose neighbours may be in an earlier part.
    head: Vec<(u64, Nanos)>,
    /// Buffer of distances to be added to `magnitudes`.
    distances: Vec<i64>,
    magnitudes: Distribution,
}

/// Number of pairs processed together.
const RUN_LEN: usize = 128;

/// Maximum length of `head`: the number of ids that `delays` stores.
const HEAD_LEN: usize = WINDOW_LEN;

/// Interarrival jitter: J += (|D| - J) / 16 in arrival order (RFC 3550 section 6.4.1 and appendix
/// A.8). D is the difference of the delays of two successive arrivals. With round-trip delays
/// instead of RTP transit times there is no clock offset to cancel.
///
/// ```
/// use dwell_stats::Jitter;
/// use dwell_units::Nanos;
///
/// let mut jitter = Jitter::default();
/// [500, 660, 660].map(|delay| jitter.record(Nanos(delay)));
/// assert_eq!(jitter.nanos(), Some(10.0 - 10.0 / 16.0));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Jitter {
    first: Option<Nanos>,
    previous: Option<Nanos>,
    estimate: Option<f64>,
    arrivals: u64,
}

/// Arrivals after which earlier ones are negligible: they are multiplied by (15/16)^1,024, about
/// 2e-29, which is below the precision of a double.
const ESTIMATE_MEMORY: usize = 1_024;

impl Default for Ipdv {
    fn default() -> Self {
        Self::new()
    }
}

impl Ipdv {
    /// Creates an empty record.
    pub const fn new() -> Self {
        Self {
            delays: Recent::new(),
            in_order: Vec::new(),
            newest: None,
            head: Vec::new(),
            distances: Vec::new(),
            magnitudes: Distribution::new(),
        }
    }

    /// Records the delay of probe `id`. A second delay for the same id is ignored.
    pub fn record(&mut self, id: u64, delay: Nanos) {
        self.flush_in_order();
        if self.delays.get(id).is_some() {
            return;
        }
        for neighbour in [id.checked_sub(1), id.checked_add(1)].into_iter().flatten() {
            if let Some(other) = self.delays.get(neighbour) {
                self.magnitudes.record(distance(delay, other));
            }
        }
        self.remember(id, delay);
    }

    /// Records the delays of several probes in this order, like [`Self::record`] for each.
    ///
    /// # Panics
    /// If the numbers of ids and delays differ.
    pub fn record_all(&mut self, ids: &[u64], delays: &[i64]) {
        assert_eq!(ids.len(), delays.len(), "one id per delay");
        let Some(&first) = ids.first() else { return };
        let is_newer = self.newest.is_none_or(|(newest, _)| first > newest);
        if !is_newer || !is_increasing(ids) {
            ids.iter().zip(delays).for_each(|(&id, &delay)| self.record(id, Nanos(delay)));
            return;
        }
        // Ids increase, so the only possible neighbour is the preceding one.
        let mut distances = std::mem::take(&mut self.distances);
        distances.clear();
        let before = self.newest.filter(|(newest, _)| first - newest == 1);
        distances.extend(before.map(|(_, delay)| distance(Nanos(delays[0]), delay).0));
        Arch::new().dispatch(AdjacentDistances { ids, delays, into: &mut distances });
        self.magnitudes.record_all(&distances);
        self.distances = distances;
        let all = || ids.iter().zip(delays).map(|(&id, &delay)| (id, Nanos(delay)));
        let missing = HEAD_LEN - self.head.len();
        self.head.extend(all().take(missing));
        if ids.len() >= WINDOW_LEN {
            self.in_order.clear();
        } else if self.in_order.len() >= WINDOW_LEN {
            self.in_order.drain(..self.in_order.len() - WINDOW_LEN);
        }
        self.in_order.extend(all().skip(ids.len().saturating_sub(WINDOW_LEN)));
        self.newest = all().next_back();
    }

    /// Returns whether an id at the beginning of `later` is also stored here. Recorded in sequence,
    /// its second delay would be ignored; [`Self::append`] cannot undo the pairs it formed.
    pub fn shares_an_id(&self, later: &Self) -> bool {
        let is_in_order = |id: &u64| self.in_order.binary_search_by_key(id, |(id, _)| *id).is_ok();
        let mut ids = later.head.iter().map(|(id, _)| id);
        ids.any(|id| self.delays.get(*id).is_some() || is_in_order(id))
    }

    /// Appends a record that was collected separately and continues this one. An id in both counts
    /// twice: see [`Self::shares_an_id`].
    pub fn append(&mut self, later: &Self) {
        self.flush_in_order();
        for &(id, delay) in &later.head {
            for neighbour in [id.checked_sub(1), id.checked_add(1)].into_iter().flatten() {
                if let Some(other) = self.delays.get(neighbour) {
                    self.magnitudes.record(distance(delay, other));
                }
            }
        }
        self.magnitudes.merge(&later.magnitudes);
        later.delays.for_each(|id, delay| self.delays.put(id, delay));
        later.in_order.iter().for_each(|&(id, delay)| self.delays.put(id, delay));
        let missing = HEAD_LEN - self.head.len();
        self.head.extend(later.head.iter().take(missing));
        self.newest = self.newest.max(later.newest);
    }

    /// Moves delays recorded in order into `delays`.
    fn flush_in_order(&mut self) {
        self.in_order.drain(..).for_each(|(id, delay)| self.delays.put(id, delay));
    }

    fn remember(&mut self, id: u64, delay: Nanos) {
        self.delays.put(id, delay);
        self.newest = self.newest.max(Some((id, delay)));
        if self.head.len() < HEAD_LEN {
            self.head.push((id, delay));
        }
    }

    /// Distribution of the magnitudes so far.
    pub fn magnitudes(&self) -> &Distribution {
        &self.magnitudes
    }
}

impl Jitter {
    /// Records the delay of the next arrival.
    pub fn record(&mut self, delay: Nanos) {
        self.first = self.first.or(Some(delay));
        self.arrivals += 1;
        if let Some(previous) = self.previous.replace(delay) {
            self.step(distance(delay, previous));
        }
    }

    /// Records the delays of successive arrivals. In a long series, only the last `ESTIMATE_MEMORY`
    /// affect the estimate and are evaluated.
    pub fn record_all(&mut self, delays: &[i64]) {
        let Some(forgotten) = delays.len().checked_sub(ESTIMATE_MEMORY + 1).filter(|n| *n > 0)
        else {
            delays.iter().for_each(|&delay| self.record(Nanos(delay)));
            return;
        };
        self.first = self.first.or(Some(Nanos(delays[0])));
        self.previous = Some(Nanos(delays[forgotten - 1]));
        self.estimate.get_or_insert(0.0);
        self.arrivals += forgotten as u64;
        delays[forgotten..].iter().for_each(|&delay| self.record(Nanos(delay)));
    }

    /// Appends arrivals that were recorded separately and continue these.
    pub fn append(&mut self, later: &Self) {
        let (Some(first), Some(last)) = (later.first, later.previous) else { return };
        if let Some(previous) = self.previous {
            self.step(distance(first, previous));
        }
        if let Some(estimate) = later.estimate {
            // The recursion is linear: the previous estimate decays by the same factor at every
            // step.
            let steps = i32::try_from(later.arrivals - 1).unwrap_or(i32::MAX);
            let before = self.estimate.unwrap_or(0.0) * (15.0_f64 / 16.0).powi(steps);
            self.estimate = Some(before + estimate);
        }
        self.first = self.first.or(later.first);
        self.previous = Some(last);
        self.arrivals += later.arrivals;
    }

    fn step(&mut self, difference: Nanos) {
        let estimate = self.estimate.get_or_insert(0.0);
        *estimate += (difference.0 as f64 - *estimate) / 16.0;
    }

    /// The estimate in nanoseconds; `None` before the second arrival.
    pub fn nanos(&self) -> Option<f64> {
        self.estimate
    }
}

/// Computes distances of adjacent ids in an increasing sequence, compiled for the widest vector
/// registers of this processor; every callee must be inlined.
struct AdjacentDistances<'a> {
    ids: &'a [u64],
    delays: &'a [i64],
    into: &'a mut Vec<i64>,
}

impl NullaryFnOnce for AdjacentDistances<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { ids, delays, into } = self;
        // Differences of non-negative values cannot overflow.
        let narrow = delays.iter().fold(0, |bits, delay| bits | delay) >= 0;
        // Increasing ids are consecutive if last - first = count - 1.
        for start in (0..ids.len() - 1).step_by(RUN_LEN) {
            let end = (start + RUN_LEN + 1).min(ids.len());
            let (ids, delays) = (&ids[start..end], &delays[start..end]);
            let apart = |pair: (&i64, &i64)| distance(Nanos(*pair.1), Nanos(*pair.0)).0;
            let pairs = delays.iter().zip(&delays[1..]);
            let complete = ids[ids.len() - 1] - ids[0] == ids.len() as u64 - 1;
            if complete && narrow {
                into.extend(pairs.map(|(before, delay)| (delay - before).abs()));
            } else if complete {
                into.extend(pairs.map(apart));
            } else {
                let adjacent = pairs.zip(ids.windows(2)).filter(|(_, ids)| ids[1] - ids[0] == 1);
                into.extend(adjacent.map(|(pair, _)| apart(pair)));
            }
        }
    }
}

/// Returns whether ids are strictly increasing.
fn is_increasing(ids: &[u64]) -> bool {
    (0..ids.len()).step_by(RUN_LEN).all(|start| {
        let run = &ids[start..ids.len().min(start + RUN_LEN + 1)];
        // Fast path: usually each id is the next one, which is checked for several at a time.
        let steps = run.iter().zip(&run[1..]).map(|(before, id)| id.wrapping_sub(*before));
        let next = steps.fold(0, |other, step| other | (step ^ 1)) == 0;
        let around = next && run[run.len() - 1] < run[0];
        (next && !around) || run.is_sorted_by(|a, b| a < b)
    })
}

/// Returns |a - b|, limited to the maximum duration: the far end's timestamps are arbitrary.
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
    fn pair_with_a_lost_probe_is_absent() {
        let mut ipdv = Ipdv::new();
        for (id, delay) in [(0, 10), (1, 14), (3, 100), (4, 90)] {
            ipdv.record(id, Nanos(delay));
        }
        assert_eq!(all(ipdv.magnitudes()), [4, 10]);
    }

    #[test]
    fn extreme_timestamps_do_not_overflow() {
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

    #[test]
    fn shared_ids_between_parts_are_detected() {
        let part = |ids: &[u64], at_once: bool| {
            let mut ipdv = Ipdv::new();
            match at_once {
                true => ipdv.record_all(ids, &vec![7; ids.len()]),
                false => ids.iter().for_each(|id| ipdv.record(*id, Nanos(7))),
            }
            ipdv
        };
        for at_once in [true, false] {
            let first = part(&[3, 4, 5, 9], at_once);
            for (later, shares) in
                [(&[10, 11][..], false), (&[6, 8], false), (&[11, 9], true), (&[], false)]
            {
                assert_eq!(first.shares_an_id(&part(later, at_once)), shares, "{later:?}");
            }
            assert!(!Ipdv::new().shares_an_id(&first));
        }
    }

    proptest! {
        #[test]
        fn ipdv_is_independent_of_arrival_order(
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

    proptest! {
        // Fewer cases, because the series are long.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn batched_delays_match_single_records(
            delays in proptest::collection::vec(proptest::option::weighted(0.9, 0..1_000_000_i64), 0..9_000),
            swapped in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut known: Vec<_> =
                delays.iter().enumerate().filter_map(|(id, d)| Some((id as u64, (*d)?))).collect();
            let pairs = known.len().saturating_sub(1);
            for place in swapped.iter().filter(|_| pairs > 0) {
                let place = place.index(pairs);
                known.swap(place, place + 1);
            }
            let (mut ipdv, mut jitter) = (Ipdv::new(), Jitter::default());
            for &(id, delay) in &known {
                ipdv.record(id, Nanos(delay));
                jitter.record(Nanos(delay));
            }
            let (ids, delays): (Vec<_>, Vec<_>) = known.into_iter().unzip();
            let at_once = |from: usize, to: usize| {
                let (mut ipdv, mut jitter) = (Ipdv::new(), Jitter::default());
                ipdv.record_all(&ids[from..to], &delays[from..to]);
                jitter.record_all(&delays[from..to]);
                (ipdv, jitter)
            };
            let cut = cut.index(ids.len() + 1);
            let mut parts = at_once(0, cut);
            let later = at_once(cut, ids.len());
            parts.0.append(&later.0);
            parts.1.append(&later.1);
            for (some, other) in [at_once(0, ids.len()), parts] {
                prop_assert_eq!(all(some.magnitudes()), all(ipdv.magnitudes()));
                match (other.nanos(), jitter.nanos()) {
                    (Some(a), Some(b)) => prop_assert!((a - b).abs() <= b * 1e-9, "{} {}", a, b),
                    (a, b) => prop_assert_eq!(a, b),
                }
            }
        }
    }
}
