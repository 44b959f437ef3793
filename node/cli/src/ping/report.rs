//! The end of a measurement: the summary object, the table and histogram, and the exit code.

use std::collections::BTreeMap;
use std::io::{self, Write};

use dwell_io::port::Connection;
use dwell_io::tcp_info::TcpInfo;
use dwell_protocol::PingJob;
use dwell_record::{DriverStamps, Kind, Packets, Scalar, Stamps, Summary, Trust, Warning};
use dwell_sample::TimestampSource;
use dwell_stats::{
    ClockBounds, ClockFault, Distribution, Figures, Metric, PathDelays, PathPosition,
    RateAssumption, RoundTrip, Threshold, bins, render,
};
use dwell_units::Nanos;
use serde_json::{Value, json};

use super::Measured;
use super::recorder::{Recorder, TimestampSources};
use super::session::Outcome;
use super::setup::PingSetup;
use super::{layer_table, spike_table};
use crate::environment::environment;
use crate::human::print_warnings;
use crate::{Exit, placement, threshold};

/// Rows of the table, in reading order.
const TABLE: [Metric; 15] = [
    Metric::Rtt,
    Metric::RttKernel,
    Metric::RttDriver,
    Metric::RttHw,
    Metric::RttIntended,
    Metric::RttMinusResidence,
    Metric::Residence,
    Metric::OneWayForward,
    Metric::OneWayBackward,
    Metric::QueueingIn,
    Metric::Ipdv,
    Metric::IpdvForward,
    Metric::IpdvBackward,
    Metric::Pdv,
    Metric::ScheduleError,
];

/// Builds the summary.
pub(super) fn summary(
    job: &PingJob,
    setup: &PingSetup,
    recorder: &mut Recorder,
    outcome: &Outcome,
    dropped: u64,
) -> Summary {
    let spikes = recorder.spikes.take();
    let driver = recorder.finish_driver_stamps();
    let sources = recorder.sources;
    let far_clock = recorder.settle_far_clock();
    let measured = &recorder.measured;
    let mut trust = Trust::of(measured);
    trust.note_clocks(&recorder.start, &recorder.last);
    trust.planned = job.parameters.count;
    trust.warm_up_sent = Some(sources.warm_up_sent);
    trust.ring_dropped = dropped;
    trust.floor_ns = outcome.floor.map(|floor| floor.0);
    warn(&mut trust, job, recorder, outcome);
    if let Some(driver) = &driver {
        warn_about_driver(&mut trust, driver);
    }
    trust.note_nics(outcome.nics.clone());
    let packets = Packets::from(measured.packets());
    let mut metrics = dwell_record::metrics(measured);
    let mut values = dwell_record::values(measured);
    let far_drops = outcome.ended.far_drops.map(Scalar::Count);
    values.insert("far_socket_drops".into(), far_drops);
    if job.path.is_some() {
        path_figures(&recorder.path, &mut metrics);
        values.insert("path_replies".into(), Some(Scalar::Count(recorder.path.replies())));
        values.insert("path_empty".into(), Some(Scalar::Count(recorder.path.empty())));
        values.insert("path_cut".into(), Some(Scalar::Count(recorder.path.cut())));
    }
    if setup.target.scheme.spec().remote_timestamps {
        let void = outcome.ended.counts.remote_void;
        values.insert("far_stamps_void".into(), Some(Scalar::Count(void)));
    }
    far_clock_values(far_clock, &mut values, &mut trust);
    if setup.target.scheme.spec().names_lags
        && let Some(lag) = metrics.get(Metric::QueueingIn.name()).cloned()
    {
        metrics.insert("client_lag_ns".into(), lag);
    }
    if !outcome.connections.is_empty() {
        connection_figures(&outcome.connections, &mut metrics, &mut values);
    }
    if let Some(strays) = outcome.ended.stray_bytes {
        values.insert("stray_bytes".into(), Some(Scalar::Count(strays)));
    }
    Summary {
        kind: Kind::Ping,
        target: setup.target.to_string(),
        parameters: parameters(job, setup, outcome),
        packets: Some(packets),
        metrics,
        values,
        stamps: stamps(sources, outcome, driver.as_ref()),
        engine: engine(job, setup).to_owned(),
        trains: Vec::new(),
        spikes,
        driver,
        trust,
        environment: environment(
            outcome.interface.as_ref(),
            placement::record(&job.place, outcome.placement),
        ),
    }
}

