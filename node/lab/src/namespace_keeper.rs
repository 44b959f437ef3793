//! Labs without root. A small process, the namespace keeper, is root of its own namespaces and keeps
//! them alive. Each process that works on the lab enters them first and then works as root, with the
//! lab's own /run.

use std::fs;
use std::path::Path;

use dwell_io::netns;
use dwell_io::process::{self, Handle, Signal};
use dwell_units::Nanos;

use crate::background;
use crate::error::LabError;
use crate::state::{LabDir, Lock};

/// File with the identity of the namespace keeper and the inode number of its user namespace.
pub(crate) const FILE: &str = "holder";

/// Interval at which the keeper checks whether the lab's directory still exists.
const CHECK_INTERVAL: Nanos = Nanos::from_secs(10);

/// Starts the namespace keeper of the lab in `dir` and enters its namespaces.
pub(crate) fn start(dir: &LabDir, lock: &Lock) -> Result<(), LabError> {
    let arguments = [Path::new("hold"), dir.path()];
    let pid =
        background::start("namespace keeper of the lab".to_owned(), &arguments, lock)?.ready()?;
    enter_process(pid)
}

/// The namespace keeper of a lab, as far as it can be found.
pub(crate) enum NamespaceKeeper {
    /// None: the lab belongs to root.
    None,
    /// It runs.
    Running(Handle),
    /// It was killed. Only processes in its user namespace (by inode) may be left.
    Gone(Option<u64>),
}

impl NamespaceKeeper {
    /// Whether the namespace keeper of a rootless lab runs.
    pub(crate) fn runs(dir: &LabDir) -> bool {
        background::running(dir, FILE).is_some()
    }

    /// Finds the namespace keeper and, if it runs, enters its namespaces.
    pub(crate) fn enter(dir: &LabDir) -> Result<Self, LabError> {
        let Ok(text) = fs::read_to_string(dir.file(FILE)) else { return Ok(Self::None) };
        match background::running(dir, FILE) {
            Some((identity, handle)) => {
                enter_process(identity.pid)?;
                Ok(Self::Running(handle))
            }
            None => Ok(Self::Gone(text.split(' ').nth(2).and_then(|inode| inode.parse().ok()))),
        }
    }

    /// Enters the namespaces of a lab, unless its namespace keeper was killed.
    pub(crate) fn enter_whole(dir: &LabDir) -> Result<(), LabError> {
        match Self::enter(dir)? {
            Self::None | Self::Running(_) => Ok(()),
            Self::Gone(_) => Err(LabError::NotWhole(dir.name().to_owned())),
        }
    }
}

fn enter_process(pid: u32) -> Result<(), LabError> {
    netns::enter_process(pid).map_err(LabError::io("entering the namespaces of the lab"))
}

/// Runs the namespace keeper (`dwell lab hold DIR`) until it is asked to end, or until the lab's
/// directory is gone.
///
/// # Errors
/// User namespaces are forbidden here.
pub fn hold(dir: &LabDir) -> Result<(), LabError> {
    background::write_identity(dir, FILE)?;
    let signals = process::block(&[Signal::Hangup, Signal::Interrupt, Signal::Terminate])
        .map_err(LabError::io("blocking signals"))?;
    let refused = |error| {
        LabError::Unsupported(format!(
            "creating network namespaces is not permitted, not even in a user namespace ({error}); \
             run this as root, or allow them: sysctl kernel.unprivileged_userns_clone=1 \
             kernel.apparmor_restrict_unprivileged_userns=0, if these settings exist"
        ))
    };
    netns::become_root_of_new_namespaces().map_err(refused)?;
    let base = dir.path().parent().unwrap_or(Path::new("/"));
    netns::private_run(base).map_err(refused)?;
    fs::create_dir_all(crate::namespace::NETNS_DIR).map_err(LabError::io("creating /run/netns"))?;
    let user = netns::inode(Path::new("/proc/self/ns/user"))
        .map_err(LabError::io("reading /proc/self/ns"))?;
    let own = process::Identity::own().map_err(LabError::io("reading /proc/self/stat"))?;
    dir.write_file(FILE, format!("{own} {user}").as_bytes())?;
    background::ready(dir, "holder.log")?;
    // A lab that can no longer be found is not kept.
    while signals.take(CHECK_INTERVAL) != Some(Signal::Terminate) && dir.path().exists() {}
    Ok(())
}
