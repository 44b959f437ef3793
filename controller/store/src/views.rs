//! What figures need of a metric, gathered in one pass: its distribution, stretches of time, a few
//! samples to show, outliers.

use std::collections::BinaryHeap;

use dwell_record::series::{Hampel, Point, Series, Step, TimeBin};
use dwell_stats::{Hampel as Filter, Standing};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};

/// At most this many stretches of time; half of it at least, of a long series.
const BINS: usize = 400;

/// The first width of a stretch: whatever lasts longer doubles it.
const NARROW: i64 = 1_000_000;

/// Samples shown at even spaces, at most; half of it at least, of a long series.
const SPACED: usize = 1_600;

/// The largest ones are shown whatever their place.
const EXTREME: usize = 200;

/// Hampel's filter needs all values at once; of more samples than this it is left out.
const JUDGED: usize = 20_000_000;

/// One metric of one trial, growing.
pub(crate) struct Growing {
    whole: Signed,
    bins: Vec<Bin>,
    width: i64,
    values: Vec<i64>,
    count: u64,
    spaced: Vec<Shown>,
    stride: u64,
    extreme: BinaryHeap<std::cmp::Reverse<(i64, u64, i64)>>,
}

/// A histogram of values of either sign.
pub(crate) struct Signed {
    above: Histogram<u64>,
    below: Option<Histogram<u64>>,
    digits: u8,
}

struct Bin {
    lost: u64,
    min: i64,
    max: i64,
    values: Option<Signed>,
}

#[derive(Clone, Copy)]
struct Shown {
    index: u64,
    at: i64,
    value: i64,
}

/// A bin as the catalogue keeps it.
pub(crate) struct StoredBin {
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) lost: u64,
    pub(crate) min: Option<i64>,
    pub(crate) max: Option<i64>,
    pub(crate) histogram: Vec<u8>,
}

/// A series as the catalogue keeps it.
pub(crate) struct StoredSeries {
    pub(crate) histogram: Vec<u8>,
    pub(crate) below: Option<Vec<u8>>,
    pub(crate) bins: Vec<StoredBin>,
    pub(crate) points: Vec<Point>,
    pub(crate) hampel: Option<Hampel>,
}

impl Signed {
    pub(crate) fn new(digits: u8) -> Self {
        Self { above: histogram(digits), below: None, digits }
    }

    pub(crate) fn record(&mut self, value: i64) {
        let to = if value < 0 {
            let digits = self.digits;
            self.below.get_or_insert_with(|| histogram(digits))
        } else {
            &mut self.above
        };
        let magnitude = value.unsigned_abs().min(i64::MAX as u64);
        to.record(magnitude).expect("an automatically growing histogram takes any i64");
    }

    fn add(&mut self, other: &Self) {
        self.above.add(&other.above).expect("both grow automatically");
        if let Some(below) = &other.below {
            let digits = self.digits;
            let own = self.below.get_or_insert_with(|| histogram(digits));
            own.add(below).expect("both grow automatically");
        }
    }

    fn count(&self) -> u64 {
        self.above.len() + self.below.as_ref().map_or(0, Histogram::len)
    }

    /// Values in rising order and how often each came.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let of = |histogram: &Histogram<u64>, sign: i64| {
            let steps = histogram.iter_recorded().map(|bin| Step {
                value_ns: sign * middle(histogram, bin.value_iterated_to()),
                count: bin.count_at_value(),
            });
            steps.collect::<Vec<_>>()
        };
        let mut steps = self.below.as_ref().map_or(Vec::new(), |below| of(below, -1));
        steps.reverse();
        steps.extend(of(&self.above, 1));
        steps
    }

    /// The nearest-rank percentile; `None` where the count does not support it.
    fn percentile(&self, ppm: u64) -> Option<i64> {
        let n = self.count();
        if n.saturating_mul(ppm.min(1_000_000 - ppm)) < 1_000_000 {
            return None;
        }
        let rank = (u128::from(n) * u128::from(ppm)).div_ceil(1_000_000) as u64;
        let mut seen = 0;
        self.steps().into_iter().find_map(|step| {
            seen += step.count;
            (seen >= rank).then_some(step.value_ns)
        })
    }

    pub(crate) fn to_bytes(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        (bytes(&self.above), self.below.as_ref().map(bytes))
    }

    /// `None` for bytes that are no histogram.
    pub(crate) fn from_bytes(above: &[u8], below: Option<&[u8]>, digits: u8) -> Option<Self> {
        let read = |bytes: &[u8]| {
            let mut histogram: Histogram<u64> =
                Deserializer::new().deserialize(&mut &bytes[..]).ok()?;
            histogram.auto(true);
            Some(histogram)
        };
        let below = match below {
            Some(below) => Some(read(below)?),
            None => None,
        };
        Some(Self { above: read(above)?, below, digits })
    }
}

fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new(digits).expect("two and three digits are within 0..=5")
}

fn middle(histogram: &Histogram<u64>, value: u64) -> i64 {
    i64::try_from(histogram.median_equivalent(value)).unwrap_or(i64::MAX)
}

fn bytes(histogram: &Histogram<u64>) -> Vec<u8> {
    let mut out = Vec::new();
    V2Serializer::new().serialize(histogram, &mut out).expect("a vector takes any bytes");
    out
}

impl Growing {
    pub(crate) fn new() -> Self {
        Self {
            whole: Signed::new(3),
            bins: Vec::new(),
            width: NARROW,
            values: Vec::new(),
            count: 0,
            spaced: Vec::new(),
            stride: 1,
            extreme: BinaryHeap::new(),
        }
    }

    /// A value at `at` nanoseconds since the trial's first sample.
    pub(crate) fn value(&mut self, at: i64, value: i64) {
        self.whole.record(value);
        let bin = self.bin(at);
        (bin.min, bin.max) = (bin.min.min(value), bin.max.max(value));
        bin.values.get_or_insert_with(|| Signed::new(2)).record(value);
        let shown = Shown { index: self.count, at, value };
        if self.values.len() < JUDGED {
            self.values.push(value);
        }
        if self.count.is_multiple_of(self.stride) {
            self.spaced.push(shown);
            if self.spaced.len() > SPACED {
                self.stride *= 2;
                let stride = self.stride;
                self.spaced.retain(|shown| shown.index.is_multiple_of(stride));
            }
        }
        let least = self.extreme.peek().map_or(i64::MIN, |least| least.0.0);
        if self.extreme.len() < EXTREME || value > least {
            self.extreme.push(std::cmp::Reverse((value, shown.index, at)));
            if self.extreme.len() > EXTREME {
                self.extreme.pop();
            }
        }
        self.count += 1;
    }

