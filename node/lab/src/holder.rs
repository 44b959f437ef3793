//! Labs without root: a small process that is root of namespaces of its own and does nothing but
//! keep them. Whoever works on the lab enters them, and then all is as it is for root, with a /run
//! of the lab's own.

use std::fs;
use std::path::Path;

use dwell_io::netns;
use dwell_io::process::{self, Handle, Signal};
use dwell_units::Nanos;

use crate::background;
use crate::error::LabError;
use crate::state::{LabDir, Lock};

pub(crate) const FILE: &str = "holder";

/// How often the holder looks whether the lab is still remembered.
const EVERY: Nanos = Nanos::from_secs(10);

/// Starts the holder of the lab in `dir` and enters its namespaces.
pub(crate) fn start(dir: &LabDir, lock: &Lock) -> Result<(), LabError> {
    let arguments = [Path::new("hold"), dir.path()];
    let pid = background::start("holder of the lab".to_owned(), &arguments, lock)?.ready()?;
    enter_process(pid)
}

/// The holder of a rootless lab, as far as it can be found.
pub(crate) enum Holder {
    /// The lab is root's and has none.
    None,
    /// It runs.
    Running(Handle),
    /// It was killed. What still runs in its user namespace (by inode) is all that is left.
    Gone(Option<u64>),
}

impl Holder {
    /// Whether the holder of a rootless lab runs.
    pub(crate) fn runs(dir: &LabDir) -> bool {
        background::signed(dir, FILE).is_some()
    }

    /// Looks for the holder and, if it runs, enters its namespaces.
    pub(crate) fn enter(dir: &LabDir) -> Result<Self, LabError> {
        let Ok(text) = fs::read_to_string(dir.file(FILE)) else { return Ok(Self::None) };
        match background::signed(dir, FILE) {
            Some((identity, handle)) => {
                enter_process(identity.pid)?;
                Ok(Self::Running(handle))
            }
            None => Ok(Self::Gone(text.split(' ').nth(2).and_then(|inode| inode.parse().ok()))),
        }
    }
}

fn enter_process(pid: u32) -> Result<(), LabError> {
    netns::enter_process(pid).map_err(LabError::io("entering the namespaces of the lab"))
}

/// The process itself (`dwell lab hold DIR`): stays until it is asked to end, or until the lab's
/// directory is gone.
///
/// # Errors
/// User namespaces are forbidden here.
pub fn hold(dir: &LabDir) -> Result<(), LabError> {
    background::sign(dir, FILE)?;
    let held = process::hold(&[Signal::Hangup, Signal::Interrupt, Signal::Terminate])
        .map_err(LabError::io("holding signals"))?;
    let refused = |error| {
        LabError::Unsupported(format!(
            "no privilege for network namespaces, and none for a user namespace either ({error}); \
             run it as root, or allow them: sysctl kernel.unprivileged_userns_clone=1 \
             kernel.apparmor_restrict_unprivileged_userns=0, as far as these exist here"
        ))
    };
    netns::become_root_of_new_namespaces().map_err(refused)?;
    let base = dir.path().parent().unwrap_or(Path::new("/"));
    netns::private_run(base).map_err(refused)?;
    fs::create_dir_all(crate::namespace::NETNS_DIR).map_err(LabError::io("making /run/netns"))?;
    let user = netns::inode(Path::new("/proc/self/ns/user"))
        .map_err(LabError::io("reading /proc/self/ns"))?;
    let own = process::Identity::own().map_err(LabError::io("reading /proc/self/stat"))?;
    dir.write_file(FILE, format!("{own} {user}").as_bytes())?;
    background::ready(dir, "holder.log")?;
    // A lab that nobody can find any more is not kept.
    while held.take(EVERY) != Some(Signal::Terminate) && dir.path().exists() {}
    Ok(())
}
