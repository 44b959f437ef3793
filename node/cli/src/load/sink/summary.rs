//! Result of a sink over all flows.

use dwell_io::clock;
use dwell_protocol::SinkJob;
use dwell_record::{
    Packets, Placement, Scalar, Stamps, Summary, Trust, Warning, component_metrics,
};
use dwell_sample::TimestampSource;
use dwell_stats::{ComponentFigures, Distribution};
use dwell_units::{Nanos, Pairing};
use serde_json::json;

use super::drive::SocketCounters;
use super::flow::Flow;
use super::tcp::{self, Received};
use crate::load::{load_summary, warn_of_missing_stamps};
use crate::nic::NicWatch;

/// Inputs of a sink's summary.
pub(super) struct SinkResult<'a> {
    pub(super) job: &'a SinkJob,
    pub(super) urls: &'a [String],
    /// UDP counters; `None` for TCP only.
    pub(super) counted: Option<&'a [SocketCounters]>,
    /// TCP counters, one per listener.
    pub(super) received: &'a [Received],
    pub(super) one_way: &'a Distribution,
    pub(super) start: Pairing,
    pub(super) nics: &'a NicWatch,
}

impl SinkResult<'_> {
    /// Builds the summary.
    pub(super) fn summary(&self, components: &ComponentFigures, placement: Placement) -> Summary {
        let Self { job, urls, counted: udp, received, one_way, start, nics } = self;
        let counted = udp.unwrap_or_default();
        let mut parameters = vec![
            ("load", json!("sink")),
            ("urls", json!(urls)),
            ("duration_ns", json!(job.duration.map(|time| time.0))),
            ("clock_error_ns", json!(job.clock_error.map(|error| error.0))),
        ];
        let rows = || received.iter().flat_map(|one| &one.rows);
        if !received.is_empty() {
            let from: Vec<_> = rows().map(|row| row.peer.to_string()).collect();
            let bytes: Vec<_> = rows().map(|row| row.bytes).collect();
            let rates: Vec<_> = rows().map(tcp::Row::rate_bps).collect();
            parameters.push(("connection_from", json!(from)));
            parameters.push(("connection_payload_bytes", json!(bytes)));
            parameters.push(("connection_rate_bps", json!(rates)));
        }
        let mut metrics = component_metrics(components);
        if one_way.count() > 0 {
            metrics.insert("one_way_forward_ns".to_owned(), one_way.figures().into());
        }
        let dropped = counted.iter().map(|c| c.dropped).sum();
        let mut trust = Trust { ring_dropped: dropped, ..Trust::default() };
        trust.percentile_resolution = (one_way.count() > 0).then(|| one_way.resolution());
        trust.note_clocks(start, &clock::pair());
        trust.warn_count(dropped, Warning::RingOverflow);
        trust.warn_count(overflowed(counted).unwrap_or(0), Warning::ReceiveBufferFull);
        warn_of_missing_stamps(&mut trust, components);
        let senders = counted.iter().flat_map(|c| c.flows.keys().map(|(from, _)| *from));
        trust.note_nics(nics.towards(senders.chain(rows().map(|row| row.peer))));
        let mut values = if udp.is_some() { totals(counted) } else { Vec::new() };
        if !received.is_empty() {
            values.extend(connection_values(received));
        }
        let has_packets = counted.iter().any(|c| c.packets > 0);
        let source = if counted.iter().any(|c| c.stamped) {
            TimestampSource::KernelSw
        } else {
            TimestampSource::User
        };
        let engine = match job.place.busy_poll {
            true => "a polling thread per socket",
            false => "a thread per socket",
        };
        Summary {
            packets: packets(counted),
            metrics,
            trust,
            stamps: Stamps { rx: has_packets.then_some(source), ..Stamps::default() },
            ..load_summary(urls.join(" "), engine, parameters, values, placement)
        }
    }
}

/// Returns packets dropped for full receive buffers; `None` unless the kernel reports all sockets.
fn overflowed(counted: &[SocketCounters]) -> Option<u64> {
    counted.iter().map(|counted| counted.overflowed).sum()
}

