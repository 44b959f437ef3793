//! CPU time used by nodes with a CPU quota.

use std::collections::BTreeMap;

use serde_json::Value;

/// A node's CPU quota and its use since the node was created.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuotaUse {
    /// The quota, as a share of one CPU.
    pub share_ratio: f64,
    /// CPU time used, in nanoseconds.
    pub used_ns: Option<i64>,
    /// Time in which runnable processes were throttled, in nanoseconds.
    pub throttled_ns: Option<i64>,
}

/// Reads the quotas of the named lab from the output of `dwell lab list --json`, by node.
pub(crate) fn read(list: &Value, name: &str) -> BTreeMap<String, QuotaUse> {
    let labs = list["labs"].as_array().into_iter().flatten();
    let nodes = labs.filter(|lab| lab["name"] == name).filter_map(|lab| lab["nodes"].as_array());
    let quotas = nodes.flatten().filter_map(|node| {
        let quota = &node["quota"];
        let used = QuotaUse {
            share_ratio: quota["share_ratio"].as_f64()?,
            used_ns: quota["usage_ns"].as_i64(),
            throttled_ns: quota["throttled_ns"].as_i64(),
        };
        Some((node["name"].as_str()?.to_owned(), used))
    });
    quotas.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read_for_limited_nodes_of_the_lab() {
        let list = serde_json::json!({ "labs": [
            { "name": "other", "nodes": [{ "name": "n1", "quota": { "share_ratio": 0.5 } }] },
            { "name": "ours", "nodes": [
                { "name": "n1", "quota": null },
                { "name": "n2", "quota": { "share_ratio": 0.2, "usage_ns": 7, "throttled_ns": null } },
            ] },
        ] });
        let used = QuotaUse { share_ratio: 0.2, used_ns: Some(7), throttled_ns: None };
        assert_eq!(read(&list, "ours"), BTreeMap::from([("n2".to_owned(), used)]));
        assert!(read(&Value::Null, "ours").is_empty());
    }
}
