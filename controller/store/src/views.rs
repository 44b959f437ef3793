//! Data that figures need of a metric, collected in one pass: its distribution, time bins, samples
//! to draw, outliers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use dwell_record::series::{Hampel, Point, Series, TimeBin};
use dwell_stats::{Distribution, Hampel as Filter, OutlierClass, extremes};

use crate::signed::{Digits, Signed};

/// Maximum number of time bins; a long series has at least half as many.
const MAX_BINS: usize = 400;

/// Initial width of a time bin, in nanoseconds. It doubles as the series grows.
const INITIAL_BIN_WIDTH_NS: i64 = 1_000_000;

/// Maximum number of evenly spaced samples to draw; a long series has at least half as many.
const MAX_SPACED_POINTS: usize = 1_600;

/// Number of largest samples that are always drawn.
const MAX_EXTREME_POINTS: usize = 200;

/// Maximum number of samples judged by the Hampel filter. Of a longer series, evenly spread
/// stretches are judged.
const MAX_JUDGED: usize = 1 << 20;

/// Samples per stretch; large enough that truncated windows at its ends matter little.
const STRETCH_LEN: u64 = 1 << 13;

/// Samples examined together.
const RUN_LEN: usize = 128;

/// One metric of one trial while it is collected.
#[derive(Debug)]
pub(crate) struct SeriesBuilder {
    /// `None` if a distribution counts the values.
    whole: Option<Signed>,
    bins: Vec<Bin>,
    width: i64,
    spread: SpreadStretches,
    filter: Filter,
    count: u64,
    spaced: Vec<DrawnSample>,
    stride: u64,
    extreme: BinaryHeap<Reverse<DrawnSample>>,
    /// The newest samples and half a window before them.
    recent: Vec<i64>,
    /// Times of `recent`.
    recent_at: Vec<i64>,
    /// Number of samples of `recent` that were considered for drawing.
    considered: usize,
    /// Number of samples of `recent` that were counted.
    already_counted: usize,
}

#[derive(Debug)]
struct Bin {
    lost: u64,
    min: i64,
    max: i64,
    values: Signed,
}

/// A sample that may be drawn.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DrawnSample {
    value: i64,
    index: u64,
    at: i64,
    /// The samples of its Hampel window, and its place among them.
    window: Vec<i64>,
    place: usize,
}

/// Evenly spread stretches of a series.
#[derive(Debug)]
struct SpreadStretches {
    values: Vec<i64>,
    /// One in this many stretches is kept.
    every: u64,
}

/// A time bin as stored in the catalogue.
pub(crate) struct StoredBin {
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) lost: u64,
    pub(crate) min: Option<i64>,
    pub(crate) max: Option<i64>,
    pub(crate) histogram: Vec<u8>,
}

/// A series as stored in the catalogue.
pub(crate) struct StoredSeries {
    pub(crate) histogram: Vec<u8>,
    pub(crate) below: Option<Vec<u8>>,
    pub(crate) bins: Vec<StoredBin>,
    pub(crate) points: Vec<Point>,
    pub(crate) hampel: Option<Hampel>,
}

impl SeriesBuilder {
    pub(crate) fn new() -> Self {
        Self {
            whole: Some(Signed::new(Digits::Three)),
            bins: Vec::new(),
            width: INITIAL_BIN_WIDTH_NS,
            spread: SpreadStretches { values: Vec::new(), every: 1 },
            filter: Filter::default(),
            count: 0,
            spaced: Vec::new(),
            stride: 1,
            extreme: BinaryHeap::new(),
            recent: Vec::new(),
            recent_at: Vec::new(),
            considered: 0,
            already_counted: 0,
        }
    }

    /// Like [`Self::new`], for values that a distribution counts. [`Self::finish`] receives it.
    pub(crate) fn counted_elsewhere() -> Self {
        Self { whole: None, ..Self::new() }
    }

