//! Result of a trace: summary object and terminal output.

use std::io::{self, Write};

use dwell_protocol::{FlowFilter, IdFormat, TraceJob};
use dwell_record::{Kind, Placement, Scalar, Summary, Trust, by_name, component_metrics};
use dwell_sample::Point;
use dwell_units::Nanos;
use serde_json::json;

use super::id::Id;
use super::{NO_DELAY_WARNING, Seen, gives_delay};
use crate::environment::environment;

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
    let warnings = warnings(job, points, &seen).into_iter().map(Into::into).collect();
    let mut trust = Trust { warnings, ..Trust::default() };
    trust.ring_dropped = seen.dropped;
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

fn warnings(job: &TraceJob, points: &[Point], seen: &Seen) -> Vec<String> {
    let mut warnings = seen.notes.clone();
    if seen.events == 0 {
        warnings.push("no packet of this flow passed".to_owned());
    }
    if !gives_delay(points) {
        warnings.push(NO_DELAY_WARNING.to_owned());
    } else if seen.joined.packets > 0 && seen.components.figures().next().is_none() {
        warnings.push(
            "no packet was seen at both ends of a node delay (pre_routing and post_routing, or \
             rx_driver and tx_tcx): packets from or to this node itself never are"
                .to_owned(),
        );
    }
    if seen.dropped > 0 {
        warnings.push(format!(
            "{} events did not fit into the ring: their timestamps are missing",
            seen.dropped
        ));
    }
    let ordered = seen.flows.all().iter().filter(|flow| flow.id == Id::Order).count();
    if ordered > 0 && job.id == IdFormat::Auto {
        warnings.push(format!(
            "packets of {ordered} flows carry no known id; they are matched by their order at each \
             hook, which loss and reordering break"
        ));
    }
    if seen.clock_moved {
        warnings.push("CLOCK_TAI moved against CLOCK_REALTIME: all timestamps are void".to_owned());
    }
    warnings
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
    summary.trust.warnings.iter().try_for_each(|warning| writeln!(out, "note: {warning}"))
}
