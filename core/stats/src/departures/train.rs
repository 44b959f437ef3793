//! Figures of one packet train (Mok 2015, S2.5 and S2.6).

use dwell_units::Nanos;

use super::variability::Variability;
use super::{TrainDepartures, TrainRequest, rate};
use crate::accuracy::TrainAccuracy;
use crate::distribution::{Distribution, Figures, Quantile};
use crate::interval::RealInterval;

/// Figures of one train.
///
/// ```
/// use dwell_stats::departures::{TrainDepartures, TrainFigures, TrainRequest};
/// use dwell_units::Nanos;
///
/// // Five packets of 1250 B at 100 Mbit/s are due every 100 us; the last one leaves 40 us late.
/// let asked = TrainRequest { bits: 10_000.0, gap: 100_000.0, deadline: None, same_clock: true };
/// let due = [0, 100, 200, 300, 400].map(Nanos::from_micros);
/// let left = [0, 100, 200, 300, 440].map(|us| Some(Nanos::from_micros(us)));
/// let train = TrainDepartures { due: &due, left: &left, stepped: false };
///
/// let figures = TrainFigures::of(&train, &asked).expect("no clock was stepped");
/// assert_eq!(figures.gap_error.max, Some(Nanos::from_micros(40)));
/// assert_eq!(figures.missed, Some(0), "40 us late is less than one gap");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TrainFigures {
    /// Packets scheduled.
    pub packets: u64,
    /// Packets without a timestamp.
    pub unstamped: u64,
    /// Rate r in bit/s by equation (1) of Mok 2015, 8 s (n - 1) / (t_(n-1) - t_0). `None` unless
    /// every packet has a timestamp: a packet without one may not have left at all.
    pub rate_bps: Option<f64>,
    /// The variability j of Mok 2015, in four definitions.
    pub variability: Variability,
    /// |gap - scheduled gap|.
    pub gap_error: Figures,
    /// Actual minus scheduled departure of all packets except the first; empty if the clocks
    /// differ.
    pub schedule_error: Figures,
    /// The same for the first packet, which is sent with cold caches.
    pub first_schedule_error: Option<Nanos>,
    /// Packets that missed their deadline ([`TrainRequest::deadline`]).
    pub missed: Option<u64>,
    /// Runs of packets that left too close together.
    pub bursts: Bursts,
    /// Gaps of 0 between packets scheduled at different times: an offload merged them, or the
    /// timestamp clock is too coarse.
    pub merged: u64,
    /// Gaps longer than scheduled by more than one nominal gap.
    pub holes: u64,
    /// Accuracy of the train; intervals cover missing timestamps.
    pub accuracy: TrainAccuracy,
}

/// Runs of packets that each left after less than half their scheduled gap: a sender that catches
/// up, or a network card that sends its queue at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bursts {
    /// Number of runs.
    pub count: u64,
    /// Packets in the longest run, including the one before its first short gap; 0 without runs.
    pub longest: u64,
}

impl TrainFigures {
    /// Computes the figures of a train; `None` if a clock was stepped while it was sent.
    pub fn of(train: &TrainDepartures, asked: &TrainRequest) -> Option<Self> {
        if train.stepped {
            return None;
        }
        let gaps: Vec<_> = train.gaps().map(|(_, gap)| gap).collect();
        let errors = gap_errors(train);
        let mut schedule_error = Distribution::new();
        let mut first_schedule_error = None;
        let mut missed = 0;
        for (packet, error) in train.schedule_errors().filter(|_| asked.same_clock) {
            missed += u64::from(error as f64 > asked.deadline_ns());
            match packet {
                0 => first_schedule_error = Some(Nanos(error)),
                _ => schedule_error.record(Nanos(error)),
            }
        }
        let accuracy = TrainAccuracy {
            rate_bps: possible_rate(train, asked.bits),
            gap_error_p95: possible_p95(&errors, gaps.len()),
        };
        let unstamped = (train.due.len() - train.stamped()) as u64;
        let whole = unstamped == 0 && accuracy.rate_bps.high.is_finite();
        Some(Self {
            packets: train.due.len() as u64,
            unstamped,
            rate_bps: whole.then_some(accuracy.rate_bps.high),
            variability: Variability::of(&gaps, asked.gap),
            gap_error: figures(&errors),
            schedule_error: schedule_error.figures(),
            first_schedule_error,
            missed: asked.same_clock.then_some(missed),
            bursts: Bursts::of(train.gaps()),
            merged: train.gaps().filter(|(due, gap)| *due > 0 && *gap == Some(0)).count() as u64,
            holes: holes(train, asked.gap),
            accuracy,
        })
    }

