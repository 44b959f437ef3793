//! Result of a relay: summary object and terminal output.

use std::collections::BTreeMap;
use std::io::{self, Write};

use dwell_engine::protocol::RelayTransport;
use dwell_engine::relay::aead::TAG_LEN;
use dwell_engine::relay::cipher;
use dwell_engine::relay::datagram_ctr::NONCE_LEN;
use dwell_engine::relay::datagram_gcm::TRAILER_LEN;
use dwell_engine::relay::salts::SALT_LEN;
use dwell_engine::relay::stream_ctr;
use dwell_io::cpu::Placement;
use dwell_io::interface;
use dwell_protocol::{Cipher, ClearPrefix, RelayEngine, RelayJob};
use dwell_record::{
    Kind, NicDropped, Scalar, Stamps, Summary, Trust, Warning, by_name, component_metrics,
};
use dwell_sample::{Point, TimestampSource};
use dwell_stats::{ComponentFigures, Resolution};
use dwell_units::Pairing;
use serde_json::json;

use super::counts::{Counts, Failures, Traffic, Unserved};
use super::setup::{MAX_CONNECTIONS, RelaySetup};
use crate::environment::environment;
use crate::placement;

/// ICMP errors from this number on are always reported: kernels limit their rate.
const MIN_REPORTED_ERRORS: u64 = 5;

/// Points at which the sockets of a relay take timestamps.
const POINTS: [Point; 6] = [
    Point::RxKernel,
    Point::RxApp,
    Point::TxApp,
    Point::TxSched,
    Point::TxKernel,
    Point::TxAppDone,
];

/// Everything that a finished relay measured.
pub(super) struct Outcome {
    pub(super) counts: Counts,
    pub(super) components: ComponentFigures,
    pub(super) placement: Placement,
    pub(super) clocks: (Pairing, Pairing),
    pub(super) ring_dropped: u64,
    pub(super) nics: Option<Vec<NicDropped>>,
    /// Warning about a limit of this process.
    pub(super) limit: Option<Warning>,
}

/// Builds the summary.
pub(super) fn summary(job: &RelayJob, setup: &RelaySetup, outcome: &Outcome) -> Summary {
    let Outcome { counts, components, placement, clocks, ring_dropped, nics, limit } = outcome;
    let mut trust = Trust { ring_dropped: *ring_dropped, ..Trust::default() };
    trust.note_clocks(&clocks.0, &clocks.1);
    trust.percentile_resolution = resolution(components);
    trust.warnings.extend(limit.iter().cloned().map(Into::into));
    warn(&mut trust, setup, job, counts, components);
    trust.note_nics(nics.clone());
    let interface = interface::towards(setup.to).ok().flatten();
    let source = |kernel, user| {
        let has_stamps = |point| components.missing(point).is_some();
        let user = has_stamps(user).then_some(TimestampSource::User);
        if has_stamps(kernel) { Some(TimestampSource::KernelSw) } else { user }
    };
    Summary {
        parameters: parameters(job, setup),
        metrics: component_metrics(components),
        values: values(setup, counts, components),
        stamps: Stamps {
            tx: source(Point::TxKernel, Point::TxApp),
            rx: source(Point::RxKernel, Point::RxApp),
            near: None,
        },
        trust,
        environment: environment(interface.as_ref(), placement::record(&job.place, *placement)),
        ..Summary::new(Kind::Relay, format!("{} {}", job.listen, job.to), engine(job, setup))
    }
}

/// Describes the engine, its waiting mode and the AES implementation.
fn engine(job: &RelayJob, setup: &RelaySetup) -> String {
    let engine = match (setup.transport, job.parameters.engine) {
        (RelayTransport::Streams, _) => "stream, two threads per connection",
        (RelayTransport::Datagrams, RelayEngine::Socket) => "socket",
        (RelayTransport::Datagrams, RelayEngine::Batch) if job.merges() => "batch, merged",
        (RelayTransport::Datagrams, RelayEngine::Batch) => "batch",
        (RelayTransport::Datagrams, RelayEngine::Xdp) => "xdp",
    };
    let waiting = match (setup.transport, job.place.busy_poll) {
        (RelayTransport::Streams, _) => "",
        (RelayTransport::Datagrams, true) => ", busy polling",
        (RelayTransport::Datagrams, false) => ", blocking",
    };
    let aes =
        if setup.is_ciphering() { format!("; AES: {}", cipher::hardware()) } else { String::new() };
    format!("{engine}{waiting}{aes}")
}

