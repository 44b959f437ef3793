//! A nats-server with TLS, and clients with keys.

use std::env;
use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_nats::{Client, ConnectError, ConnectOptions, Event, Message};
use dwell_rollup::{Answer, Incarnation, Name, Question, Record, Subject, inbox_prefix};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::agent::{self, Agent, HOUR};

/// Path of nats-server in Debian, where not every user has it in PATH.
const SERVER: &str = "/usr/sbin/nats-server";

/// Environment variable with the path of another nats-server.
const SERVER_VARIABLE: &str = "DWELL_NATS_SERVER";

const STEP_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < STEP_TIMEOUT, "waited too long: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A free port of loopback.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Path of nats-server.
pub(crate) fn server_program() -> PathBuf {
    env::var_os(SERVER_VARIABLE).unwrap_or_else(|| SERVER.into()).into()
}

/// Certificates and a server, which is killed at the end.
pub(crate) struct Network {
    /// Directory of `ca.pem`, `cert.pem` and `key.pem`.
    pub(crate) dir: PathBuf,
    pub(crate) port: u16,
    pub(crate) runtime: Runtime,
    server: Option<Child>,
}

impl Drop for Network {
    fn drop(&mut self) {
        self.kill_server();
    }
}

impl Network {
    /// Creates certificates in a directory; `None` without nats-server.
    pub(crate) fn new(dir: &Path) -> Option<Self> {
        if !server_program().exists() {
            let test = thread::current();
            let test = test.name().unwrap_or("bus");
            println!("SKIP {test}: needs nats-server (setup/packages.txt)");
            return None;
        }
        make_certificates(dir);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Some(Self { dir: dir.to_owned(), port: free_port(), runtime, server: None })
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    pub(crate) fn url(&self) -> String {
        format!("tls://localhost:{}", self.port)
    }

    pub(crate) fn start_server(&mut self, config: &Path) {
        self.server = Some(start_server(config, self.port));
    }

    pub(crate) fn kill_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            // One that a signal stopped dies, too.
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Process id of the server.
    pub(crate) fn server(&self) -> u32 {
        self.server.as_ref().unwrap().id()
    }

    fn options(&self, identity: ConnectOptions) -> ConnectOptions {
        identity.require_tls(true).add_root_certificates(self.dir.join("ca.pem")).max_reconnects(1)
    }

    /// Sends a request to JetStream with the key of the hub, which is in this file.
    pub(crate) fn jetstream_with(&self, hub_key: &Path, api: &str, request: &Value) -> Value {
        let seed = std::fs::read_to_string(hub_key).unwrap();
        self.runtime.block_on(async {
            let identity = ConnectOptions::with_nkey(seed.trim().to_owned());
            let options = self.options(identity).custom_inbox_prefix("_INBOX_HUB");
            let client = options.connect(self.url()).await.unwrap();
            let subject = format!("$JS.API.{api}");
            let reply = client.request(subject, request.to_string().into()).await.unwrap();
            serde_json::from_slice(&reply.payload).unwrap()
        })
    }

    /// Number of messages in the stream.
    pub(crate) fn waiting_with(&self, hub_key: &Path) -> u64 {
        let info = self.jetstream_with(hub_key, "STREAM.INFO.DWELL", &json!({}));
        info["state"]["messages"].as_u64().unwrap_or_else(|| panic!("{info}"))
    }
}

/// Creates an authority `ca.pem`, and the certificate `cert.pem` of localhost with `key.pem`.
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

/// Starts a server, whose log is beside its configuration.
pub(crate) fn start_server(config: &Path, port: u16) -> Child {
    let log = File::create(config.with_extension("log")).unwrap();
    let mut command = Command::new(server_program());
    // The configuration of a leaf server names files of its directory.
    command.arg("-c").arg(config).current_dir(config.parent().unwrap());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let server = command.spawn().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    wait_until("nats-server", || TcpStream::connect(address).is_ok());
    server
}

/// A new key: its seed and its public part.
pub(crate) fn new_key() -> (String, String) {
    let (seed, public) = dwell_bus::new_user_key().unwrap();
    (seed, public.to_string())
}

/// A client with the key of a node.
pub(crate) struct Node {
    pub(crate) name: Name,
    pub(crate) client: Client,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Node {
    pub(crate) fn connect(
        network: &Network,
        name: &str,
        seed: &str,
        url: &str,
    ) -> Result<Self, ConnectError> {
        Self::connect_with(network, name, ConnectOptions::with_nkey(seed.to_owned()), url)
    }

    pub(crate) fn connect_with(
        network: &Network,
        name: &str,
        identity: ConnectOptions,
        url: &str,
    ) -> Result<Self, ConnectError> {
        let name: Name = name.parse().unwrap();
        let (sender, events) = mpsc::unbounded_channel();
        let options = network.options(identity).custom_inbox_prefix(inbox_prefix(&name));
        let options = options.event_callback(move |event| {
            let _ = sender.send(event);
            std::future::ready(())
        });
        let client = network.runtime.block_on(options.connect(url))?;
        Ok(Self { name, client, events })
    }

    /// Publishes a message, and returns what JetStream answers.
    pub(crate) fn publish(&self, network: &Network, message: Vec<u8>) -> Value {
        let subject = Subject::Up.of(&self.name);
        let sent = self.client.request(subject, message.into());
        serde_json::from_slice(&network.runtime.block_on(sent).unwrap().payload).unwrap()
    }

    /// Publishes without waiting, to any subject, and for a reply to any.
    pub(crate) fn post(&self, network: &Network, subject: &str, reply: Option<&str>, text: &str) {
        network.runtime.block_on(async {
            let (subject, payload) = (subject.to_owned(), text.to_owned().into());
            match reply.map(str::to_owned) {
                Some(reply) => self.client.publish_with_reply(subject, reply, payload).await,
                None => self.client.publish(subject, payload).await,
            }
            .unwrap();
            self.client.flush().await.unwrap();
        });
    }

    /// Publishes records, which the stream must take.
    pub(crate) fn send(&self, network: &Network, records: &[Record]) {
        let reply = self.publish(network, agent::message(records));
        assert!(reply["stream"] == "DWELL" && reply["error"].is_null(), "{reply}");
    }

    pub(crate) fn subscribe(&self, network: &Network, subject: &str) -> Subscription {
        network.runtime.block_on(async {
            let subscriber = self.client.subscribe(subject.to_owned()).await.unwrap();
            self.client.flush().await.unwrap();
            Subscription(subscriber)
        })
    }

    /// Asks the hub.
    pub(crate) fn ask(
        &self,
        network: &Network,
        incarnations: &[u64],
        version: Option<u64>,
    ) -> Answer {
        let question = Question {
            node: self.name.clone(),
            incarnations: incarnations.iter().map(|number| Incarnation(*number)).collect(),
            schedule_version: version,
        };
        let (subject, json) = (Subject::Ask.of(&self.name), question.to_json().unwrap());
        let reply = network.runtime.block_on(self.client.request(subject, json.into())).unwrap();
        Answer::from_json(&reply.payload, &self.name).unwrap()
    }

    /// The receipts of incarnation 1.
    pub(crate) fn receipts(&self, network: &Network) -> String {
        let answer = self.ask(network, &[1], None);
        answer.receipts.get(&Incarnation(1)).map(ToString::to_string).unwrap_or_default()
    }

    /// Waits for an event of the connection.
    pub(crate) fn wait_for_event(&mut self, network: &Network, text: &str) {
        network.runtime.block_on(async {
            loop {
                let event = tokio::time::timeout(STEP_TIMEOUT, self.events.recv()).await;
                let event = event.unwrap_or_else(|_| panic!("no event '{text}'")).unwrap();
                if event.to_string().to_lowercase().contains(&text.to_lowercase()) {
                    return;
                }
            }
        });
    }
}

/// Messages on a subject.
pub(crate) struct Subscription(async_nats::Subscriber);

impl Subscription {
    pub(crate) fn next(&mut self, network: &Network) -> Message {
        network.runtime.block_on(async {
            tokio::time::timeout(STEP_TIMEOUT, self.0.next()).await.unwrap().unwrap()
        })
    }

    /// Waits until receipts of incarnation 1 are these.
    pub(crate) fn wait_for_receipts(&mut self, network: &Network, node: &Node, ranges: &str) {
        loop {
            let message = self.next(network);
            let answer = Answer::from_json(&message.payload, &node.name).unwrap();
            if answer.receipts.get(&Incarnation(1)).is_some_and(|set| set.to_string() == ranges) {
                return;
            }
        }
    }

    /// Whether no message arrives for a moment.
    pub(crate) fn is_silent(&mut self, network: &Network) -> bool {
        let next = async { tokio::time::timeout(Duration::from_millis(300), self.0.next()).await };
        network.runtime.block_on(next).is_err()
    }
}

/// An agent that measured in the last hours.
pub(crate) fn agent_of(node: &str) -> Agent {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Agent::new(node, 1, 1, i64::try_from(now.as_nanos()).unwrap() - 4 * HOUR)
}
