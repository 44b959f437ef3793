//! A nats-server with TLS that accepts the keys of agents, configured by `dwell hub nats-config`, and its
//! stream.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use async_nats::jetstream::{self, stream::State};
use async_nats::{Client, ConnectOptions};
use dwell_bus::{AcceptedKey, Credential, Owner, change_keys, new_user_key};
use dwell_rollup::{Name, STREAM};
use tokio::runtime::Runtime;

use super::records::agent_name;
use crate::lab::sibling;
use crate::{Interrupt, Server};

/// Path of nats-server in Debian, where not every user has it in PATH.
const NATS_SERVER: &str = "/usr/sbin/nats-server";

/// Time for the server and a hub to start, with the keys of 10,000 agents.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Inbox of hubs, which the key of the hub may subscribe to.
const HUB_INBOX: &str = "_INBOX_HUB";

/// Interval between looks at the stream.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A server, its files, and the key of the hub.
pub(super) struct Network {
    /// Data directory of the hub.
    data: PathBuf,
    port: u16,
    /// Seeds of the agents' keys, by number from 1.
    pub(super) keys: Vec<String>,
    server: Option<Server>,
    runtime: Runtime,
}

impl Network {
    /// Whether the programs are installed.
    pub(super) fn missing_program() -> Option<&'static str> {
        let openssl = Command::new("openssl").arg("version").stdout(Stdio::null()).status();
        match openssl {
            _ if !Path::new(NATS_SERVER).exists() => Some("nats-server"),
            Err(_) => Some("openssl"),
            Ok(_) => None,
        }
    }

    /// Starts a server with files in a directory that accepts the keys of this number of agents.
    pub(super) fn start(dir: &Path, agents: u64) -> Result<Self> {
        let data = dir.join("data");
        fs::create_dir_all(&data)?;
        make_certificates(dir)?;
        // Free a moment ago; another program may take it, and then the server says so.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("cannot start tokio")?;
        let mut network = Self { data, port, keys: Vec::new(), server: None, runtime };
        let mut command = network.dwell()?;
        command.args(["hub", "nats-config", "--listen", &format!("127.0.0.1:{port}")]);
        command.arg("--tls-cert").arg(dir.join("cert.pem"));
        command.arg("--tls-key").arg(dir.join("key.pem"));
        command.arg("--data").arg(&network.data);
        let output = command.output().context("cannot start dwell hub nats-config")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "dwell hub nats-config: {said}");
        let names = (1..=agents).map(agent_name).collect::<Result<Vec<_>>>()?;
        network.keys = network.enroll(names)?;
        let mut server = Command::new(NATS_SERVER);
        server.arg("-c").arg(network.file("nats-server.conf"));
        network.server =
            Some(Server::start_within(server, Some("Server is ready"), START_TIMEOUT)?);
        Ok(network)
    }

    /// Creates keys of nodes and adds them to those that the server accepts, as `dwell hub enroll` does one
    /// by one. Returns their seeds. A running server does not read them.
    fn enroll(&self, nodes: Vec<Name>) -> Result<Vec<String>> {
        let mut seeds = Vec::new();
        let mut accepted = Vec::new();
        for node in nodes {
            let (seed, public) = new_user_key()?;
            seeds.push(seed);
            let (owner, credential) = (Owner::Node(node), Credential::Key(public));
            accepted.push(AcceptedKey { owner, nodes: BTreeSet::new(), credential });
        }
        let add = |keys: &mut dwell_bus::AcceptedKeys| {
            accepted.into_iter().try_for_each(|key| keys.enroll(key, false))
        };
        change_keys(&self.file("keys.conf"), add)?;
        Ok(seeds)
    }

    /// A file of the server.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.data.join("nats").join(name)
    }

    /// Certificates that verify the server.
    pub(super) fn ca(&self) -> PathBuf {
        self.data.with_file_name("ca.pem")
    }

    pub(super) fn url(&self) -> String {
        format!("tls://localhost:{}", self.port)
    }

    /// Process id of the server.
    pub(super) fn server_id(&self) -> u32 {
        self.server.as_ref().map_or(0, Server::id)
    }

    fn dwell(&self) -> Result<Command> {
        Ok(Command::new(sibling("dwell")?))
    }

    /// Starts a hub with a PostgreSQL database, and waits until it receives.
    pub(super) fn start_hub(&self, database: &str) -> Result<Server> {
        let mut command = self.dwell()?;
        command.args(["hub", "--nats", &self.url(), "--database", database]);
        command.arg("--nats-ca").arg(self.ca()).arg("--data").arg(&self.data);
        Server::start_within(command, Some("receiving from"), START_TIMEOUT)
    }

    /// The runtime of clients.
    pub(super) const fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Connects with the key of the hub.
    pub(super) fn connect_hub(&self) -> Result<Client> {
        let seed = fs::read_to_string(self.file("hub.nk")).context("cannot read the hub's key")?;
        let options = ConnectOptions::with_nkey(seed.trim().to_owned())
            .require_tls(true)
            .add_root_certificates(self.ca())
            .custom_inbox_prefix(HUB_INBOX);
        let connected = self.runtime.block_on(options.connect(self.url()));
        connected.context("cannot connect with the key of the hub")
    }
}

/// A look at the stream, with the key of the hub.
pub(super) struct StreamView<'a> {
    runtime: &'a Runtime,
    context: jetstream::Context,
}

impl<'a> StreamView<'a> {
    pub(super) fn new(network: &'a Network) -> Result<Self> {
        let client = network.connect_hub()?;
        // The context starts a task.
        let _runtime = network.runtime().enter();
        let context = jetstream::new(client);
        Ok(Self { runtime: network.runtime(), context })
    }

    /// Number and bytes of the messages in the stream.
    pub(super) fn state(&self) -> Result<State> {
        let state = async {
            let stream = self.context.get_stream(STREAM).await?;
            Ok::<_, anyhow::Error>(stream.cached_info().state.clone())
        };
        self.runtime.block_on(state).context("cannot read the state of the stream")
    }

    /// Waits until the stream is empty.
    pub(super) fn await_empty(&self, timeout: Duration, interrupt: &Interrupt) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            let waiting = self.state()?.messages;
            if waiting == 0 {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{waiting} messages wait after {timeout:?}");
            ensure!(!interrupt.came(), "interrupted; {waiting} messages wait");
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Creates an authority `ca.pem`, and the certificate `cert.pem` of localhost with `key.pem`.
fn make_certificates(dir: &Path) -> Result<()> {
    let run = |arguments: &[&str]| {
        let fixed = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
        let mut command = Command::new("openssl");
        command.current_dir(dir).args(fixed).args(["-nodes", "-days", "2"]).args(arguments);
        let output = command.output().context("cannot start openssl")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cannot create certificates: {said}");
        Ok(())
    };
    run(&["-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"])?;
    let signed = ["-subj", "/CN=localhost", "-CA", "ca.pem", "-CAkey", "ca.key"];
    let extensions =
        ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE"];
    run(&[&signed[..], &extensions, &["-keyout", "key.pem", "-out", "cert.pem"]].concat())
}
