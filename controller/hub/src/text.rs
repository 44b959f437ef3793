//! Delays and answers as text, for commands and pages.

use std::fmt::Write as _;

use dwell_rollup::Bin;

use crate::object::time_text;
use crate::query::{Answer, Figures, QUANTILES, measure};

/// Formats a delay with four significant digits.
pub fn delay_text(ns: i64) -> String {
    let (value, unit) = scaled(ns, ns);
    format!("{value}{unit}")
}

/// Formats the bounds of a bin.
pub fn bin_text(bin: &Bin) -> String {
    let (low, unit) = scaled(bin.low.0, bin.high.0);
    let (high, _) = scaled(bin.high.0, bin.high.0);
    if low == high { format!("{low}{unit}") } else { format!("{low}..{high}{unit}") }
}

/// Returns a delay in the unit that suits `other`.
fn scaled(ns: i64, other: i64) -> (String, &'static str) {
    let (scale, unit) = match other.unsigned_abs() {
        0..1_000 => (1.0, "ns"),
        1_000..1_000_000 => (1e3, "us"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let value = ns as f64 / scale;
    let decimals = match value.abs() {
        _ if scale == 1.0 => 0,
        ..10.0 => 3,
        10.0..100.0 => 2,
        100.0..1_000.0 => 1,
        _ => 0,
    };
    (format!("{value:.decimals$}"), unit)
}

/// Returns answers as comma-separated values, one row per stream and step.
pub fn query_csv(answers: &[Answer]) -> String {
    let percentiles = QUANTILES.map(|(name, _)| format!("{name}_low_ns,{name}_high_ns"));
    let mut out = format!(
        "sender,reflector,measure,protocol,metric,from,to,sent,received,lost,late,duplicate,reordered,\
         send_failed,coverage,n,min_ns,mean_ns,max_ns,{},error_ns,lost_in_pause\n",
        percentiles.join(",")
    );
    for answer in answers {
        for figures in &answer.rows {
            // Writing to a string does not fail.
            let _ = write_csv_row(&mut out, answer, figures);
        }
    }
    out
}

fn write_csv_row(out: &mut String, answer: &Answer, figures: &Figures) -> std::fmt::Result {
    let stream = &answer.stream;
    let counts = &figures.counts;
    write!(
        out,
        "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},",
        stream.sender,
        stream.stream.reflector,
        measure(&stream.stream.entry),
        stream.stream.protocol,
        answer.metric.name(),
        time_text(figures.from_ns),
        time_text(figures.to_ns),
        counts.sent,
        counts.received,
        counts.lost,
        counts.late,
        counts.duplicate,
        counts.reordered,
        counts.send_failed,
        figures.coverage.map(|coverage| format!("{coverage:.6}")).unwrap_or_default(),
    )?;
    let Some(delays) = &figures.delays else {
        // An empty field for each figure.
        let empty = ",,".repeat(QUANTILES.len());
        return writeln!(out, "0,,,,{empty},{}", figures.lost_in_pause);
    };
    write!(out, "{},{},{:.1},{}", delays.n, delays.min_ns, delays.mean_ns, delays.max_ns)?;
    for bin in &delays.percentiles {
        match bin {
            Some(bin) => write!(out, ",{},{}", bin.low.0, bin.high.0)?,
            None => write!(out, ",,")?,
        }
    }
    writeln!(out, ",{},{}", delays.error_ns, figures.lost_in_pause)
}

#[cfg(test)]
mod tests {
    use dwell_units::Nanos;

    use super::*;

    #[test]
    fn bin_has_one_unit_and_no_false_precision() {
        let bin =
            |low: i64, high: i64| bin_text(&Bin { low: Nanos(low), high: Nanos(high), count: 1 });
        assert_eq!(bin(12_025_856, 12_091_391), "12.03..12.09ms");
        assert_eq!(bin(997_000, 1_004_000), "0.997..1.004ms");
        assert_eq!(bin(255, 255), "255ns");
        assert_eq!(bin(-2_016_000, -2_000_001), "-2.016..-2.000ms");
        assert_eq!(delay_text(1_234_567_890), "1.235s");
    }
}
