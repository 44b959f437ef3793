//! The process of an uplink.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::server::{NatsServer, WAIT_TIMEOUT};

pub(crate) const UPLINK: &str = env!("CARGO_BIN_EXE_dwell-uplink");

/// An uplink, which ends with its test.
pub(crate) struct Uplink {
    process: Child,
    log: Arc<Mutex<Vec<String>>>,
}

/// Writes a configuration beside the spool's files.
pub(crate) fn configure(server: &NatsServer, spool: &Path, node: &str, more: &str) {
    let config = format!(
        "node = \"{node}\"\nspool = \"{}\"\nservers = [\"{}\"]\nca_file = \"{}\"\n\
         key_file = \"{}\"\n{more}\n",
        spool.display(),
        server.url(),
        server.ca_file().display(),
        server.node_key().display(),
    );
    fs::write(spool.join("uplink.toml"), config).unwrap();
}

impl Uplink {
    /// Starts an uplink of node `n1` that waits a second for receipts.
    pub(crate) fn start(server: &NatsServer, spool: &Path) -> Self {
        configure(server, spool, "n1", "receipt_timeout = \"1s\"");
        Self::run(spool)
    }

    /// Starts an uplink with the configuration that was written.
    pub(crate) fn run(spool: &Path) -> Self {
        let mut command = Command::new(UPLINK);
        command.args(["run", "--config"]).arg(spool.join("uplink.toml"));
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (lines, shared) = (BufReader::new(process.stderr.take().unwrap()), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                shared.lock().unwrap().push(line);
            }
        });
        Self { process, log }
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// Waits until a line of the log has all texts.
    pub(crate) async fn await_log(&self, texts: &[&str]) {
        let is_found = || {
            let log = self.log.lock().unwrap();
            log.iter().any(|line| texts.iter().all(|text| line.contains(text)))
        };
        wait_for(is_found, || format!("no line with {texts:?} in:\n{}", self.log())).await;
    }

    /// Anonymous and all resident memory of the process in kB.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        (field("RssAnon:"), field("VmRSS:"))
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Sends SIGTERM and waits for the end. Returns the exit code.
    pub(crate) async fn terminate(mut self) -> Option<i32> {
        let pid = self.process.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Polls until a condition is met.
pub(crate) async fn wait_for(mut is_met: impl FnMut() -> bool, state: impl Fn() -> String) {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !is_met() {
        assert!(Instant::now() < deadline, "{}", state());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