/// Returns the parameters of the summary.
pub(super) fn parameters(
    job: &RelayJob,
    setup: &RelaySetup,
) -> BTreeMap<String, serde_json::Value> {
    let clear = match setup.clear {
        _ if !setup.is_ciphering() => json!(null),
        ClearPrefix::Auto => json!("auto"),
        ClearPrefix::Bytes(bytes) => json!(bytes),
    };
    let resolved = [
        ("listen", json!(setup.listen.to_string())),
        ("to", json!(setup.to.to_string())),
        ("mode", json!(job.mode)),
        ("cipher", json!(setup.cipher())),
        ("merge", json!(job.merges())),
        ("busy_poll", json!(job.place.busy_poll)),
        ("clear_bytes", clear),
        ("id", json!(job.id)),
        ("flows", json!(setup.flows)),
        ("idle_ns", json!(setup.idle.0)),
        ("node_id", json!(job.telemetry.then_some(job.node_id))),
        ("hold_at", json!(job.hold.map(|hold| hold.at))),
        ("hold_ns", json!(job.hold.map(|hold| hold.time.0))),
    ];
    by_name(job.parameters.recorded().into_iter().chain(resolved))
}

fn values(
    setup: &RelaySetup,
    counts: &Counts,
    components: &ComponentFigures,
) -> BTreeMap<String, Option<Scalar>> {
    let both = |count: fn(&Traffic) -> u64| counts.directions.iter().map(count).sum();
    let (nonce, tag) = match (setup.cipher(), setup.transport) {
        (None, _) => (0, 0),
        (Some(Cipher::Aes128Ctr), RelayTransport::Datagrams) => (NONCE_LEN, 0),
        (Some(Cipher::Aes128Ctr), RelayTransport::Streams) => (stream_ctr::NONCE_LEN, 0),
        (Some(Cipher::Aes128Gcm), RelayTransport::Datagrams) => (TRAILER_LEN - TAG_LEN, TAG_LEN),
        (Some(Cipher::Aes128Gcm), RelayTransport::Streams) => (SALT_LEN, TAG_LEN),
    };
    let counted = [
        ("short", both(|traffic| traffic.short)),
        ("unsealed", both(|traffic| traffic.unsealed)),
        ("unauthentic", both(|traffic| traffic.unauthentic)),
        ("replayed", both(|traffic| traffic.replayed)),
        ("too_old", both(|traffic| traffic.too_old)),
        ("too_many_salts", both(|traffic| traffic.too_many_salts)),
        ("truncated", both(|traffic| traffic.truncated)),
        ("too_long", both(|traffic| traffic.too_long)),
        ("send_failed", both(|traffic| traffic.send_failed)),
        ("telemetry_filled", both(|traffic| traffic.telemetry_filled)),
        ("overflowed", counts.overflowed),
        ("icmp_errors", counts.icmp_errors),
        ("flows", counts.flows.opened),
        ("flows_evicted", counts.flows.evicted),
        ("flows_expired", counts.flows.expired),
        ("flows_not_opened", counts.unserved.all()),
        ("flows_refused", counts.unserved.refused.times),
        ("flows_no_seat", counts.unserved.limit_reached),
        ("nonce_bytes", nonce as u64),
        ("tag_bytes", tag as u64),
    ];
    let mut values = by_name(counted.map(|(name, count)| (name, Some(Scalar::Count(count)))));
    let mut put = |name: String, count: Option<u64>| {
        values.insert(name, count.map(Scalar::Count));
    };
    for (direction, traffic) in ["forward", "backward"].iter().zip(&counts.directions) {
        put(format!("received_{direction}"), Some(traffic.received));
        put(format!("relayed_{direction}"), Some(traffic.relayed));
        put(format!("payload_bytes_{direction}"), Some(traffic.bytes));
    }
    for point in POINTS {
        put(format!("missing_{}", point.name()), components.missing(point));
    }
    values
}

