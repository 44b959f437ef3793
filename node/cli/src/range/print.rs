//! The result as text: the distance first, then its conditions.

use std::io::{self, Write};

use dwell_stats::range::{metres, metres_with_error};

use super::calibration::Calibration;
use super::result::{DistanceRecord, RangeResult, Span};
use super::source::{Measured, Source};

/// Prints the result of a measurement.
pub(super) fn result(out: &mut impl Write, result: &RangeResult) -> io::Result<()> {
    let bound = result.bound_m.map_or("unknown".to_owned(), metres);
    match (&result.distance, &result.calibration) {
        (Some(distance), _) => {
            writeln!(out, "{} by {}, {}", shown(distance), result.estimator, conditions(result))?;
        }
        (None, Some(_)) => writeln!(out, "distance unknown by {}", result.estimator)?,
        (None, None) => writeln!(out, "at most {bound}, {}", conditions(result))?,
    }
    let confidence = result.confidence * 100.0;
    match &result.calibration {
        Some(calibration) => writeln!(
            out,
            "\ndistance with {confidence:.0} % confidence, calibrated at {} with {} round trips",
            metres(calibration.distance_m),
            calibration.count
        )?,
        None => writeln!(
            out,
            "\nround trip in metres with {confidence:.0} % confidence, not calibrated: it contains \
             the delay of the devices"
        )?,
    }
    for found in &result.estimates {
        let distance = match &result.calibration {
            Some(_) => &found.distance,
            None => &found.uncalibrated,
        };
        let distance = distance.as_ref().map_or("-".to_owned(), shown);
        writeln!(out, "{:12}{distance:28}round trip {}", found.estimator, time(found.rtt_ps))?;
    }
    writeln!(out, "{:12}at most {bound}: speed x RTT / 2, needs no calibration", "bound")?;
    if let Some(spread) = result.rtts.spread {
        writeln!(out, "{:12}{}", "spread", equals(spread))?;
    }
    if let Some(step) = result.resolution {
        writeln!(out, "{:12}{}", "resolution", equals(step))?;
    }
    let rtts = &result.rtts;
    let others = [
        (rtts.outliers, "outliers removed"),
        (rtts.invalid, "invalid"),
        (rtts.wrapped, "repaired after a counter wrapped"),
    ];
    let others: String =
        others.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!(", {n} {what}")).collect();
    writeln!(out, "{:12}{} used{others}, {}", "round trips", rtts.count, origin(&result.source))?;
    writeln!(
        out,
        "{:12}{:.0} km/s{}",
        "speed",
        result.medium.metres_per_second / 1e3,
        result.medium.name.map_or(String::new(), |name| format!(" ({name})"))
    )?;
    for warning in &result.warnings {
        writeln!(out, "{}: {warning}", warning.severity().name())?;
    }
    out.flush()
}

/// Prints a calibration.
pub(super) fn calibration(
    out: &mut impl Write,
    calibration: &Calibration,
    measured: &Measured,
) -> io::Result<()> {
    writeln!(
        out,
        "calibrated at {} with {} round trips, {} outliers removed, {}",
        metres(calibration.distance_m),
        calibration.count,
        calibration.outliers,
        origin(&calibration.source)
    )?;
    for found in &calibration.estimates {
        let interval = found.rtt_low_ps.zip(found.rtt_high_ps);
        let interval = interval.map_or("too few for an interval".to_owned(), |(low, high)| {
            let error_ps = (high - found.rtt_ps).max(found.rtt_ps - low);
            let error_m = error_ps * 1e-12 * calibration.metres_per_second / 2.0;
            format!("+- {}, which adds {} to a distance", time(error_ps), metres(error_m))
        });
        writeln!(out, "{:12}round trip {} {interval}", found.estimator, time(found.rtt_ps))?;
    }
    for warning in &measured.warnings {
        writeln!(out, "{}: {warning}", warning.severity().name())?;
    }
    Ok(())
}

fn shown(distance: &DistanceRecord) -> String {
    metres_with_error(distance.metres, distance.error)
}

/// The stamp resolution and the timestamp source.
fn conditions(result: &RangeResult) -> String {
    let step = result.resolution.map_or("unknown".to_owned(), |step| metres(step.distance_m));
    format!("resolution {step}, {}", origin(&result.source))
}

fn origin(source: &Source) -> String {
    match (&source.stamps, &source.protocol) {
        (Some(stamps), Some(protocol)) => format!("{protocol} with {stamps} stamps"),
        (None, Some(protocol)) => protocol.clone(),
        _ => format!("from {}", source.kind.name()),
    }
}

fn equals(span: Span) -> String {
    format!("{} of round trip equal {}", time(span.rtt_ps), metres(span.distance_m))
}

/// A time in the unit that leaves one to three digits before the point, without trailing zeros.
pub(super) fn time(ps: f64) -> String {
    let (size, unit) = match ps.abs() {
        0.0..1e3 => (1.0, "ps"),
        1e3..1e6 => (1e3, "ns"),
        1e6..1e9 => (1e6, "us"),
        1e9..1e12 => (1e9, "ms"),
        _ => (1e12, "s"),
    };
    let number = format!("{:.4}", ps / size);
    let number = number.trim_end_matches('0').trim_end_matches('.');
    format!("{number} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_no_trailing_zeros() {
        let times = [1_562.5, 12e6, 1_118_000_123.0, 0.0, -2.5e12].map(time);
        assert_eq!(times, ["1.5625 ns", "12 us", "1.118 ms", "0 ps", "-2.5 s"]);
    }
}
