//! Chooses a path for each flow and predicts the delays of all flows together.

use crate::candidates::{Candidates, candidates};
use crate::component::trial_deviation_ns;
use crate::delay_fit::{DelayFit, Range};
use crate::network::{Flow, Hop, Network, Path};
use crate::path_delay::path_delay;
use crate::prediction::{
    Extrapolation, FlowPrediction, FlowState, LinkUse, NodeUse, PathPrediction, Prediction,
};
use crate::usage::{MAX_SHARE, Usage, bits_per_second};

/// Maximum number of rounds in which flows that miss the deadline are placed again.
const MAX_ROUNDS: usize = 3;

/// Shares of capacity are compared in whole multiples of this, so that smaller differences decide
/// nothing.
const SHARE_STEP: f64 = 0.01;

/// Standard deviations on both sides of the mean between which 95 % of a normal distribution lie.
const NORMAL_95: f64 = 1.96;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Deadline in nanoseconds, from the sending program to the receiving one.
    pub deadline_ns: f64,
    /// Probability of meeting it, between 0 and 1.
    pub probability: f64,
}

/// Search for one flow.
#[derive(Clone, Debug)]
struct Search {
    /// Chosen path; `None` if no path has room, or there is no path.
    chosen: Option<Path>,
    fewest_hops: Option<Path>,
    candidates: usize,
    is_complete: bool,
    least_ns: f64,
}

/// Chooses a path for each flow of the network, those without a choice first and then the largest, and
/// predicts all delays.
///
/// Of the paths that meet the deadline, the one whose busiest relay or link is used least is
/// chosen, then the one whose second busiest is, and so on; if no path meets it, the one with the
/// highest probability. No relay or link is used above 95 % of its capacity.
pub fn predict(network: &Network, topology: &str, request: &Request) -> Prediction {
    let flows = network.flows();
    let mut usage = Usage::default();
    let mut order: Vec<usize> = (0..flows.len()).collect();
    // Flows without a choice take their paths before others may.
    order.sort_by(|a, b| {
        let (a, b) = (&flows[*a], &flows[*b]);
        let has_choice = a.path.is_empty().cmp(&b.path.is_empty());
        has_choice.then(bits_per_second(b).total_cmp(&bits_per_second(a)))
    });
    let mut searches: Vec<Option<Search>> = vec![None; flows.len()];
    for i in order.iter().copied() {
        let search = search(network, &usage, &flows[i], request, None);
        if let Some(path) = &search.chosen {
            usage.add(network, &flows[i], path);
        }
        searches[i] = Some(search);
    }
    // Flows that were placed later may slow down earlier ones, or leave room when they move.
    for _ in 0..MAX_ROUNDS {
        let mut has_changed = false;
        for i in order.iter().copied().filter(|_| flows.len() > 1) {
            let Some(before) = &searches[i] else { continue };
            let after = again(network, &mut usage, &flows[i], before, request);
            if let Some(after) = after {
                has_changed |= after.chosen != before.chosen;
                searches[i] = Some(after);
            }
        }
        if !has_changed {
            break;
        }
    }
    // The last moves may have left room. From here on, flows are only added, so that one without a
    // path has none beside the final ones.
    for i in order {
        let is_placed = searches[i].as_ref().is_some_and(|search| search.chosen.is_some());
        if !is_placed && flows.len() > 1 {
            let search = search(network, &usage, &flows[i], request, None);
            if let Some(path) = &search.chosen {
                usage.add(network, &flows[i], path);
            }
            searches[i] = Some(search);
        }
    }
    let predictions = flows.iter().zip(searches.into_iter().flatten());
    let predictions: Vec<FlowPrediction> = predictions
        .map(|(flow, search)| flow_prediction(network, &mut usage, flow, search, request))
        .collect();
    Prediction {
        schema: Prediction::SCHEMA,
        topology: topology.to_owned(),
        node_count: network.node_count(),
        link_count: network.link_count(),
        deadline_ns: request.deadline_ns,
        probability: request.probability,
        notes: notes(network, &predictions, request),
        flows: predictions,
        nodes: usage.nodes().into_iter().map(|node| node_use(network, &usage, node)).collect(),
        links: usage.hops().into_iter().map(|hop| link_use(network, &usage, hop)).collect(),
        assumptions: assumptions(),
    }
}