    /// Appends values with their times in nanoseconds since the trial's first sample.
    /// [`Self::process`] processes them.
    pub(crate) fn push(&mut self, at: &[i64], values: &[i64]) {
        self.recent.extend_from_slice(values);
        self.recent_at.extend_from_slice(at);
    }

    /// Processes the pushed values. `is_sorted` states whether their times are sorted.
    pub(crate) fn process(&mut self, is_sorted: bool) {
        let recent_at = std::mem::take(&mut self.recent_at);
        let (at, values) =
            (&recent_at[self.already_counted..], &self.recent[self.already_counted..]);
        let mut done = 0;
        while let Some(&first) = at.get(done) {
            // Samples are nearly sorted by time, so those of a bin follow each other.
            let number = number(&mut self.bins, &mut self.width, first);
            let (from, to) = (number as i64 * self.width, (number as i64 + 1) * self.width);
            let within = |at: i64| (from..to).contains(&at.max(0));
            let run = if is_sorted {
                at[done..].partition_point(|at| within(*at))
            } else {
                at[done..].iter().position(|at| !within(*at)).unwrap_or(at.len() - done)
            };
            let here = &values[done..done + run];
            let (min, max) = extremes(here);
            if let Some(whole) = &mut self.whole {
                whole.record_all(here, min, max);
            }
            let bin = &mut self.bins[number];
            bin.values.record_all(here, min, max);
            (bin.min, bin.max) = (bin.min.min(min), bin.max.max(max));
            done += run;
        }
        self.spread.take(self.count, values);
        self.count += values.len() as u64;
        self.recent_at = recent_at;
        self.consider_until(self.recent.len().saturating_sub(self.filter.half_window));
        let seen = self.considered.saturating_sub(self.filter.half_window);
        self.recent.drain(..seen);
        self.recent_at.drain(..seen);
        self.considered -= seen;
        self.already_counted = self.recent.len();
    }

