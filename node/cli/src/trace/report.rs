//! Result of a trace: summary object and terminal output.

use std::io::{self, Write};

use dwell_protocol::{FlowFilter, IdFormat, TraceJob};
use dwell_record::{Kind, Placement, Scalar, Summary, Trust, Warning, by_name, component_metrics};
use dwell_sample::Point;
use dwell_units::Nanos;
use serde_json::json;

use super::id::Id;
use super::{Seen, gives_delay};
use crate::environment::environment;
use crate::human::print_warnings;

/// Builds the summary.
pub(super) fn summary(
    job: &TraceJob,
    filter: &FlowFilter,
    points: &[Point],
    seen: Seen,
) -> Summary {
    let names: Vec<_> = points.iter().map(|point| point.name()).collect();
    let id = serde_json::to_value(job.id).expect("an enum name serialises");
    let parameters = [
        ("flow", json!(filter.to_string())),
        ("id", id),
        ("points", json!(names)),
        ("interfaces", json!(job.interfaces)),
        ("duration_ns", json!(job.duration.map(|time| time.0))),
    ];
    let counts = [
        ("events", seen.events),
        ("events_dropped", seen.dropped),
        ("packets", seen.joined.packets),
        ("unjoined", seen.joined.incomplete),
        ("evicted", seen.joined.evicted),
        ("repeated", seen.joined.repeated),
        ("without_id", seen.flows.missing_id),
        ("flows", seen.flows.all().len() as u64),
        ("events_of_more_flows", seen.flows.refused),
    ];
    let missing = |point: &Point| {
        let count = seen.components.missing(*point).map(Scalar::Count);
        (format!("missing_{}", point.name()), count)
    };
    let mut values = by_name(counts.map(|(name, count)| (name, Some(Scalar::Count(count)))));
    values.extend(points.iter().map(missing));
    let mut metrics = component_metrics(&seen.components);
    let mut trust = Trust { ring_dropped: seen.dropped, ..Trust::default() };
    warn(&mut trust, job, points, &seen);
    trust.note_clocks(&seen.start, &seen.end);
    if seen.clock_moved || trust.clock_step_ns.is_some() {
        // It is unknown which timestamps are from before the step.
        trust.void = seen.joined.packets;
        metrics.clear();
    }
    Summary {
        parameters: by_name(parameters),
        metrics,
        values,
        trust,
        environment: environment(None, Placement::default()),
        ..Summary::new(Kind::Trace, filter.to_string(), "ebpf")
    }
}

/// Adds the warnings.
fn warn(trust: &mut Trust, job: &TraceJob, points: &[Point], seen: &Seen) {
    trust.warnings.extend(seen.notes.iter().cloned().map(Into::into));
    if seen.events == 0 {
        trust.warn(Warning::NoPackets);
    }
    if !gives_delay(points) {
        trust.warn(Warning::HooksWithoutDelay);
    } else if seen.joined.packets > 0 && seen.components.figures().next().is_none() {
        trust.warn(Warning::OneSidedTrace);
    }
    trust.warn_count(seen.dropped, Warning::RingOverflow);
    let ordered = seen.flows.all().iter().filter(|flow| flow.id == Id::Order).count();
    if ordered > 0 && job.id == IdFormat::Auto {
        trust.warn(Warning::MatchedByOrder(ordered));
    }
    if seen.clock_moved {
        trust.warn(Warning::TaiMoved);
    }
}

/// Prints the result as JSON or as a table.
pub(super) fn print(summary: &Summary, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        return out.write_all(summary.to_json().as_bytes());
    }
    let us = |value: Option<i64>| {
        value.map_or_else(|| "-".to_owned(), |ns| format!("{:.2}", Nanos(ns).as_micros_f64()))
    };
    let head = ["count", "min", "p50", "p90", "p99", "max"];
    write!(out, "{:<28}", "delay [us]")?;
    head.iter().try_for_each(|name| write!(out, "{name:>12}"))?;
    writeln!(out)?;
    for (name, f) in &summary.metrics {
        write!(out, "{:<28}{:>12}", name.trim_end_matches("_ns"), f.count)?;
        for value in [f.min, f.p50, f.p90, f.p99, f.max] {
            write!(out, "{:>12}", us(value))?;
        }
        writeln!(out)?;
    }
    writeln!(out)?;
    for (name, value) in &summary.values {
        match value {
            Some(Scalar::Count(count)) => writeln!(out, "{name:<28}{count:>12}")?,
            _ => writeln!(out, "{name:<28}{:>12}", "-")?,
        }
    }
    print_warnings(&mut out, &summary.trust)
}
