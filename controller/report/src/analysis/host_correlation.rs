//! Correlation of host activity with the delay: rank correlation over windows of a trial, corrected
//! for autocorrelation of the windows.

use crate::analysis::group;
use crate::model::quantity::{capital, count, delay_ns, significant, three_digits};
use crate::model::{HostData, HostSeries, RunData, metric};

/// Maximum number of windows of a trial.
pub(crate) const MAX_WINDOWS: u64 = 100;

/// Minimum number of windows for a correlation.
const MIN_WINDOWS: usize = 10;

/// Minimum absolute correlation for a finding.
const MIN_CORRELATION: f64 = 0.5;

/// Minimum number of standard errors from zero. Up to 54 correlations are tested, so the usual two
/// would produce a finding in most runs.
const MIN_STANDARD_ERRORS: f64 = 4.0;

/// Correlation of a quantity with the delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Correlation {
    /// Spearman's rank correlation.
    pub(crate) rho: f64,
    /// Distance of `rho` from zero in standard errors.
    pub(crate) standard_errors: f64,
    /// Number of windows in which both are known.
    pub(crate) windows: usize,
    /// Number of slow windows: the quarter with the highest p99.
    pub(crate) slow_windows: usize,
    /// Mean of the quantity in the slow windows.
    pub(crate) in_slow: f64,
    /// Mean in the other windows.
    pub(crate) in_others: f64,
}

/// Returns `None` with fewer than [`MIN_WINDOWS`] windows in which both are known, or if one is
/// constant.
pub(crate) fn correlation(host: &HostData, series: &HostSeries) -> Option<Correlation> {
    let pairs: Vec<(f64, f64)> = host
        .windows
        .iter()
        .zip(&series.by_window)
        .filter_map(|(window, value)| Some((window.p99_ns? as f64, (*value)?)))
        .collect();
    let n = pairs.len();
    if n < MIN_WINDOWS {
        return None;
    }
    let delays = ranks(pairs.iter().map(|(delay, _)| *delay));
    let values = ranks(pairs.iter().map(|(_, value)| *value));
    let rho = pearson(&delays, &values)?;
    // Bartlett's effective number of windows for autocorrelated series.
    let alike = autocorrelation(&delays).max(0.0) * autocorrelation(&values).max(0.0);
    let effective = n as f64 * (1.0 - alike) / (1.0 + alike);
    // Fisher's transformation; 1.06 is Fieller's factor for ranks.
    let standard_errors = if effective > 3.0 {
        rho.clamp(-0.999_999, 0.999_999).atanh().abs() * ((effective - 3.0) / 1.06).sqrt()
    } else {
        0.0
    };
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| delays[*b].total_cmp(&delays[*a]));
    let slow_windows = n / 4;
    let mean = |of: &[usize]| of.iter().map(|i| pairs[*i].1).sum::<f64>() / of.len() as f64;
    let (in_slow, in_others) = (mean(&order[..slow_windows]), mean(&order[slow_windows..]));
    Some(Correlation { rho, standard_errors, windows: n, slow_windows, in_slow, in_others })
}

/// Finding about the quantity that correlates most with the p99, if any does significantly.
pub(crate) fn correlation_finding(run: &RunData) -> Option<String> {
    let host = run.host.as_ref()?;
    let sure = |it: &Correlation| {
        it.rho.abs() >= MIN_CORRELATION && it.standard_errors >= MIN_STANDARD_ERRORS
    };
    let all = host.series.iter().filter_map(|series| Some((series, correlation(host, series)?)));
    let (series, found) = all
        .filter(|(_, found)| sure(found))
        .max_by(|(_, a), (_, b)| a.rho.abs().total_cmp(&b.rho.abs()))?;
    let trial = run.trials.iter().find(|trial| trial.trial == host.wanted.trial)?;
    let width = host.windows.first().map_or(0, |window| window.to_ns - window.from_ns);
    let which = match run.trials.len() {
        1 => String::new(),
        _ => format!(" of trial {} ({})", trial.trial, group::trial_label(run, trial)),
    };
    let said = |value| series.quantity.text(value);
    Some(format!(
        "{} of {} was {} while the p99 of the {}{which} was highest, {} otherwise. \
         Highest: in {} of {} windows of {}. Rank correlation {}; correlation does not show cause.",
        capital(series.quantity.words()),
        series.node,
        said(found.in_slow),
        metric::words(&host.wanted.metric),
        said(found.in_others),
        count(found.slow_windows as u64),
        count(found.windows as u64),
        delay_ns(width),
        three_digits(significant(found.rho, 2)),
    ))
}

/// Rank of each value, from 1; equal values share the mean of their ranks.
fn ranks(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let values: Vec<f64> = values.collect();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut done = 0;
    for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let rank = done as f64 + (equal.len() + 1) as f64 / 2.0;
        equal.iter().for_each(|i| ranks[*i] = rank);
        done += equal.len();
    }
    ranks
}

/// Pearson's correlation; `None` if either series is constant.
fn pearson(a: &[f64], b: &[f64]) -> Option<f64> {
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let sum =
        |f: &dyn Fn(f64, f64) -> f64| a.iter().zip(b).map(|(a, b)| f(a - ma, b - mb)).sum::<f64>();
    let (aa, bb, ab) = (sum(&|a, _| a * a), sum(&|_, b| b * b), sum(&|a, b| a * b));
    (aa > 0.0 && bb > 0.0).then(|| ab / (aa * bb).sqrt())
}

/// Lag-1 autocorrelation.
fn autocorrelation(values: &[f64]) -> f64 {
    match values {
        [_, later @ ..] => pearson(&values[..later.len()], later).unwrap_or(0.0),
        [] => 0.0,
    }
}