/// Adds the relation of the far end's clock to the local one, and the error that it gives one-way delays.
fn far_clock_values(
    far_clock: Option<Result<ClockBounds, ClockFault>>,
    values: &mut BTreeMap<String, Option<Scalar>>,
    trust: &mut Trust,
) {
    const BOTH_ENDS: &str = "this machine and the far end";
    let bounds = match far_clock {
        None => return,
        Some(Ok(bounds)) => bounds,
        Some(Err(fault)) => {
            return trust.warn(Warning::ClockUnbounded("the far end".into(), fault.to_string()));
        }
    };
    let relation = bounds.relation;
    let count = |nanos: i64| Scalar::Count(nanos.unsigned_abs());
    let clock = [
        ("at_ns", count(relation.at.as_nanos())),
        ("offset_ns", Scalar::Real(relation.offset.0 as f64)),
        ("error_ns", count(relation.error.0)),
        ("rate_ppm", Scalar::Real(relation.rate * 1e6)),
        ("rate_error_ppm", Scalar::Real(bounds.rate_error * 1e6)),
        ("steady", Scalar::Count((bounds.assumption == RateAssumption::Steady).into())),
        ("exchanges", Scalar::Count(bounds.exchanges as u64)),
        ("min_round_trip_ns", count(bounds.min_round_trip.0)),
    ];
    for (quantity, value) in clock {
        values.insert(dwell_record::clock_value("far", quantity), Some(value));
    }
    for metric in [Metric::OneWayForward, Metric::OneWayBackward] {
        let name = dwell_record::clock_error_value(metric.name());
        values.insert(name, Some(count(relation.error.0)));
    }
    trust.warn(Warning::BoundedClocks(BOTH_ENDS.into(), relation.error.to_string()));
}

/// Adds the set-up of TCP connections, and what the kernel did on them.
fn connection_figures(
    connections: &[Connection],
    metrics: &mut BTreeMap<String, dwell_record::Figures>,
    values: &mut BTreeMap<String, Option<Scalar>>,
) {
    let mut connect = Distribution::new();
    connections.iter().for_each(|connection| connect.record(connection.connect));
    metrics.insert("connect_ns".into(), connect.figures().into());
    let sum = |of: fn(&TcpInfo) -> Option<u64>| {
        let all = connections.iter().map(|connection| of(connection.info.as_ref()?));
        all.sum::<Option<u64>>().map(Scalar::Count)
    };
    values.insert("retransmissions".into(), sum(|info| Some(info.retransmitted)));
    values.insert("acks_received".into(), sum(|info| info.received_acks));
    values.insert("acks_sent".into(), sum(|info| info.sent_acks));
}

/// Adds the figures of every relay on the path; names contain its position and node id.
fn path_figures(path: &PathDelays, metrics: &mut BTreeMap<String, dwell_record::Figures>) {
    for position in path.figures() {
        let PathPosition { back, number, node } = position.place;
        let direction = if back { "backward" } else { "forward" };
        let components = [
            ("node_delay", position.node_delay),
            ("queueing_in", position.queueing_in),
            ("processing", position.processing),
        ];
        for (component, figures) in components.into_iter().filter(|(_, figures)| figures.count > 0)
        {
            let name = format!("path_{direction}_{number}_node_{node}_{component}_ns");
            metrics.insert(name, figures.into());
        }
    }
}

