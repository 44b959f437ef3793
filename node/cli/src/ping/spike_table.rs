//! Prints the causes of spikes.

use std::io::{self, Write};

use dwell_host::Cause;
use dwell_record::{Spike, Spikes};
use dwell_units::Nanos;

use super::brief::time;

/// Number of causes and of spikes that are printed; the JSON object has more.
const MAX_ROWS: usize = 5;

/// Number of parts of a spike that are printed.
const MAX_PARTS: usize = 3;

/// Prints the limit, the causes and the largest spikes.
pub(super) fn print(out: &mut impl Write, spikes: &Spikes) -> io::Result<()> {
    let Some(above) = spikes.above_ns else {
        return writeln!(out, "{:12}none: too few replies for a limit", "spikes");
    };
    let source = if spikes.source == "proc" { ", from /proc only" } else { "" };
    let not_divided = match spikes.count.saturating_sub(spikes.explained) {
        0 => String::new(),
        n => format!(", {n} without causes"),
    };
    writeln!(
        out,
        "{:12}{} above {} ({}){not_divided}{source}",
        "spikes",
        spikes.count,
        time(Nanos(above)),
        spikes.rule
    )?;
    let mut causes: Vec<_> = spikes.causes.iter().filter(|total| total.spikes > 0).collect();
    causes.sort_by_key(|total| std::cmp::Reverse((total.spikes, total.time_ns)));
    for total in causes.iter().take(MAX_ROWS) {
        let cause = Cause { kind: total.cause, by: total.by.clone(), pid: None };
        let sum = time(Nanos(total.time_ns));
        writeln!(out, "{:12}{:>6} mainly {cause}, {sum} in all spikes", "", total.spikes)?;
    }
    let mut largest: Vec<&Spike> = spikes.largest.iter().collect();
    largest.sort_by_key(|spike| std::cmp::Reverse(spike.rtt_ns));
    for spike in largest.iter().take(MAX_ROWS) {
        writeln!(out, "{:12}probe {}: {}", "", spike.id, describe(spike))?;
    }
    Ok(())
}

/// The delay and its longest parts.
fn describe(spike: &Spike) -> String {
    let mut parts: Vec<_> = spike.parts.iter().collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.ns));
    let named = parts.iter().take(MAX_PARTS);
    let mut shown: Vec<_> =
        named.map(|part| format!("{} {}", time(Nanos(part.ns)), part.cause)).collect();
    let rest: i64 = parts.iter().skip(MAX_PARTS).map(|part| part.ns).sum();
    if rest > 0 {
        shown.push(format!("{} other", time(Nanos(rest))));
    }
    let gap = if spike.complete { "" } else { " (events were lost)" };
    format!("{} = {}{gap}", time(Nanos(spike.rtt_ns)), shown.join(" + "))
}

#[cfg(test)]
mod tests {
    use dwell_host::CauseKind;
    use dwell_record::SpikePart;

    use super::*;

    fn part(kind: CauseKind, by: Option<&str>, ns: i64) -> SpikePart {
        let pid = by.map(|_| 42);
        SpikePart { cause: Cause { kind, by: by.map(str::to_owned), pid }, ns }
    }

    #[test]
    fn table_shows_the_main_cause_and_the_longest_parts() {
        let parts = vec![
            part(CauseKind::Own, None, 2_000),
            part(CauseKind::InFlight, None, 8_000),
            part(CauseKind::Waiting, Some("hog"), 990_000),
            part(CauseKind::Receive, None, 500),
        ];
        let mut spikes = Spikes {
            above_ns: Some(30_000),
            rule: "median + 10 MAD".into(),
            source: "tp_btf".into(),
            count: 1,
            ..Spikes::default()
        };
        spikes.add(Spike {
            id: 17,
            at_ns: 0,
            rtt_ns: 1_000_500,
            cause: parts[2].cause.clone(),
            parts,
            page_faults: 0,
            complete: true,
        });
        spikes.finish();
        let mut out = Vec::new();
        print(&mut out, &spikes).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(lines[0], "spikes      1 above 30.000 us (median + 10 MAD)");
        assert_eq!(lines[1], "1 mainly waiting behind hog, 990.000 us in all spikes");
        let expected = "probe 17: 1.000 ms = 990.000 us waiting behind hog (pid 42) + 8.000 us in \
                        flight + 2.000 us own work + 500 ns other";
        assert_eq!(lines[2], expected.replace("500 ns", "0.500 us"));
    }
}
