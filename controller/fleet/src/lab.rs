//! Nodes of a lab on this machine.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use dwell_plan::{LabSpec, LabTopology, Routing, Topology};
use dwell_protocol::{RUNNER_PID, Request};
use serde::de::DeserializeOwned;

use crate::connection::{Connections, WORKER_ARGUMENTS};
use crate::error::FleetError;
use crate::lab_output::{Lab, Labs, RouteTable};
use crate::{CreatedLink, Fleet, FromNode, Nodes, QuotaUse, Routes};

/// Ties a `dwell lab` command to the pipe on its standard input, and so to this process. A command
/// that outlives a killed runner must not change the next runner's lab.
const ATTACHED_FLAG: &str = "--attached";

/// Exit code of dwell for a usage error. `lab down` also uses it for an unknown lab.
const USAGE_EXIT_CODE: i32 = 2;

/// Exit code of dwell if this machine lacks support or a privilege.
const UNSUPPORTED_EXIT_CODE: i32 = 4;

/// Operation named in errors of `lab down`.
const REMOVE_OPERATION: &str = "remove the lab";

/// SIGINT on Linux.
const SIGINT: i32 = 2;

/// The nodes of one lab.
#[derive(Debug)]
pub(crate) struct LabFleet {
    /// The `dwell` program that creates labs and runs in their nodes.
    program: PathBuf,
    name: String,
    /// The topology of the current lab.
    topology: Option<LabTopology>,
    links: Vec<CreatedLink>,
    nodes: Nodes,
    connections: Connections,
}

impl LabFleet {
    /// Returns a fleet whose lab will have this name. The lab is not created yet.
    pub(crate) fn new(program: PathBuf, name: String) -> Self {
        Self {
            program,
            name,
            topology: None,
            links: Vec::new(),
            nodes: Nodes::default(),
            connections: Connections::default(),
        }
    }

    /// Creates the lab. A `lab up` of a dead runner may create one with the same name at the same
    /// time: `--replace` removes it.
    fn up(&self, topology: &LabTopology) -> Result<Output, FleetError> {
        let arguments = up_arguments(topology, &self.name);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let output = self.dwell(&arguments)?;
        if let Some(message) = failure(&output) {
            return Err(FleetError::Nodes {
                message: format!("cannot create the lab: {message}"),
                unsupported: output.status.code() == Some(UNSUPPORTED_EXIT_CODE),
            });
        }
        Ok(output)
    }

    fn down(&self) -> Result<Output, FleetError> {
        self.dwell(&["lab", "down", &self.name, ATTACHED_FLAG])
    }

    /// Runs dwell and returns its output. Repeats the command if ^C killed it before it had its own
    /// process group, because it has done nothing by then.
    fn dwell(&self, arguments: &[&str]) -> Result<Output, FleetError> {
        let output = || -> io::Result<Output> {
            let mut command = command(&self.program);
            command.args(arguments).stdin(Stdio::piped());
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            // Kept open until the command or this process ends: see `ATTACHED_FLAG`.
            let _input = child.stdin.take();
            child.wait_with_output()
        };
        let done = match output() {
            Ok(done) if done.status.signal() == Some(SIGINT) => output(),
            done => done,
        };
        let program = || self.program.display().to_string();
        done.map_err(|source| FleetError::Start { program: program(), source })
    }
}

/// Returns a dwell command in its own process group. ^C on a terminal signals the runner's whole
/// group, and the runner decides what to stop.
fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.process_group(0);
    command
}

/// Returns the arguments of `dwell lab up` for this topology.
fn up_arguments(topology: &LabTopology, name: &str) -> Vec<String> {
    let link = &topology.link;
    let mut arguments: Vec<String> = [
        "lab",
        "up",
        &topology.lab.to_string(),
        "--name",
        name,
        "--replace",
        ATTACHED_FLAG,
        "--json",
    ]
    .map(str::to_owned)
    .into();
    let options = [
        ("--rate", link.rate.map(|rate| rate.to_string())),
        ("--delay", link.delay.map(|delay| delay.to_string())),
        ("--jitter", link.jitter.map(|jitter| jitter.to_string())),
        ("--loss", link.loss.map(|loss| loss.to_string())),
        ("--duplicate", link.duplicate.map(|duplicate| duplicate.to_string())),
        ("--reorder", link.reorder.map(|reorder| reorder.to_string())),
        ("--seed", link.seed.map(|seed| seed.to_string())),
    ];
    let bare = options.iter().all(|(_, value)| value.is_none());
    // Links without parameters need no mechanism.
    let mechanism = link.mechanism.clone().filter(|_| !bare);
    for (flag, value) in options.into_iter().chain([("--mechanism", mechanism)]) {
        arguments.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
    }
    for (node, quota) in &topology.quota {
        let quota = quota.0.map(|share| ["--quota".to_owned(), format!("{node}={share}")]);
        arguments.extend(quota.into_iter().flatten());
    }
    if topology.routing == Routing::Babel {
        arguments.extend(["--routing", "babel"].map(str::to_owned));
    }
    arguments
}

