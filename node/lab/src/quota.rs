//! CPU quotas of nodes: a control group, named like the node's namespace, for everything that `lab
//! exec` runs in a node.

use std::io;

use dwell_io::cgroup::CpuGroup;
use dwell_units::Ratio;

use crate::description::{Lab, Quota};
use crate::error::LabError;

/// Plans the quota of a node.
pub(crate) fn plan(node: &str, netns: &str, share: Ratio) -> Result<Quota, LabError> {
    let group = CpuGroup::named(netns).map_err(refused(node))?;
    Ok(Quota {
        share_ratio: share.as_f64(),
        groups: group.directories().to_vec(),
        usage_ns: None,
        throttled_ns: None,
    })
}

/// Creates the groups of a lab.
pub(crate) fn make(lab: &Lab) -> Result<(), LabError> {
    for node in &lab.nodes {
        let Some(quota) = &node.quota else { continue };
        // The ratio was parts per million before it was written.
        let ppm = (quota.share_ratio * 1e6).round() as u32;
        let share = Ratio::from_ppm(ppm).unwrap_or(Ratio::ONE);
        group(quota).create(share).map_err(refused(&node.name))?;
    }
    Ok(())
}

/// Moves this process into the group of a node.
pub(crate) fn enter(node: &str, quota: &Quota) -> Result<(), LabError> {
    group(quota).enter().map_err(LabError::io(format!("entering the control group of {node}")))
}

/// Records the usage of the nodes so far.
pub(crate) fn read(lab: &mut Lab) {
    for quota in lab.nodes.iter_mut().filter_map(|node| node.quota.as_mut()) {
        let usage = group(quota).usage();
        quota.usage_ns = usage.used.map(|used| used.0);
        quota.throttled_ns = usage.throttled.map(|throttled| throttled.0);
    }
}

/// Returns the groups that a lab's state lists and that are named like its namespaces. The state is
/// a text file that may have been edited; foreign groups in it are ignored.
pub(crate) fn listed_by(lab: &Lab) -> Vec<CpuGroup> {
    let quotas = lab.nodes.iter().filter_map(|node| Some((node, node.quota.as_ref()?)));
    let named = quotas.filter(|(node, quota)| {
        quota.groups.iter().all(|group| group.file_name() == Some(node.netns.as_ref()))
    });
    named.map(|(_, quota)| group(quota)).collect()
}

fn group(quota: &Quota) -> CpuGroup {
    CpuGroup::at(quota.groups.clone())
}

fn refused(node: &str) -> impl FnOnce(io::Error) -> LabError {
    let node = node.to_owned();
    move |error| {
        LabError::Unsupported(format!(
            "node {node} cannot be held to a quota: {error}; this needs root and a kernel with the \
             cpu controller of control groups (CONFIG_CFS_BANDWIDTH)"
        ))
    }
}