/// Places a flow again, which misses the deadline or is not placed; `None` if it may stay.
fn again(
    network: &Network,
    usage: &mut Usage,
    flow: &Flow,
    before: &Search,
    request: &Request,
) -> Option<Search> {
    let path = before.chosen.as_ref();
    if let Some(path) = path {
        usage.remove(network, flow, path);
    }
    let is_met = |path: &Path| {
        let delay = path_delay(network, usage, flow, path, request.deadline_ns);
        delay.probability >= request.probability
    };
    let may_stay = path.is_some_and(|path| !flow.path.is_empty() || is_met(path));
    let after = (!may_stay).then(|| search(network, usage, flow, request, path));
    let chosen = after.as_ref().map_or(path, |after| after.chosen.as_ref());
    if let Some(path) = chosen {
        usage.add(network, flow, path);
    }
    after
}

/// Chooses a path for a flow that is not in `usage`; its current path is a candidate.
fn search(
    network: &Network,
    usage: &Usage,
    flow: &Flow,
    request: &Request,
    current: Option<&Path>,
) -> Search {
    let Request { deadline_ns, probability } = *request;
    let Candidates { mut paths, mut is_complete, fewest_hops, least_ns } =
        candidates(network, usage, flow, deadline_ns, probability);
    match network.path(&flow.path).ok().filter(|path| !path.nodes.is_empty()) {
        Some(given) => {
            is_complete = true;
            paths = if usage.path_has_room(network, &given, flow) { vec![given] } else { vec![] };
        }
        None => paths.extend(current.filter(|path| !paths.contains(path)).cloned()),
    }
    let candidates = paths.len();
    let rated = paths.into_iter().map(|path| {
        let delay = path_delay(network, usage, flow, &path, deadline_ns);
        let shares = usage.shares(network, &path, flow);
        // The shares of a path in time decide first, then its probability; of others, only that.
        let is_met = delay.probability >= probability;
        let shares: Vec<u32> =
            shares.iter().filter(|_| is_met).map(|share| (share / SHARE_STEP) as u32).collect();
        (is_met, shares, delay, path)
    });
    let chosen = rated.max_by(|a, b| {
        let by_shares = a.0.cmp(&b.0).then_with(|| b.1.cmp(&a.1));
        let by_delay = a.2.probability.total_cmp(&b.2.probability);
        by_shares.then(by_delay).then(b.2.mean_ns.total_cmp(&a.2.mean_ns))
    });
    let chosen = chosen.map(|(.., path)| path);
    Search { chosen, fewest_hops, candidates, is_complete, least_ns }
}

/// Relays and links of a path without room for one more flow, in words.
fn blocks(network: &Network, usage: &Usage, path: &Path, flow: &Flow) -> Vec<String> {
    let percent = |share: Option<f64>| format!("{:.0} %", 100.0 * share.unwrap_or_default());
    let nodes = path.relays().iter().filter(|node| !usage.node_has_room(network, **node, flow));
    let nodes = nodes.map(|node| {
        let share = percent(usage.node_share(network, *node, flow));
        format!("node '{}' would use {share} of its CPU capacity", network.name(*node))
    });
    let hops = path.hops.iter().filter(|hop| !usage.hop_has_room(network, **hop, flow));
    let hops = hops.map(|hop| {
        let share = percent(usage.hop_share(network, *hop, flow));
        let (from, to) = network.ends(*hop);
        format!("the link from '{from}' to '{to}' would use {share} of its rate")
    });
    nodes.chain(hops).collect()
}

fn flow_prediction(
    network: &Network,
    usage: &mut Usage,
    flow: &Flow,
    search: Search,
    request: &Request,
) -> FlowPrediction {
    let Search { chosen, fewest_hops, candidates, is_complete, least_ns } = search;
    if let Some(path) = &chosen {
        usage.remove(network, flow, path);
    }
    let predicted = |path: &Path| path_prediction(network, usage, flow, path, request);
    let prediction = chosen.as_ref().map(predicted);
    let of_fewest = fewest_hops.as_ref().map(predicted);
    let (from, to) = (network.name(flow.from), network.name(flow.to));
    let (state, reason) = match &prediction {
        Some(path) if path.meets => (FlowState::Meets, None),
        Some(path) => {
            let reason = miss_reason(path, candidates, is_complete, least_ns, request);
            (FlowState::Misses, Some(reason))
        }
        None => match network.path(&flow.path).ok().filter(|path| !path.nodes.is_empty()) {
            Some(given) => above_capacity(network, usage, &given, flow),
            None => match &fewest_hops {
                Some(path) => above_capacity(network, usage, path, flow),
                None => {
                    let reason = format!(
                        "no path over relays joins '{from}' and '{to}'; nodes without a model relay \
                         nothing"
                    );
                    (FlowState::Unreachable, Some(reason))
                }
            },
        },
    };
    if let Some(path) = &chosen {
        usage.add(network, flow, path);
    }
    FlowPrediction {
        flow: flow.name.clone(),
        from: from.to_owned(),
        to: to.to_owned(),
        size_bytes: flow.size_bytes,
        rate_pps: flow.rate_pps,
        state,
        reason,
        chosen: prediction,
        fewest_hops: of_fewest,
        candidates,
        complete: is_complete,
    }
}