    /// Counts a lost probe.
    pub(crate) fn lost(&mut self, at: i64) {
        let number = number(&mut self.bins, &mut self.width, at);
        self.bins[number].lost += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Considers the samples of `recent` before `to` for drawing.
    fn consider_until(&mut self, to: usize) {
        let first = self.count - self.recent.len() as u64;
        while self.considered < to {
            let end = to.min(self.considered + RUN_LEN);
            let index = first + self.considered as u64;
            let run = &self.recent[self.considered..end];
            // Most runs contain no sample to draw: the next evenly spaced one comes later, and none
            // is among the largest.
            let spaced = index.next_multiple_of(self.stride) < first + end as u64;
            let (_, largest) = extremes(run);
            if spaced || self.is_extreme(largest) {
                (self.considered..end).for_each(|place| self.consider(place, first + place as u64));
            }
            self.considered = end;
        }
    }

    fn is_extreme(&self, value: i64) -> bool {
        let least = self.extreme.peek().map_or(i64::MIN, |least| least.0.value);
        value > least || self.extreme.len() < MAX_EXTREME_POINTS
    }

    /// Keeps a sample if it is to be drawn so far.
    fn consider(&mut self, place: usize, index: u64) {
        if index.is_multiple_of(self.stride) {
            let shown = self.drawn_sample(place);
            self.spaced.push(shown);
            if self.spaced.len() > MAX_SPACED_POINTS {
                self.stride *= 2;
                let stride = self.stride;
                self.spaced.retain(|shown| shown.index.is_multiple_of(stride));
            }
        }
        if self.is_extreme(self.recent[place]) {
            let shown = self.drawn_sample(place);
            self.extreme.push(Reverse(shown));
            if self.extreme.len() > MAX_EXTREME_POINTS {
                self.extreme.pop();
            }
        }
    }

    fn drawn_sample(&self, place: usize) -> DrawnSample {
        let half = self.filter.half_window;
        let from = place.saturating_sub(half);
        let to = (place + half + 1).min(self.recent.len());
        let index = self.count - (self.recent.len() - place) as u64;
        let (at, value) = (self.recent_at[place], self.recent[place]);
        DrawnSample {
            value,
            index,
            at,
            window: self.recent[from..to].to_vec(),
            place: place - from,
        }
    }

    /// Completes the series. `counted` is the distribution for [`Self::counted_elsewhere`].
    pub(crate) fn finish(mut self, counted: Option<&Distribution>) -> StoredSeries {
        self.consider_until(self.recent.len());
        let whole = self.whole.take().or_else(|| counted.map(Signed::of));
        let (histogram, below) = whole.unwrap_or_else(|| Signed::new(Digits::Three)).to_bytes();
        let hampel = self.spread.judge(self.filter, self.count);
        let bins = (0..).zip(&self.bins).map(|(number, bin)| {
            let some = bin.values.count() > 0;
            StoredBin {
                from: number * self.width,
                to: (number + 1) * self.width,
                lost: bin.lost,
                min: some.then_some(bin.min),
                max: some.then_some(bin.max),
                // Negative values of a bin are stored as zero; its minimum is exact.
                histogram: if some { bin.values.to_bytes().0 } else { Vec::new() },
            }
        });
        let bins = bins.collect();
        StoredSeries { histogram, below, bins, points: self.points(), hampel: Some(hampel) }
    }

    fn points(self) -> Vec<Point> {
        let mut shown = self.spaced;
        shown.extend(self.extreme.into_iter().map(|Reverse(shown)| shown));
        shown.sort_unstable_by_key(|shown| shown.index);
        shown.dedup_by_key(|shown| shown.index);
        let point = |shown: DrawnSample| Point {
            at_ns: shown.at,
            value_ns: shown.value,
            outlier: self.filter.judge_one(&shown.window, shown.place) != OutlierClass::Ordinary,
        };
        shown.into_iter().map(point).collect()
    }
}

/// Returns the number of the time bin that contains `at`, creating it if necessary.
fn number(bins: &mut Vec<Bin>, width: &mut i64, at: i64) -> usize {
    let at = at.max(0);
    while at / *width >= MAX_BINS as i64 {
        *width = width.saturating_mul(2);
        let mut wider: Vec<Bin> = Vec::with_capacity(MAX_BINS);
        for (number, bin) in std::mem::take(bins).into_iter().enumerate() {
            match wider.get_mut(number / 2) {
                Some(earlier) => earlier.add(&bin),
                None => wider.push(bin),
            }
        }
        *bins = wider;
    }
    let place = (at / *width) as usize;
    while bins.len() <= place {
        let values = Signed::new(Digits::Two);
        bins.push(Bin { lost: 0, min: i64::MAX, max: i64::MIN, values });
    }
    place
}

impl SpreadStretches {
    /// Adds values; `first` is the index of the first one in the series.
    fn take(&mut self, first: u64, values: &[i64]) {
        let (mut index, mut rest) = (first, values);
        while !rest.is_empty() {
            let left = (STRETCH_LEN - index % STRETCH_LEN) as usize;
            let (here, later) = rest.split_at(left.min(rest.len()));
            if (index / STRETCH_LEN).is_multiple_of(self.every) {
                self.keep_stretch(here, index);
            }
            index += here.len() as u64;
            rest = later;
        }
    }

    /// Keeps a stretch or a part of one.
    fn keep_stretch(&mut self, part: &[i64], index: u64) {
        if self.values.len() == MAX_JUDGED {
            // Keep one in eight, so that thinning is rare and enough stretches are left.
            let stretches = self.values.chunks(STRETCH_LEN as usize).step_by(8);
            self.values = stretches.flatten().copied().collect();
            self.every *= 8;
            if !(index / STRETCH_LEN).is_multiple_of(self.every) {
                return;
            }
        }
        self.values.extend_from_slice(part);
    }

