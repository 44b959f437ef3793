//! CPU time used during a trial by nodes with a CPU quota.

use std::collections::BTreeMap;

use dwell_fleet::{Fleet, QuotaUse};
use dwell_record::{Scalar, quota_value};
use dwell_units::{Instant, Monotonic};

use crate::runner::Clock;

/// CPU use at one time.
pub(crate) struct Quotas {
    at: Instant<Monotonic>,
    nodes: BTreeMap<String, QuotaUse>,
}

impl Quotas {
    /// Reads the current CPU use; nodes that cannot be read are absent.
    pub(crate) fn now(fleet: &mut dyn Fleet, clock: &dyn Clock) -> Self {
        Self { at: clock.now(), nodes: fleet.quotas().unwrap_or_default() }
    }

    /// Returns the quota of each node and its CPU use until `end`, as values of a summary.
    pub(crate) fn until(&self, end: &Self) -> BTreeMap<String, Option<Scalar>> {
        let elapsed = (end.at - self.at).0;
        let mut values = BTreeMap::new();
        for (node, after) in &end.nodes {
            let Some(before) = self.nodes.get(node) else { continue };
            let grown = |of: fn(&QuotaUse) -> Option<i64>| Some(of(after)? - of(before)?);
            let burnt = grown(|one| one.used_ns).filter(|_| elapsed > 0);
            let throttled = grown(|one| one.throttled_ns).and_then(|ns| u64::try_from(ns).ok());
            let name = |what: &str| quota_value(node, what);
            values.insert(name("asked_ratio"), Some(Scalar::Real(after.share_ratio)));
            let burnt = burnt.map(|ns| Scalar::Real(ns as f64 / elapsed as f64));
            values.insert(name("burnt_ratio"), burnt);
            values.insert(name("throttled_ns"), throttled.map(Scalar::Count));
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_use_is_growth_over_elapsed_time() {
        let at = |at, used_ns, throttled_ns| Quotas {
            at: Instant::from_nanos(at),
            nodes: BTreeMap::from([(
                "Node-2".to_owned(),
                QuotaUse { share_ratio: 0.2, used_ns, throttled_ns },
            )]),
        };
        let values = at(1_000, Some(50), Some(5)).until(&at(2_000, Some(250), None));
        let expected = [
            ("quota_node_2_asked_ratio", Some(Scalar::Real(0.2))),
            ("quota_node_2_burnt_ratio", Some(Scalar::Real(0.2))),
            ("quota_node_2_throttled_ns", None),
        ];
        assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), value)).into());
    }
}