fn above_capacity(
    network: &Network,
    usage: &Usage,
    path: &Path,
    flow: &Flow,
) -> (FlowState, Option<String>) {
    let blocked = blocks(network, usage, path, flow);
    let names: Vec<&str> = path.nodes.iter().map(|node| network.name(*node)).collect();
    let reason = format!(
        "load above {:.0} % of a capacity: {}, on the path {}",
        100.0 * MAX_SHARE,
        blocked.join(", "),
        names.join(" - ")
    );
    (FlowState::AboveCapacity, Some(reason))
}

fn miss_reason(
    path: &PathPrediction,
    candidates: usize,
    is_complete: bool,
    least_ns: f64,
    request: &Request,
) -> String {
    if least_ns > request.deadline_ns {
        return format!("no path can: the least possible delay is {:.3} ms", least_ns / 1e6);
    }
    let best = 100.0 * path.probability;
    match (is_complete, candidates) {
        (true, 1) => format!("the only path does with probability {best:.2} %"),
        (true, _) => format!("no path does; the best has a probability of {best:.2} %"),
        (false, _) => format!(
            "none of {candidates} candidate paths does; the best has a probability of {best:.2} %"
        ),
    }
}

fn path_prediction(
    network: &Network,
    usage: &Usage,
    flow: &Flow,
    path: &Path,
    request: &Request,
) -> PathPrediction {
    let delay = path_delay(network, usage, flow, path, request.deadline_ns);
    let bottleneck_ratio = usage.shares(network, path, flow).first().copied().unwrap_or_default();
    // Above capacity, a queue grows without end.
    let is_stable = bottleneck_ratio <= 1.0;
    let probability = if is_stable { delay.probability } else { 0.0 };
    let p95_ns = delay.p95_ns.filter(|_| is_stable);
    let p95_range = p95_ns.zip(trial_deviation_ns(network, path));
    let p95_range =
        p95_range.map(|(p95, sd)| ((p95 - NORMAL_95 * sd).max(0.0), p95 + NORMAL_95 * sd));
    PathPrediction {
        nodes: path.nodes.iter().map(|node| network.name(*node).to_owned()).collect(),
        hops: path.hops.len(),
        mean_ns: delay.mean_ns,
        p50_ns: delay.p50_ns.filter(|_| is_stable),
        p95_ns,
        p95_low_ns: p95_range.map(|range| range.0),
        p95_high_ns: p95_range.map(|range| range.1),
        p99_ns: delay.p99_ns.filter(|_| is_stable),
        probability,
        loss_ratio: delay.loss_ratio,
        meets: probability >= request.probability,
        bottleneck_ratio,
        resolution_ns: delay.resolution_ns,
        resolution_bound_ns: delay.resolution_bound_ns,
        extrapolated: extrapolations(network, usage, flow, path),
    }
}

