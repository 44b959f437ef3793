//! Limit of the questions of each node, so that one that floods does not delay the others.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use dwell_rollup::Name;

/// Questions of a node that are answered without a pause between them.
const MAX_BURST: u32 = 5;

/// Time after which a node may ask once more.
const QUESTION_INTERVAL: Duration = Duration::from_millis(500);

/// Number of nodes beyond which those that asked long ago are removed.
const MAX_NODES: usize = 20_000;

/// Limit of questions per node.
#[derive(Debug, Default)]
pub(crate) struct RateLimit {
    /// Time at which the node's burst is available again.
    nodes: HashMap<Name, Instant>,
}

impl RateLimit {
    /// Whether a question of a node may be answered now; counts it if so.
    pub(crate) fn admit(&mut self, node: &Name, now: Instant) -> bool {
        if self.nodes.len() >= MAX_NODES {
            self.nodes.retain(|_, at| *at > now);
        }
        let at = self.nodes.get(node).copied().unwrap_or(now).max(now);
        if at.duration_since(now) > QUESTION_INTERVAL * (MAX_BURST - 1) {
            return false;
        }
        self.nodes.insert(node.clone(), at + QUESTION_INTERVAL);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_is_limited_per_node() {
        let (a, b): (Name, Name) = ("a".parse().unwrap(), "b".parse().unwrap());
        let (mut limit, start) = (RateLimit::default(), Instant::now());
        let admitted = (0..1_000).filter(|_| limit.admit(&a, start)).count();
        assert_eq!(admitted, MAX_BURST as usize);
        assert!(limit.admit(&b, start), "another node");
        let later = start + Duration::from_secs(10);
        let times = (0..1_000).map(|at| start + Duration::from_millis(10) * at);
        let admitted = times.filter(|at| limit.admit(&a, *at)).count();
        assert!((19..=21).contains(&admitted), "{admitted} of 10 s");
        assert!(!limit.admit(&a, later - Duration::from_millis(1)));
    }
}