/// Fails with the error that the command printed, unless it succeeded.
fn check_success(operation: &'static str, output: &Output) -> Result<(), FleetError> {
    failure(output).map_or(Ok(()), |message| Err(FleetError::Command { operation, message }))
}

/// Reads the output of a successful command.
fn read_json<T: DeserializeOwned>(
    operation: &'static str,
    output: &Output,
) -> Result<T, FleetError> {
    check_success(operation, output)?;
    serde_json::from_slice(&output.stdout).map_err(|error| {
        let message = format!("its output cannot be read: {error}");
        FleetError::Command { operation, message }
    })
}

/// Returns the error that the command printed; `None` if it succeeded.
fn failure(output: &Output) -> Option<String> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    // The usage hint after the error is for interactive users.
    let error = stderr.split("\n\n").next().unwrap_or_default().trim();
    let message = error.trim_start_matches("dwell: ").trim_start_matches("error: ").to_owned();
    (!output.status.success()).then_some(message)
}

impl Fleet for LabFleet {
    /// Removes a lab that a dead runner left, complete or not. Waits for a `lab up` or `lab down`
    /// that outlives the dead runner.
    fn clear(&mut self) -> Result<(), FleetError> {
        let output = self.down()?;
        match output.status.code() {
            Some(USAGE_EXIT_CODE) => Ok(()),
            _ => check_success(REMOVE_OPERATION, &output),
        }
    }

    fn prepare(&mut self, topology: &Topology) -> Result<(), FleetError> {
        let Topology::Lab(topology) = topology else {
            let message = "a lab has no devices".to_owned();
            return Err(FleetError::Nodes { message, unsupported: true });
        };
        if self.topology.as_ref() == Some(topology) {
            return Ok(());
        }
        self.dissolve()?;
        let output = self.up(topology)?;
        self.topology = Some(topology.clone());
        let lab: Lab = read_json("create the lab", &output)?;
        self.nodes = lab.nodes();
        self.links = lab.links();
        Ok(())
    }

    fn links(&self) -> Vec<CreatedLink> {
        self.links.clone()
    }

    fn nodes(&self) -> Nodes {
        self.nodes.clone()
    }

    fn routes(&mut self) -> Result<Option<Routes>, FleetError> {
        const OPERATION: &str = "list the routes of the lab";
        if self.topology.as_ref().is_none_or(|topology| topology.routing != Routing::Babel) {
            return Ok(None);
        }
        let output = self.dwell(&["lab", "routes", &self.name, "--json"])?;
        match serde_json::from_slice(&output.stdout) {
            Ok(RouteTable { reason: Some(reason), .. }) => Err(FleetError::Routes(reason)),
            _ => Ok(Some(read_json::<RouteTable>(OPERATION, &output)?.routes)),
        }
    }

    fn quotas(&mut self) -> Result<BTreeMap<String, QuotaUse>, FleetError> {
        // The quotas of a lab file are known only to the lab.
        let may_have_quotas = |topology: &LabTopology| {
            !topology.quota.is_empty() || matches!(topology.lab, LabSpec::File(_))
        };
        match &self.topology {
            Some(topology) if may_have_quotas(topology) => {
                let output = self.dwell(&["lab", "list", "--json"])?;
                Ok(read_json::<Labs>("list the labs", &output)?.quotas(&self.name))
            }
            _ => Ok(BTreeMap::new()),
        }
    }

    fn request(&mut self, node: &str, request: &Request) -> Result<(), FleetError> {
        let (program, name) = (&self.program, &self.name);
        self.connections.request(node, request, || {
            let mut command = command(program);
            command.args(["lab", "exec", ATTACHED_FLAG, "--lab", name, node, "--"]);
            command.arg(program).args(WORKER_ARGUMENTS);
            command.env(RUNNER_PID, std::process::id().to_string());
            command
        })
    }

    fn next(&mut self, wait: Duration) -> Option<(String, FromNode)> {
        self.connections.next(wait)
    }

    fn release(&mut self, node: &str) {
        self.connections.release(node);
    }

    fn dissolve(&mut self) -> Result<(), FleetError> {
        self.connections.close_all();
        match self.topology.take() {
            Some(_) => check_success(REMOVE_OPERATION, &self.down()?),
            None => Ok(()),
        }
    }
}