/// The timestamp sources; `None` for a direction without packets.
fn stamps(sources: TimestampSources, outcome: &Outcome, driver: Option<&DriverStamps>) -> Stamps {
    let counts = &outcome.ended.counts;
    let (has_sent, has_received) = (counts.sent > 0, counts.received + counts.late > 0);
    Stamps {
        tx: has_sent.then_some(sources.tx()),
        rx: has_received.then_some(match driver {
            Some(driver) if driver.stamped > 0 => sources.rx().max(TimestampSource::Driver),
            _ => sources.rx(),
        }),
        near: has_received.then_some(sources.near()),
    }
}

fn engine(job: &PingJob, setup: &PingSetup) -> &'static str {
    match (setup.is_closed_loop(), job.place.busy_poll) {
        (true, true) => "closed-loop, polling",
        (true, false) => "closed-loop, blocking",
        (false, true) => "open-loop, spin",
        (false, false) => "open-loop, sleep-spin",
    }
}

fn parameters(job: &PingJob, setup: &PingSetup, outcome: &Outcome) -> BTreeMap<String, Value> {
    use dwell_engine::pinger::ProbeSchedule;
    let (interval, pause) = match setup.config.departures {
        ProbeSchedule::Open { interval } => (Some(interval.0), None),
        ProbeSchedule::Closed { pause, spacing } => {
            ((spacing != Nanos::ZERO).then_some(spacing.0), Some(pause.0))
        }
    };
    let resolved = [
        ("address", json!(outcome.peer.to_string())),
        ("source", json!(outcome.local.ip().to_string())),
        ("socket", json!(outcome.socket)),
        ("interval_ns", json!(interval)),
        ("pause_ns", json!(pause)),
        ("mode", json!(if setup.is_closed_loop() { "closed-loop" } else { "open-loop" })),
        ("payload_bytes", json!(setup.size)),
        ("warm_up", json!(setup.config.warm_up)),
        ("warm_up_first_id", json!(-i64::from(setup.config.warm_up))),
        ("path_slots", json!(job.path)),
        ("busy_poll", json!(job.place.busy_poll)),
        ("authenticated", json!(setup.authenticated)),
    ];
    let all = job.parameters.recorded().into_iter().chain(resolved);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Adds the warnings.
fn warn(trust: &mut Trust, job: &PingJob, recorder: &Recorder, outcome: &Outcome) {
    trust.warnings.extend(recorder.warnings.iter().cloned().map(Into::into));
    let ended = &outcome.ended;
    let counts = &ended.counts;
    trust.warn_count(counts.late, Warning::LateReplies);
    trust.warn_count(recorder.kernel_events_lost(), Warning::KernelEventsLost);
    if counts.lost > 0 {
        trust.warn_count(ended.far_drops.unwrap_or(0), Warning::ReflectorSocketDrops);
    }
    trust.warn_count(ended.abandoned, Warning::ProbesAbandoned);
    let refused = "a host or router on the path refused probes".to_owned();
    trust.warn_count(ended.icmp_errors, |count| Warning::IcmpErrors(count, refused));
    trust.warn_count(trust.ring_dropped, Warning::RingOverflow);
    trust.warn_count(counts.tx_stamp_missing, |count| {
        Warning::MissingTimestamps("answered probes", "tx_kernel", count)
    });
    trust.warn_count(counts.remote_void, Warning::InvalidRemoteTimestamps);
    if job.parameters.clients() > 1 {
        trust.warn_count(outcome.failed_clients, |count| {
            Warning::ClientsFailed(count, job.parameters.clients())
        });
    }
    trust.warn_count(counts.window_overrun, Warning::EarlyLosses);
    trust.warn_count(counts.rejected.malformed, Warning::MalformedMessages);
    trust.warn_count(ended.stray_bytes.unwrap_or(0), Warning::StrayBytes);
    trust.warn_count(counts.rejected.unknown, Warning::UnknownReplies);
    trust.warn_count(counts.rejected.unauthentic, Warning::UnauthenticReplies);
    let (path, replies) = (&recorder.path, recorder.path.replies());
    if job.path.is_some() && replies > 0 {
        if path.figures().is_empty() {
            trust.warn(Warning::NoRelayDelay);
        } else {
            trust.warn_count(path.empty(), |count| Warning::RelayDelayMissing(count, replies));
        }
        trust.warn_count(path.cut(), |count| Warning::TooFewSlots(count, replies));
    }
    if let Some(interface) = outcome.interface.as_ref() {
        let qdisc = interface.qdisc.as_deref();
        if is_delayed_before_timestamp(qdisc, recorder.sources.tx()) {
            trust.warn(Warning::NetemBeforeTimestamp(interface.name.clone()));
        }
    }
    if let Some(other) = outcome.untried.filter(|_| counts.received + counts.late == 0) {
        let (ip, flag) = (other.ip(), if other.is_ipv4() { "-4" } else { "-6" });
        trust.warn(Warning::OtherAddress(outcome.peer.to_string(), ip.to_string(), flag));
    }
}

/// Whether an emulated link delays probes before their timestamp is taken: the driver, where the
/// kernel and the card take it, comes after the queueing discipline.
fn is_delayed_before_timestamp(qdisc: Option<&str>, tx: TimestampSource) -> bool {
    qdisc == Some("netem") && tx != TimestampSource::User
}

/// Warns of replies without a timestamp of the driver.
fn warn_about_driver(trust: &mut Trust, driver: &DriverStamps) {
    match &driver.absent {
        Some(why) => trust.warn(Warning::NoDriverTimestamps(why.clone())),
        None => trust.warn_count(driver.unseen, |count| {
            Warning::MissingTimestamps("replies", "rx_driver", count)
        }),
    }
    trust.warn_count(driver.lost, Warning::DriverTimestampsLost);
}

pub(super) fn print(summary: &Summary, measured: &RoundTrip, path: &PathDelays) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let stamps = describe_stamps(&summary.stamps);
    writeln!(out, "\n{}  {}  {stamps}", summary.target, summary.engine)?;
    if let Some(packets) = &summary.packets {
        let share = |count: u64| match packets.sent {
            0 => "-".to_owned(),
            sent => format!("{:.3}%", count as f64 / sent as f64 * 100.0),
        };
        writeln!(
            out,
            "{} sent, {} received, {} lost, {} late, {} duplicate, {} reordered, {} send-failed; \
             in time {}, lost {}, late {}",
            packets.sent,
            packets.received,
            packets.lost,
            packets.late,
            packets.duplicate,
            packets.reordered,
            packets.send_failed,
            share(packets.received),
            share(packets.lost),
            share(packets.late)
        )?;
    }
    if let Some(loss) = measured.loss() {
        writeln!(
            out,
            "lost on the forward path {}, on the return path {}, unknown {}",
            loss.forward, loss.backward, loss.unknown
        )?;
    }
    let rows: Vec<_> = TABLE
        .into_iter()
        .map(|metric| (metric, measured.figures(metric)))
        .filter(|(_, figures)| figures.count > 0)
        .collect();
    if !rows.is_empty() {
        writeln!(
            out,
            "\n{:24}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "", "min", "mean", "median", "p95", "p99", "p99.9", "max", "stddev"
        )?;
    }
    for (metric, figures) in rows {
        writeln!(out, "{:24}{}", metric.name().trim_end_matches("_ns"), cells(&figures))?;
    }
    if let Some(jitter) = measured.jitter() {
        writeln!(out, "{:24}{:>20.3}{:>63}", "jitter (RFC 3550)", jitter / 1e3, "us")?;
    }
    if let Some(driver) = &summary.driver {
        layer_table::print(&mut out, driver)?;
    }
    print_path(&mut out, path)?;
    if let Some(spikes) = &summary.spikes {
        spike_table::print(&mut out, spikes)?;
    }
    let bars = render(&bins(measured.rtt(), 10), 40);
    if !bars.is_empty() {
        writeln!(out, "\nround-trip time\n{}", bars.trim_end())?;
    }
    print_warnings(&mut out, &summary.trust)
}

