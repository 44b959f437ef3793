//! Figures over all trains of a pattern. Trains with holes or late packets count like all others;
//! only trains during which a clock was stepped are excluded, and counted.

use dwell_units::Nanos;

use super::train::{Bursts, TrainFigures, gap_errors};
use super::variability::{Variability, mean};
use super::{TrainDepartures, TrainRequest, rate};
use crate::accuracy::TrainAccuracy;
use crate::distribution::{Distribution, Figures};
use crate::percentile::median;

/// Accumulates trains one by one. Uses 260 B per train, whatever its number of packets.
#[derive(Clone, Debug)]
pub struct Trains {
    asked: TrainRequest,
    accuracies: Vec<TrainAccuracy>,
    rates: Vec<f64>,
    /// Scheduled rates of the same trains.
    scheduled_rates: Vec<f64>,
    variabilities: Vec<Variability>,
    gap: Distribution,
    gap_error: Distribution,
    schedule_error: Distribution,
    first_schedule_error: Distribution,
    packets: u64,
    unstamped: u64,
    missed: u64,
    bursts: Bursts,
    holed: u64,
    merged: u64,
    discarded: u64,
}

impl Trains {
    /// Creates an empty accumulator.
    pub fn new(asked: TrainRequest) -> Self {
        Self {
            asked,
            accuracies: Vec::new(),
            rates: Vec::new(),
            scheduled_rates: Vec::new(),
            variabilities: Vec::new(),
            gap: Distribution::new(),
            gap_error: Distribution::new(),
            schedule_error: Distribution::new(),
            first_schedule_error: Distribution::new(),
            packets: 0,
            unstamped: 0,
            missed: 0,
            bursts: Bursts::default(),
            holed: 0,
            merged: 0,
            discarded: 0,
        }
    }

    /// Adds a train and returns its figures; `None` if it is discarded.
    pub fn record(&mut self, train: &TrainDepartures) -> Option<TrainFigures> {
        let Some(figures) = TrainFigures::of(train, &self.asked) else {
            self.discarded += 1;
            return None;
        };
        train.gaps().filter_map(|(_, gap)| gap).for_each(|gap| self.gap.record(Nanos(gap)));
        gap_errors(train).into_iter().for_each(|error| self.gap_error.record(Nanos(error)));
        for (packet, error) in train.schedule_errors().filter(|_| self.asked.same_clock) {
            let distribution = match packet {
                0 => &mut self.first_schedule_error,
                _ => &mut self.schedule_error,
            };
            distribution.record(Nanos(error));
        }
        self.accuracies.push(figures.accuracy);
        if let Some(reached) = figures.rate_bps {
            self.rates.push(reached);
            self.scheduled_rates.extend(scheduled_rate(train, self.asked.bits));
        }
        self.variabilities.push(figures.variability);
        self.packets += figures.packets;
        self.unstamped += figures.unstamped;
        self.missed += figures.missed.unwrap_or(0);
        self.bursts.count += figures.bursts.count;
        self.bursts.longest = self.bursts.longest.max(figures.bursts.longest);
        self.holed += u64::from(figures.holed());
        self.merged += figures.merged;
        Some(figures)
    }

    /// Accuracy of every train that was not discarded, in order: the input of
    /// [`crate::accuracy::Tolerance::judge`].
    pub fn accuracies(&self) -> &[TrainAccuracy] {
        &self.accuracies
    }

    /// Parameters requested for every train.
    pub fn asked(&self) -> &TrainRequest {
        &self.asked
    }

    /// Median scheduled rate of the trains whose actual rate is known, comparable with `rate_bps`.
    /// With varying gaps it differs from the requested rate.
    pub fn scheduled_rate_bps(&self) -> Option<f64> {
        median(&self.scheduled_rates)
    }

    /// Number of trains with a hole.
    pub fn holed(&self) -> u64 {
        self.holed
    }

    /// Number of gaps of 0 between packets scheduled at different times.
    pub fn merged(&self) -> u64 {
        self.merged
    }

    /// Number of trains excluded because a clock was stepped.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Number of packets without a timestamp.
    pub fn unstamped(&self) -> u64 {
        self.unstamped
    }

    /// The distribution of |gap - scheduled gap|, for plots.
    pub fn gap_errors(&self) -> &Distribution {
        &self.gap_error
    }

