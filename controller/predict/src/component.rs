//! Delays of single nodes, links and ends for a flow, beside other flows.

use crate::delay_fit::DelayFit;
use crate::fit::transmission_ns;
use crate::network::{Flow, Hop, Network};
use crate::quantile_function::QuantileFunction;
use crate::usage::{Traffic, Usage};
use crate::waiting::waiting_time;

/// Delays in a relay: its own, and the wait for other flows (if there are any).
pub(crate) fn node_delays(
    network: &Network,
    usage: &Usage,
    node: u32,
    flow: &Flow,
) -> Vec<QuantileFunction> {
    let Some(relay) = network.relay(node) else { return Vec::new() };
    let others = usage.node(node);
    let rate = others.rate_pps + flow.rate_pps;
    let mut delays = vec![relay.delay.delay(flow.size_bytes, rate, relay.load_ratio)];
    delays.extend(wait(others, relay.capacity_ratio));
    delays
}

/// Delays of a link: transmission, propagation and its model, and the wait for other flows.
pub(crate) fn link_delays(
    network: &Network,
    usage: &Usage,
    hop: Hop,
    flow: &Flow,
) -> Vec<QuantileFunction> {
    let link = network.link(hop.link);
    let others = usage.hop(hop);
    let fixed = transmission_ns(link.rate_bps, flow.size_bytes) + link.delay_ns;
    let rate = others.rate_pps + flow.rate_pps;
    // The excess may be negative by a rounding error of timestamps, but no link is faster than its rate.
    let delay = match &link.excess {
        Some(model) => {
            let excess = &model.excess;
            let plane = excess.plane(flow.size_bytes, rate);
            excess.residual_ns.clone().shifted(plane).non_negative().shifted(fixed)
        }
        None => QuantileFunction::constant(fixed),
    };
    let mut delays = vec![delay];
    delays.extend(wait(others, 1.0));
    delays
}

/// Delay in the sender or receiver.
pub(crate) fn end_delay(end: Option<&DelayFit>, flow: &Flow) -> Option<QuantileFunction> {
    Some(end?.delay(flow.size_bytes, flow.rate_pps))
}

/// Wait for packets of other flows; `None` without any. A node with a part of a processor needs longer
/// for each packet.
fn wait(others: Traffic, capacity_ratio: f64) -> Option<QuantileFunction> {
    let utilisation = others.busy_ns / 1e9 / capacity_ratio;
    (utilisation > 0.0).then(|| waiting_time(utilisation, others.service_ns() / capacity_ratio))
}
