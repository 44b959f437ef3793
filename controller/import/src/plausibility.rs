//! Rejects stated figures that are impossible, such as a loss ratio of 1.8e17 after an unsigned
//! underflow. They become null or are dropped, each with a warning.

use dwell_record::{Figures, Scalar};

use crate::{ImportWarning, ImportedFlow};

/// Metrics that may be negative: differences of two clocks, and schedule errors.
const SIGNED: [&str; 5] = [
    "one_way_forward_ns",
    "one_way_backward_ns",
    "forward_plus_offset_ns",
    "backward_minus_offset_ns",
    "schedule_error_ns",
];

/// Nulls impossible values and drops impossible metrics of `flow`. Returns a warning for each.
pub(crate) fn check(flow: &mut ImportedFlow) -> Vec<ImportWarning> {
    let mut warnings = Vec::new();
    for (name, value) in &mut flow.values {
        let Some(Scalar::Real(stated)) = *value else { continue };
        if !is_possible(name, stated) {
            let stated = number(stated);
            warnings.push(ImportWarning::ImpossibleValue(name.clone(), stated, why(name)));
            *value = None;
        }
    }
    flow.metrics.retain(|name, figures| match contradiction(name, figures) {
        Some(reason) => {
            warnings.push(ImportWarning::ImpossibleMetric(name.clone(), reason));
            false
        }
        None => true,
    });
    warnings
}

/// Maximum stated time, one day. A larger value means that a counter wrapped.
const MAX_TIME_NS: f64 = 86_400e9;

fn is_possible(name: &str, value: f64) -> bool {
    let limit = match name.rsplit('_').next() {
        Some("ratio") => 1.0,
        Some("ns") => MAX_TIME_NS,
        _ => f64::MAX,
    };
    (0.0..=limit).contains(&value)
}

fn why(name: &str) -> &'static str {
    if name.ends_with("_ratio") { "which is not between 0 and 1" } else { "which is impossible" }
}

/// Formats a number briefly, whatever its size.
fn number(value: f64) -> String {
    if value.abs() < 1e6 { format!("{value}") } else { format!("{value:.1e}") }
}

/// Describes what is impossible about a distribution.
fn contradiction(name: &str, figures: &Figures) -> Option<String> {
    let Figures { min, mean, max, stddev, .. } = *figures;
    let [low, high] = [min, max].map(|end| end.map(|ns| ns as f64));
    if [mean, stddev].into_iter().flatten().any(|figure| !figure.is_finite()) {
        return Some("one of its figures is not finite".to_owned());
    }
    if let Some(lowest) = low.filter(|lowest| *lowest < 0.0 && !SIGNED.contains(&name)) {
        return Some(format!("its minimum of {lowest} ns is negative"));
    }
    // Files state means and extremes with different precision: one step of 1 us is tolerated.
    let after = |a: Option<f64>, b: Option<f64>| a.zip(b).is_some_and(|(a, b)| a > b + 1_000.0);
    if after(low, high) || after(low, mean) || after(mean, high) {
        return Some("its minimum, mean and maximum are out of order".to_owned());
    }
    stddev.filter(|stddev| *stddev < 0.0).map(|_| "its standard deviation is negative".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(name: &str, value: f64) -> ImportedFlow {
        let values = [(name.to_owned(), Some(Scalar::Real(value)))].into();
        ImportedFlow { values, ..ImportedFlow::default() }
    }

    #[test]
    fn impossible_value_becomes_null_with_a_note() {
        for (name, value, is_kept) in [
            ("loss_ratio", 0.25, true),
            ("loss_ratio", 1.0, true),
            ("loss_forward_ratio", 1.8e17, false),
            ("loss_ratio", -0.1, false),
            ("loss_ratio", f64::NAN, false),
            ("jitter_rfc3550_ns", 1.8e6, true),
            ("jitter_rfc3550_ns", 1.8e17, false),
            ("jitter_rfc3550_ns", -1.0, false),
            ("rate_bps", f64::INFINITY, false),
        ] {
            let mut flow = flow(name, value);
            let notes = check(&mut flow);
            assert_eq!(flow.values[name].is_some(), is_kept, "{name} {value}");
            assert_eq!(notes.len(), usize::from(!is_kept), "{notes:?}");
            assert!(notes.iter().all(|note| note.to_string().starts_with(name)), "{notes:?}");
        }
    }

    #[test]
    fn contradictory_distribution_is_left_out_with_a_note() {
        let figures = |min, mean, max, stddev| Figures {
            count: 5,
            min: Some(min),
            mean: Some(mean),
            max: Some(max),
            stddev: Some(stddev),
            ..Figures::default()
        };
        for (name, figures, is_kept) in [
            ("rtt_ns", figures(10_000, 20_000.0, 30_000, 4_000.0), true),
            ("rtt_ns", figures(-10_000, 20_000.0, 30_000, 4_000.0), false),
            ("one_way_forward_ns", figures(-10_000, 20_000.0, 30_000, 4_000.0), true),
            ("rtt_ns", figures(10_000, 50_000.0, 30_000, 4_000.0), false),
            ("rtt_ns", figures(40_000, 40_000.0, 30_000, 4_000.0), false),
            ("rtt_ns", figures(10_000, 20_000.0, 30_000, -4_000.0), false),
            ("rtt_ns", figures(10_000, f64::NAN, 30_000, 4_000.0), false),
        ] {
            let metrics = [(name.to_owned(), figures)].into();
            let mut flow = ImportedFlow { metrics, ..ImportedFlow::default() };
            let notes = check(&mut flow);
            assert_eq!(flow.metrics.contains_key(name), is_kept, "{figures:?}");
            assert_eq!(notes.len(), usize::from(!is_kept), "{notes:?}");
        }
    }
}