/// Prints a line for every relay on the path.
pub(super) fn print_path(out: &mut impl Write, path: &PathDelays) -> io::Result<()> {
    let positions = path.figures();
    if !positions.is_empty() {
        writeln!(out, "\ndelay inside relays on the path, until tx_app")?;
    }
    for position in positions {
        let PathPosition { back, number, node } = position.place;
        let direction = if back { "back" } else { "there" };
        let ends = [("rx_kernel", position.node_delay), ("rx_app", position.processing)];
        for (from, figures) in ends.into_iter().filter(|(_, figures)| figures.count > 0) {
            let name = format!("{direction} {number}: {node} {from}");
            writeln!(out, "{name:24}{}", cells(&figures))?;
        }
    }
    Ok(())
}

pub(super) fn describe_stamps(stamps: &Stamps) -> String {
    match (stamps.tx, stamps.rx) {
        (Some(TimestampSource::User) | None, Some(TimestampSource::User) | None) => {
            "user stamps".to_owned()
        }
        (tx, rx) => {
            let name = |timestamp_source: Option<TimestampSource>| {
                timestamp_source.map_or("none", TimestampSource::name)
            };
            format!("stamps: tx {}, rx {}", name(tx), name(rx))
        }
    }
}

/// The unit that leaves at most five digits before the point: its size in nanoseconds and its name.
pub(crate) fn unit(largest_ns: f64) -> (f64, &'static str) {
    const MAX_SHOWN: f64 = 99_999.0;
    let units = [(1e3, "us"), (1e6, "ms"), (1e9, "s")];
    let fitting = units.into_iter().find(|(size, _)| largest_ns.abs() / size <= MAX_SHOWN);
    fitting.unwrap_or((1e9, "s"))
}

