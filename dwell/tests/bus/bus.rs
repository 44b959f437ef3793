//! A server that `dwell hub nats-config` configures, and `dwell hub`.

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Child, Command};

use dwell_io::process::{Handle, Signal};
use serde_json::{Value, json};

use crate::fixture::{Sandbox, wait_for_exit};
use crate::network::{Network, Node, new_key, wait_until};

/// A data directory with a server.
pub(crate) struct Bus {
    network: Network,
    pub(crate) sandbox: Sandbox,
    hub: Option<Child>,
}

impl Deref for Bus {
    type Target = Network;

    fn deref(&self) -> &Network {
        &self.network
    }
}

pub(crate) fn signal(process: u32, signal: Signal) {
    Handle::open(process).unwrap().signal(signal).unwrap();
}

impl Bus {
    /// A bus with a server; `None` without nats-server.
    pub(crate) fn new() -> Option<Self> {
        Self::with(&[])
    }

    /// A bus whose configuration has more options.
    pub(crate) fn with(options: &[&str]) -> Option<Self> {
        let sandbox = Sandbox::new();
        let network = Network::new(&sandbox.path(""))?;
        let mut bus = Self { network, sandbox, hub: None };
        let (cert, key) = (bus.path("cert.pem"), bus.path("key.pem"));
        let listen = format!("127.0.0.1:{}", bus.port);
        let fixed = ["hub", "nats-config", "--listen", &listen, "--tls-cert", &cert];
        bus.dwell(&[&fixed[..], &["--tls-key", &key], options].concat());
        bus.start_server();
        Some(bus)
    }

    /// A file of the server.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.sandbox.data().join("nats").join(name)
    }

    /// Runs a command that must succeed, and returns its standard error.
    pub(crate) fn dwell(&self, arguments: &[&str]) -> String {
        let output = self.sandbox.dwell(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) fn start_server(&mut self) {
        let config = self.file("nats-server.conf");
        self.network.start_server(&config);
    }

    pub(crate) fn kill_server(&mut self) {
        self.network.kill_server();
    }

    pub(crate) fn hub_command(&self, options: &[&str]) -> Command {
        let (url, ca) = (self.url(), self.path("ca.pem"));
        let fixed = ["hub", "--nats", &url, "--nats-ca", &ca];
        self.sandbox.command(&[&fixed, options].concat())
    }

    /// Starts a hub, and waits until it receives.
    pub(crate) fn start_hub(&mut self) {
        self.hub = Some(self.sandbox.start(&mut self.hub_command(&[])));
        self.wait_for_hub("receiving from tls://localhost");
    }

    pub(crate) fn wait_for_hub(&self, text: &str) {
        wait_until(text, || self.sandbox.stderr().contains(text));
    }

    pub(crate) fn kill_hub(&mut self) {
        if let Some(mut hub) = self.hub.take() {
            let _ = hub.kill();
            let _ = hub.wait();
        }
    }

    /// Stops the hub by ^C.
    pub(crate) fn stop_hub(&mut self) {
        let mut hub = self.hub.take().unwrap();
        signal(hub.id(), Signal::Interrupt);
        assert_eq!(wait_for_exit(&mut hub).code(), Some(0), "{}", self.sandbox.stderr());
        assert!(self.sandbox.stderr().contains("dwell: hub stopped"));
    }

    /// Enrols a node. Returns its seed.
    pub(crate) fn enroll(&self, name: &str) -> String {
        let (seed, public) = new_key();
        self.dwell(&["hub", "enroll", name, &public]);
        self.wait_until_accepted(&seed);
        seed
    }

    pub(crate) fn connect(&self, name: &str, seed: &str) -> Node {
        Node::connect(self, name, seed, &self.url()).unwrap()
    }

    /// Waits until the server has read a new key.
    pub(crate) fn wait_until_accepted(&self, seed: &str) {
        wait_until("the server to accept a key", || {
            Node::connect(self, "x", seed, &self.url()).is_ok()
        });
    }

    /// Waits until the hub's list of nodes has these counts.
    pub(crate) fn wait_for_counts(&self, node: &str, counts: &[(&str, u64)]) {
        wait_until(&format!("{counts:?} of {node}"), || {
            let output = self.sandbox.dwell(&["hub", "nodes", "--json"]);
            let nodes: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let nodes = nodes["nodes"].as_array().cloned().unwrap_or_default();
            let node = nodes.iter().find(|known| known["node"] == node);
            node.is_some_and(|node| counts.iter().all(|(count, value)| node[count] == json!(value)))
        });
    }

    /// Makes messages that are not acknowledged arrive again after a second. A hub has created the consumer.
    pub(crate) fn shorten_ack_wait(&self) {
        let info = self.jetstream("CONSUMER.INFO.DWELL.hub", &json!({}));
        let mut config = info["config"].clone();
        config["ack_wait"] = json!(1_000_000_000);
        let request = json!({"stream_name": "DWELL", "config": config});
        let changed = self.jetstream("CONSUMER.DURABLE.CREATE.DWELL.hub", &request);
        assert_eq!(changed["config"]["ack_wait"], 1_000_000_000, "{changed}");
    }

    pub(crate) fn jetstream(&self, api: &str, request: &Value) -> Value {
        self.jetstream_with(&self.file("hub.nk"), api, request)
    }

    /// Number of messages in the stream.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting_with(&self.file("hub.nk"))
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for path in [self.sandbox.path("stderr"), self.file("nats-server.log")] {
                let text = fs::read_to_string(&path).unwrap_or_default();
                println!("--- {}:\n{text}", path.display());
            }
        }
        self.kill_hub();
    }
}
