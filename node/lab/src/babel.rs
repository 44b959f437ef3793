//! Routes by babeld (RFC 8966), which runs in every node. One process of dwell (`dwell lab babel
//! DIR`) starts the daemons and supervises them. They end with it, however it ends.
//!
//! ```text
//! babel.pid     the supervising process
//! babel-K.pid   babeld of the node with index K
//! babel/        private: K.state and K.pid are babeld's own files, K.log is its output
//! ```

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dwell_io::netns;
use dwell_io::process::{self, Handle, Identity, Signal};
use dwell_units::Nanos;

use crate::background;
use crate::description::{Daemon, DaemonState, Lab};
use crate::error::LabError;
use crate::namespace::netns_path;
use crate::state::{DIR_VARIABLE, LabDir, Lock};
use crate::table;
use crate::topology::Routing;

const PROGRAM: &str = "babeld";
const FILE: &str = "babel.pid";
const PRIVATE: &str = "babel";

/// How often the supervisor checks whether the lab's directory still exists.
const CHECK_INTERVAL: Nanos = Nanos::from_secs(10);

/// Time-out for every node to reach every other.
const CONVERGENCE_TIMEOUT: Nanos = Nanos::from_secs(60);

/// Checks that the routing daemon is installed, before anything is created.
pub(crate) fn check(routing: Routing) -> Result<(), LabError> {
    match routing {
        Routing::Static => Ok(()),
        Routing::Babel => program().map(drop),
    }
}

/// Starts babeld in every node.
pub(crate) fn start(dir: &LabDir, lock: &Lock, lab: &mut Lab) -> Result<(), LabError> {
    let arguments = [Path::new("babel"), dir.path()];
    background::start("babeld supervisor".to_owned(), &arguments, lock)?.ready()?;
    lab.daemons = lab
        .nodes
        .iter()
        .enumerate()
        .filter_map(|(place, node)| {
            let text = fs::read_to_string(dir.file(&pid_file(place))).ok()?;
            let identity: Identity = text.parse().ok()?;
            let (node, program) = (node.name.clone(), PROGRAM.to_owned());
            Some(Daemon { node, program, pid: identity.pid, state: DaemonState::Up })
        })
        .collect();
    dir.write(lab)
}