impl Drop for LabFleet {
    fn drop(&mut self) {
        // Callers that need the error call `dissolve` themselves.
        let _ = self.dissolve();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Mutex;
    use std::time::Instant;

    use dwell_protocol::JobId;
    use tempfile::TempDir;

    use super::*;

    /// Serialises these tests: a script that a freshly forked child still holds open for writing
    /// cannot be executed (ETXTBSY).
    static EXEC_LOCK: Mutex<()> = Mutex::new(());

    /// A fleet whose `dwell` is this script. `$log` is the path of a log file.
    fn fleet_of(dir: &TempDir, script: &str) -> LabFleet {
        let program = dir.path().join("dwell");
        let log = dir.path().join("log");
        fs::write(&program, format!("#!/bin/sh\nlog={}\n{script}", log.display())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        LabFleet::new(program, "x".into())
    }

    #[test]
    fn clearing_succeeds_without_a_lab_and_reports_other_failures() {
        let _alone = EXEC_LOCK.lock().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let missing = "echo $* >> $log; echo \"there is no lab 'x'\" >&2; exit 2\n";
        fleet_of(&dir, missing).clear().unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("log")).unwrap(), "lab down x --attached\n");
        let dir = tempfile::tempdir().unwrap();
        let error = fleet_of(&dir, "echo busy >&2; exit 1\n").clear().unwrap_err();
        assert_eq!(error.to_string(), "cannot remove the lab: busy");
    }

    #[test]
    fn lab_with_an_unreadable_description_is_removed() {
        let _alone = EXEC_LOCK.lock().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut fleet = fleet_of(&dir, "echo $2 >> $log; echo '{\"name\": \"x\"}'\n");
        let topology = toml::from_str("lab = \"line:2\"").unwrap();
        let error = fleet.prepare(&topology).unwrap_err().to_string();
        assert!(error.starts_with("cannot create the lab: its output cannot be read"), "{error}");
        fleet.dissolve().unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("log")).unwrap(), "up\ndown\n");
    }

    #[test]
    fn command_sees_its_stdin_open_while_the_fleet_waits() {
        let _alone = EXEC_LOCK.lock().unwrap();
        let dir = tempfile::tempdir().unwrap();
        // `read` fails at once at end of file and times out on an open pipe.
        let script = "exec bash -c 'read -t 0.1; [ $? -gt 128 ]'\n";
        fleet_of(&dir, script).clear().unwrap();
    }

    #[test]
    fn command_interrupted_before_setpgid_is_repeated() {
        let _alone = EXEC_LOCK.lock().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let interrupted = "echo $2 >> $log\n[ $(wc -l < $log) -gt 1 ] && exit\n\
            exec env --default-signal=INT sh -c 'kill -INT $$'\n";
        fleet_of(&dir, interrupted).clear().unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("log")).unwrap(), "down\ndown\n");
    }

    #[test]
    fn nodes_that_do_not_exit_are_killed_at_the_same_time() {
        let _alone = EXEC_LOCK.lock().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut fleet = fleet_of(&dir, "exec sleep 60\n");
        for node in ["n1", "n2", "n3"] {
            fleet.request(node, &Request::Stop { job: JobId(1) }).unwrap();
        }
        let start = Instant::now();
        fleet.dissolve().unwrap();
        // One time-out is 1.5 s.
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    }

    #[test]
    fn lab_up_arguments_include_all_link_parameters() {
        let read = |text: &str| match toml::from_str(text).unwrap() {
            Topology::Lab(lab) => lab,
            devices => panic!("{devices:?}"),
        };
        let topology = read(
            "lab = \"line:3\"\nlink = { rate = \"10Mbit/s\", delay = \"5ms\", loss = \"1%\", seed = 7 }",
        );
        assert_eq!(
            up_arguments(&topology, "x").join(" "),
            "lab up line:3 --name x --replace --attached --json --rate 10Mbit/s --delay 5ms --loss 1% --seed 7"
        );
        let with_quota = "lab = \"line:2\"\nquota = { n1 = \"none\", n2 = \"20%\" }";
        let with_quota = up_arguments(&read(with_quota), "x").join(" ");
        assert_eq!(with_quota, "lab up line:2 --name x --replace --attached --json --quota n2=20%");
        let babel = "lab = \"forced:3\"\nrouting = \"babel\"\nlink = { mechanism = \"tap\" }";
        assert_eq!(
            up_arguments(&read(babel), "x").join(" "),
            "lab up forced:3 --name x --replace --attached --json --routing babel",
            "bare links need no mechanism"
        );
    }
}