/// Parameters outside the ranges of the models, each model once.
fn extrapolations(
    network: &Network,
    usage: &Usage,
    flow: &Flow,
    path: &Path,
) -> Vec<Extrapolation> {
    let mut found: Vec<Extrapolation> = Vec::new();
    let mut check = |on: String, model: &str, parameter, value: f64, range: Range| {
        let is_known = found.iter().any(|one| one.model == model && one.parameter == parameter);
        if !range.contains(value) && !is_known {
            let Range { min, max } = range;
            found.push(Extrapolation { on, model: model.to_owned(), parameter, value, min, max });
        }
    };
    for node in path.relays() {
        let Some(relay) = network.relay(*node) else { continue };
        let rate = usage.node(*node).rate_pps + flow.rate_pps;
        let values = [flow.size_bytes, rate, relay.load_ratio];
        for ((parameter, range), value) in relay.delay.ranges().into_iter().zip(values) {
            // A model in numbers holds for any load.
            if parameter == "load_ratio" && relay.delay.levels[0].trials == 0 {
                continue;
            }
            let model = format!("{} ({})", relay.model, relay.mode);
            check(network.name(*node).to_owned(), &model, parameter, value, range);
        }
    }
    for hop in &path.hops {
        let link = network.link(hop.link);
        let (Some(model), Some(name)) = (&link.excess, &link.model) else { continue };
        let (from, to) = network.ends(*hop);
        let rate = usage.hop(*hop).rate_pps + flow.rate_pps;
        let model_name = format!("{name} (link)");
        let mut of = |parameter, value, range| {
            check(format!("{from} - {to}"), &model_name, parameter, value, range);
        };
        of("size_bytes", flow.size_bytes, model.excess.size_bytes);
        of("rate_pps", rate, model.excess.rate_pps);
    }
    let ends = [("sender", &network.sender), ("receiver", &network.receiver)];
    for (name, fit) in ends {
        let Some(DelayFit { size_bytes, rate_pps, .. }) = fit else { continue };
        check(name.to_owned(), name, "size_bytes", flow.size_bytes, *size_bytes);
        check(name.to_owned(), name, "rate_pps", flow.rate_pps, *rate_pps);
    }
    found
}

fn node_use(network: &Network, usage: &Usage, node: u32) -> NodeUse {
    let traffic = usage.node(node);
    NodeUse {
        node: network.name(node).to_owned(),
        flows: traffic.flows,
        rate_pps: traffic.rate_pps,
        cpu_ratio: usage.node_use(network, node),
    }
}

fn link_use(network: &Network, usage: &Usage, hop: Hop) -> LinkUse {
    let traffic = usage.hop(hop);
    let (from, to) = network.ends(hop);
    LinkUse {
        from: from.to_owned(),
        to: to.to_owned(),
        flows: traffic.flows,
        rate_bps: traffic.rate_bps,
        rate_ratio: usage.hop_use(network, hop),
    }
}

fn assumptions() -> Vec<String> {
    [
        "delays of nodes, links and ends are independent of each other",
        "packets of other flows arrive at random: a packet waits behind them with the mean of an \
         M/G/1 queue",
        "nodes and links behave as when they were measured",
        "sending and receiving cost a node no CPU time, only relaying does",
        "each direction of a link has a rate of its own: links do not share a radio channel",
    ]
    .map(str::to_owned)
    .into()
}