/// Formats one row in the unit that leaves at most five digits before the point. A dash marks a
/// figure that the sample count does not support.
pub(crate) fn cells(figures: &Figures) -> String {
    let (size, unit) = unit(figures.max.map_or(0.0, |max| max.0 as f64));
    let whole = |value: Option<Nanos>| value.map(|ns| ns.0 as f64 / size);
    let real = |value: Option<f64>| value.map(|ns| ns / size);
    [
        whole(figures.min),
        real(figures.mean),
        whole(figures.p50),
        whole(figures.p95),
        whole(figures.p99),
        whole(figures.p99_9),
        whole(figures.max),
        real(figures.stddev),
    ]
    .into_iter()
    .map(|value| value.map_or(format!("{:>10}", "-"), |value| format!("{value:>10.3}")))
    .chain([format!(" {unit}")])
    .collect()
}

/// The exit code: from the thresholds, or failed or interrupted.
pub(super) fn verdict(
    thresholds: &[Threshold],
    measured: &Measured,
    timeout: Nanos,
    interrupted: bool,
) -> Exit {
    let judged = threshold::judge(thresholds, |metric| {
        let metric = metric.map_or(Some(Metric::Rtt), Metric::parse);
        let metric = metric.expect("names of metrics are checked before the measurement");
        measured.round_trip.evidence(metric, timeout)
    });
    if interrupted {
        Exit::Interrupted
    } else if measured.answered == 0 {
        Exit::Failed
    } else {
        judged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netem_delays_before_timestamps_of_the_driver_only() {
        let delayed = |qdisc, tx| is_delayed_before_timestamp(qdisc, tx);
        assert!(delayed(Some("netem"), TimestampSource::KernelSw));
        assert!(delayed(Some("netem"), TimestampSource::Hw));
        assert!(!delayed(Some("netem"), TimestampSource::User));
        assert!(!delayed(Some("fq"), TimestampSource::KernelSw));
        assert!(!delayed(None, TimestampSource::KernelSw));
    }
}
