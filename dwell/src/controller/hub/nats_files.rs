//! Files of nats-server in a data directory, and the signal by which it reads them again.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use dwell_node_cli::{Failure, say};
use rustix::process::{Pid, Signal, kill_process};

use super::super::data::DataArgs;

/// Name of the process of a server in proc(5).
const SERVER: &str = "nats-server";

/// Default places of files.
pub(super) struct NatsFiles {
    /// Directory of them all.
    pub(super) dir: PathBuf,
    /// Configuration of the server.
    pub(super) config: PathBuf,
    /// Keys that the server accepts; its configuration includes the file.
    pub(super) keys: PathBuf,
    /// Process id of the server.
    pub(super) pid: PathBuf,
    /// Directory of the stream.
    pub(super) store: PathBuf,
    /// Seed of the hub's key.
    pub(super) hub_key: PathBuf,
}

impl NatsFiles {
    pub(super) fn new(data: &Path) -> Self {
        let dir = data.join("nats");
        Self {
            config: dir.join("nats-server.conf"),
            keys: dir.join("keys.conf"),
            pid: dir.join("nats-server.pid"),
            store: dir.join("jetstream"),
            hub_key: dir.join("hub.nk"),
            dir,
        }
    }
}

/// Where keys are, and which server reads them.
#[derive(Debug, clap::Args)]
pub(super) struct KeyFileArgs {
    /// File of accepted keys, which the configuration of nats-server includes [default: nats/keys.conf
    /// in the data directory]
    #[arg(long, value_name = "FILE")]
    bus_config: Option<PathBuf>,

    /// File with the process id of nats-server, to make it read its keys again [default:
    /// nats/nats-server.pid in the data directory]
    #[arg(long, value_name = "FILE")]
    nats_pid: Option<PathBuf>,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

impl KeyFileArgs {
    pub(super) fn keys(&self) -> PathBuf {
        self.bus_config.clone().unwrap_or_else(|| NatsFiles::new(&self.data.data).keys)
    }

    pub(super) fn pid(&self) -> PathBuf {
        self.nats_pid.clone().unwrap_or_else(|| NatsFiles::new(&self.data.data).pid)
    }

    /// Whether the server runs that the file names.
    pub(super) fn has_server(&self) -> bool {
        running_server(&self.pid()).is_some()
    }

    /// Makes the server read its keys, or prints the command that does.
    ///
    /// # Errors
    /// No server runs that `--nats-pid` names, or it cannot be signalled.
    pub(super) fn reload(&self) -> Result<(), Failure> {
        if self.nats_pid.is_none() && !self.has_server() {
            say("dwell: nats-server reads the keys at its next start; a running one, after \
                 `nats-server --signal reload`");
            return Ok(());
        }
        self.signal()
    }

    /// Makes the server read its keys without a revoked one.
    ///
    /// # Errors
    /// No server was signalled, so the revoked key may still be accepted.
    pub(super) fn reload_without_revoked(&self) -> Result<(), Failure> {
        self.signal().map_err(|failure| Failure {
            error: failure
                .error
                .context("a running nats-server accepts the revoked key until it reads the file"),
            ..failure
        })
    }

    fn signal(&self) -> Result<(), Failure> {
        let file = self.pid();
        let Some(pid) = running_server(&file) else {
            let shown = file.display();
            return Err(Failure::from(anyhow::anyhow!(
                "the keys are written, but {shown} names no running nats-server; reload it with \
                 `nats-server --signal reload`, or name its file with --nats-pid"
            )));
        };
        kill_process(pid, Signal::HUP).with_context(|| {
            let pid = pid.as_raw_nonzero();
            format!("the keys are written, but nats-server was not reloaded; run `kill -HUP {pid}` as its user")
        })?;
        say("dwell: signalled nats-server to read the keys; its log says whether it did");
        Ok(())
    }
}

/// Process id in a file, if a server has it.
fn running_server(file: &Path) -> Option<Pid> {
    let text = fs::read_to_string(file).ok()?;
    let pid = Pid::from_raw(text.trim().parse().ok()?)?;
    let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).ok()?;
    (name.trim() == SERVER).then_some(pid)
}
