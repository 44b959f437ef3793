//! Result of a bulk transfer.

use dwell_protocol::BulkJob;
use dwell_record::{Scalar, Summary, Trust, Warning, by_name};
use serde_json::{Value, json};

use super::drive::Flow;
use super::{BulkSetup, Outcome};
use crate::human::bit_rate;
use crate::load::load_summary;
use crate::placement;

/// Relative deviation from the requested rate above which a warning is given.
const MAX_RATE_DEVIATION: f64 = 0.02;

/// Builds the summary.
pub(super) fn summary(job: &BulkJob, setup: &BulkSetup, outcome: &Outcome) -> Summary {
    let flows = &outcome.flows;
    let seconds = outcome.elapsed.as_secs_f64();
    let rate = |bytes: u64| if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { f64::NAN };
    let sum = |of: fn(&Flow) -> u64| flows.iter().map(of).sum::<u64>();
    let acked = sum(Flow::acked);
    let min_rtt = flows.iter().filter_map(|flow| flow.info.min_rtt).min();
    let delivery: Option<u64> =
        flows.iter().map(|flow| flow.info.delivery_rate_bps).sum::<Option<u64>>();
    let values = [
        ("payload_bytes", Scalar::Count(acked)),
        ("payload_rate_bps", Scalar::Real(rate(acked))),
        ("unacknowledged_bytes", Scalar::Count(sum(|flow| flow.written - flow.acked()))),
        ("retransmissions", Scalar::Count(sum(|flow| flow.info.retransmitted))),
        ("flows", Scalar::Count(flows.len() as u64)),
        ("flows_failed", Scalar::Count(sum(|flow| flow.error.is_some().into()))),
        ("duration_ns", Scalar::Count(outcome.elapsed.0.max(0) as u64)),
        ("min_rtt_ns", min_rtt.map_or(Scalar::Real(f64::NAN), |rtt| Scalar::Count(rtt.0 as u64))),
        ("delivery_rate_bps", delivery.map_or(Scalar::Real(f64::NAN), Scalar::Count)),
    ];
    let each = |of: &dyn Fn(&Flow) -> Value| Value::Array(flows.iter().map(of).collect());
    let parameters = [
        ("load", json!("traffic")),
        ("transport", json!("tcp")),
        ("address", json!(setup.peer.to_string())),
        ("flows", json!(job.flows)),
        ("rate_bps", json!(job.rate.map(|rate| rate.0))),
        ("write_bytes", json!(setup.write)),
        ("bytes", json!(job.bytes.map(|bytes| bytes.0))),
        ("duration_ns", json!(job.duration.map(|time| time.0))),
        ("congestion_control", json!(outcome.congestion_control)),
        ("flow_payload_bytes", each(&|flow| json!(flow.acked()))),
        ("flow_retransmissions", each(&|flow| json!(flow.info.retransmitted))),
        ("warm_up", json!(0)),
    ];
    let known = outcome.rtt.count() > 0;
    let mut trust = Trust {
        percentile_resolution: known.then(|| outcome.rtt.resolution()),
        ..Trust::default()
    };
    warn(&mut trust, job, outcome, rate(acked));
    trust.note_nics(outcome.nics.clone());
    trust.note_clocks(&outcome.clocks.0, &outcome.clocks.1);
    let engine =
        if job.rate.is_some() { "paced writes over TCP" } else { "bulk transfer over TCP" };
    let placement = placement::record(&setup.place, outcome.placement);
    Summary {
        metrics: by_name(known.then(|| ("tcp_rtt_ns", outcome.rtt.figures().into()))),
        trust,
        ..load_summary(&*job.url, engine, parameters, values, placement)
    }
}

/// Adds the warnings.
fn warn(trust: &mut Trust, job: &BulkJob, outcome: &Outcome, reached: f64) {
    let failed: Vec<_> = outcome.flows.iter().filter_map(|flow| flow.error.as_ref()).collect();
    if let Some(first) = failed.first() {
        let all = outcome.flows.len();
        trust.warn(Warning::ConnectionsEnded(failed.len(), all, first.to_string()));
    }
    if let Some(requested) = job.rate.map(|rate| rate.0 as f64)
        && outcome.elapsed.as_secs_f64() > 0.5
        && (reached / requested - 1.0).abs() > MAX_RATE_DEVIATION
    {
        let [asked, found] = [requested, reached].map(bit_rate);
        let why = format!("{asked} requested, {found} reached");
        trust.warn(Warning::RateMissed(reached / requested * 100.0, why));
    }
}