/// Waits until every node reaches every other by routes of babeld.
pub(crate) fn converge(
    dir: &LabDir,
    lab: &mut Lab,
    interrupted: &dyn Fn() -> bool,
) -> Result<(), LabError> {
    const POLL_INTERVAL: Duration = Duration::from_millis(50);
    let since = Instant::now();
    loop {
        if interrupted() {
            return Err(LabError::Interrupted);
        }
        let Some((from, to, reason)) = table::first_fault(lab)? else { return Ok(()) };
        update_state(dir, lab);
        if let Some(dead) = dead(&lab.daemons) {
            let message = match last_output(dir, lab) {
                Some(last) => format!("{dead}; its last output: {last}"),
                None => dead,
            };
            return Err(LabError::Background { what: PROGRAM.to_owned(), message });
        }
        if since.elapsed() > CONVERGENCE_TIMEOUT.to_std() {
            return Err(LabError::NoRoute {
                from: lab.nodes[from].name.clone(),
                to: lab.nodes[to].name.clone(),
                after: CONVERGENCE_TIMEOUT,
                reason,
            });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Records which daemons have ended.
pub(crate) fn update_state(dir: &LabDir, lab: &mut Lab) {
    for daemon in &mut lab.daemons {
        let place = lab.nodes.iter().position(|node| node.name == daemon.node);
        if place.is_none_or(|place| background::running(dir, &pid_file(place)).is_none()) {
            daemon.state = DaemonState::Dead;
        }
    }
}

/// Describes the daemons that have ended.
pub(crate) fn dead(daemons: &[Daemon]) -> Option<String> {
    let dead: Vec<&str> = daemons
        .iter()
        .filter(|daemon| daemon.state == DaemonState::Dead)
        .map(|daemon| daemon.node.as_str())
        .collect();
    (!dead.is_empty()).then(|| format!("{PROGRAM} in {} has ended", dead.join(", ")))
}

/// Ends the supervisor, and with it all daemons.
pub(crate) fn end(dir: &LabDir) {
    let supervisor: Vec<Handle> =
        background::running(dir, FILE).map(|(_, supervisor)| supervisor).into_iter().collect();
    background::end(&supervisor);
}

/// Runs the supervisor: starts babeld in every node and stays until it is asked to end, or until
/// the lab's directory is gone.
///
/// # Errors
/// A node cannot be entered, or babeld cannot be started.
pub fn supervise_babel(dir: &LabDir) -> Result<(), LabError> {
    background::write_identity(dir, FILE)?;
    let signals = process::block(&[Signal::Hangup, Signal::Interrupt, Signal::Terminate])
        .map_err(LabError::io("blocking signals"))?;
    let lab = dir.read()?.ok_or_else(|| LabError::NotWhole(dir.name().to_owned()))?;
    let private = dir.file(PRIVATE);
    DirBuilder::new()
        .mode(0o700)
        .create(&private)
        .map_err(LabError::io(format!("creating {}", private.display())))?;
    let program = program()?;
    let mut handles = Vec::new();
    for place in 0..lab.nodes.len() {
        // On this thread, the main one, because a daemon ends with the thread that started it.
        let child = spawn(dir, &lab, place, &program)?;
        let identity = Identity::of(child.id()).map_err(LabError::io("reading /proc/PID/stat"))?;
        dir.write_file(&pid_file(place), identity.to_string().as_bytes())?;
        handles.extend(identity.open());
        reap(child)?;
    }
    // Leave the last node, so as not to count as one of its processes.
    netns::enter_new().map_err(LabError::io("creating a namespace"))?;
    background::ready(dir, "babel.log")?;
    while signals.take(CHECK_INTERVAL) != Some(Signal::Terminate) && dir.path().exists() {}
    for handle in &handles {
        let _ = handle.signal(Signal::Kill);
    }
    for handle in &handles {
        handle.wait(CHECK_INTERVAL);
    }
    Ok(())
}

fn spawn(dir: &LabDir, lab: &Lab, place: usize, program: &Path) -> Result<Child, LabError> {
    let node = &lab.nodes[place];
    netns::enter(&netns_path(&node.netns))
        .map_err(LabError::io(format!("entering {}", node.netns)))?;
    let file = |ending: &str| dir.file(PRIVATE).join(format!("{place}.{ending}"));
    let log = File::create(file("log")).map_err(LabError::io("creating a log of babeld"))?;
    let mut command = Command::new(program);
    // Hellos every second on any link, and no settings from /etc.
    command.args(["-h", "1", "-H", "1", "-c", "/dev/null"]);
    command.arg("-S").arg(file("state")).arg("-I").arg(file("pid"));
    if let Some(medium) = &lab.medium {
        // Neighbours share this interface but do not all hear each other, so updates must leave by
        // the interface that they arrived on (babeld(8), split-horizon).
        let kind = if medium.radio.is_some() { "type wireless " } else { "" };
        let options = format!("interface {} {kind}split-horizon false", medium.interface);
        command.args(["-C", &options]);
        command.arg(&medium.interface);
    }
    for link in &lab.links {
        command.args(link.end_at(&node.name).map(|end| link.interface(end)));
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        // These variables identify the process if the namespace keeper of a rootless lab was killed.
        .env("DWELL_LAB", &lab.name)
        .env("DWELL_NODE", &node.name)
        .env(DIR_VARIABLE, dir.path());
    process::end_with_parent(&mut command, Signal::Kill)
        .spawn()
        .map_err(LabError::io(format!("starting {PROGRAM} in {}", node.name)))
}

/// Waits for the child's end on a thread of its own, so that a dead one does not count as running.
fn reap(mut child: Child) -> Result<(), LabError> {
    const STACK_LEN: usize = 64 * 1024;
    std::thread::Builder::new()
        .stack_size(STACK_LEN)
        .spawn(move || child.wait())
        .map(drop)
        .map_err(LabError::io("starting a thread"))
}

/// Finds babeld in the directories of programs.
fn program() -> Result<PathBuf, LabError> {
    background::find_program(PROGRAM, "--routing babel", PROGRAM)
}

/// Returns the last line that a daemon that ended printed.
fn last_output(dir: &LabDir, lab: &Lab) -> Option<String> {
    let dead = lab.daemons.iter().find(|daemon| daemon.state == DaemonState::Dead)?;
    let place = lab.nodes.iter().position(|node| node.name == dead.node)?;
    let text = fs::read_to_string(dir.file(PRIVATE).join(format!("{place}.log"))).ok()?;
    text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned)
}

fn pid_file(place: usize) -> String {
    format!("babel-{place}.pid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_that_ended_are_named() {
        let daemon = |node: &str, state| {
            let (node, program) = (node.to_owned(), PROGRAM.to_owned());
            Daemon { node, program, pid: 7, state }
        };
        let one = [daemon("n1", DaemonState::Up), daemon("n2", DaemonState::Dead)];
        assert_eq!(dead(&one).as_deref(), Some("babeld in n2 has ended"));
        assert_eq!(dead(&one[..1]), None);
    }
}