/// Adds the warnings.
fn warn(
    trust: &mut Trust,
    setup: &RelaySetup,
    job: &RelayJob,
    counts: &Counts,
    components: &ComponentFigures,
) {
    let both = |of: fn(&Traffic) -> u64| counts.directions.iter().map(of).sum::<u64>();
    let longer = if setup.cipher() == Some(Cipher::Aes128Gcm) { TRAILER_LEN } else { NONCE_LEN };
    trust.warn_count(both(|traffic| traffic.too_long), |count| Warning::TooLong(count, longer));
    trust.warn_count(both(|traffic| traffic.unsealed), Warning::TooShort);
    let what = match setup.transport {
        RelayTransport::Datagrams => "packets were dropped",
        RelayTransport::Streams => "connections were ended",
    };
    trust.warn_count(both(|traffic| traffic.unauthentic), |count| {
        Warning::UnauthenticPackets(count, what)
    });
    trust.warn_count(both(|traffic| traffic.replayed), |count| Warning::Replayed(count, what));
    trust.warn_count(both(|traffic| traffic.too_old), |count| Warning::OutsideWindow(count, what));
    trust.warn_count(both(|traffic| traffic.too_many_salts), Warning::SaltsExhausted);
    trust.warn_count(both(|traffic| traffic.truncated), Warning::StreamsCut);
    trust.warn_count(both(|traffic| traffic.send_failed), |count| {
        let reason = "the socket did not accept them".to_owned();
        Warning::SendFailed(format!("{count} packets"), reason)
    });
    trust.warn_count(counts.overflowed, Warning::ReceiveBufferFull);
    let relayed = both(|traffic| traffic.relayed);
    // A receiver that exits before the last packet arrives causes an ICMP error; that is harmless.
    if counts.icmp_errors >= MIN_REPORTED_ERRORS
        || counts.icmp_errors.saturating_mul(100) >= relayed
    {
        let advice = "check that the far end is listening".to_owned();
        trust.warn_count(counts.icmp_errors, |count| Warning::IcmpErrors(count, advice));
    }
    trust.warn_count(counts.flows.evicted, Warning::FlowsEvicted);
    trust.warn_count(trust.ring_dropped, Warning::RingOverflow);
    warn_unserved(trust, setup, &counts.unserved);
    let has_packets = components.packets() > 0;
    if has_packets && setup.transport == RelayTransport::Streams {
        trust.warn(Warning::UserTimestampsOnly);
    } else if has_packets && components.missing(Point::RxKernel).is_none() {
        let why = if job.merges() { " (--merge removes them)" } else { "" };
        trust.warn(Warning::NoKernelTimestamps(why));
    }
}

/// Adds one warning per reason why clients could not be served.
fn warn_unserved(trust: &mut Trust, setup: &RelaySetup, unserved: &Unserved) {
    let reason = |failures: &Failures| Some(failures.first.as_ref()?.to_string());
    if let Some(first) = reason(&unserved.refused) {
        let to = format!("{}://{}", setup.scheme.name(), setup.to);
        trust.warn(Warning::ClientRefused(unserved.refused.times, to, first));
    }
    trust.warn_count(unserved.limit_reached, |times| {
        let hint = if setup.flows < MAX_CONNECTIONS { "; raise --flows N" } else { "" };
        Warning::ConnectionsExhausted(times, setup.flows, hint)
    });
    if let Some(first) = reason(&unserved.here) {
        trust.warn(Warning::ResourcesExhausted(unserved.here.times, first));
    }
}

fn resolution(components: &ComponentFigures) -> Option<Resolution> {
    let all = dwell_stats::DelayComponent::ALL.map(|component| components.distribution(component));
    let with_values = all.into_iter().filter(|distribution| distribution.count() > 0);
    with_values.map(|distribution| distribution.resolution()).max()
}

/// Prints the result for the terminal.
pub(super) fn print(summary: &Summary, components: &ComponentFigures) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}  {}", summary.target.replace(' ', " -> "), summary.engine)?;
    crate::human::print_values(&mut out, &summary.values, &["received_forward"])?;
    let rows: Vec<_> = components.figures().collect();
    if !rows.is_empty() {
        writeln!(
            out,
            "\n{:24}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "", "min", "mean", "median", "p95", "p99", "p99.9", "max", "stddev"
        )?;
    }
    for (component, figures) in rows {
        let name = component.name().trim_end_matches("_ns");
        writeln!(out, "{name:24}{}", crate::ping::cells(&figures))?;
    }
    crate::human::print_warnings(&mut out, &summary.trust)
}