    /// Returns whether the train has a hole. Such a train is flagged, and its figures are not
    /// smoothed.
    pub fn holed(&self) -> bool {
        self.holes > 0
    }
}

impl Bursts {
    /// Counts bursts from scheduled and actual gaps; an unknown gap ends a run.
    fn of(gaps: impl Iterator<Item = (i64, Option<i64>)>) -> Self {
        let mut bursts = Self::default();
        let mut run = 0;
        for (scheduled, gap) in gaps {
            let short = gap.is_some_and(|gap| i128::from(gap) * 2 < i128::from(scheduled));
            run = if short { run + 1 } else { 0 };
            bursts.count += u64::from(run == 1);
            bursts.longest = bursts.longest.max(if run > 0 { run + 1 } else { 0 });
        }
        bursts
    }
}

/// Returns |gap - scheduled gap| of every known gap, in order.
pub(super) fn gap_errors(train: &TrainDepartures) -> Vec<i64> {
    train
        .gaps()
        .filter_map(|(scheduled, gap)| Some(gap?.saturating_sub(scheduled).saturating_abs()))
        .collect()
}

fn holes(train: &TrainDepartures, nominal: f64) -> u64 {
    let longer = |(scheduled, gap): (i64, Option<i64>)| {
        gap.is_some_and(|gap| gap.saturating_sub(scheduled) as f64 > nominal)
    };
    train.gaps().filter(|gaps| longer(*gaps)).count() as u64
}

fn figures(values: &[i64]) -> Figures {
    let mut distribution = Distribution::new();
    values.iter().for_each(|value| distribution.record(Nanos(*value)));
    distribution.figures()
}

/// Bounds of equation (1): the low end if no packet without a timestamp left, the high end if all
/// did. Unbounded if the first or the last packet has no timestamp.
fn possible_rate(train: &TrainDepartures, bits: f64) -> RealInterval {
    let unknown = RealInterval { low: 0.0, high: f64::INFINITY };
    let Some(last) = train.due.len().checked_sub(1).filter(|last| *last > 0) else {
        return unknown;
    };
    let Some((from, to)) = train.left(0).zip(train.left(last)) else { return unknown };
    let of = |gaps: usize| rate(bits * gaps as f64, to.saturating_sub(from) as f64);
    match of(train.stamped() - 1).zip(of(last)) {
        Some((low, high)) => RealInterval { low, high },
        None => unknown,
    }
}

/// Bounds of the nearest-rank 95th percentile of `gaps` values with only `known` given: unknown
/// values are assumed to be 0 or infinite. Unbounded if there are too few values
/// ([`Quantile::rank`]).
fn possible_p95(known: &[i64], gaps: usize) -> RealInterval {
    let Some(rank) = Quantile::P95.rank(gaps as u64) else {
        return RealInterval { low: 0.0, high: f64::INFINITY };
    };
    let mut sorted = known.to_vec();
    sorted.sort_unstable();
    let at = |rank: usize| rank.checked_sub(1).and_then(|index| sorted.get(index));
    let rank = rank as usize;
    RealInterval {
        low: at(rank.saturating_sub(gaps - known.len())).map_or(0.0, |value| *value as f64),
        high: at(rank).map_or(f64::INFINITY, |value| *value as f64),
    }
}

#[cfg(test)]
mod tests {
    use dwell_engine::departures::Pattern;
    use proptest::prelude::*;

    use super::*;
    use crate::percentile::percentile;

    /// 100 packets of 1,000 bits in a second, 10 ms apart.
    const REQUEST: TrainRequest =
        TrainRequest { bits: 1e3, gap: 1e7, deadline: None, same_clock: true };

    fn due(packets: i64) -> Vec<Nanos> {
        (0..packets).map(|n| Nanos(n * 10_000_000)).collect()
    }

    fn figures_of(due: &[Nanos], left: &[Option<i64>]) -> TrainFigures {
        let left: Vec<_> = left.iter().map(|at| at.map(Nanos)).collect();
        TrainFigures::of(&TrainDepartures { due, left: &left, stepped: false }, &REQUEST).unwrap()
    }

