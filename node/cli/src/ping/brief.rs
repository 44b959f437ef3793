//! The result in five rows, and two for the one-way delays to a device with a clock of its own. `-v`
//! prints the long table of `report` instead.

use std::io::{self, Write};

use dwell_record::Summary;
use dwell_stats::{Figures, Metric, PathDelays, RoundTrip};
use dwell_units::Nanos;

use super::spike_table;
use super::{layer_table, report};

/// Prints the rows, the relay delays and the notes.
pub(super) fn print(summary: &Summary, measured: &RoundTrip, path: &PathDelays) -> io::Result<()> {
    let mut out = crate::terminal::stdout();
    for row in rows(summary, measured) {
        writeln!(out, "{row}")?;
    }
    if let Some(driver) = &summary.driver {
        layer_table::print(&mut out, driver)?;
    }
    report::print_path(&mut out, path)?;
    if let Some(spikes) = &summary.spikes {
        spike_table::print(&mut out, spikes)?;
    }
    crate::human::print_warnings(&mut out, &summary.trust)?;
    out.flush()
}

fn rows(summary: &Summary, measured: &RoundTrip) -> Vec<String> {
    let packets = summary.packets.unwrap_or_default();
    let address = summary.parameters.get("address").and_then(|address| address.as_str());
    // ICMP has no ports.
    let address = address.map_or("-", |address| address.strip_suffix(":0").unwrap_or(address));
    let others = [
        (packets.duplicate, "duplicate"),
        (packets.reordered, "reordered"),
        (packets.send_failed, "not sent"),
    ];
    let others: String =
        others.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!(", {n} {what}")).collect();
    let share = |n: u64| match packets.sent {
        0 => "-".to_owned(),
        sent => percent(n as f64 / sent as f64),
    };
    let has_far_clock = summary.values.contains_key(&dwell_record::clock_value("far", "error_ns"));
    let directions = [("forward", Metric::OneWayForward), ("backward", Metric::OneWayBackward)]
        .into_iter()
        .filter(|_| has_far_clock)
        .map(|(name, metric)| format!("{name:12}{}", figures(&measured.figures(metric))));
    let jitter = measured.jitter().map_or("-".to_owned(), |nanos| time(Nanos(nanos as i64)));
    let rows = [
        format!(
            "\n{} ({}), {}, {}",
            summary.target,
            address,
            summary.engine,
            report::describe_stamps(&summary.stamps)
        ),
        format!(
            "{:12}{} sent, {} received in time, {} late, {} lost{others}",
            "packets", packets.sent, packets.received, packets.late, packets.lost
        ),
        format!(
            "{:12}in time {}, late {}, lost {}",
            "shares",
            share(packets.received),
            share(packets.late),
            share(packets.lost)
        ),
        format!("{:12}{}", "round trip", figures(&measured.figures(Metric::Rtt))),
        format!(
            "{:12}IPDV {}, jitter (RFC 3550) {jitter}",
            "variation",
            figures(&measured.figures(Metric::Ipdv))
        ),
    ];
    rows.into_iter().chain(directions).collect()
}

/// The main figures, in the unit of the largest. A dash marks a figure that the sample count does
/// not support.
fn figures(figures: &Figures) -> String {
    let Some(max) = figures.max else { return "-".into() };
    let (size, unit) = unit(max);
    let number = |value: Option<Nanos>| {
        value.map_or("-".to_owned(), |value| format!("{:.3}", value.0 as f64 / size))
    };
    let [min, median, p99, max] = [figures.min, figures.p50, figures.p99, figures.max].map(number);
    format!("min {min}  median {median}  p99 {p99}  max {max} {unit}")
}

/// The unit that leaves one to three digits before the point: its size in nanoseconds and its name.
fn unit(time: Nanos) -> (f64, &'static str) {
    match time.0.unsigned_abs() {
        0..1_000_000 => (1e3, "us"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

/// Formats a time with its unit.
pub(super) fn time(time: Nanos) -> String {
    let (size, unit) = unit(time);
    format!("{:.3} {unit}", time.0 as f64 / size)
}

/// Formats a share as a percentage, with decimals only if needed.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent == percent.round() { format!("{percent:.0} %") } else { format!("{percent:.2} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_are_unknown_are_dashes() {
        assert_eq!(figures(&Figures::default()), "-");
        let some = |nanos| Some(Nanos(nanos));
        let known = Figures {
            min: some(900_000),
            p50: some(950_000),
            max: some(1_500_000),
            ..Figures::default()
        };
        assert_eq!(figures(&known), "min 0.900  median 0.950  p99 -  max 1.500 ms");
    }

    #[test]
    fn shares_and_times_are_short() {
        assert_eq!((percent(1.0), percent(0.125)), ("100 %".into(), "12.50 %".into()));
        let times = [Nanos(70_123), Nanos(70_123_456), Nanos(7_012_345_678)].map(time);
        assert_eq!(times, ["70.123 us", "70.123 ms", "7.012 s"]);
    }
}
