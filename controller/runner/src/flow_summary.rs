//! The summary of a one-way flow, computed from the joined rows.

use std::collections::BTreeMap;

use dwell_plan::FlowPlan;
use dwell_record::{
    ColumnFigures, Figures, Kind, Packets, Scalar, Stamps, Summary, Trust, TrustWarning, Warning,
    clock_error_value,
};
use dwell_sample::{Point, TimestampSource};
use dwell_stats::{Leg, LinkEndpoints};
use dwell_units::{Nanos, Rate};
use serde_json::{Value, json};

use crate::join::Join;
use crate::links::PathLinks;

/// Inputs to the summary besides the samples.
pub(crate) struct SummaryInputs<'a> {
    pub(crate) flow: &'a FlowPlan,
    /// Summaries of the machines, with their nodes.
    pub(crate) summaries: Vec<(&'a str, &'a Summary)>,
    /// The sender's summary.
    pub(crate) sender: &'a Summary,
    /// Jobs that the trial continued without.
    pub(crate) refused: &'a [Warning],
    /// Step of the packet timestamp clock during the trial.
    pub(crate) step: Option<Nanos>,
    /// The links that packets passed.
    pub(crate) links: PathLinks,
    /// Nodes with unrelated clocks; one node if all clocks are related.
    pub(crate) unrelated: &'a [&'a str],
    /// Nodes with different clocks; one node if all have one clock.
    pub(crate) distinct: &'a [&'a str],
    /// Whether the packets contradict the relations of the clocks.
    pub(crate) contradicted: bool,
    /// Warnings about clocks of nodes.
    pub(crate) clock_warnings: &'a [TrustWarning],
}

/// Returns the largest step of CLOCK_REALTIME that a machine saw; `None` if there was none.
pub(crate) fn clock_step<'a>(trust_records: impl Iterator<Item = &'a Trust>) -> Option<Nanos> {
    // A trace may detect a step of unknown size; it then only marks packets as void.
    let step = |trust: &Trust| trust.clock_step_ns.or((trust.void > 0).then_some(0));
    trust_records.filter_map(step).max_by_key(|step| step.unsigned_abs()).map(Nanos)
}

/// Returns the summary of the flow. `figures` are computed from the joined rows.
pub(crate) fn summary(join: &Join, inputs: &SummaryInputs<'_>, figures: ColumnFigures) -> Summary {
    let endpoints = join.link_endpoints();
    let (metrics, mut values, packets) = figures;
    values.extend(ratios(join, inputs, endpoints, &metrics));
    for (machine, point, count) in join.missing() {
        let name = format!("missing_{}_{}", machine.name(), point.name());
        values.insert(name, Some(Scalar::Count(count)));
    }
    for (leg, error) in join.clock_errors() {
        values.insert(clock_error_value(leg.name()), Some(Scalar::Count(error.0.unsigned_abs())));
    }
    let counts = join.counts;
    for (name, count) in ["relay", "trace", "receiver"].into_iter().zip(counts.unmatched) {
        values.insert(format!("unjoined_{name}"), Some(Scalar::Count(count)));
    }
    let packets = packets.map(|packets| Packets {
        duplicate: counts.duplicate,
        send_failed: failed(inputs.sender),
        ..packets
    });
    let source =
        |kernel: bool| Some(if kernel { TimestampSource::KernelSw } else { TimestampSource::User });
    let tx = source(endpoints.sender != Point::TxApp);
    let relay = inputs.flow.relay.as_ref();
    Summary {
        kind: Kind::Relay,
        target: target(inputs),
        parameters: parameters(inputs, endpoints),
        packets,
        metrics,
        values,
        stamps: Stamps { tx, rx: source(endpoints.receiver == Point::RxKernel), near: tx },
        engine: match relay.map(|relay| relay.mode.program()) {
            None => "none".into(),
            Some(None) => "kernel".into(),
            Some(Some(_)) => json!(relay.map(|relay| relay.parameters.engine))
                .as_str()
                .unwrap_or_default()
                .into(),
        },
        trains: Vec::new(),
        spikes: None,
        driver: None,
        trust: trust(join, inputs),
        environment: inputs.sender.environment.clone(),
    }
}

/// Returns ratios of delays, and the link delay as derived by Miya 2020.
fn ratios(
    join: &Join,
    inputs: &SummaryInputs<'_>,
    endpoints: LinkEndpoints,
    metrics: &BTreeMap<String, Figures>,
) -> Vec<(String, Option<Scalar>)> {
    // Miya 2020: 95th percentiles of the stacked delays.
    let p95 = |name: &str| Some(metrics.get(name)?.p95? as f64);
    let node = endpoints.node.and_then(|component| p95(component.name()));
    let link = p95(Leg::LinkDelay.name()).filter(|link| *link > 0.0);
    let throughput = join.throughput();
    let links = if inputs.flow.relay.is_some() { 2.0 } else { 1.0 };
    // Miya 2020: size x 8 / effective throughput, for each link.
    let s0 = throughput.map(|bps| links * inputs.flow.size().0 as f64 * 8e9 / bps);
    let ratio = |node: Option<f64>, link: Option<f64>| Some(Scalar::Real(node? / link?));
    vec![
        ("nlr".into(), ratio(node, link)),
        ("link_delay_s0_ns".into(), s0.map(Scalar::Real)),
        ("nlr_s0".into(), ratio(node, s0)),
        ("throughput_bps".into(), throughput.map(Scalar::Real)),
    ]
}

