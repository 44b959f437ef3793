//! Runs a program in a node, and finds the lab that this process runs in.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use dwell_io::netns;

use crate::error::LabError;
use crate::list::open;
use crate::namespace::{all_namespaces, lab_of, netns_path, not_entered};
use crate::namespace_keeper::NamespaceKeeper;
use crate::quota;
use crate::state;

/// Turns this process into `program`, run in `node` of `lab`: exit code, signals and terminal are
/// those of the program. The node's quota applies. Names of nodes are valid host names there, and
/// DWELL_LAB and DWELL_NODE name the lab and the node. `note` is called with a failure that does
/// not keep the program from running. `abandoned` is called once, in the node; if it returns true,
/// the program is not started.
///
/// Must be called while the process is single-threaded.
///
/// # Errors
/// There is no such lab, node or program, the lab is incomplete, or it may not be entered.
pub fn exec(
    lab: &str,
    node: &str,
    program: &OsStr,
    arguments: &[OsString],
    note: &mut dyn FnMut(String),
    abandoned: &dyn Fn() -> bool,
) -> Result<Infallible, LabError> {
    let (dir, description) = open(lab)?;
    let Some(node) = description.node(node) else {
        let (lab, node) = (lab.to_owned(), node.to_owned());
        return Err(LabError::NoSuchNode { lab, node, nodes: some_nodes(&description.nodes) });
    };
    NamespaceKeeper::enter_whole(&dir)?;
    if let Some(limits) = &node.quota {
        quota::enter(&node.name, limits)?;
    }
    netns::enter(&netns_path(&node.netns)).map_err(not_entered(lab, &node.netns))?;
    // Checked inside: from here on `lab down` ends this process too.
    if abandoned() {
        return Err(LabError::Abandoned);
    }
    if let Err(error) = netns::overlay(&dir.file("hosts"), Path::new("/etc/hosts")) {
        note(format!(
            "names of nodes do not resolve here, use addresses: cannot mount over /etc/hosts: {error}"
        ));
    }
    let error = Command::new(program)
        .args(arguments)
        .env("DWELL_LAB", lab)
        .env("DWELL_NODE", &node.name)
        .env(state::DIR_VARIABLE, dir.path())
        .exec();
    Err(LabError::io(format!("starting {}", program.display()))(error))
}

/// Returns the lab that this process runs in, if any.
pub fn here() -> Option<String> {
    let own = netns::own_inode().ok()?;
    let ours = |name: &String| netns::inode(&netns_path(name)).is_ok_and(|inode| inode == own);
    let netns = all_namespaces().ok()?.into_iter().find(ours)?;
    let (lab, _) = lab_of(&netns)?;
    // Namespaces of others may have such a name too.
    let description = state::find(lab).ok()??.read().ok()??;
    description.nodes.iter().any(|node| node.netns == netns).then_some(description.name)
}

/// Returns the names of nodes, shortened if there are many.
fn some_nodes(nodes: &[crate::description::Node]) -> String {
    const MAX_SHOWN: usize = 12;
    let names: Vec<&str> = nodes.iter().take(MAX_SHOWN).map(|node| node.name.as_str()).collect();
    match nodes.last() {
        Some(last) if nodes.len() > MAX_SHOWN => format!("{} ... {}", names.join(", "), last.name),
        _ => names.join(", "),
    }
}
