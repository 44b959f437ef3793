//! An agent that ends with its test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use dwell_io::process::Signal;
use dwell_rollup::{Body, Record, Status, StatusFile};
use tempfile::TempDir;

use crate::carrier::Carrier;
use crate::support::{DWELL, Server, signal};

/// Time-out of all waits; longer than any of them takes.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A node: a configuration and a spool.
pub(crate) struct TestNode {
    dir: TempDir,
}

impl TestNode {
    /// A node `n1` with the rest of a configuration.
    pub(crate) fn new(rest: &str) -> Self {
        let node = Self { dir: tempfile::tempdir().unwrap() };
        node.configure(rest);
        node
    }

    pub(crate) fn configure(&self, rest: &str) {
        let spool = self.spool();
        let text = format!("node = \"n1\"\nspool = \"{}\"\n{rest}", spool.display());
        fs::write(self.config(), text).unwrap();
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("agent.toml")
    }

    pub(crate) fn spool(&self) -> PathBuf {
        self.dir.path().join("spool")
    }

    /// Starts the agent and waits until it runs.
    pub(crate) fn start(&self) -> Server {
        Server::ready(self.command(), "agent n1 is running", 1)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(DWELL);
        command.args(["agent", "--config"]).arg(self.config());
        command
    }

    /// Runs the agent, which is expected to end by itself.
    pub(crate) fn output(&self) -> Output {
        self.command().output().unwrap()
    }

    /// A worker on this node.
    pub(crate) fn carrier(&self) -> Carrier {
        Carrier::start(&self.spool(), &[])
    }

    /// Waits until the last status satisfies a condition.
    pub(crate) fn await_status(&self, is_met: impl Fn(&Status) -> bool) -> Status {
        let mut carrier = self.carrier();
        let last = wait_for(|| {
            let StatusFile { status, .. } = *carrier.status()?;
            is_met(&status).then_some(status)
        });
        last.unwrap_or_else(|| panic!("no such status: {:?}", carrier.status()))
    }
}

/// Polls until there is a value; `None` after [`WAIT_TIMEOUT`].
pub(crate) fn wait_for<T>(mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        let found = poll();
        if found.is_some() || Instant::now() >= deadline {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Kills a process without a chance to write anything.
pub(crate) fn kill(server: &mut Server) {
    signal(&server.child, Signal::Kill);
    reap(&mut server.child);
}

fn reap(child: &mut Child) {
    let _ = child.wait();
}

/// Sum of the sent probes in the roll-ups of a level.
pub(crate) fn sent(records: &[Record]) -> u64 {
    let counts = records.iter().map(|record| match &record.body {
        Body::Rollup(rollup) => rollup.counts.sent,
        Body::Status(_) | Body::Samples(_) => 0,
    });
    counts.sum()
}

/// Number of files with records.
pub(crate) fn record_files(spool: &Path, level: &str) -> usize {
    fs::read_dir(spool.join("records").join(level)).unwrap().count()
}