fn parameters(inputs: &SummaryInputs<'_>, endpoints: LinkEndpoints) -> BTreeMap<String, Value> {
    let SummaryInputs { flow, links, .. } = inputs;
    let node = endpoints.node_ends().map(|(from, to)| [from.name(), to.name()]);
    let bits = match flow.rate {
        Rate::Bits(rate) => Some(rate.0),
        Rate::Packets(_) => None,
    };
    [
        ("relay", json!(flow.relay.as_ref().map(|relay| relay.mode.name()))),
        ("relay_node", json!(flow.relay.as_ref().map(|relay| relay.on.clone()))),
        ("payload_bytes", json!(flow.size().0)),
        ("rate_pps", json!(flow.packet_rate().as_f64())),
        ("rate_bps", json!(bits)),
        ("warm_up", json!(flow.warm_up)),
        ("link_rate_bps", json!(links.rate_bps)),
        ("link_mechanism", json!(links.mechanism)),
        ("link_from", json!(endpoints.sender.name())),
        ("node_points", json!(node)),
        ("link_to", json!(endpoints.receiver.name())),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

fn target(inputs: &SummaryInputs<'_>) -> String {
    let end = format!("udp://{}:{}", inputs.flow.to, inputs.flow.port);
    match &inputs.flow.relay {
        Some(relay) => format!("{end} by {} on {}", relay.mode.name(), relay.on),
        None => end,
    }
}

/// Returns the trust record of the flow: the sender's clocks and schedule, the warnings of all
/// machines.
fn trust(join: &Join, inputs: &SummaryInputs<'_>) -> Trust {
    let mut trust =
        Trust { warm_up_sent: Some(inputs.flow.warm_up.into()), ..inputs.sender.trust.clone() };
    trust.planned = inputs.flow.parameters.count.or(trust.planned);
    trust.void = join.void();
    trust.clock_step_ns = inputs.step.map(|step| step.0).filter(|step| *step != 0);
    trust.ring_dropped =
        inputs.summaries.iter().map(|(_, summary)| summary.trust.ring_dropped).sum();
    trust.warnings.clear();
    // Each machine reports its own drops.
    trust.nic_dropped = None;
    let mode = inputs.flow.relay.as_ref().map(|relay| relay.mode);
    let program = mode.is_some_and(|mode| mode.program().is_some());
    for (node, summary) in &inputs.summaries {
        // A program changes the addresses of packets, so a trace alone never sees both sides of it.
        let one_sided = Warning::OneSidedTrace.code();
        let is_expected = |warning: &TrustWarning| program && warning.code == one_sided;
        let warnings = summary.trust.warnings.iter().filter(|warning| !is_expected(warning));
        trust.warnings.extend(warnings.map(|warning| warning.clone().about(node)));
    }
    trust.warnings.extend(inputs.refused.iter().cloned().map(Into::into));
    if let (Some(relay), None) = (&inputs.flow.relay, join.link_endpoints().node) {
        trust.warn(TrustWarning::from(Warning::NodeDelayUnknown).about(&relay.on));
    }
    trust.warnings.extend(inputs.clock_warnings.iter().cloned());
    if let Some(nodes) = listed(inputs.unrelated) {
        trust.warn(Warning::UnrelatedClocks(nodes));
    }
    if let Some(nodes) = listed(inputs.distinct) {
        if inputs.contradicted {
            trust.warn(Warning::ImpossibleDelays(nodes));
        } else if let Some(error) = join.clock_errors().iter().map(|(_, error)| *error).max() {
            trust.warn(Warning::BoundedClocks(nodes, error.to_string()));
        }
    }
    trust.warn_count(trust.void, |count| {
        Warning::ClockStepped(format!("{count} packets have timestamps but no delays"))
    });
    trust.warn_count(join.counts.repeated, Warning::RepeatedIds);
    trust.warn_count(join.counts.left_out, Warning::UnjoinedPackets);
    trust
}

/// Returns the names as a list; `None` unless there are several.
fn listed(nodes: &[&str]) -> Option<String> {
    let (last, others) = nodes.split_last()?;
    (!others.is_empty()).then(|| format!("{} and {last}", others.join(", ")))
}

/// Returns the number of packets that the sender failed to send.
fn failed(sender: &Summary) -> u64 {
    let counted = sender.value("send_failed").map(|count| count as u64);
    counted.unwrap_or_else(|| sender.packets.map_or(0, |packets| packets.send_failed))
}
