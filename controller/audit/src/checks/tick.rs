//! Quantisation: values that are multiples of a tick coarser than their printed digits.
//!
//! The phases of the values are tested at every tick size of a grid (Rayleigh's test of a
//! periodogram), and how close they are to one phase. A tick must explain the values nearly
//! completely, not only significantly, and the values must be on at least five different multiples:
//! two clusters always have a common divisor.

use std::f64::consts::TAU;

use super::{Found, MIN_DECIDING_VALUES};
use crate::finding::{Finding, quantity};
use crate::table::{Column, Table};
use crate::unit::Unit;

/// Minimum number of distinct values.
const MIN_VALUES: usize = 8;
/// Maximum number of distinct values that are tested.
const MAX_VALUES: usize = 400;
/// Minimum number of different multiples.
const MIN_MULTIPLES: usize = 5;
/// The same for exact multiples.
const MIN_EXACT_MULTIPLES: usize = 3;
/// Mean resultant of the phases from which a tick explains the values.
const MIN_RESULTANT: f64 = 0.85;
/// Number of tested frequencies per independent one.
const OVERSAMPLING: f64 = 6.0;
/// Maximum number of tested frequencies.
const MAX_FREQUENCIES: usize = 100_000;
/// Probability of a false tick in one column.
const FALSE_ALARM: f64 = 5e-4;
/// Probability that the multiples of a tick alone are by chance as close to it.
const MULTIPLES_FALSE_ALARM: f64 = 5e-2;
/// Minimum number of different multiples where most values repeat and none is beside another.
const MIN_LATTICE_MULTIPLES: usize = 4;
/// Range of the values in ticks down to which close phases are looked for, at least.
const MIN_LATTICE_SPAN: f64 = 100.0;
/// Minimum tick in printed steps: values at every other step are no evidence.
const MIN_TICK_STEPS: f64 = 2.5;
/// Relative difference up to which the ticks of two tables are one.
const SAME_TICK: f64 = 0.03;

/// A tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tick {
    /// Size, in the unit of the values.
    pub(crate) size: f64,
    /// Mean distance from the nearest multiple, in ticks; 0.25 by chance.
    pub(crate) residual: f64,
    /// Number of values.
    pub(crate) count: usize,
    /// Two standard errors of the size, for values with any common offset.
    pub(crate) error: f64,
}

/// A measured column with enough distinct values.
struct Candidate<'a> {
    table: &'a Table,
    column: &'a Column,
    values: Vec<f64>,
    /// Step of the last printed digits.
    step: f64,
    tick: Option<Tick>,
}

impl Candidate<'_> {
    /// Nanoseconds per unit of the values, or 1 if the unit is unknown.
    fn scale(&self) -> f64 {
        self.column.unit.map_or(1.0, Unit::nanos)
    }
}

/// Looks for ticks in every table, and for those that tables have in common: few values decide a
/// tick that other tables show.
pub(crate) fn check(tables: &[Table], found: &mut Found) {
    let mut candidates: Vec<Candidate<'_>> = Vec::new();
    for table in tables {
        for column in table.measures() {
            let mut values = super::stamps::corrected(table, column);
            values.retain(|value| !value.is_nan());
            let step = printed_step(column);
            let tick = find(&values, step);
            candidates.push(Candidate { table, column, values, step, tick });
        }
    }
    spread(&mut candidates);
    if candidates.iter().all(|candidate| candidate.tick.is_none()) {
        pool(&mut candidates);
    }
    for candidate in &candidates {
        let Some(tick) = candidate.tick else {
            undecided(candidate, found);
            continue;
        };
        let (column, unit) = (candidate.column, candidate.column.unit_name());
        let message = format!(
            "the {} values of {} are multiples of {}{}: the clock or the program has this tick \
             (mean distance from a multiple {:.3} ticks, 0.25 by chance)",
            tick.count,
            column.name,
            quantity(tick.size, unit),
            tick.interval(unit),
            tick.residual
        );
        let finding = Finding::note("quantisation", message).value(tick.size, unit);
        found.push(finding.column(&column.name).table(&candidate.table.name));
    }
    joint(&candidates, found);
}

