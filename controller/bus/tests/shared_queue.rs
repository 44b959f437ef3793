//! Two hubs with one database share the stream of a real nats-server: each message is stored once, also
//! if one hub stops. The configuration is that of this crate.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectOptions};
use dwell_bus::{
    AcceptedKey, BusAddress, BusError, BusEvent, BusHub, Credential, HubServer, Owner, PublicKey,
    ServerTls, SharedStore, change_keys, new_user_key, run, seed_file,
};
use dwell_hub::store::Counts;
use dwell_hub::{Rules, SqliteStore};
use dwell_rollup::{
    Answer, Body, BootId, Identity, Incarnation, Name, Question, Record, Status, Subject,
    inbox_prefix,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const SERVER: &str = "/usr/sbin/nats-server";

const STEP_TIMEOUT: Duration = Duration::from_secs(60);

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < STEP_TIMEOUT, "waited too long: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A server with the key of hubs and of one node.
struct Bus {
    dir: TempDir,
    port: u16,
    server: Child,
    store: SharedStore,
    seed: String,
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn make_certificates(dir: &Path) {
    let run = |arguments: &[&str]| {
        let fixed = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
        let mut command = Command::new("openssl");
        command.current_dir(dir).args(fixed).args(["-nodes", "-days", "2"]).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    run(&["-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"]);
    let signed = ["-subj", "/CN=localhost", "-CA", "ca.pem", "-CAkey", "ca.key"];
    let extensions =
        ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE"];
    run(&[&signed[..], &extensions, &["-keyout", "key.pem", "-out", "cert.pem"]].concat());
}

impl Bus {
    fn new(node: &Name) -> Option<Self> {
        if !Path::new(SERVER).exists() {
            println!("SKIP shared_queue: needs nats-server (setup/packages.txt)");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        make_certificates(dir.path());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let accept = |owner: Owner, key: PublicKey| {
            let credential = Credential::Key(key);
            let accepted = AcceptedKey { owner, nodes: BTreeSet::new(), credential };
            change_keys(&path("keys.conf"), |keys| keys.enroll(accepted, false)).unwrap();
        };
        accept(Owner::Hub, seed_file(&path("hub.nk")).unwrap());
        let (seed, public) = new_user_key().unwrap();
        accept(Owner::Node(node.clone()), public);
        let server = HubServer {
            listen: format!("127.0.0.1:{port}"),
            listen_leaf: None,
            tls: ServerTls { cert: path("cert.pem"), key: path("key.pem") },
            keys: PathBuf::from("keys.conf"),
            pid: path("pid"),
            store: path("store"),
            max_bytes: 8 << 20,
        };
        std::fs::write(path("nats.conf"), server.to_text()).unwrap();
        let log = File::create(path("log")).unwrap();
        let mut command = Command::new(SERVER);
        command.arg("-c").arg(path("nats.conf")).stdout(Stdio::null()).stderr(log);
        let server = command.spawn().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        wait_until("nats-server", || TcpStream::connect(address).is_ok());
        let store: SharedStore = Arc::new(Mutex::new(SqliteStore::open(dir.path()).unwrap()));
        Some(Self { dir, port, server, store, seed })
    }

    fn url(&self) -> String {
        format!("tls://localhost:{}", self.port)
    }

    fn start_hub(&self) -> Hub {
        let path = |name: &str| self.dir.path().join(name);
        let (url, ca, key) = (self.url(), Some(path("ca.pem")), path("hub.nk"));
        let hub = BusHub {
            address: BusAddress { url, ca, key },
            max_bytes: Some(4 << 20),
            rules: Rules::default(),
            store: SharedStore::clone(&self.store),
        };
        let (stop, events) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (of_thread, reported) = (Arc::clone(&stop), Arc::clone(&events));
        let thread = thread::spawn(move || {
            run(&hub, &of_thread, &|event| reported.lock().unwrap().push(event))
        });
        let hub = Hub { stop, events, thread };
        wait_until("the hub to receive", || {
            let is_receiving = |event: &BusEvent| matches!(event, BusEvent::Receiving { .. });
            hub.thread.is_finished() || hub.events.lock().unwrap().iter().any(is_receiving)
        });
        hub
    }

    fn connect(&self, runtime: &Runtime, node: &Name) -> Client {
        let options = ConnectOptions::with_nkey(self.seed.clone())
            .add_root_certificates(self.dir.path().join("ca.pem"))
            .custom_inbox_prefix(inbox_prefix(node));
        runtime.block_on(options.connect(self.url())).unwrap()
    }

    fn counts(&self) -> Counts {
        let mut store = self.store.lock().unwrap();
        let nodes = store.begin_to_read().unwrap().nodes().unwrap();
        nodes.first().map(|node| node.counts).unwrap_or_default()
    }
}

struct Hub {
    stop: Arc<AtomicBool>,
    events: Arc<Mutex<Vec<BusEvent>>>,
    thread: JoinHandle<Result<(), BusError>>,
}

impl Hub {
    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let since = Instant::now();
        self.thread.join().unwrap().unwrap();
        assert!(since.elapsed() < Duration::from_secs(10), "{:?}", self.events);
    }
}

fn record(node: &Name, sequence: u64) -> Vec<u8> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let record = Record {
        identity: Identity { node: node.clone(), incarnation: Incarnation(7), sequence },
        wall_ns: i64::try_from(now.as_nanos()).unwrap(),
        boot_ns: 0,
        boot_id: BootId([1; 16]),
        body: Body::Status(Box::new(Status { clock_synchronised: true, ..Status::default() })),
    };
    let mut encoding = Vec::new();
    record.encode(&mut encoding).unwrap();
    encoding
}

#[test]
fn two_hubs_store_each_message_once() {
    const MESSAGES: u64 = 600;
    let node: Name = "site-7.gw".parse().unwrap();
    let Some(bus) = Bus::new(&node) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (bus.start_hub(), bus.start_hub());
    let client = bus.connect(&runtime, &node);
    let publish = |sequence: u64| {
        let sent = client.request(Subject::Up.of(&node), record(&node, sequence).into());
        let reply = runtime.block_on(sent).unwrap();
        // A node whose messages wait for a hub is refused for a while.
        let text = String::from_utf8_lossy(&reply.payload).into_owned();
        assert!(text.contains("DWELL"), "{text}");
        !text.contains("error")
    };
    for sequence in 1..=MESSAGES / 2 {
        wait_until("space for a message", || publish(sequence));
    }
    first.stop();
    for sequence in MESSAGES / 2 + 1..=MESSAGES {
        wait_until("space for a message", || publish(sequence));
    }
    wait_until("all records", || bus.counts().stored == MESSAGES);
    assert_eq!((bus.counts().duplicates, bus.counts().bad), (0, 0));
    let question =
        Question { node: node.clone(), incarnations: vec![Incarnation(7)], schedule_version: None };
    let asked = client.request(Subject::Ask.of(&node), question.to_json().unwrap().into());
    let answer = runtime.block_on(asked).unwrap();
    let answer = Answer::from_json(&answer.payload, &node).unwrap();
    assert_eq!(answer.receipts[&Incarnation(7)].to_string(), format!("1-{MESSAGES}"));
    second.stop();
}