    /// Packets due every 10 ms with this lateness in milliseconds.
    fn late(late: &[Option<i64>]) -> TrainFigures {
        let left: Vec<_> =
            (0..).zip(late).map(|(n, late)| Some((n * 10 + (*late)?) * 1_000_000)).collect();
        figures_of(&due(late.len() as i64), &left)
    }

    #[test]
    fn equal_timestamps_count_as_merged_unless_due_together() {
        let due = [0, 0, 10, 20, 30].map(|n| Nanos(n * 1_000_000));
        let left = [0, 0, 10, 10, 30].map(|at| Some(at * 1_000_000));
        assert_eq!(figures_of(&due, &left).merged, 1);
    }

    #[test]
    fn delayed_packet_makes_a_hole_and_catch_up_a_burst() {
        // Departures in ms: 0 10 41 42 43 50.
        let train = late(&[0, 0, 21, 12, 3, 0].map(Some));
        assert_eq!((train.holes, train.holed()), (1, true));
        assert_eq!(train.bursts, Bursts { count: 1, longest: 3 });
        assert_eq!(train.missed, Some(2), "two packets are more than 10 ms late");
        // The overall rate is as requested; only the hole count shows the hole.
        assert_eq!(train.rate_bps, Some(1e5));
        assert_eq!(train.gap_error.max, Some(Nanos(21_000_000)));
        assert_eq!(train.schedule_error.max, Some(Nanos(21_000_000)));
    }

    #[test]
    fn gap_of_twice_the_schedule_is_not_a_hole() {
        assert_eq!(late(&[0, 10, 10].map(Some)).holes, 0);
        assert_eq!(late(&[0, 11, 11].map(Some)).holes, 1);
        assert_eq!(late(&[0, 10, 10].map(Some)).missed, Some(0));
    }

    #[test]
    fn first_packet_has_a_separate_schedule_error() {
        let train = late(&[5, 1, 1].map(Some));
        assert_eq!(train.first_schedule_error, Some(Nanos(5_000_000)));
        assert_eq!(
            (train.schedule_error.count, train.schedule_error.max),
            (2, Some(Nanos(1_000_000)))
        );
    }

    #[test]
    fn gaps_next_to_a_packet_without_a_stamp_are_absent() {
        let train = late(&[Some(0), None, Some(0), Some(0)]);
        assert_eq!((train.unstamped, train.gap_error.count, train.holes), (1, 1, 0));
        assert_eq!(train.rate_bps, None);
        let RealInterval { low, high } = train.accuracy.rate_bps;
        assert!((low - 1e5 * 2.0 / 3.0).abs() < 1e-6 && high == 1e5, "{low} {high}");
        let without_first = late(&[None, Some(0), Some(0)]);
        assert_eq!(without_first.accuracy.rate_bps, RealInterval { low: 0.0, high: f64::INFINITY });
        assert_eq!(figures_of(&due(3), &[]).unstamped, 3);
        assert_eq!(figures_of(&[], &[]).packets, 0);
    }

    #[test]
    fn stamps_of_another_clock_have_gaps_and_no_schedule_error() {
        let (due, left) = (due(3), [7, 10_000_007, 20_000_009].map(|at| Some(Nanos(at))));
        let asked = TrainRequest { same_clock: false, ..REQUEST };
        let train = TrainDepartures { due: &due, left: &left, stepped: false };
        let found = TrainFigures::of(&train, &asked).unwrap();
        assert_eq!((found.gap_error.max, found.schedule_error.count), (Some(Nanos(2)), 0));
        assert_eq!((found.first_schedule_error, found.missed), (None, None));
        assert_eq!(TrainFigures::of(&TrainDepartures { stepped: true, ..train }, &asked), None);
    }

    #[test]
    fn deadline_is_configurable() {
        let (due, left) = (due(3), [0, 10_500_000, 22_000_000].map(|at| Some(Nanos(at))));
        let train = TrainDepartures { due: &due, left: &left, stepped: false };
        let asked = TrainRequest { deadline: Some(Nanos::from_millis(1)), ..REQUEST };
        assert_eq!(TrainFigures::of(&train, &asked).unwrap().missed, Some(1));
    }