    fn judge(&self, filter: Filter, count: u64) -> Hampel {
        let all = self.every == 1;
        let stretch = if all { self.values.len().max(1) } else { STRETCH_LEN as usize };
        let (mut upper, mut lower) = (0, 0);
        for class in self.values.chunks(stretch).flat_map(|stretch| filter.judge(stretch)) {
            upper += u64::from(class == OutlierClass::Upper);
            lower += u64::from(class == OutlierClass::Lower);
        }
        let judged = self.values.len() as u64;
        Hampel {
            half_window: filter.half_window as u32,
            sigmas: filter.sigmas,
            judged: (judged < count).then_some(judged),
            upper,
            lower,
        }
    }
}

impl Bin {
    fn add(&mut self, later: &Self) {
        self.lost += later.lost;
        (self.min, self.max) = (self.min.min(later.min), self.max.max(later.max));
        self.values.merge(&later.values);
    }
}

impl StoredSeries {
    /// Returns the series to draw; `None` if its data is damaged.
    pub(crate) fn series(&self) -> Option<Series> {
        let whole = Signed::from_bytes(&self.histogram, self.below.as_deref(), Digits::Three)?;
        let bins = self.bins.iter().map(StoredBin::time_bin).collect::<Option<_>>()?;
        Some(Series {
            steps: whole.steps().collect(),
            bins,
            points: self.points.clone(),
            hampel: self.hampel,
        })
    }
}

impl StoredBin {
    /// Reads a row of the catalogue: from, to, lost, min, max, histogram.
    pub(crate) fn of_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            from: row.get(0)?,
            to: row.get(1)?,
            lost: row.get::<_, i64>(2)?.max(0) as u64,
            min: row.get(3)?,
            max: row.get(4)?,
            histogram: row.get(5)?,
        })
    }

    fn time_bin(&self) -> Option<TimeBin> {
        joined(std::slice::from_ref(self))
    }
}

