//! Delays of single nodes, links and ends for a flow, beside other flows.

use std::collections::HashMap;

use crate::delay_fit::DelayFit;
use crate::fit::transmission_ns;
use crate::network::{Flow, Hop, Link, Network, Path, Relay};
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
    relay_delays(relay, usage.node(node), flow)
}

/// Delays of a relay beside this traffic.
pub(crate) fn relay_delays(relay: &Relay, others: Traffic, flow: &Flow) -> Vec<QuantileFunction> {
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
    delays_over(network.link(hop.link), usage.hop(hop), flow)
}

/// Delays of a link beside this traffic.
pub(crate) fn delays_over(link: &Link, others: Traffic, flow: &Flow) -> Vec<QuantileFunction> {
    let fixed = fixed_ns(link, flow);
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

/// Transmission and propagation.
pub(crate) fn fixed_ns(link: &Link, flow: &Flow) -> f64 {
    transmission_ns(link.rate_bps, flow.size_bytes) + link.delay_ns
}

/// Standard deviation of the delay of a trial over a path, by the differences between the trials of the
/// models; `None` if a model has too few trials. Parts with the same model shift together.
pub(crate) fn trial_deviation_ns(network: &Network, path: &Path) -> Option<f64> {
    let mut parts: Vec<(&DelayFit, f64)> = Vec::new();
    for relay in path.relays().iter().filter_map(|node| network.relay(*node)) {
        let (low, high, weight) = relay.delay.around(relay.load_ratio);
        parts.extend([(low, 1.0 - weight), (high, weight)]);
    }
    let links = path.hops.iter().filter_map(|hop| network.link(hop.link).excess.as_deref());
    parts.extend(links.map(|model| (&model.excess, 1.0)));
    parts.extend([&network.sender, &network.receiver].into_iter().flatten().map(|end| (end, 1.0)));
    let mut by_fit: HashMap<*const DelayFit, f64> = HashMap::new();
    for (fit, weight) in parts.into_iter().filter(|(_, weight)| *weight > 0.0) {
        // The fit itself is as uncertain as the mean of its trials.
        let uncertainty = 1.0 + 1.0 / fit.trials.max(1) as f64;
        let deviation = weight * fit.trial_sd_ns? * uncertainty.sqrt();
        *by_fit.entry(std::ptr::from_ref(fit)).or_default() += deviation;
    }
    Some(by_fit.values().map(|deviation| deviation * deviation).sum::<f64>().sqrt())
}

/// Delay in the sender or receiver.
pub(crate) fn end_delay(end: Option<&DelayFit>, flow: &Flow) -> Option<QuantileFunction> {
    Some(end?.delay(flow.size_bytes, flow.rate_pps))
}

/// Wait for packets of other flows; `None` without any.
fn wait(others: Traffic, capacity_ratio: f64) -> Option<QuantileFunction> {
    let (utilisation, service) = occupancy(others, capacity_ratio);
    (utilisation > 0.0).then(|| waiting_time(utilisation, service))
}

/// Share of the time for which other flows occupy a server, and their service time
/// ([`waiting_time`]). A node with a part of a processor needs longer for each packet.
pub(crate) fn occupancy(others: Traffic, capacity_ratio: f64) -> (f64, f64) {
    (others.busy_ns / 1e9 / capacity_ratio, others.service_ns() / capacity_ratio)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::network::NetworkBuilder;
    use crate::network::tests::{constant, plain_link};

    #[test]
    fn parts_of_one_model_shift_together() {
        let mut builder = NetworkBuilder::default();
        let relay = builder.relay(constant(1.0).relay("m", "route"));
        for i in 0..4 {
            builder.node(&format!("n{i}"), Some(relay)).unwrap();
        }
        let mut model = constant(1.0).link();
        (model.excess.trials, model.excess.trial_sd_ns) = (3, Some(300.0));
        let end = DelayFit { trial_sd_ns: Some(400.0), ..model.excess.clone() };
        let kind = builder.link_kind(Link { excess: Some(Arc::new(model)), ..plain_link(1e6) });
        (0..3).for_each(|i| builder.link(i, i + 1, kind).unwrap());
        builder.ends(Some(end.clone()), None);
        let network = builder.clone().build().unwrap();
        let path = network.path(&[0, 1, 2, 3]).unwrap();
        let found = trial_deviation_ns(&network, &path).unwrap();
        let expected = (4.0_f64 / 3.0).sqrt() * 900.0_f64.hypot(400.0);
        assert!((found - expected).abs() < 1e-6, "{found} and {expected}");
        builder.ends(Some(end.clone()), Some(DelayFit { trial_sd_ns: None, ..end }));
        assert_eq!(trial_deviation_ns(&builder.build().unwrap(), &path), None);
    }
}