    #[test]
    fn equal_timestamps_give_no_rate() {
        let train = figures_of(&due(3), &[Some(4); 3]);
        assert_eq!((train.rate_bps, train.bursts.longest), (None, 3));
    }

    #[test]
    fn short_train_has_unbounded_95th_percentile() {
        let short = late(&[Some(0); 20]);
        assert_eq!((short.gap_error.p95, short.accuracy.gap_error_p95.high), (None, f64::INFINITY));
        let long = late(&[Some(0); 21]);
        assert_eq!(long.accuracy.gap_error_p95, RealInterval { low: 0.0, high: 0.0 });
    }

    proptest! {
        #[test]
        fn rate_of_a_perfect_schedule_is_exact(
            count in 21..200_u32, gap in 1_000..20_000_000_i64, bytes in 44..1_515_i64,
            start in -1_000_000_000..1_000_000_000_i64,
        ) {
            let pattern = Pattern::Train { count, repeat: 1, gap: gap as f64, pause: None };
            let due = pattern.departures().unwrap();
            let left: Vec<_> = due.at().iter().map(|at| Some(*at + Nanos(start))).collect();
            let asked = TrainRequest { bits: bytes as f64 * 8.0, gap: gap as f64, ..REQUEST };
            let train = TrainDepartures { due: due.at(), left: &left, stepped: false };
            let found = TrainFigures::of(&train, &asked).unwrap();
            let (rate, exact) = (found.rate_bps.unwrap(), asked.rate_bps().unwrap());
            prop_assert!((rate / exact - 1.0).abs() <= 4.0 * f64::EPSILON, "{rate} {exact}");
            prop_assert_eq!(found.variability.successive, Some(0.0));
            prop_assert_eq!(found.variability.nominal, Some(0.0));
            prop_assert_eq!(found.gap_error.max, Some(Nanos(0)));
            prop_assert_eq!(found.first_schedule_error, Some(Nanos(start)));
            prop_assert_eq!((found.holes, found.bursts), (0, Bursts::default()));
        }

        #[test]
        fn bounds_contain_every_value_of_missing_timestamps(
            errors in proptest::collection::vec((0..1_000_000_i64, any::<bool>()), 2..120),
        ) {
            let known: Vec<_> = errors.iter().filter(|(_, known)| *known).map(|(e, _)| *e).collect();
            let all: Vec<_> = errors.iter().map(|(error, _)| *error).collect();
            let possible = possible_p95(&known, all.len());
            let p95 = percentile(&all, Quantile::P95).map_or(0.0, |p95| p95.0 as f64);
            prop_assert!((possible.low..=possible.high).contains(&p95), "{possible:?} {p95}");
            if known.len() == all.len() && all.len() >= 20 {
                prop_assert_eq!(possible, RealInterval { low: p95, high: p95 });
            }
        }

        #[test]
        fn counts_agree_with_a_naive_walk(
            late in proptest::collection::vec(proptest::option::weighted(0.8, 0..40_i64), 2..60),
        ) {
            let found = self::late(&late);
            let left = |n: usize| Some(n as i64 * 10 + late[n]?);
            let gap = |n: usize| Some(left(n)? - left(n - 1)?);
            let holes = (1..late.len()).filter(|n| gap(*n).is_some_and(|gap| gap > 20)).count();
            let short: Vec<bool> =
                (1..late.len()).map(|n| gap(n).is_some_and(|gap| gap < 5)).collect();
            let runs: Vec<usize> =
                short.split(|short| !short).map(<[bool]>::len).filter(|len| *len > 0).collect();
            prop_assert_eq!(found.holes as usize, holes);
            prop_assert_eq!(found.bursts.count as usize, runs.len());
            let longest = runs.iter().max().map_or(0, |len| len + 1);
            prop_assert_eq!(found.bursts.longest as usize, longest);
            let missed = late.iter().flatten().filter(|late| **late > 10).count() as u64;
            prop_assert_eq!(found.missed, Some(missed));
            prop_assert_eq!(found.unstamped as usize, late.iter().filter(|l| l.is_none()).count());
        }

        #[test]
        fn arbitrary_timestamps_do_not_panic(
            due in proptest::collection::vec(any::<i64>(), 0..30),
            left in proptest::collection::vec(proptest::option::of(any::<i64>()), 0..40),
        ) {
            let due: Vec<_> = due.into_iter().map(Nanos).collect();
            figures_of(&due, &left);
        }
    }
}
