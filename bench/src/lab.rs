//! A lab of nodes in a line, created with `dwell lab` and removed on drop.

use std::env;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use anyhow::{Context, Result};
use dwell_node_cli::Failure;
use serde::Deserialize;

/// Prefix of lab names; the process id of the creator follows.
const PREFIX: &str = "bench-run-";

/// A node of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// Sends the probes.
    N1,
    /// Replies, or relays.
    N2,
    /// The far end of a line of three.
    N3,
}

impl Node {
    const fn name(self) -> &'static str {
        match self {
            Self::N1 => "n1",
            Self::N2 => "n2",
            Self::N3 => "n3",
        }
    }
}

/// A running lab.
#[derive(Debug)]
pub struct Lab {
    dwell: PathBuf,
    up: Up,
}

/// Output of `dwell lab up --json`, as far as needed here.
#[derive(Debug, Deserialize)]
struct Up {
    name: String,
    nodes: Vec<UpNode>,
}

#[derive(Debug, Deserialize)]
struct UpNode {
    name: String,
    netns: String,
    addresses: Addresses,
}

#[derive(Debug, Deserialize)]
struct Addresses {
    v4: Ipv4Addr,
}

impl Lab {
    /// Creates a lab of two nodes. On failure, exit code 4 with the reason from `dwell lab`.
    pub fn up() -> Result<Self, Failure> {
        Self::line(2)
    }

    /// Creates a lab of this number of nodes in a line.
    pub fn line(nodes: u32) -> Result<Self, Failure> {
        let dwell = sibling("dwell")?;
        remove_left_behind(&dwell);
        let mut command = Command::new(&dwell);
        command.args(["lab", "up", &format!("line:{nodes}"), "--json", "--name"]);
        command.arg(format!("{PREFIX}{}", process::id()));
        let output = command.stdin(Stdio::null()).output().context("cannot start dwell lab up")?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::unsupported(format!(
                "cannot create a lab of {nodes} nodes: {}",
                why.trim()
            )));
        }
        let up = serde_json::from_slice(&output.stdout)
            .context("cannot read the output of dwell lab up --json")?;
        Ok(Self { dwell, up })
    }

    /// Returns a command that runs `program` on a node.
    pub fn on(&self, node: Node, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(&self.dwell);
        command.args(["lab", "exec", "--lab", &self.up.name, node.name(), "--"]);
        command.arg(program.as_ref());
        command
    }

    /// Returns a `dwell` command on a node.
    pub fn dwell_on(&self, node: Node) -> Command {
        self.on(node, &self.dwell)
    }

    /// Returns the path of the `dwell` binary.
    pub fn dwell(&self) -> &Path {
        &self.dwell
    }

    /// Returns the IPv4 address of a node.
    pub fn address(&self, node: Node) -> Result<Ipv4Addr> {
        Ok(self.node(node)?.addresses.v4)
    }

    /// Returns the file of a node's network namespace.
    pub fn netns(&self, node: Node) -> Result<PathBuf> {
        Ok(Path::new("/run/netns").join(&self.node(node)?.netns))
    }

    fn node(&self, node: Node) -> Result<&UpNode> {
        let found = self.up.nodes.iter().find(|n| n.name == node.name());
        found.with_context(|| format!("the lab has no node {}", node.name()))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let down = Command::new(&self.dwell)
            .args(["lab", "down", &self.up.name])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        if !down.is_ok_and(|status| status.success()) {
            eprintln!("cannot remove the lab; run: dwell lab down {}", self.up.name);
        }
    }
}

/// Removes labs of killed runs. Labs that cannot be removed, such as those of other users, stay;
/// `dwell lab down` prints the reason.
fn remove_left_behind(dwell: &Path) {
    #[derive(Deserialize)]
    struct Listed {
        labs: Vec<Named>,
    }
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let list = Command::new(dwell).args(["lab", "list", "--json"]).stdin(Stdio::null()).output();
    let Ok(output) = list else { return };
    let Ok(listed) = serde_json::from_slice::<Listed>(&output.stdout) else { return };
    for Named { name } in listed.labs {
        let maker = name.strip_prefix(PREFIX).and_then(|pid| pid.parse::<u32>().ok());
        if maker.is_some_and(|pid| !is_a_run(pid)) {
            eprintln!("removing lab {name} of a killed run");
            let down = ["lab", "down", &name];
            let _ = Command::new(dwell).args(down).stdin(Stdio::null()).status();
        }
    }
}

/// Whether the process is a run of one of these benchmarks.
fn is_a_run(pid: u32) -> bool {
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    matches!(command.trim(), "rtt" | "relay" | "pace" | "data" | "hostile" | "reflect")
}

/// Returns the path of a program in the directory of this one.
pub(crate) fn sibling(name: &str) -> Result<PathBuf> {
    let here = env::current_exe().context("cannot determine the path of this program")?;
    let path = here.with_file_name(name);
    anyhow::ensure!(
        path.exists(),
        "{} does not exist; make build and make bench build it",
        path.display()
    );
    Ok(path)
}
