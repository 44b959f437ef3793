//! The nodes of a fleet, for pages and metrics.

use std::collections::BTreeMap;

use dwell_hub::store::HubTransaction;
use dwell_hub::{Mesh, NodeReport, Window, mesh};
use dwell_rollup::Name;

use crate::error::Error;

/// A node.
#[derive(Debug)]
pub(crate) struct FleetNode {
    /// What the hub knows about it.
    pub(crate) report: NodeReport,
    /// Share of the probes that were due in the last hour of its streams that the hub has, from 0 to
    /// 1; `None` if none were due.
    pub(crate) coverage: Option<f64>,
}

/// Returns all nodes, by name.
pub(crate) fn nodes(
    transaction: &mut dyn HubTransaction,
    now_ns: i64,
) -> Result<Vec<FleetNode>, Error> {
    let coverage = coverage(&mesh(transaction, Window::Hour, now_ns)?);
    let reports = NodeReport::read_all(transaction)?.into_iter();
    let node = |report: NodeReport| FleetNode {
        coverage: coverage.get(&report.node.name).copied(),
        report,
    };
    Ok(reports.map(node).collect())
}

/// Coverage by sender. A stream of the schedule without records counts as not covered.
pub(crate) fn coverage(mesh: &Mesh) -> BTreeMap<Name, f64> {
    let mut sums: BTreeMap<&Name, (f64, f64)> = BTreeMap::new();
    for stream in &mesh.streams {
        let Some(coverage) = stream.coverage else { continue };
        let sum = sums.entry(&stream.sender).or_default();
        sum.0 += coverage.measured;
        sum.1 += coverage.due;
    }
    sums.into_iter().map(|(name, (measured, due))| (name.clone(), measured / due)).collect()
}
