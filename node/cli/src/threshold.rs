//! `--fail-if`: parses thresholds, judges a measurement by them and returns the exit code.

use dwell_stats::{Evidence, Threshold, ThresholdError, ThresholdVerdict};

use crate::{Exit, Failure};

/// Parses the values of `--fail-if`. `metrics` are the known names without unit; the first is the
/// default.
pub(crate) fn read(texts: &[String], metrics: &[&str]) -> Result<Vec<Threshold>, Failure> {
    let read = |text: &String| -> Result<Threshold, ThresholdError> {
        let threshold: Threshold = text.parse()?;
        threshold.check_value()?;
        threshold.check_metric(metrics)?;
        Ok(threshold)
    };
    let all: Result<_, _> = texts.iter().map(read).collect();
    all.map_err(|error| Failure::usage(format!("invalid value for --fail-if: {error}")))
}

/// Judges all thresholds and reports those that do not pass. `evidence` returns the data for a
/// metric, or for the default metric.
pub(crate) fn judge<'a>(
    thresholds: &[Threshold],
    evidence: impl Fn(Option<&str>) -> Evidence<'a>,
) -> Exit {
    let mut exit = Exit::Measured;
    for threshold in thresholds {
        match threshold.judge(&evidence(threshold.metric())) {
            ThresholdVerdict::Pass(_) => {}
            ThresholdVerdict::Fail(observed) => {
                crate::say(&format!("dwell: --fail-if {threshold}: it is {observed}"));
                exit = exit.or_worse(Exit::Threshold);
            }
            ThresholdVerdict::CannotTell(doubt) => {
                crate::say(&format!("dwell: --fail-if {threshold}: cannot tell: {doubt}"));
                exit = exit.or_worse(Exit::Undecided);
            }
        }
    }
    exit
}