/// States that a latency has too few values to rule out a tick.
fn undecided(candidate: &Candidate<'_>, found: &mut Found) {
    let (table, column) = (candidate.table, candidate.column);
    let text = if (candidate.values.len() as u64) < MIN_DECIDING_VALUES {
        format!("{} has fewer than {MIN_DECIDING_VALUES} values", column.name)
    } else if distinct(&candidate.values).len() < MIN_VALUES {
        format!("{} has fewer than {MIN_VALUES} distinct values", column.name)
    } else {
        return;
    };
    if table.rows > 0 && column.role == crate::table::Role::Latency {
        found.cannot_tell("quantisation", &table.name, text);
    }
}

/// Step of the last printed digits. Of numbers with as many significant digits, large or small, it
/// is that of the large ones, which are printed most coarsely.
fn printed_step(column: &Column) -> f64 {
    /// Values of a decade that are a smaller share do not count.
    const MIN_SHARE: f64 = 0.05;
    const MAX_INSPECTED: usize = 10_000;
    let fine = column.totals.fine_step();
    if column.totals.coarsest_step() <= fine {
        return fine;
    }
    let mut decades: Vec<(i32, usize, f64)> = Vec::new();
    let mut inspected = 0;
    for value in column.present().filter(|value| *value != 0.0).take(MAX_INSPECTED) {
        inspected += 1;
        let decade = value.abs().log10().floor() as i32;
        // A program may have dropped zeros at the end.
        let mut step = fine;
        while step < value.abs() && is_multiple(value, step * 10.0) {
            step *= 10.0;
        }
        match decades.iter_mut().find(|(other, ..)| *other == decade) {
            Some((_, count, finest)) => {
                *count += 1;
                *finest = finest.min(step);
            }
            None => decades.push((decade, 1, step)),
        }
    }
    let is_frequent =
        |(_, count, _): &&(i32, usize, f64)| *count as f64 >= MIN_SHARE * inspected as f64;
    decades.iter().filter(is_frequent).map(|(.., step)| *step).fold(fine, f64::max)
}

fn is_multiple(value: f64, step: f64) -> bool {
    let times = value / step;
    (times - times.round()).abs() < 1e-6
}

impl Tick {
    /// The interval of the size, for messages; empty for exact multiples.
    fn interval(&self, unit: &str) -> String {
        if self.error <= 0.0 {
            return String::new();
        }
        let [low, high] = [self.size - self.error, self.size + self.error];
        format!(" (between {} and {})", quantity(low, unit), quantity(high, unit))
    }
}

