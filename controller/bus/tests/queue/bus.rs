//! A server that this crate configures, and hubs in this process.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dwell_bus::{
    AcceptedKey, BusAddress, BusError, BusHub, Credential, HubServer, HubServerSettings, Owner,
    ServerTls, SharedStore, change_keys, run, seed_file,
};
use dwell_hub::store::Counts;
use dwell_hub::{Rules, SqliteStore};
use serde_json::Value;
use tempfile::TempDir;

use crate::network::{Network, Node, new_key, wait_until};

/// A server with the key of hubs, and a database.
pub(crate) struct Bus {
    network: Network,
    pub(crate) store: SharedStore,
    pub(crate) dir: TempDir,
}

impl Deref for Bus {
    type Target = Network;

    fn deref(&self) -> &Network {
        &self.network
    }
}

impl Bus {
    /// `None` without nats-server.
    pub(crate) fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let network = Network::new(dir.path())?;
        let store: SharedStore = Arc::new(Mutex::new(SqliteStore::open(dir.path()).unwrap()));
        let mut bus = Self { network, store, dir };
        let key = Credential::Key(seed_file(&bus.file("hub.nk")).unwrap());
        bus.accept(Owner::Hub, key);
        let server = HubServer {
            settings: HubServerSettings {
                listen: format!("127.0.0.1:{}", bus.port),
                listen_leaf: None,
                max_bytes: 64 << 20,
            },
            tls: ServerTls { cert: bus.file("cert.pem"), key: bus.file("key.pem") },
            keys: PathBuf::from("keys.conf"),
            pid: bus.file("pid"),
            store: bus.file("store"),
        };
        std::fs::write(bus.file("nats.conf"), server.to_text()).unwrap();
        bus.start_server();
        Some(bus)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn accept(&self, owner: Owner, credential: Credential) {
        let accepted = AcceptedKey { owner, nodes: BTreeSet::new(), credential };
        change_keys(&self.file("keys.conf"), |keys| keys.enroll(accepted, false)).unwrap();
    }

    pub(crate) fn start_server(&mut self) {
        let config = self.file("nats.conf");
        self.network.start_server(&config);
    }

    pub(crate) fn kill_server(&mut self) {
        self.network.kill_server();
    }

    /// Enrols a node. Returns its seed.
    pub(crate) fn enroll(&self, name: &str) -> String {
        let (seed, public) = new_key();
        let owner = Owner::Node(name.parse().unwrap());
        self.accept(owner, Credential::Key(public.parse().unwrap()));
        let signalled = Command::new("kill").args(["-HUP", &self.server().to_string()]).status();
        assert!(signalled.unwrap().success());
        wait_until("the server to accept a key", || {
            Node::connect(self, name, &seed, &self.url()).is_ok()
        });
        seed
    }

    /// Enrols a node, and connects with its key.
    pub(crate) fn node(&self, name: &str) -> Node {
        let seed = self.enroll(name);
        Node::connect(self, name, &seed, &self.url()).unwrap()
    }

    pub(crate) fn start_hub(&self) -> Hub {
        self.start_hub_with(None)
    }

    /// Starts a hub with this size of the stream, and waits until it receives.
    pub(crate) fn start_hub_with(&self, max_bytes: Option<u64>) -> Hub {
        let (url, ca, key) = (self.url(), Some(self.path("ca.pem").into()), self.file("hub.nk"));
        let hub = BusHub {
            address: BusAddress { url, ca, key },
            max_bytes: Some(max_bytes.unwrap_or(32 << 20)),
            rules: Rules::default(),
            store: SharedStore::clone(&self.store),
        };
        let (stop, events) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (of_thread, reported) = (Arc::clone(&stop), Arc::clone(&events));
        let thread = thread::spawn(move || {
            run(&hub, &of_thread, &|event| reported.lock().unwrap().push(event.to_string()))
        });
        let hub = Hub { stop, events, thread };
        hub.wait_for("receiving from");
        hub
    }

    pub(crate) fn jetstream(&self, api: &str, request: &Value) -> Value {
        self.jetstream_with(&self.file("hub.nk"), api, request)
    }

    /// Number of messages in the stream.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting_with(&self.file("hub.nk"))
    }

    pub(crate) fn counts(&self, node: &str) -> Counts {
        let mut store = self.store.lock().unwrap();
        let nodes = store.begin_to_read().unwrap().nodes().unwrap();
        let node = nodes.iter().find(|known| known.name.as_str() == node);
        node.map(|node| node.counts).unwrap_or_default()
    }

    /// Waits for the numbers of stored, duplicate and bad records of a node.
    pub(crate) fn wait_for_counts(&self, node: &str, counts: [u64; 3]) {
        let mut last = Counts::default();
        wait_until(&format!("{counts:?} of {node}"), || {
            last = self.counts(node);
            [last.stored, last.duplicates, last.bad] == counts
        });
    }
}

/// A hub on a thread.
pub(crate) struct Hub {
    stop: Arc<AtomicBool>,
    events: Arc<Mutex<Vec<String>>>,
    thread: JoinHandle<Result<(), BusError>>,
}

impl Hub {
    /// Waits until the hub reports this, or ends.
    pub(crate) fn wait_for(&self, text: &str) {
        wait_until(text, || {
            let events = self.events.lock().unwrap();
            self.thread.is_finished() || events.iter().any(|event| event.contains(text))
        });
    }

    pub(crate) fn has_reported(&self, text: &str) -> bool {
        self.events.lock().unwrap().iter().any(|event| event.contains(text))
    }

    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let since = Instant::now();
        self.thread.join().unwrap().unwrap();
        assert!(since.elapsed() < Duration::from_secs(10), "{:?}", self.events);
    }

    /// The error by which the hub ended.
    pub(crate) fn error(self) -> String {
        self.thread.join().unwrap().unwrap_err().to_string()
    }
}