    /// A probe that was lost.
    pub(crate) fn lost(&mut self, at: i64) {
        self.bin(at).lost += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn bin(&mut self, at: i64) -> &mut Bin {
        let at = at.max(0);
        while at / self.width >= BINS as i64 {
            self.width = self.width.saturating_mul(2);
            let mut wider: Vec<Bin> = Vec::with_capacity(BINS);
            for (number, bin) in std::mem::take(&mut self.bins).into_iter().enumerate() {
                match wider.get_mut(number / 2) {
                    Some(earlier) => earlier.add(bin),
                    None => wider.push(bin),
                }
            }
            self.bins = wider;
        }
        let number = (at / self.width) as usize;
        while self.bins.len() <= number {
            self.bins.push(Bin { lost: 0, min: i64::MAX, max: i64::MIN, values: None });
        }
        &mut self.bins[number]
    }

    pub(crate) fn finish(self) -> StoredSeries {
        let (points, hampel) = self.points();
        let (histogram, below) = self.whole.to_bytes();
        let bins = (0..).zip(&self.bins).map(|(number, bin)| StoredBin {
            from: number * self.width,
            to: (number + 1) * self.width,
            lost: bin.lost,
            min: bin.values.is_some().then_some(bin.min),
            max: bin.values.is_some().then_some(bin.max),
            // A stretch holds values of one sign, or the few below zero count as zero: its minimum
            // is exact.
            histogram: bin.values.as_ref().map_or(Vec::new(), |values| values.to_bytes().0),
        });
        StoredSeries { histogram, below, bins: bins.collect(), points, hampel }
    }

    fn points(&self) -> (Vec<Point>, Option<Hampel>) {
        let filter = Filter::default();
        let judged = self.count == self.values.len() as u64;
        let standing = if judged { filter.judge(&self.values) } else { Vec::new() };
        let mut shown: Vec<Shown> = self.spaced.clone();
        shown.extend(self.extreme.iter().map(|extreme| {
            let std::cmp::Reverse((value, index, at)) = *extreme;
            Shown { index, at, value }
        }));
        shown.sort_unstable_by_key(|shown| shown.index);
        shown.dedup_by_key(|shown| shown.index);
        let points = shown
            .iter()
            .map(|shown| Point {
                at_ns: shown.at,
                value_ns: shown.value,
                outlier: standing
                    .get(shown.index as usize)
                    .is_some_and(|standing| *standing != Standing::Ordinary),
            })
            .collect();
        let count = |which: Standing| standing.iter().filter(|s| **s == which).count() as u64;
        let hampel = judged.then(|| Hampel {
            half_window: filter.half_window as u32,
            sigmas: filter.sigmas,
            upper: count(Standing::Upper),
            lower: count(Standing::Lower),
        });
        (points, hampel)
    }
}

impl Bin {
    fn add(&mut self, later: Self) {
        self.lost += later.lost;
        (self.min, self.max) = (self.min.min(later.min), self.max.max(later.max));
        match (&mut self.values, later.values) {
            (Some(own), Some(values)) => own.add(&values),
            (own @ None, values) => *own = values,
            (Some(_), None) => {}
        }
    }
}

impl StoredSeries {
    /// What figures draw; `None` when its bytes are damaged.
    pub(crate) fn series(&self) -> Option<Series> {
        let whole = Signed::from_bytes(&self.histogram, self.below.as_deref(), 3)?;
        let bins = self.bins.iter().map(StoredBin::time_bin).collect::<Option<_>>()?;
        Some(Series {
            steps: whole.steps(),
            bins,
            points: self.points.clone(),
            hampel: self.hampel,
        })
    }
}

impl StoredBin {
    fn time_bin(&self) -> Option<TimeBin> {
        let values = match self.histogram.is_empty() {
            true => Signed::new(2),
            false => Signed::from_bytes(&self.histogram, None, 2)?,
        };
        let within = |value: Option<i64>| {
            Some(value?.clamp(self.min.unwrap_or(i64::MIN), self.max.unwrap_or(i64::MAX)))
        };
        Some(TimeBin {
            from_ns: self.from,
            to_ns: self.to,
            count: values.count(),
            lost: self.lost,
            min_ns: self.min,
            p1_ns: within(values.percentile(10_000)),
            p50_ns: within(values.percentile(500_000)),
            p99_ns: within(values.percentile(990_000)),
            max_ns: self.max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_series_takes_few_bins_and_points_and_loses_no_count() {
        let mut growing = Growing::new();
        for n in 0..200_000_i64 {
            growing.value(n * 1_000_000, 100_000 + n % 1_000);
            if n % 1_000 == 0 {
                growing.lost(n * 1_000_000);
            }
        }
        growing.value(3, 9_000_000);
        let series = growing.finish().series().unwrap();
        assert!((BINS / 2..=BINS).contains(&series.bins.len()), "{}", series.bins.len());
        assert_eq!(series.bins.iter().map(|bin| bin.count).sum::<u64>(), 200_001);
        assert_eq!(series.bins.iter().map(|bin| bin.lost).sum::<u64>(), 200);
        assert_eq!(series.steps.iter().map(|step| step.count).sum::<u64>(), 200_001);
        assert!((SPACED / 2..=SPACED + EXTREME).contains(&series.points.len()));
        let spike = series.points.iter().find(|point| point.value_ns == 9_000_000).unwrap();
        assert!(spike.outlier, "the largest is shown and judged");
        assert!(series.hampel.unwrap().upper >= 1);
        let p50 = series.bins[7].p50_ns.unwrap();
        assert!((p50 - 100_500).abs() < 1_100, "{p50}");
    }

    #[test]
    fn few_samples_are_all_shown_and_have_no_percentiles_they_cannot_support() {
        let mut growing = Growing::new();
        for n in 0..5 {
            growing.value(n * 100_000, -5 + n);
        }
        let series = growing.finish().series().unwrap();
        assert_eq!(series.points.len(), 5);
        assert_eq!(
            series.steps.iter().map(|step| step.value_ns).collect::<Vec<_>>(),
            [-5, -4, -3, -2, -1]
        );
        assert_eq!((series.bins[0].p99_ns, series.bins[0].min_ns), (None, Some(-5)));
    }
}
