//! A nats-server of a test, with a certificate authority and the keys of a hub and of node `n1`.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use async_nats::{Client, ConnectOptions};
use dwell_rollup::{Name, permitted_subjects};
use nkeys::KeyPair;
use tempfile::TempDir;

/// Time-out of all waits; longer than any of them takes.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A server, which ends with its test.
pub(crate) struct NatsServer {
    dir: TempDir,
    port: u16,
    process: Option<Child>,
    hub_seed: String,
    node: KeyPair,
    /// Node whose subjects the key of the node may use.
    permitted: Name,
}

/// Returns a server, or prints that the test is skipped.
macro_rules! server_or_skip {
    () => {
        match $crate::server::NatsServer::start("n1") {
            Some(server) => server,
            None => {
                let test = std::thread::current().name().unwrap_or("bus").to_owned();
                println!("SKIP {test}: needs nats-server and openssl");
                return;
            }
        }
    };
}
pub(crate) use server_or_skip;

impl NatsServer {
    /// Starts a server that permits the subjects of a node; `None` without the programs.
    pub(crate) fn start(permitted: &str) -> Option<Self> {
        for program in [("nats-server", "--version"), ("openssl", "version")] {
            let (program, argument) = program;
            Command::new(program).arg(argument).stdout(Stdio::null()).status().ok()?;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self {
            dir: tempfile::tempdir().unwrap(),
            port,
            process: None,
            hub_seed: String::new(),
            node: KeyPair::new_user(),
            permitted: permitted.parse().unwrap(),
        };
        let hub = KeyPair::new_user();
        server.hub_seed = hub.seed().unwrap();
        certificates(server.dir.path());
        fs::write(server.node_key(), server.node.seed().unwrap()).unwrap();
        Command::new("chmod").arg("600").arg(server.node_key()).status().unwrap();
        server.configure(&hub.public_key(), 365);
        server.run();
        Some(server)
    }

    fn configure(&self, hub: &str, days: i32) {
        let dir = self.dir.path().display();
        sign(self.dir.path(), "ca", days);
        let (publish, subscribe) = permitted_subjects(&self.permitted);
        let config = format!(
            "listen: \"127.0.0.1:{}\"\n\
             server_name: bus\n\
             tls {{ cert_file: \"{dir}/server.pem\", key_file: \"{dir}/server.key\" }}\n\
             jetstream {{ store_dir: \"{dir}/js\", max_memory_store: 1MB, max_file_store: 1GB }}\n\
             authorization {{ users = [\n\
             {{ nkey: {hub} }},\n\
             {{ nkey: {}, permissions: {{ publish: {{ allow: {publish:?} }}, \
             subscribe: {{ allow: {subscribe:?} }} }} }}\n\
             ] }}\n",
            self.port,
            self.node.public_key(),
        );
        fs::write(self.dir.path().join("nats.conf"), config).unwrap();
    }

    /// Starts the process and waits until it answers.
    pub(crate) fn run(&mut self) {
        let log = fs::File::create(self.dir.path().join("nats.log")).unwrap();
        let mut command = Command::new("nats-server");
        command.arg("-c").arg(self.dir.path().join("nats.conf"));
        let process = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.process = Some(process);
        let deadline = std::time::Instant::now() + WAIT_TIMEOUT;
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = fs::read_to_string(self.dir.path().join("nats.log")).unwrap_or_default();
            assert!(std::time::Instant::now() < deadline, "the server does not start: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Replaces the certificate of the server by one that has expired.
    pub(crate) fn expire_certificate(&mut self) {
        self.kill();
        sign(self.dir.path(), "ca", -1);
        self.run();
    }

    /// Replaces the certificate of the server by one of another authority.
    pub(crate) fn change_authority(&mut self) {
        self.kill();
        authority(self.dir.path(), "other");
        sign(self.dir.path(), "other", 365);
        self.run();
    }

    pub(crate) fn url(&self) -> String {
        format!("tls://127.0.0.1:{}", self.port)
    }

    pub(crate) fn ca_file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    pub(crate) fn node_key(&self) -> PathBuf {
        self.dir.path().join("n1.nk")
    }

    /// A connection with all rights.
    pub(crate) async fn hub(&self) -> Client {
        let options = ConnectOptions::with_nkey(self.hub_seed.clone())
            .require_tls(true)
            .add_root_certificates(self.ca_file())
            .retry_on_initial_connect();
        options.connect(self.url()).await.unwrap()
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn openssl(dir: &Path, arguments: &str) {
    let output =
        Command::new("openssl").args(arguments.split(' ')).current_dir(dir).output().unwrap();
    let reason = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {arguments}: {reason}");
}

fn authority(dir: &Path, name: &str) {
    openssl(dir, &format!("ecparam -name prime256v1 -genkey -noout -out {name}.key"));
    openssl(
        dir,
        &format!("req -x509 -new -key {name}.key -days 365 -subj /CN={name} -out {name}.pem"),
    );
}

fn certificates(dir: &Path) {
    authority(dir, "ca");
    fs::write(dir.join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    openssl(dir, "ecparam -name prime256v1 -genkey -noout -out server.key");
    openssl(dir, "req -new -key server.key -subj /CN=bus -out server.csr");
}

/// Makes a certificate of the server for a number of days.
fn sign(dir: &Path, authority: &str, days: i32) {
    openssl(
        dir,
        &format!(
            "x509 -req -in server.csr -CA {authority}.pem -CAkey {authority}.key -set_serial 2 \
             -days {days} -extfile names -out server.pem"
        ),
    );
}
