//! Output of a reflector: the table of counters and the summary.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use dwell_io::cpu::Placement;
use dwell_protocol::ReflectJob;
use dwell_record::{Kind, Scalar, Summary, Trust};
use serde_json::json;

use super::Listen;
use super::counters::Counters;
use super::xdp::{self, DriverReport};
use crate::environment::environment;
use crate::placement;

/// Prints the counters of each URL.
pub(super) fn print(opened: &[(Listen, Arc<Counters>)], driver: Option<&str>) -> io::Result<()> {
    use std::io::Write;
    let mut out = io::stdout().lock();
    if let Some(engine) = driver {
        writeln!(out, "engine: {engine}")?;
    }
    let width = opened.iter().map(|(listen, _)| listen.url.len()).max().unwrap_or(0);
    write!(out, "{:width$}", "")?;
    for (name, _) in opened.iter().take(1).flat_map(|(_, counters)| counters.read()) {
        write!(out, "{name:>13}")?;
    }
    writeln!(out)?;
    for (listen, counters) in opened {
        write!(out, "{:width$}", listen.url)?;
        for (_, count) in counters.read() {
            let count = count.map_or("-".to_owned(), |count| count.to_string());
            write!(out, "{count:>13}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Builds the summary.
pub(super) fn summary(
    job: &ReflectJob,
    opened: &[(Listen, Arc<Counters>)],
    placement: Placement,
    driver: Option<&DriverReport>,
) -> Summary {
    let mut totals: BTreeMap<String, Option<u64>> = BTreeMap::new();
    for (name, count) in opened.iter().flat_map(|(_, counters)| counters.read()) {
        let total = totals.entry(name.to_owned()).or_default();
        *total = total.map_or(count, |total| Some(total + count.unwrap_or(0)));
    }
    let mut values: BTreeMap<_, _> =
        totals.into_iter().map(|(k, v)| (k, v.map(Scalar::Count))).collect();
    let socket_engine = match job.place.busy_poll {
        true => "one thread, polling",
        false => "a thread per socket",
    };
    let mut trust = Trust::default();
    if let Some(report) = driver {
        values.extend(xdp::values(opened, report));
        report.warnings.iter().for_each(|warning| trust.warn(warning.clone()));
    }
    let urls: Vec<_> = opened.iter().map(|(listen, _)| listen.url.clone()).collect();
    let parameters = [
        ("urls", json!(urls)),
        ("stateless", json!(job.stateless)),
        ("replay_window", json!(job.replay_window)),
        ("busy_poll", json!(job.place.busy_poll)),
        ("stamps", json!(job.stamps)),
        ("limit", json!(job.limit)),
        ("engine", json!(job.engine)),
        ("interface", json!(job.interface)),
        ("xdp_mode", json!(job.xdp_mode)),
        ("xdp_reason", json!(driver.map(|report| &report.reason))),
    ];
    Summary {
        kind: Kind::Reflect,
        target: urls.join(" "),
        parameters: parameters.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
        packets: None,
        metrics: BTreeMap::new(),
        values,
        stamps: dwell_record::Stamps::default(),
        trains: Vec::new(),
        spikes: None,
        driver: None,
        engine: driver.map_or(socket_engine, |report| &report.engine).to_owned(),
        trust,
        environment: environment(None, placement::record(&job.place, placement)),
    }
}
