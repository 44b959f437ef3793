//! Output of a reflector: the table of counters and the summary.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use dwell_io::cpu::Placement;
use dwell_protocol::ReflectJob;
use dwell_record::{Figures, Kind, Scalar, Summary, Trust, Warning};
use dwell_stats::Distribution;
use serde_json::json;

use super::Listen;
use super::counters::Counters;
use super::xdp::{self, DriverReport};
use crate::environment::environment;
use crate::placement;

/// Prints the engine, unless it is the default, and the counters of each URL.
pub(super) fn print(opened: &[(Listen, Arc<Counters>)], engine: Option<&String>) -> io::Result<()> {
    use std::io::Write;
    let mut out = io::stdout().lock();
    if let Some(engine) = engine {
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
        for (_, count) in counts(listen, counters) {
            let count = count.map_or("-".to_owned(), |count| count.to_string());
            write!(out, "{count:>13}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Counters of a URL; unknown if the kernel answers it.
fn counts(listen: &Listen, counters: &Counters) -> Vec<(&'static str, Option<u64>)> {
    let known = |count: Option<u64>| count.filter(|_| !listen.is_left_to_kernel());
    counters.read().into_iter().map(|(name, count)| (name, known(count))).collect()
}

/// The time of requests in the sockets, if it was recorded.
fn server_lag(opened: &[(Listen, Arc<Counters>)]) -> BTreeMap<String, Figures> {
    let mut all = Distribution::new();
    opened.iter().for_each(|(_, counters)| all.merge(&counters.server_lag()));
    let recorded = (all.count() > 0).then(|| ("server_lag_ns".to_owned(), all.figures().into()));
    recorded.into_iter().collect()
}

/// Builds the summary. `fallback` says why the engine in the driver does not run.
pub(super) fn summary(
    job: &ReflectJob,
    opened: &[(Listen, Arc<Counters>)],
    placement: Placement,
    driver: Option<&DriverReport>,
    fallback: Option<Warning>,
) -> Summary {
    let mut totals: BTreeMap<String, Option<u64>> = BTreeMap::new();
    for (name, count) in opened.iter().flat_map(|(listen, counters)| counts(listen, counters)) {
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
    let mut reason = driver.map(|report| report.reason.clone());
    let mut engine = driver.map_or(socket_engine, |report| &report.engine);
    if let Some(warning) = fallback {
        (engine, reason) = ("socket", Some(warning.to_string()));
        trust.warn(warning);
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
        ("xdp_reason", json!(reason)),
    ];
    Summary {
        kind: Kind::Reflect,
        target: urls.join(" "),
        parameters: parameters.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
        packets: None,
        metrics: server_lag(opened),
        values,
        stamps: dwell_record::Stamps::default(),
        trains: Vec::new(),
        spikes: None,
        driver: None,
        engine: engine.to_owned(),
        trust,
        environment: environment(None, placement::record(&job.place, placement)),
    }
}
