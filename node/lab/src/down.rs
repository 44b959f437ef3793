//! `lab down`: ends every process of a lab and removes all its parts, even if the process that
//! created it was killed.

use std::collections::HashMap;
use std::fs;

use dwell_io::cgroup::CpuGroup;
use dwell_io::netns;
use dwell_io::process::Handle;

use crate::babel;
use crate::background;
use crate::device;
use crate::error::LabError;
use crate::iproute::Tool;
use crate::namespace::{self, Namespace, netns_path};
use crate::namespace_keeper::NamespaceKeeper;
use crate::quota;
use crate::state::{self, LabDir, Lock};

/// A process that was still running in a lab and was ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Process id.
    pub pid: u32,
    /// Its name in the kernel.
    pub command: String,
    /// Node it ran in; `None` if unknown.
    pub node: Option<String>,
}

/// Removes the lab of this name, or its remains, and returns the processes that were ended.
/// `abandoned` is called once, before anything is removed; if it returns true, nothing is removed.
///
/// Must be called while the process is single-threaded, because it enters a rootless lab and stays
/// inside.
///
/// # Errors
/// There is no such lab, or something could not be removed, in which case a later call may succeed.
pub fn down(name: &str, abandoned: &dyn Fn() -> bool) -> Result<Vec<Ended>, LabError> {
    match state::find(name)? {
        Some(dir) => match dir.lock()? {
            // Checked under the lock: a later lab of this name must not be removed.
            Some(_) if abandoned() => Err(LabError::Abandoned),
            Some(lock) => remove_all(&dir, &lock),
            None => Ok(Vec::new()),
        },
        None => match namespace::marked(name)? {
            left if left.is_empty() => {
                Err(LabError::NoSuchLab { name: name.to_owned(), existing: names()? })
            }
            left => remove_namespaces(&left, None),
        },
    }
}

/// Returns the names of all visible labs, including those whose state is lost.
pub fn names() -> Result<Vec<String>, LabError> {
    let mut names: Vec<String> = state::all()?.iter().map(|dir| dir.name().to_owned()).collect();
    names.extend(namespace::labs_by_mark(&names)?);
    names.sort();
    names.dedup();
    Ok(names)
}

/// Returns `name`, or the name of the only lab if it is `None`.
pub fn named_or_only(name: Option<&str>) -> Result<String, LabError> {
    match (name, names()?) {
        (Some(name), _) => Ok(name.to_owned()),
        (None, mut all) if all.len() == 1 => Ok(all.remove(0)),
        (None, existing) => Err(LabError::WhichLab { existing }),
    }
}

/// Removes all of a lab, its directory last: while the directory exists, removal can be retried.
pub(crate) fn remove_all(dir: &LabDir, lock: &Lock) -> Result<Vec<Ended>, LabError> {
    let keeper = NamespaceKeeper::enter(dir)?;
    let mut ended = match keeper {
        NamespaceKeeper::Gone(Some(user)) => end_all(remains(dir.name(), user)),
        _ => Vec::new(),
    };
    babel::end(dir);
    device::end(dir);
    ended.extend(remove_namespaces(&namespaces(dir)?, Some(lock))?);
    background::end(&links(dir));
    if let Ok(Some(lab)) = dir.read() {
        let groups = quota::listed_by(&lab);
        ended.extend(end_all(groups.iter().flat_map(grouped).collect()));
        groups.iter().try_for_each(CpuGroup::remove).map_err(LabError::io("removing a quota"))?;
    }
    if let NamespaceKeeper::Running(keeper) = keeper {
        background::end(&[keeper]);
    }
    dir.remove()?;
    Ok(ended)
}

/// Returns the existing namespaces of a lab as its state lists them: they are created after it is
/// written. If the state is unreadable, returns those that bear the lab's mark.
fn namespaces(dir: &LabDir) -> Result<Vec<Namespace>, LabError> {
    match dir.read() {
        Ok(None) => Ok(Vec::new()),
        Ok(Some(lab)) => Ok(namespace::listed_by(&lab)),
        Err(_) => namespace::marked(dir.name()),
    }
}

/// Ends the processes in namespaces of a lab, and removes the namespaces.
fn remove_namespaces(
    namespaces: &[Namespace],
    lock: Option<&Lock>,
) -> Result<Vec<Ended>, LabError> {
    let ended = end_all(running_in(namespaces));
    let lines = namespaces.iter().map(|namespace| format!("netns del {}\n", namespace.netns));
    Tool::Ip.batch(&lines.collect::<String>(), lock)?;
    if lock.is_none() {
        // The state is lost, and with it the list of nodes with a quota.
        let groups = namespaces.iter().filter_map(|node| CpuGroup::named(&node.netns).ok());
        groups.for_each(|group| drop(group.remove()));
    }
    Ok(ended)
}

/// Returns the processes of a node's control group that are in none of its namespaces.
fn grouped(group: &CpuGroup) -> Vec<(Ended, Handle)> {
    processes(|pid| group.processes().contains(&pid).then_some(None))
}

/// Returns the processes of the lab's TAP links.
fn links(dir: &LabDir) -> Vec<Handle> {
    let Ok(entries) = fs::read_dir(dir.path()) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let pid_files = names.filter(|name| name.starts_with("link-") && name.ends_with(".pid"));
    pid_files.filter_map(|file| Some(background::running(dir, &file)?.1)).collect()
}

fn end_all(found: Vec<(Ended, Handle)>) -> Vec<Ended> {
    let (ended, handles): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    background::end(&handles);
    ended
}

/// Returns all other processes that run in one of the `namespaces`, each with a handle opened
/// before the check.
fn running_in(namespaces: &[Namespace]) -> Vec<(Ended, Handle)> {
    let by_inode: HashMap<u64, &str> = namespaces
        .iter()
        .filter_map(|n| Some((netns::inode(&netns_path(&n.netns)).ok()?, n.node.as_str())))
        .collect();
    processes(|pid| {
        let inode = netns::inode(format!("/proc/{pid}/ns/net").as_ref()).ok()?;
        by_inode.get(&inode).map(|node| Some((*node).to_owned()))
    })
}

/// Returns the remains of a lab whose namespace keeper was killed: processes in its user namespace
/// that `exec` started. Both are checked, because the inode number of a namespace may have been
/// reused.
fn remains(lab: &str, user: u64) -> Vec<(Ended, Handle)> {
    let mark = format!("DWELL_LAB={lab}");
    processes(|pid| {
        let same = netns::inode(format!("/proc/{pid}/ns/user").as_ref()).ok()? == user;
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let marked = environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes());
        (same && marked).then_some(None)
    })
}

/// Returns the other processes for which `node` returns `Some`, with the node that it returns.
fn processes(node: impl Fn(u32) -> Option<Option<String>>) -> Vec<(Ended, Handle)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let found = pids.filter(|pid| *pid != std::process::id()).filter_map(|pid: u32| {
        node(pid)?;
        // Checked again with the handle open, because the pid may have been reused.
        let handle = Handle::open(pid).ok()?;
        let node = node(pid)?;
        let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Some((Ended { pid, command: command.trim().to_owned(), node }, handle))
    });
    found.collect()
}