/// Returns packet counts by sequence number; `None` if no packet had one.
fn packets(counted: &[SocketCounters]) -> Option<Packets> {
    let flows = || counted.iter().flat_map(SocketCounters::flows);
    // Sequence numbers come from the network and may be arbitrary.
    let sum = |of: fn(&Flow) -> u64| flows().map(of).fold(0, u64::saturating_add);
    flows().next()?;
    let (received, lost) = (sum(|flow| flow.numbers.packets), sum(|flow| flow.numbers.lost()));
    Some(Packets {
        sent: received.saturating_add(lost),
        received,
        lost,
        duplicate: sum(|flow| flow.numbers.duplicate),
        reordered: sum(|flow| flow.numbers.reordered),
        ..Packets::default()
    })
}

/// Returns the values of all TCP connections together.
fn connection_values(received: &[Received]) -> [(&'static str, Scalar); 6] {
    let sum = |of: fn(&Received) -> u64| received.iter().map(of).sum::<u64>();
    let first = received.iter().filter_map(|one| one.first).min();
    let last = received.iter().filter_map(|one| one.last).max();
    let elapsed = first.zip(last).map_or(Nanos::ZERO, |(first, last)| last - first);
    let (bytes, seconds) = (sum(|one| one.bytes), elapsed.as_secs_f64());
    let rate = if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { f64::NAN };
    [
        ("tcp_connections", Scalar::Count(sum(|one| one.connections))),
        ("tcp_payload_bytes", Scalar::Count(bytes)),
        ("tcp_payload_rate_bps", Scalar::Real(rate)),
        ("tcp_duration_ns", Scalar::Count(elapsed.0.max(0) as u64)),
        ("tcp_refused", Scalar::Count(sum(|one| one.refused))),
        ("tcp_resets", Scalar::Count(sum(|one| one.reset))),
    ]
}

fn totals(counted: &[SocketCounters]) -> Vec<(&'static str, Scalar)> {
    let sum = |n: fn(&SocketCounters) -> u64| counted.iter().map(n).sum::<u64>();
    let flows = || counted.iter().flat_map(SocketCounters::flows);
    let numbers = packets(counted).unwrap_or_default();
    let earliest = counted.iter().filter(|c| c.first.is_some()).min_by_key(|c| c.first);
    let first = earliest.and_then(|c| c.first);
    let first_bytes = earliest.map_or(0, |c| c.first_bytes);
    let last = counted.iter().filter_map(|c| c.last).max();
    let elapsed = first.zip(last).map_or(Nanos::ZERO, |(first, last)| last - first);
    let seconds = elapsed.as_secs_f64();
    let per_second = |n: f64| Scalar::Real(if seconds > 0.0 { n / seconds } else { f64::NAN });
    let (packets, bytes) = (sum(|c| c.packets), sum(|c| c.bytes));
    // With several flows, the largest.
    let jitter = flows().filter_map(|flow| flow.jitter.nanos()).fold(f64::NAN, f64::max);
    let mut values = vec![
        ("packets", Scalar::Count(packets)),
        ("payload_bytes", Scalar::Count(bytes)),
        ("flows", Scalar::Count(flows().count() as u64)),
        ("lost", Scalar::Count(numbers.lost)),
        ("duplicate", Scalar::Count(numbers.duplicate)),
        ("reordered", Scalar::Count(numbers.reordered)),
        ("loss_ratio", Scalar::Real(numbers.lost as f64 / numbers.sent as f64)),
        ("jitter_rfc3550_ns", Scalar::Real(jitter)),
        ("unmarked", Scalar::Count(sum(|c| c.unmarked))),
        ("iperf_reports", Scalar::Count(sum(|c| c.reports))),
        ("duration_ns", Scalar::Count(elapsed.0.max(0) as u64)),
        ("rate_pps", per_second(packets.saturating_sub(1) as f64)),
        ("payload_rate_bps", per_second((bytes - first_bytes) as f64 * 8.0)),
    ];
    values.extend(overflowed(counted).map(|count| ("overflowed", Scalar::Count(count))));
    values
}