/// Tests the ticks that were found in the tables without one.
fn spread(candidates: &mut [Candidate<'_>]) {
    let known: Vec<f64> = candidates
        .iter()
        .filter_map(|candidate| Some(candidate.tick?.size * candidate.scale()))
        .collect();
    for candidate in candidates.iter_mut().filter(|candidate| candidate.tick.is_none()) {
        let sizes = known.iter().map(|nanos| nanos / candidate.scale());
        let min_size = candidate.step * MIN_TICK_STEPS;
        candidate.tick = sizes
            .filter(|size| *size >= min_size)
            .find_map(|size| confirmed(&candidate.values, size));
    }
}

/// Looks for a tick in the values of all tables of one unit together, and keeps it where it fits.
fn pool(candidates: &mut [Candidate<'_>]) {
    let Some(unit) = candidates.first().map(|candidate| candidate.column.unit) else { return };
    if candidates.len() < 2 || candidates.iter().any(|candidate| candidate.column.unit != unit) {
        return;
    }
    let values: Vec<f64> =
        candidates.iter().flat_map(|candidate| candidate.values.iter().copied()).collect();
    let step = candidates.iter().map(|candidate| candidate.step).fold(0.0, f64::max);
    let Some(tick) = find(&values, step) else { return };
    for candidate in candidates.iter_mut() {
        candidate.tick = confirmed(&candidate.values, tick.size);
    }
}

/// The tick near `size`, if the values are on it: one size is tested, so fewer values decide.
fn confirmed(values: &[f64], size: f64) -> Option<Tick> {
    let sample = thinned(&distinct(values), MAX_VALUES);
    let n = sample.len() as f64;
    let range = sample.last()? - sample.first()?;
    let tick = refine_around(values, size, &sample)?;
    let resultant = periodogram(&sample, 1.0 / tick.size, 0.0, 1)[0];
    // Sizes within the width of a peak are one test; the search covers about three.
    let chance = 3.0 * (-n * resultant * resultant).exp();
    let is_same = (tick.size / size - 1.0).abs() < SAME_TICK;
    (is_same
        && range > size
        && chance < FALSE_ALARM
        && resultant >= MIN_RESULTANT
        && multiples(&sample, tick.size) >= MIN_MULTIPLES
        && tick.residual < 0.12)
        .then_some(tick)
}

/// One tick from all tables with nearly the same: more values, a better estimate.
fn joint(candidates: &[Candidate<'_>], found: &mut Found) {
    let with_tick: Vec<(&Candidate<'_>, Tick)> =
        candidates.iter().filter_map(|candidate| Some((candidate, candidate.tick?))).collect();
    let Some((first, tick)) = with_tick.first() else { return };
    let is_same = |other: &Tick| (other.size / tick.size - 1.0).abs() < SAME_TICK;
    let members: Vec<&Candidate<'_>> = with_tick
        .iter()
        .filter(|(other, size)| other.column.unit == first.column.unit && is_same(size))
        .map(|(candidate, _)| *candidate)
        .collect();
    if members.len() < 2 {
        return;
    }
    let values: Vec<f64> =
        members.iter().flat_map(|candidate| candidate.values.iter().copied()).collect();
    let Some(tick) = refine(&values, tick.size) else { return };
    let names: Vec<&str> = members.iter().map(|candidate| candidate.table.name.as_str()).collect();
    let unit = first.column.unit_name();
    let message = format!(
        "the {} values of {} have one tick of {}{} (mean distance from a multiple {:.3} ticks)",
        tick.count,
        names.join(", "),
        quantity(tick.size, unit),
        tick.interval(unit),
        tick.residual
    );
    found.push(Finding::note("quantisation", message).value(tick.size, unit));
}

/// Finds the largest tick of which the values are multiples, possibly with a common offset. `step`
/// is the step of their last printed digit.
pub(crate) fn find(values: &[f64], step: f64) -> Option<Tick> {
    let mut sample = distinct(values);
    // Rare long delays would stretch the grid of tick sizes.
    if sample.len() > 40 {
        sample.truncate(sample.len() * 95 / 100);
    }
    let sample = thinned(&sample, MAX_VALUES);
    let n = sample.len() as f64;
    let range = sample.last()? - sample.first()?;
    if range <= 0.0 || !step.is_finite() || step <= 0.0 {
        return None;
    }
    if let Some(tick) = exact(values, &sample, step) {
        // Whole numbers printed as "12.0" are a format, not a tick.
        let is_format = (tick.size - 1.0).abs() < 1e-9 && (step - 0.1).abs() < 1e-9;
        return Some(tick).filter(|_| !is_format);
    }
    if sample.len() < MIN_LATTICE_MULTIPLES {
        return None;
    }
    let is_lattice = is_lattice(values, step);
    // From a part of the range down to where this number of phases fits by chance.
    let least = if is_lattice { MIN_LATTICE_MULTIPLES } else { MIN_MULTIPLES };
    let largest = range / (least as f64 - 1.2);
    let [span, lattice_span] = if sample.len() < 100 {
        [2.0 * n, (2.0 * n).max(MIN_LATTICE_SPAN)]
    } else {
        [MAX_FREQUENCIES as f64 / OVERSAMPLING; 2]
    };
    let smallest = |span: f64| (step * MIN_TICK_STEPS).max(range / span);
    let spacing = 1.0 / (range * OVERSAMPLING);
    let low = 1.0 / largest;
    let frequencies = |span: f64| {
        let high = 1.0 / smallest(span);
        if high <= low {
            return 0;
        }
        (((high - low) / spacing) as usize + 1).min(MAX_FREQUENCIES)
    };
    let resultants = periodogram(&sample, low, spacing, frequencies(lattice_span));
    let size = |at: usize| 1.0 / (low + at as f64 * spacing);
    let evidence = |fit: &Fit| fit.log_evidence(range, step, sample.len(), is_lattice);
    let tight = (0..resultants.len())
        .filter(|at| is_peak(&resultants, *at) && resultants[*at] >= MIN_RESULTANT)
        .filter_map(|at| Fit::near(&sample, size(at)))
        .filter(|fit| fit.multiples >= least && fit.size >= step * MIN_TICK_STEPS)
        .min_by(|a, b| evidence(a).total_cmp(&evidence(b)))
        .filter(|fit| evidence(fit) < 0.0);
    if let Some(fit) = tight {
        return refine_around(values, fit.size, &sample).filter(|tick| tick.residual < 0.12);
    }
    let tested = frequencies(span).min(resultants.len());
    if sample.len() < MIN_VALUES || tested == 0 {
        return None;
    }
    let resultants = &resultants[..tested];
    // Of nearly equal resultants the largest tick, because its divisors fit as well.
    let best = resultants.iter().copied().fold(0.0, f64::max);
    if best < MIN_RESULTANT {
        return None;
    }
    let at = resultants.iter().position(|resultant| *resultant >= best - 0.03)?;
    let at = peak(resultants, at);
    let resultant = resultants[at];
    // Rayleigh: the square of the resultant times n is nearly exponential.
    let chance = tested as f64 / OVERSAMPLING * 2.0 * (-n * resultant * resultant).exp();
    if chance > FALSE_ALARM {
        return None;
    }
    let tick = refine_around(values, size(at), &sample)?;
    let multiples = multiples(&sample, tick.size);
    (multiples >= MIN_MULTIPLES && tick.residual < 0.12).then_some(tick)
}

/// A tick with an offset, fitted to values by least squares.
#[derive(Clone, Copy, Debug)]
struct Fit {
    size: f64,
    /// Largest minus smallest distance of a value from its multiple.
    width: f64,
    /// Number of different multiples.
    multiples: usize,
    /// Two standard errors of the size.
    error: f64,
}

impl Fit {
    /// Fits a tick near `size` to ascending values.
    fn near(sample: &[f64], size: f64) -> Option<Self> {
        const ROUNDS: usize = 3;
        let n = sample.len() as f64;
        let (mut size, mut offset) = (size, *sample.first()?);
        let mut squares = 0.0;
        for _ in 0..ROUNDS {
            let number = |value: f64| ((value - offset) / size).round();
            let mean_number = sample.iter().map(|value| number(*value)).sum::<f64>() / n;
            let mean_value = crate::statistic::mean(sample);
            let (mut products, mut numbers) = (0.0, 0.0);
            for value in sample {
                let at = number(*value) - mean_number;
                products += at * (value - mean_value);
                numbers += at * at;
            }
            if numbers <= 0.0 || products <= 0.0 {
                return None;
            }
            (size, squares) = (products / numbers, numbers);
            offset = mean_value - size * mean_number;
        }
        let number = |value: f64| ((value - offset) / size).round();
        let (mut low, mut high, mut sum) = (f64::INFINITY, f64::NEG_INFINITY, 0.0);
        let (mut multiples, mut last) = (0, f64::NAN);
        for value in sample {
            let at = number(*value);
            let distance = value - offset - size * at;
            low = low.min(distance);
            high = high.max(distance);
            sum += distance * distance;
            multiples += usize::from(at != last);
            last = at;
        }
        let error = 2.0 * (sum / (n - 2.0).max(1.0) / squares).sqrt();
        Some(Self { size, width: high - low, multiples, error })
    }

    /// Logarithm of the probability that `count` phases are by chance as close together for any
    /// tick near this one. Two phases are fitted.
    fn log_chance(&self, range: f64, step: f64, count: usize) -> f64 {
        // Printed values cannot be closer.
        let width = (self.width + 0.25 * step).max(step).min(self.size);
        (range / self.size).ln() + (count as f64 - 2.0) * (width / self.size).ln()
    }

    /// Logarithm of the probability of a false tick relative to its limit; below 0 is a tick.
    /// Distinct values are independent; because they may be in clusters, their multiples must be
    /// unlikely too. Where values are apart and repeat, only their even spacing is left to chance.
    fn log_evidence(&self, range: f64, step: f64, distinct: usize, is_lattice: bool) -> f64 {
        let by_multiples =
            self.log_chance(range, step, self.multiples) - MULTIPLES_FALSE_ALARM.ln();
        if is_lattice {
            return by_multiples;
        }
        let by_values = self.log_chance(range, step, distinct) + (2.0 * distinct as f64).ln();
        by_multiples.max(by_values - FALSE_ALARM.ln())
    }
}

/// Whether a resultant is not below its neighbours.
fn is_peak(resultants: &[f64], at: usize) -> bool {
    let before = at.checked_sub(1).map_or(0.0, |before| resultants[before]);
    let after = resultants.get(at + 1).copied().unwrap_or(0.0);
    resultants[at] >= before && resultants[at] > after
}

/// A tick of which all values are exact multiples in printed steps.
fn exact(values: &[f64], sample: &[f64], step: f64) -> Option<Tick> {
    let first = sample[0];
    let steps: Vec<u64> = sample
        .iter()
        .map(|value| ((value - first) / step).round() as u64)
        .filter(|steps| *steps > 0)
        .collect();
    let is_exact = values
        .iter()
        .take(10_000)
        .all(|value| ((value / step) - (value / step).round()).abs() < 1e-3);
    if !is_exact || steps.is_empty() {
        return None;
    }
    // All values, not only the sample.
    let divisor = values
        .iter()
        .map(|value| ((value - first).abs() / step).round() as u64)
        .fold(steps.iter().copied().fold(0, gcd), gcd);
    if divisor < 2 {
        return None;
    }
    let size = divisor as f64 * step;
    // A value agrees by chance with probability 1 / divisor. Repetitions of the most frequent value
    // are no evidence.
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let most = sorted.chunk_by(|a, b| a == b).map(<[f64]>::len).max().unwrap_or(0);
    let independent = (values.len() - most) as f64;
    let chance = -independent * (divisor as f64).ln();
    if chance > FALSE_ALARM.ln() - 4.0 || multiples(sample, size) < MIN_EXACT_MULTIPLES {
        return None;
    }
    Some(Tick { size, residual: 0.0, count: values.len(), error: 0.0 })
}

/// Whether the values are few, far apart and mostly repeated.
fn is_lattice(values: &[f64], step: f64) -> bool {
    let distinct = distinct(values);
    let apart =
        distinct.windows(2).filter(|pair| pair[1] - pair[0] >= MIN_TICK_STEPS * step).count();
    // A rounded multiple has two printed values.
    apart * 4 >= distinct.len() * 3 - 4 && values.len() >= 4 * distinct.len()
}

fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Mean resultants of the phases at equally spaced frequencies.
fn periodogram(sample: &[f64], low: f64, spacing: f64, frequencies: usize) -> Vec<f64> {
    let first = sample[0];
    // Each phase advances by a constant rotation from frequency to frequency.
    let mut phasors: Vec<[f64; 4]> = sample
        .iter()
        .map(|value| {
            let (sin, cos) = (TAU * (value - first) * low).sin_cos();
            let (step_sin, step_cos) = (TAU * (value - first) * spacing).sin_cos();
            [cos, sin, step_cos, step_sin]
        })
        .collect();
    (0..frequencies)
        .map(|_| {
            let (mut real, mut imaginary) = (0.0, 0.0);
            for [cos, sin, step_cos, step_sin] in &mut phasors {
                real += *cos;
                imaginary += *sin;
                let next = *cos * *step_cos - *sin * *step_sin;
                *sin = *sin * *step_cos + *cos * *step_sin;
                *cos = next;
            }
            real.hypot(imaginary) / sample.len() as f64
        })
        .collect()
}

/// Climbs to the local maximum.
fn peak(resultants: &[f64], start: usize) -> usize {
    let mut at = start;
    while resultants.get(at + 1).is_some_and(|next| *next > resultants[at]) {
        at += 1;
    }
    at
}

/// Improves an estimate; prefers multiples without an offset if they fit.
fn refine(values: &[f64], size: f64) -> Option<Tick> {
    refine_around(values, size, &thinned(&distinct(values), MAX_VALUES))
}

fn refine_around(values: &[f64], size: f64, sample: &[f64]) -> Option<Tick> {
    let range = (sample.last()? - sample.first()?).max(size);
    let largest = sample.iter().map(|value| value.abs()).fold(0.0, f64::max);
    // Without an offset, multiples from 0.
    let from_zero = best_near(sample, size, 0.6 * size * size / range, |value, tick| {
        (value / tick - (value / tick).round()).abs()
    });
    let first = sample[0];
    let with_offset = best_near(sample, size, 0.6 * size * size / range, |value, tick| {
        ((value - first) / tick - ((value - first) / tick).round()).abs()
    });
    let offset_is_needed = from_zero.1 > with_offset.1.max(0.05) * 1.5 || largest > 200.0 * range;
    let (size, residual) = if offset_is_needed { with_offset } else { from_zero };
    let error = Fit::near(sample, size).map_or(0.0, |fit| fit.error + (fit.size - size).abs());
    Some(Tick { size, residual, count: values.len(), error })
}

/// The tick near `size` with the smallest mean distance, and that distance.
fn best_near(
    sample: &[f64],
    size: f64,
    width: f64,
    distance: impl Fn(f64, f64) -> f64,
) -> (f64, f64) {
    const STEPS: i32 = 400;
    (-STEPS..=STEPS)
        .map(|at| {
            let tick = size + width * f64::from(at) / f64::from(STEPS);
            // Squares give the least-squares tick.
            let squares: f64 = sample.iter().map(|value| distance(*value, tick).powi(2)).sum();
            let mean = sample.iter().map(|value| distance(*value, tick)).sum::<f64>();
            (tick, mean / sample.len() as f64, squares)
        })
        .min_by(|a, b| a.2.total_cmp(&b.2))
        .map_or((size, 1.0), |(tick, mean, _)| (tick, mean))
}

/// Number of different multiples that the values are on.
fn multiples(sample: &[f64], tick: f64) -> usize {
    let mut numbers: Vec<i64> =
        sample.iter().map(|value| ((value - sample[0]) / tick).round() as i64).collect();
    numbers.dedup();
    numbers.len()
}

fn distinct(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.dedup();
    sorted
}

/// At most `limit` values, evenly spaced by rank.
fn thinned(values: &[f64], limit: usize) -> Vec<f64> {
    if values.len() <= limit {
        return values.to_vec();
    }
    (0..limit).map(|at| values[at * values.len() / limit]).collect()
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const SEED: u64 = 29;

    /// Latencies around 500 that a clock with this tick rounds down.
    fn ticked(n: usize, tick: f64, jitter: f64) -> Vec<f64> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        (0..n)
            .map(|_| {
                let value: f64 = 300.0 + 400.0 * rng.random::<f64>();
                ((value / tick).floor() * tick + jitter * (rng.random::<f64>() - 0.5)).round()
            })
            .collect()
    }

    #[test]
    fn ticks_of_several_sizes_are_found() {
        for tick in [10.0, 15.625, 20.0, 46.35, 33.333] {
            let found = find(&ticked(60, tick, 0.0), 1.0);
            let found = found.unwrap_or_else(|| panic!("seed {SEED}, tick {tick}"));
            assert!((found.size / tick - 1.0).abs() < 0.01, "seed {SEED}, {tick}: {found:?}");
        }
    }

    #[test]
    fn smooth_values_have_no_tick() {
        for n in [13, 40, 1_000] {
            assert_eq!(find(&ticked(n, 1.0, 0.0), 1.0), None, "{n}");
        }
    }

    #[test]
    fn two_clusters_are_no_tick() {
        let values =
            [1024., 979., 972., 978., 980., 1024., 2000., 2002., 2004., 1023., 977., 981., 2001.];
        assert_eq!(find(&values, 1.0), None);
    }
}
