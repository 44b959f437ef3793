//! Network namespaces by name: the lab that each belongs to, if any.
//!
//! A name alone proves nothing, because any program may create a namespace `dwell-demo-box`. A
//! lab's state lists its namespaces. If the state is lost, a mark in every node identifies them:
//! the alias of the loopback interface.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dwell_io::netns;
use serde_json::Value;

use crate::description::Lab;
use crate::error::LabError;
use crate::iproute::Tool;
use crate::shared_bridge;

/// Directory in which `ip netns` keeps namespaces.
pub(crate) const NETNS_DIR: &str = "/run/netns";

/// Prefix of the names of dwell's namespaces.
const PREFIX: &str = "dwell-";

/// Returns the namespace name of a node. Names of nodes have no hyphens, so the name can be split
/// again.
pub(crate) fn netns_name(lab: &str, node: &str) -> String {
    format!("{PREFIX}{lab}-{node}")
}

/// Returns the lab and the node of a namespace, if its name has the form of dwell's.
pub(crate) fn lab_of(netns: &str) -> Option<(&str, &str)> {
    netns.strip_prefix(PREFIX)?.rsplit_once('-')
}

/// Returns the file of a namespace.
pub(crate) fn netns_path(netns: &str) -> PathBuf {
    Path::new(NETNS_DIR).join(netns)
}

/// Returns the loopback alias in nodes of the lab.
pub(crate) fn mark(lab: &str) -> String {
    format!("node-of-dwell-lab-{lab}")
}

/// An existing namespace of a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Namespace {
    pub(crate) netns: String,
    pub(crate) node: String,
}

/// Returns the existing namespaces that `lab` lists.
pub(crate) fn listed_by(lab: &Lab) -> Vec<Namespace> {
    let nodes = lab.nodes.iter().filter(|node| {
        // The state is a text file that may have been edited; foreign namespaces in it are ignored.
        node.netns == netns_name(&lab.name, &node.name) && netns_path(&node.netns).exists()
    });
    let nodes = nodes.map(|node| Namespace { netns: node.netns.clone(), node: node.name.clone() });
    let medium = lab.medium.iter().filter(|medium| {
        medium.netns == netns_name(&lab.name, shared_bridge::NAME)
            && netns_path(&medium.netns).exists()
    });
    let medium = medium
        .map(|medium| Namespace { netns: medium.netns.clone(), node: medium.interface.clone() });
    nodes.chain(medium).collect()
}

/// Returns the namespaces with the mark of the lab of this name.
pub(crate) fn marked(lab: &str) -> Result<Vec<Namespace>, LabError> {
    let named = with_names_of(lab)?;
    Ok(named.into_iter().filter(|namespace| is_marked(&namespace.netns, lab)).collect())
}

/// Returns the labs that are not in `known` and have a namespace with their mark.
pub(crate) fn labs_by_mark(known: &[String]) -> Result<Vec<String>, LabError> {
    let mut labs = Vec::new();
    for netns in all_namespaces()? {
        let Some((lab, _)) = lab_of(&netns) else { continue };
        let is_new = !known.iter().chain(&labs).any(|seen| seen == lab);
        if is_new && is_marked(&netns, lab) {
            labs.push(lab.to_owned());
        }
    }
    Ok(labs)
}

/// Refuses a lab whose namespaces could be confused with existing ones.
pub(crate) fn check_free(lab: &str) -> Result<(), LabError> {
    match with_names_of(lab)?.into_iter().next() {
        None => Ok(()),
        Some(taken) if is_marked(&taken.netns, lab) => Err(LabError::NotWhole(lab.to_owned())),
        Some(taken) => Err(LabError::NamespaceTaken { lab: lab.to_owned(), netns: taken.netns }),
    }
}

/// For `map_err`: describes why a namespace cannot be entered.
pub(crate) fn not_entered(lab: &str, netns: &str) -> impl FnOnce(io::Error) -> LabError {
    move |error| match error.kind() {
        io::ErrorKind::PermissionDenied => LabError::not_ours(lab),
        io::ErrorKind::NotFound => LabError::NotWhole(lab.to_owned()),
        _ => LabError::io(format!("entering {netns}"))(error),
    }
}

/// Returns all named namespaces.
pub(crate) fn all_namespaces() -> Result<Vec<String>, LabError> {
    match fs::read_dir(NETNS_DIR) {
        Ok(entries) => {
            let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
            Ok(names.collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(LabError::io(format!("reading {NETNS_DIR}"))(error)),
    }
}

/// Returns the namespaces whose names have the form of this lab's.
fn with_names_of(lab: &str) -> Result<Vec<Namespace>, LabError> {
    let ours = |netns: &String| {
        let (of, node) = lab_of(netns)?;
        (of == lab).then(|| Namespace { netns: netns.clone(), node: node.to_owned() })
    };
    Ok(all_namespaces()?.iter().filter_map(ours).collect())
}

/// Whether the namespace bears the lab's mark; `false` if it cannot be entered.
fn is_marked(netns: &str, lab: &str) -> bool {
    let show = || Tool::Ip.ask(&["-j", "link", "show", "dev", "lo"]);
    let Ok(Ok(text)) = netns::within(&netns_path(netns), show) else { return false };
    let shown: Value = serde_json::from_slice(&text).unwrap_or_default();
    shown[0]["ifalias"] == mark(lab).as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_name_splits_despite_hyphens_in_lab_name() {
        assert_eq!(netns_name("rtt-2", "n1"), "dwell-rtt-2-n1");
        assert_eq!(lab_of("dwell-rtt-2-n1"), Some(("rtt-2", "n1")));
        assert_eq!(lab_of("dwell-a-b-c"), Some(("a-b", "c")), "and not node b-c of lab a");
        assert_eq!(lab_of("docker0"), None);
    }
}
