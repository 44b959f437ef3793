//! Properties of the links that a flow passes.

use dwell_fleet::CreatedLink;
use dwell_plan::{FlowPlan, Plan};

/// The links of a flow, combined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathLinks {
    /// Rate of the slowest limited link; `None` if no link is limited.
    pub(crate) rate_bps: Option<u64>,
    /// Mechanism by which the links delay packets; `None` if they do not or it is unknown.
    pub(crate) mechanism: Option<String>,
    /// Whether the mechanism is a queueing discipline of the sender. False for TAP links: their
    /// driver timestamps a frame before it queues it and never stops the queueing discipline (it
    /// drops excess frames), and the link's program reads all frames at once.
    pub(crate) queue_is_link: bool,
}

impl PathLinks {
    /// Returns the links as they were created, or as the plan requests them if that is unknown.
    pub(crate) fn of(plan: &Plan, flow: &FlowPlan, created: &[CreatedLink]) -> Self {
        let relay = flow.relay.as_ref().map(|relay| &relay.on);
        let path: Vec<&String> =
            [Some(&flow.from), relay, Some(&flow.to)].into_iter().flatten().collect();
        let passes = |link: &&CreatedLink| {
            path.windows(2).any(|hop| hop.iter().all(|node| link.nodes.contains(node)))
        };
        let mut passed: Vec<&CreatedLink> = created.iter().filter(passes).collect();
        if passed.is_empty() {
            // The flow passes nodes that the plan does not name.
            passed = created.iter().collect();
        }
        if passed.is_empty() {
            let Some(link) = plan.topology.link() else { return Self::default() };
            let rate_bps = link.rate.map(|rate| rate.0);
            let mechanism = link.rate.and(link.mechanism.clone());
            // By default, a rate alone is emulated by a queueing discipline.
            let queue_is_link = rate_bps.is_some() && mechanism.as_deref().is_none_or(is_queue);
            return Self { rate_bps, mechanism, queue_is_link };
        }
        let mut mechanisms: Vec<&str> = passed
            .iter()
            .map(|link| link.mechanism.as_str())
            .filter(|name| *name != "veth")
            .collect();
        mechanisms.sort_unstable();
        mechanisms.dedup();
        Self {
            rate_bps: passed.iter().filter_map(|link| link.rate_bps).min(),
            mechanism: (!mechanisms.is_empty()).then(|| mechanisms.join(", ")),
            queue_is_link: mechanisms.iter().any(|name| is_queue(name)),
        }
    }
}

fn is_queue(mechanism: &str) -> bool {
    matches!(mechanism, "tbf" | "netem")
}
