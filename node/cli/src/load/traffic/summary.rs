//! Result of UDP traffic, with the reports of an iperf server.

use dwell_engine::schedule::Gaps;
use dwell_protocol::{TrafficHeader, TrafficJob};
use dwell_record::{
    Figures, Packets, Scalar, Stamps, Summary, Trust, Warning, by_name, component_metrics,
};
use dwell_sample::{Point, TimestampSource};
use dwell_stats::Distribution;
use dwell_wire::iperf2::ServerReport;
use serde_json::json;

use super::recorder::Recorder;
use super::setup::TrafficSetup;
use super::{Outcome, measures};
use crate::load::{load_summary, warn_of_missing_stamps};
use crate::placement;

/// Relative deviation from the requested rate above which a warning is given.
const MAX_RATE_DEVIATION: f64 = 0.02;

/// Builds the summary.
pub(super) fn summary(
    job: &TrafficJob,
    setup: &TrafficSetup,
    outcome: &Outcome,
    recorder: &Recorder,
) -> Summary {
    let components = recorder.log.components();
    let sent = outcome.sent;
    let reports = &outcome.reports;
    let seconds = sent.elapsed.as_secs_f64().max(1e-9);
    let bits = sent.packets as f64 * setup.ip_size as f64 * 8.0;
    // Like the server, count the FIN of each flow as a packet.
    let packets = sent.packets + reports.len() as u64;
    let mut values = vec![
        ("packets", Scalar::Count(packets)),
        ("send_failed", Scalar::Count(sent.failed)),
        ("duration_ns", Scalar::Count(sent.elapsed.0.max(0) as u64)),
        ("rate_pps", Scalar::Real(sent.packets as f64 / seconds)),
        ("rate_bps", Scalar::Real(bits / seconds)),
        // Miya 2020, eq. (1).
        ("payload_rate_bps", Scalar::Real(sent.packets as f64 * setup.size as f64 * 8.0 / seconds)),
    ];
    let server_report = merged_report(reports);
    if job.header() == TrafficHeader::Iperf {
        values.extend(server_values(server_report.as_ref()));
    }
    let pareto = setup.gaps.pareto(setup.mean * f64::from(job.flows));
    let parameters = [
        ("load", json!("traffic")),
        ("address", json!(setup.peer.to_string())),
        ("flows", json!(job.flows)),
        ("rate_pps", json!(1e9 / setup.mean)),
        ("rate_bps", json!(setup.ip_size as f64 * 8e9 / setup.mean)),
        ("payload_rate_bps", json!(setup.size as f64 * 8e9 / setup.mean)),
        ("distribution", json!(job.distribution)),
        // Of the gaps of each flow.
        ("gap_shape", json!(pareto.map(|(shape, _)| shape))),
        ("gap_scale_ns", json!(pareto.map(|(_, scale)| scale))),
        ("header", json!(job.header())),
        ("payload_bytes", json!(setup.size)),
        ("ip_bytes", json!(setup.ip_size)),
        ("seed", json!(job.seed)),
        ("warm_up", json!(0)),
    ];
    let metrics = [("gap_ns", &recorder.gap), ("schedule_error_ns", &recorder.schedule_error)]
        .into_iter()
        .filter(|(_, distribution)| distribution.count() > 0)
        .map(|(name, distribution)| (name, distribution.figures().into()));
    let mut metrics = by_name(metrics);
    metrics.extend(component_metrics(components));
    let mut trust = Trust {
        schedule_error_ns: figures(&recorder.schedule_error),
        planned: job.parameters.count,
        ring_dropped: sent.dropped,
        percentile_resolution: Some(recorder.schedule_error.resolution()),
        ..Trust::default()
    };
    warn(&mut trust, setup, outcome);
    warn_of_missing_stamps(&mut trust, components);
    trust.note_nics(outcome.nics.clone());
    trust.note_clocks(&recorder.start, &dwell_io::clock::pair());
    let tx = if components.missing(Point::TxKernel).is_some() {
        TimestampSource::KernelSw
    } else {
        TimestampSource::User
    };
    let engine = setup.wait_mode(measures(job, outcome.keeps_samples)).name();
    let placement = placement::record(&setup.place, outcome.placement);
    Summary {
        packets: server_report.map(|report| Packets {
            sent: packets,
            received: packets.saturating_sub(report.lost),
            lost: report.lost.min(packets),
            reordered: report.out_of_order,
            send_failed: sent.failed,
            ..Packets::default()
        }),
        metrics,
        trust,
        stamps: Stamps { tx: (sent.packets > 0).then_some(tx), ..Stamps::default() },
        ..load_summary(&*job.url, engine, parameters, values, placement)
    }
}

fn figures(distribution: &Distribution) -> Option<Figures> {
    (distribution.count() > 0).then(|| distribution.figures().into())
}

/// Merges the reports of all flows: sums, and the largest jitter; `None` unless all arrived.
fn merged_report(reports: &[Option<ServerReport>]) -> Option<ServerReport> {
    reports.iter().copied().reduce(|all, one| {
        let (all, one) = (all?, one?);
        Some(ServerReport {
            bytes: all.bytes.saturating_add(one.bytes),
            duration: all.duration.max(one.duration),
            lost: all.lost.saturating_add(one.lost),
            out_of_order: all.out_of_order.saturating_add(one.out_of_order),
            datagrams: all.datagrams.saturating_add(one.datagrams),
            jitter: all.jitter.max(one.jitter),
            ..all
        })
    })?
}

/// Returns the values reported by the server; null without a report.
fn server_values(report: Option<&ServerReport>) -> [(&'static str, Scalar); 6] {
    let count = |of: fn(&ServerReport) -> u64| {
        report.map_or(Scalar::Real(f64::NAN), |report| Scalar::Count(of(report)))
    };
    [
        ("server_packets", count(|report| report.datagrams)),
        ("server_payload_bytes", count(|report| report.bytes)),
        ("server_lost", count(|report| report.lost)),
        ("server_reordered", count(|report| report.out_of_order)),
        ("server_jitter_ns", count(|report| report.jitter.0.max(0) as u64)),
        ("server_duration_ns", count(|report| report.duration.0.max(0) as u64)),
    ]
}

/// Adds the warnings.
fn warn(trust: &mut Trust, setup: &TrafficSetup, outcome: &Outcome) {
    let sent = &outcome.sent;
    let advice = "check that `dwell load sink` is running there".to_owned();
    trust.warn_count(sent.refused, |count| Warning::IcmpErrors(count, advice));
    trust.warn_count(sent.dropped, Warning::RingOverflow);
    let silent = outcome.reports.iter().filter(|report| report.is_none()).count();
    if silent > 0 {
        trust.warn(Warning::ServerSilent(silent, outcome.reports.len()));
    }
    if let Some(reason) = &outcome.not_scanned {
        trust.warn(Warning::ChannelsNotScanned(reason.clone()));
    }
    // Too few packets do not allow a rate.
    let reached = sent.packets as f64 / sent.elapsed.as_secs_f64().max(1e-9) * setup.mean / 1e9;
    if sent.packets >= 100 && (reached - 1.0).abs() > MAX_RATE_DEVIATION {
        let why = match setup.gaps {
            _ if sent.failed > 0 => "the link or its queue was full",
            Gaps::Constant => "this machine could not keep up",
            Gaps::Poisson | Gaps::Pareto(_) => {
                "random gaps, or this machine could not keep up; a longer run is more accurate"
            }
        };
        trust.warn(Warning::RateMissed(reached * 100.0, why.to_owned()));
    }
}