    /// Names of metrics, without unit.
    pub const METRICS: [&'static str; 4] =
        ["gap", "gap_error", "schedule_error", "first_schedule_error"];

    /// Distribution of a metric of [`Self::METRICS`].
    pub fn distribution(&self, metric: &str) -> Option<&Distribution> {
        match metric {
            "gap" => Some(&self.gap),
            "gap_error" => Some(&self.gap_error),
            "schedule_error" => Some(&self.schedule_error),
            "first_schedule_error" => Some(&self.first_schedule_error),
            _ => None,
        }
    }

    /// Number of unknown values of this metric due to missing timestamps. Schedule errors across
    /// two clocks are not counted.
    pub fn unknown(&self, metric: &str) -> u64 {
        let trains = self.accuracies.len() as u64;
        let expected = match metric {
            "gap" | "gap_error" => self.packets.saturating_sub(trains),
            _ if !self.asked.same_clock => 0,
            "schedule_error" => self.packets.saturating_sub(trains),
            "first_schedule_error" => trains,
            _ => 0,
        };
        expected.saturating_sub(self.distribution(metric).map_or(0, Distribution::count))
    }

    /// Non-empty distributions by their names in results: gaps, |gap - scheduled gap|, and schedule
    /// errors of first and of later packets.
    pub fn metrics(&self) -> impl Iterator<Item = (&'static str, Figures)> + '_ {
        let all = [
            ("gap_ns", &self.gap),
            ("gap_error_ns", &self.gap_error),
            ("schedule_error_ns", &self.schedule_error),
            ("first_schedule_error_ns", &self.first_schedule_error),
        ];
        let known = all.into_iter().filter(|(_, distribution)| distribution.count() > 0);
        known.map(|(name, distribution)| (name, distribution.figures()))
    }

    /// Scalar results by name; `None` if unavailable. The rate is the nearest-rank median over
    /// trains in which every packet has a timestamp; each j is the mean over trains.
    pub fn values(&self) -> [(&'static str, Option<f64>); 14] {
        let count = |n: u64| Some(n as f64);
        let j = Variability::EXPLAINED.map(|(name, _)| name);
        let j_of = |n: usize| {
            let of = self.variabilities.iter().filter_map(|one| one.values()[n].1);
            (j[n], mean(of))
        };
        [
            ("rate_bps", median(&self.rates)),
            j_of(0),
            j_of(1),
            j_of(2),
            j_of(3),
            ("missed_deadlines", self.asked.same_clock.then_some(self.missed as f64)),
            ("bursts", count(self.bursts.count)),
            ("longest_burst_packets", count(self.bursts.longest)),
            ("trains", count(self.accuracies.len() as u64)),
            ("holed_trains", count(self.holed)),
            ("merged_gaps", count(self.merged)),
            ("discarded_trains", count(self.discarded)),
            ("packets", count(self.packets)),
            ("unstamped_packets", count(self.unstamped)),
        ]
    }
}

/// Equation (1) applied to the due times.
fn scheduled_rate(train: &TrainDepartures, bits: f64) -> Option<f64> {
    let (first, last) = (train.due.first()?, train.due.last()?);
    rate(bits * (train.due.len() - 1) as f64, (*last - *first).0 as f64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const REQUEST: TrainRequest =
        TrainRequest { bits: 1e3, gap: 1e4, deadline: None, same_clock: true };
    const DUE: [Nanos; 3] = [Nanos(0), Nanos(10_000), Nanos(20_000)];

    fn record(trains: &mut Trains, left: [Option<i64>; 3], stepped: bool) {
        let left = left.map(|at| at.map(Nanos));
        trains.record(&TrainDepartures { due: &DUE, left: &left, stepped });
    }

    #[test]
    fn discarded_trains_are_excluded_from_figures() {
        let mut trains = Trains::new(REQUEST);
        record(&mut trains, [50, 10_002, 20_004].map(Some), false);
        record(&mut trains, [70, 10_001, 50_003].map(Some), false);
        record(&mut trains, [Some(0), None, Some(20_000)], false);
        record(&mut trains, [0, 9_000_000, 9_000_001].map(Some), true);
        let values: BTreeMap<_, _> = trains.values().into_iter().collect();
        for (name, expected) in [
            ("trains", 3.0),
            ("discarded_trains", 1.0),
            ("holed_trains", 1.0),
            ("merged_gaps", 0.0),
            ("unstamped_packets", 1.0),
            ("packets", 9.0),
            ("missed_deadlines", 1.0),
            ("bursts", 0.0),
            ("longest_burst_packets", 0.0),
            // The median of two is the lower one: the train with the hole.
            ("rate_bps", 2e3 * 1e9 / 49_933.0),
            ("j_literal_ns", (19_954.0 / 2.0 + 49_933.0 / 2.0) / 2.0),
        ] {
            let found = values[name].unwrap();
            assert!((found / expected - 1.0).abs() < 1e-12 || found == expected, "{name}: {found}");
        }
        let metrics: BTreeMap<_, _> = trains.metrics().collect();
        assert_eq!(metrics["gap_ns"].count, 4, "gaps next to the missing timestamp are absent");
        assert_eq!(metrics["first_schedule_error_ns"].max, Some(Nanos(70)));
        assert_eq!(metrics["schedule_error_ns"].count, 5);
        assert_eq!(metrics["gap_error_ns"].max, Some(Nanos(30_002)));
        let unknown = Trains::METRICS.map(|metric| trains.unknown(metric));
        assert_eq!(unknown, [2, 2, 1, 0], "a missing timestamp removes both adjacent gaps");
        assert_eq!(trains.accuracies().len(), 3);
        assert_eq!(trains.scheduled_rate_bps(), Some(2e3 * 1e9 / 20_000.0));
    }

    #[test]
    fn rate_of_varying_gaps_matches_their_schedule() {
        let mut trains = Trains::new(REQUEST);
        for gap in [40_000, 60_000, 50_000].map(Nanos) {
            let due = [Nanos(0), Nanos(1_000), gap];
            let left = due.map(|at| Some(at + Nanos(7)));
            trains.record(&TrainDepartures { due: &due, left: &left, stepped: false });
        }
        let values: BTreeMap<_, _> = trains.values().into_iter().collect();
        assert_eq!(trains.scheduled_rate_bps(), Some(2e3 * 1e9 / 50_000.0));
        assert_eq!(values["rate_bps"], trains.scheduled_rate_bps());
    }

    #[test]
    fn no_trains_give_no_figures() {
        let trains = Trains::new(REQUEST);
        assert_eq!(trains.metrics().count(), 0);
        let values: BTreeMap<_, _> = trains.values().into_iter().collect();
        assert_eq!((values["rate_bps"], values["trains"]), (None, Some(0.0)));
        assert_eq!(trains.scheduled_rate_bps(), None);
    }
}
