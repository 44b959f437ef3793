//! A lab of nodes in a line, made by `dwell lab` and removed when it is dropped.

use std::env;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use anyhow::{Context, Result};
use dwell_node_cli::Failure;
use serde::Deserialize;

/// What the names of these labs begin with; the number of the process that made it follows.
const PREFIX: &str = "bench-run-";

/// A node of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// Where the probes start.
    N1,
    /// Where they are answered, or what lies between.
    N2,
    /// The other end of a line of three.
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

/// A lab that is up.
#[derive(Debug)]
pub struct Lab {
    dwell: PathBuf,
    up: Up,
}

/// What `dwell lab up --json` says of it, as far as it matters here.
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
    /// Makes a lab of two nodes. One that cannot be made is exit 4, with the reason that
    /// `dwell lab` gives.
    pub fn up() -> Result<Self, Failure> {
        Self::line(2)
    }

    /// Makes a lab of so many nodes in a line.
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
                "the lab of {nodes} nodes cannot be made here: {}",
                why.trim()
            )));
        }
        let up = serde_json::from_slice(&output.stdout)
            .context("cannot read what dwell lab up --json printed")?;
        Ok(Self { dwell, up })
    }

    /// A command that runs `program` on a node.
    pub fn on(&self, node: Node, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(&self.dwell);
        command.args(["lab", "exec", "--lab", &self.up.name, node.name(), "--"]);
        command.arg(program.as_ref());
        command
    }

    /// A `dwell` command on a node.
    pub fn dwell_on(&self, node: Node) -> Command {
        self.on(node, &self.dwell)
    }

    /// The `dwell` binary.
    pub fn dwell(&self) -> &Path {
        &self.dwell
    }

    /// The address of a node.
    pub fn address(&self, node: Node) -> Result<Ipv4Addr> {
        Ok(self.node(node)?.addresses.v4)
    }

    /// The file that stands for a node's network namespace.
    pub fn netns(&self, node: Node) -> Result<PathBuf> {
        Ok(Path::new("/run/netns").join(&self.node(node)?.netns))
    }

    fn node(&self, node: Node) -> Result<&UpNode> {
        let found = self.up.nodes.iter().find(|n| n.name == node.name());
        found.with_context(|| format!("the lab has no {}", node.name()))
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
            eprintln!("the lab is still there; remove it: dwell lab down {}", self.up.name);
        }
    }
}

/// Takes down the labs of runs that were killed. One that cannot be, such as root's by somebody
/// else, stays; `dwell lab down` says why.
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
            eprintln!("lab {name} was left behind by a run that was killed; taking it down");
            let down = ["lab", "down", &name];
            let _ = Command::new(dwell).args(down).stdin(Stdio::null()).status();
        }
    }
}

/// Whether the process of that number is one of these experiments.
fn is_a_run(pid: u32) -> bool {
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    matches!(command.trim(), "rtt" | "relay" | "pace" | "data" | "hostile")
}

/// A program that was built beside this one.
pub(crate) fn sibling(name: &str) -> Result<PathBuf> {
    let here = env::current_exe().context("cannot tell where this program is")?;
    let path = here.with_file_name(name);
    anyhow::ensure!(path.exists(), "{} is not there; build it: make build", path.display());
    Ok(path)
}