fn notes(network: &Network, flows: &[FlowPrediction], request: &Request) -> Vec<String> {
    let mut notes = Vec::new();
    if network.sender.is_none() || network.receiver.is_none() {
        notes.push(
            "no model of the ends: delays in sender and receiver are left out (defaults.ends)"
                .into(),
        );
    }
    let has_unknown_cost = network.relays().iter().any(|relay| relay.delay.cost.is_none());
    if has_unknown_cost {
        notes.push("a model has no cost per packet, so its nodes have no capacity limit".into());
    }
    let fewest = network.relays().iter().map(|relay| relay.delay.packets(relay.load_ratio)).min();
    if let Some(packets) = fewest.filter(|n| (1.0 - request.probability) * (*n as f64) < 1.0) {
        notes.push(format!(
            "a model was fitted on {packets} packets, too few for a probability of {} %",
            100.0 * request.probability
        ));
    }
    if flows
        .iter()
        .filter_map(|flow| flow.chosen.as_ref())
        .any(|path| !path.extrapolated.is_empty())
    {
        notes.push("a chosen path is predicted outside the range that was measured".into());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::tests::{constant, plain_link};
    use crate::network::{InlineModel, NetworkBuilder};

    /// sender - weak - receiver, and sender - router - strong - receiver.
    fn choice(flows: usize, rate_pps: f64) -> Network {
        let mut builder = NetworkBuilder::default();
        let weak = InlineModel {
            residual_ns: Some(vec![(0.0, 0.0), (1.0, 80e6)].try_into().unwrap()),
            ..constant(100_000.0)
        };
        let weak = builder.relay(weak.relay("weak", "translate"));
        let strong = builder.relay(constant(80_000.0).relay("strong", "translate"));
        for (name, kind) in [
            ("sender", None),
            ("weak", Some(weak)),
            ("router", Some(strong)),
            ("strong", Some(strong)),
            ("receiver", None),
        ] {
            builder.node(name, kind).unwrap();
        }
        let kind = builder.link_kind(plain_link(10e6));
        for (a, b) in [(0, 1), (1, 4), (0, 2), (2, 3), (3, 4)] {
            builder.link(a, b, kind).unwrap();
        }
        for i in 0..flows {
            let name = format!("f{i}");
            builder.flow(Flow {
                name,
                from: 0,
                to: 4,
                size_bytes: 700.0,
                rate_pps,
                path: Vec::new(),
            });
        }
        builder.build().unwrap()
    }

    fn request(deadline_ms: f64) -> Request {
        Request { deadline_ns: deadline_ms * 1e6, probability: 0.95 }
    }

    fn nodes(path: &Option<PathPrediction>) -> String {
        path.as_ref().map_or(String::new(), |path| path.nodes.join(" "))
    }

    #[test]
    fn strong_relay_is_chosen_over_the_fewest_hops() {
        let prediction = predict(&choice(1, 200.0), "choice", &request(5.0));
        let flow = &prediction.flows[0];
        assert!(prediction.is_met() && flow.complete, "{flow:?}");
        assert_eq!(nodes(&flow.chosen), "sender router strong receiver");
        assert_eq!(nodes(&flow.fewest_hops), "sender weak receiver");
        let chosen = flow.chosen.as_ref().unwrap();
        let expected = 3.0 * 593_600.0 + 2.0 * 80_000.0;
        assert!((chosen.p95_ns.unwrap() - expected).abs() < 1.0, "{chosen:?}");
        assert_eq!(chosen.probability, 1.0);
        // Models in numbers have no trials that differ.
        assert_eq!((chosen.p95_low_ns, chosen.p95_high_ns), (chosen.p95_ns, chosen.p95_ns));
        let weak = flow.fewest_hops.as_ref().unwrap();
        assert!(!weak.meets && weak.probability < 0.06, "{weak:?}");
        assert_eq!(prediction.nodes.len(), 2);
        assert!(prediction.links.iter().all(|link| link.flows == 1), "{:?}", prediction.links);
    }

    #[test]
    fn missed_deadline_has_a_reason() {
        let prediction = predict(&choice(1, 200.0), "choice", &request(1.5));
        let flow = &prediction.flows[0];
        assert_eq!(flow.state, FlowState::Misses);
        assert!(flow.reason.as_ref().unwrap().contains("no path does"), "{flow:?}");
        assert!(!prediction.is_met());
        let prediction = predict(&choice(1, 200.0), "choice", &request(1.0));
        let reason = prediction.flows[0].reason.clone().unwrap();
        assert!(reason.contains("least possible delay is 1.287 ms"), "{reason}");
    }

    #[test]
    fn flows_are_spread_until_capacity_is_reached() {
        // Each flow takes 47 % of a link of 10 Mbit/s: two fit on a path, and four into the network.
        let prediction = predict(&choice(5, 800.0), "choice", &request(100.0));
        let states: Vec<FlowState> = prediction.flows.iter().map(|flow| flow.state).collect();
        assert_eq!(states[..4], [FlowState::Meets; 4], "{:?}", prediction.flows);
        assert_eq!(states[4], FlowState::AboveCapacity);
        let reason = prediction.flows[4].reason.clone().unwrap();
        assert!(
            reason.contains("load above 95 % of a capacity: the link from 'sender'"),
            "{reason}"
        );
        assert!(reason.contains("142 % of its rate"), "{reason}");
        let overloaded = prediction.flows[4].fewest_hops.as_ref().unwrap();
        assert!(!overloaded.meets && overloaded.probability == 0.0, "{overloaded:?}");
        assert_eq!((overloaded.p50_ns, overloaded.p95_ns), (None, None));
        let loads: Vec<usize> = prediction.links.iter().map(|link| link.flows).collect();
        assert_eq!(loads, [2; 5]);
        assert!(prediction.links.iter().all(|link| link.rate_ratio.unwrap() <= 1.0));
    }

    /// Nodes by index, all relays, and links with their rates; flows of 708 B from 0 to the last node.
    fn meshed(nodes: usize, links: &[(u32, u32, f64)], rates: &[f64]) -> Network {
        let mut builder = NetworkBuilder::default();
        let relay = builder.relay(constant(50_000.0).relay("relay", "translate"));
        for i in 0..nodes {
            builder.node(&format!("n{i}"), Some(relay)).unwrap();
        }
        for (a, b, rate) in links {
            let kind = builder.link_kind(plain_link(*rate));
            builder.link(*a, *b, kind).unwrap();
        }
        for (i, rate_pps) in rates.iter().enumerate() {
            builder.flow(Flow {
                name: format!("f{i}"),
                from: 0,
                to: nodes as u32 - 1,
                size_bytes: 708.0,
                rate_pps: *rate_pps,
                path: Vec::new(),
            });
        }
        builder.build().unwrap()
    }

    #[test]
    fn flows_are_spread_behind_a_shared_busy_link() {
        // n0 - n1 (10 Mbit/s), then n2 or n3, then n4 (100 Mbit/s): n0 - n1 is always the busiest.
        let fast = 100e6;
        let links = [(0, 1, 10e6), (1, 2, fast), (1, 3, fast), (2, 4, fast), (3, 4, fast)];
        let prediction = predict(&meshed(5, &links, &[300.0; 4]), "mesh", &request(50.0));
        assert!(prediction.is_met(), "{prediction:?}");
        let by_relay: Vec<usize> = prediction.nodes.iter().map(|node| node.flows).collect();
        assert_eq!(by_relay, [4, 2, 2]);
    }

    #[test]
    fn flow_without_a_path_is_placed_once_others_have_moved() {
        let network = meshed(4, &[(0, 1, 10e6), (1, 3, 10e6), (0, 2, 10e6), (2, 3, 10e6)], &[]);
        let mut usage = Usage::default();
        let flow = |rate_pps| Flow {
            name: "f".into(),
            from: 0,
            to: 3,
            size_bytes: 708.0,
            rate_pps,
            path: Vec::new(),
        };
        let upper = network.path(&[0, 1, 3]).unwrap();
        let lower = network.path(&[0, 2, 3]).unwrap();
        // Both ways are full, until one flow goes.
        usage.add(&network, &flow(1_500.0), &upper);
        usage.add(&network, &flow(1_500.0), &lower);
        let blocked = search(&network, &usage, &flow(300.0), &request(50.0), None);
        assert_eq!((blocked.chosen.as_ref(), blocked.candidates), (None, 0));
        let still = again(&network, &mut usage, &flow(300.0), &blocked, &request(50.0)).unwrap();
        assert_eq!(still.chosen, None);
        usage.remove(&network, &flow(1_500.0), &lower);
        let placed = again(&network, &mut usage, &flow(300.0), &blocked, &request(50.0)).unwrap();
        assert_eq!(placed.chosen, Some(lower.clone()));
        assert_eq!(usage.node(2).flows, 1);
        let stays = again(&network, &mut usage, &flow(300.0), &placed, &request(50.0));
        assert!(stays.is_none() && usage.node(2).flows == 1);
    }

    #[test]
    fn current_path_stays_a_candidate() {
        let network = meshed(4, &[(0, 1, 10e6), (1, 3, 10e6), (0, 2, 20e6), (2, 3, 20e6)], &[1.0]);
        let flow = &network.flows()[0];
        // No path is in time, so the enumeration of those that may be is empty.
        let slow = network.path(&[0, 1, 3]).unwrap();
        let without = search(&network, &Usage::default(), flow, &request(0.1), None);
        let with = search(&network, &Usage::default(), flow, &request(0.1), Some(&slow));
        assert_eq!(with.candidates, without.candidates + 1);
        assert_ne!(with.chosen, Some(slow));
    }

    #[test]
    fn unreachable_pair_is_named() {
        let mut builder = NetworkBuilder::default();
        for name in ["a", "b", "island"] {
            builder.node(name, None).unwrap();
        }
        let kind = builder.link_kind(plain_link(1e6));
        builder.link(0, 1, kind).unwrap();
        builder.flow(Flow {
            name: "f".into(),
            from: 0,
            to: 2,
            size_bytes: 1.0,
            rate_pps: 1.0,
            path: Vec::new(),
        });
        let prediction = predict(&builder.build().unwrap(), "t", &request(1.0));
        let flow = &prediction.flows[0];
        assert_eq!((flow.state, &flow.chosen), (FlowState::Unreachable, &None));
        assert!(flow.reason.as_ref().unwrap().contains("'a' and 'island'"), "{flow:?}");
    }
}
