//! Last line of `dwell pace`: whether the rate was kept, with the deciding figure and its limit.
//! The rule is that of [`dwell_stats::accuracy`], which also judges plans.

use dwell_engine::departures::Pattern;
use dwell_sample::TimestampSource;
use dwell_stats::accuracy::{
    Accuracy, NoVerdictReason, Tolerance, ToleranceViolation, TrainAccuracy,
};
use dwell_stats::{RealInterval, median};
use dwell_wire::size::{PacketSize, SizeMeasure};

use super::recorder::Recorder;
use super::setup::PaceSetup;

const USER_STAMPS: &str =
    "departures are user timestamps; kernel timestamps or --sink are required";
const LIMIT_UNSEEN: &str =
    "departures are timestamped before a rate limit of the outgoing interface";

/// Returns why the departures decide nothing; `None` if they are usable. `limit_unseen` is as for
/// [`line`].
pub(super) fn unusable(
    timestamp_source: TimestampSource,
    limit_unseen: bool,
) -> Option<&'static str> {
    match timestamp_source {
        _ if limit_unseen => Some(LIMIT_UNSEEN),
        TimestampSource::User => Some(USER_STAMPS),
        _ => None,
    }
}

/// Returns the verdict on a train pattern; `None` for other patterns, which have no constant rate.
/// `limit_unseen`: departures are timestamped before a rate limit of the outgoing interface.
pub(super) fn line(
    setup: &PaceSetup,
    recorder: &Recorder<'_>,
    limit_unseen: bool,
) -> Option<String> {
    if !matches!(setup.pattern, Pattern::Train { .. }) {
        return None;
    }
    let (trains, tolerance) = (&recorder.trains, Tolerance::default());
    let request = trains.asked();
    let rate = request.rate_bps()?;
    let accuracy = match limit_unseen {
        true => Accuracy::CannotTell { why: NoVerdictReason::LimitUnseen },
        false => {
            tolerance
                .judge(request, recorder.source.timestamp_source(), trains.accuracies())
                .accuracy
        }
    };
    Some(format!(
        "keeps {} with {}: {}",
        super::report::rate(rate),
        packets(&setup.size),
        outcome(&accuracy, &tolerance, trains.accuracies(), request.gap)
    ))
}

/// Formats the packet size as it was given.
fn packets(size: &PacketSize) -> String {
    match size.counted() {
        SizeMeasure::Ip => format!("{} B packets", size.ip().0),
        SizeMeasure::Payload => format!("{} B payloads", size.payload().0),
        SizeMeasure::Frame => format!("{} B frames", size.frame().0),
    }
}

/// Formats the verdict with its figure and limit.
fn outcome(
    accuracy: &Accuracy,
    tolerance: &Tolerance,
    trains: &[TrainAccuracy],
    gap: f64,
) -> String {
    let gap_limit = percent(tolerance.gap);
    let rate_limit =
        format!("{} to {}", percent(1.0 - tolerance.rate), percent(1.0 + tolerance.rate));
    let typical = || {
        let errors: Vec<f64> = trains.iter().map(|train| train.gap_error_p95.high / gap).collect();
        let error = median(&errors).filter(|error| error.is_finite());
        error.map_or("p95 gap error unknown".to_owned(), |error| {
            format!("p95 gap error {}", percent(error))
        })
    };
    match accuracy {
        Accuracy::Accurate => format!("yes ({}, limit {gap_limit})", typical()),
        Accuracy::Inaccurate { why: ToleranceViolation::Gaps(_) } => {
            format!("no ({}, limit {gap_limit})", typical())
        }
        Accuracy::Inaccurate { why: ToleranceViolation::Rate(rate) } => {
            format!("no (rate {} of the requested rate, limits {rate_limit})", span(*rate))
        }
        Accuracy::CannotTell { why } => {
            let reason = match why {
                NoVerdictReason::UserStamps => USER_STAMPS.to_owned(),
                NoVerdictReason::LimitUnseen => LIMIT_UNSEEN.to_owned(),
                NoVerdictReason::FewTrains { trains, least } => {
                    format!("{trains} trains, at least {least} are required (--repeat)")
                }
                NoVerdictReason::NoInterval => "too few trains".to_owned(),
                NoVerdictReason::Incomplete { trains, of } => format!(
                    "{trains} of {of} trains lack timestamps, or gaps for a 95th percentile (--count 21)"
                ),
                NoVerdictReason::Rate(rate) => {
                    format!("rate {} of the requested rate, limits {rate_limit}", span(*rate))
                }
                NoVerdictReason::Gaps(gaps) => {
                    format!("p95 gap error {}, limit {gap_limit}", span(*gaps))
                }
            };
            format!("cannot tell: {reason}")
        }
    }
}

fn span(shares: RealInterval) -> String {
    let (low, high) = (percent(shares.low), percent(shares.high));
    if low == high { low } else { format!("{low} to {high}") }
}

/// Formats a share in percent with one decimal.
fn percent(share: f64) -> String {
    format!("{} %", (share * 1e3).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use dwell_stats::departures::TrainRequest;

    use super::*;

    const REQUEST: TrainRequest =
        TrainRequest { bits: 1e4, gap: 1e5, deadline: None, same_clock: true };

    /// The verdict on trains of this rate and p95 gap error, as shares of the requested values.
    fn judged(trains: &[(f64, f64)], timestamp_source: TimestampSource) -> String {
        let exactly = |value| RealInterval { low: value, high: value };
        let trains: Vec<_> = trains
            .iter()
            .map(|(rate, error)| TrainAccuracy {
                rate_bps: exactly(rate * 1e8),
                gap_error_p95: exactly(error * 1e5),
            })
            .collect();
        let tolerance = Tolerance::default();
        let accuracy = tolerance.judge(&REQUEST, timestamp_source, &trains).accuracy;
        outcome(&accuracy, &tolerance, &trains, REQUEST.gap)
    }

    #[test]
    fn verdict_shows_the_deciding_figure_and_its_limit() {
        let kernel = |trains: &[(f64, f64)]| judged(trains, TimestampSource::KernelSw);
        assert_eq!(kernel(&[(1.0, 0.009); 20]), "yes (p95 gap error 0.9 %, limit 10 %)");
        assert_eq!(kernel(&[(1.0, 0.234); 20]), "no (p95 gap error 23.4 %, limit 10 %)");
        assert_eq!(
            kernel(&[(0.9, 0.009); 20]),
            "no (rate 90 % of the requested rate, limits 95 % to 105 %)"
        );
        let mixed: Vec<_> = (0..20).map(|n| (1.0, if n < 12 { 0.05 } else { 0.3 })).collect();
        assert_eq!(kernel(&mixed), "cannot tell: p95 gap error 5 % to 30 %, limit 10 %");
        assert_eq!(
            kernel(&[(1.0, 0.0); 19]),
            "cannot tell: 19 trains, at least 20 are required (--repeat)"
        );
        assert!(
            judged(&[(1.0, 0.0); 20], TimestampSource::User)
                .starts_with("cannot tell: departures are")
        );
    }
}