/// Joins consecutive bins; `None` for no bins or damaged data.
pub(crate) fn joined(bins: &[StoredBin]) -> Option<TimeBin> {
    let mut values = Signed::new(Digits::Two);
    for bin in bins.iter().filter(|bin| !bin.histogram.is_empty()) {
        values.merge(&Signed::from_bytes(&bin.histogram, None, Digits::Two)?);
    }
    let min = bins.iter().filter_map(|bin| bin.min).min();
    let max = bins.iter().filter_map(|bin| bin.max).max();
    let within =
        |value: Option<i64>| Some(value?.clamp(min.unwrap_or(i64::MIN), max.unwrap_or(i64::MAX)));
    Some(TimeBin {
        from_ns: bins.first()?.from,
        to_ns: bins.last()?.to,
        count: values.count(),
        lost: bins.iter().fold(0, |lost, bin| lost.saturating_add(bin.lost)),
        min_ns: min,
        p1_ns: within(values.percentile(10_000)),
        p50_ns: within(values.percentile(500_000)),
        p99_ns: within(values.percentile(990_000)),
        max_ns: max,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    impl SeriesBuilder {
        fn take(&mut self, at: &[i64], values: &[i64], is_sorted: bool) {
            self.push(at, values);
            self.process(is_sorted);
        }
    }

    #[test]
    fn joined_bins_have_percentiles_of_all_values() {
        let mut builder = SeriesBuilder::new();
        for n in 0..400_i64 {
            builder.take(&[n * 1_000_000], &[100_000 + n * 1_000], true);
        }
        let stored = builder.finish(None);
        assert_eq!(joined(&stored.bins[..1]).unwrap().p50_ns, None, "one value has no median");
        let whole = joined(&stored.bins).unwrap();
        assert_eq!((whole.from_ns, whole.to_ns, whole.count), (0, 400_000_000, 400));
        assert_eq!((whole.min_ns, whole.max_ns), (Some(100_000), Some(499_000)));
        let p99 = whole.p99_ns.unwrap();
        assert!((490_000..=499_000).contains(&p99), "{p99}");
        assert_eq!(joined(&[]), None);
    }

    #[test]
    fn long_series_is_thinned_without_losing_counts() {
        let mut builder = SeriesBuilder::new();
        for n in 0..200_000_i64 {
            builder.take(&[n * 1_000_000], &[100_000 + n % 1_000], true);
            if n % 1_000 == 0 {
                builder.lost(n * 1_000_000);
            }
        }
        builder.take(&[3], &[9_000_000], true);
        let series = builder.finish(None).series().unwrap();
        assert!((MAX_BINS / 2..=MAX_BINS).contains(&series.bins.len()), "{}", series.bins.len());
        assert_eq!(series.bins.iter().map(|bin| bin.count).sum::<u64>(), 200_001);
        assert_eq!(series.bins.iter().map(|bin| bin.lost).sum::<u64>(), 200);
        assert_eq!(series.steps.iter().map(|step| step.count).sum::<u64>(), 200_001);
        assert!(
            (MAX_SPACED_POINTS / 2..=MAX_SPACED_POINTS + MAX_EXTREME_POINTS)
                .contains(&series.points.len())
        );
        let spike = series.points.iter().find(|point| point.value_ns == 9_000_000).unwrap();
        assert!(spike.outlier, "the largest is shown and judged");
        assert!(series.hampel.unwrap().upper >= 1);
        let p50 = series.bins[7].p50_ns.unwrap();
        assert!((p50 - 100_500).abs() < 1_100, "{p50}");
    }

    #[test]
    fn short_series_shows_all_samples_without_percentiles() {
        let mut builder = SeriesBuilder::new();
        for n in 0..5 {
            builder.take(&[n * 100_000], &[-5 + n], true);
        }
        let series = builder.finish(None).series().unwrap();
        assert_eq!(series.points.len(), 5);
        assert_eq!(
            series.steps.iter().map(|step| step.value_ns).collect::<Vec<_>>(),
            [-5, -4, -3, -2, -1]
        );
        assert_eq!((series.bins[0].p99_ns, series.bins[0].min_ns), (None, Some(-5)));
    }

    #[test]
    fn series_does_not_depend_on_batch_sizes() {
        let at: Vec<i64> = (0..70_000).map(|n| n * 250_000).collect();
        let value = |n: i64| 100_000 + (n * 7_919) % 997 + i64::from(n % 777 == 5) * 50_000;
        let values: Vec<i64> = (0..70_000).map(value).collect();
        let classes = Filter::default().judge(&values);
        let mut series = Vec::new();
        let mut counted = Distribution::new();
        counted.record_all(&values);
        for (piece, is_sorted) in [1, 37, 4_096, at.len()].into_iter().zip([true, false].repeat(2))
        {
            let mut builder =
                if is_sorted { SeriesBuilder::counted_elsewhere() } else { SeriesBuilder::new() };
            let pieces = at.chunks(piece).zip(values.chunks(piece));
            pieces.for_each(|(at, values)| builder.take(at, values, is_sorted));
            series.push(builder.finish(Some(&counted)).series().unwrap());
        }
        assert!(series.iter().all(|other| *other == series[0]));
        for point in &series[0].points {
            let place = (point.at_ns / 250_000) as usize;
            assert_eq!(point.outlier, classes[place] != OutlierClass::Ordinary, "{place}");
        }
        let upper = classes.iter().filter(|class| **class == OutlierClass::Upper).count();
        let hampel = series[0].hampel.unwrap();
        assert_eq!((hampel.judged, hampel.upper), (None, upper as u64));
    }

    #[test]
    fn very_long_series_is_judged_by_spread_stretches() {
        let mut builder = SeriesBuilder::new();
        let count = MAX_JUDGED as i64 * 3;
        for from in (0..count).step_by(65_536) {
            let at: Vec<i64> = (from..from + 65_536).collect();
            let value = |n: &i64| 100_000 + (n * 31) % 50 + i64::from(n % 1_000 == 500) * 9_000;
            builder.take(&at, &at.iter().map(value).collect::<Vec<_>>(), true);
        }
        let hampel = builder.finish(None).hampel.unwrap();
        let judged = hampel.judged.unwrap();
        assert_eq!(judged, count as u64 / 8);
        assert!(hampel.upper.abs_diff(judged / 1_000) < 20, "{hampel:?}");
    }
}
