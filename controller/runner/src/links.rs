//! What the links that a flow passes do to packets.

use dwell_fleet::LinkMade;
use dwell_plan::{FlowPlan, Plan};

/// The links of a flow, taken together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    /// That of the slowest which has one; `None` where all are as fast as the machine.
    pub(crate) rate_bps: Option<u64>,
    /// How they hold packets; `None` where nothing does, or nobody told.
    pub(crate) mechanism: Option<String>,
    /// Whether that is a queueing discipline of whoever sends. A TAP link needs no exception: its
    /// driver stamps a frame and then queues it, never stops the discipline before it (it drops what
    /// does not fit), and the link's program takes every frame at once to hold it itself.
    pub(crate) queue_is_link: bool,
}

impl Passed {
    /// As they were made; as the plan wants them where nobody tells how they were made.
    pub(crate) fn of(plan: &Plan, flow: &FlowPlan, made: &[LinkMade]) -> Self {
        let relay = plan.relay.as_ref().map(|relay| &relay.on);
        let way: Vec<&String> =
            [Some(&flow.from), relay, Some(&flow.to)].into_iter().flatten().collect();
        let passes = |link: &&LinkMade| {
            way.windows(2).any(|hop| hop.iter().all(|node| link.joins.contains(node)))
        };
        let mut passed: Vec<&LinkMade> = made.iter().filter(passes).collect();
        if passed.is_empty() {
            // Nodes that the plan does not name are between.
            passed = made.iter().collect();
        }
        if passed.is_empty() {
            let link = &plan.topology.link;
            let rate_bps = link.rate.map(|rate| rate.0);
            let mechanism = link.rate.and(link.mechanism.clone());
            // Left open, a bare rate is made by a queueing discipline.
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
