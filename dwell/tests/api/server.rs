//! A server on a free port with its own data directory, and a small HTTP client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const DWELL: &str = env!("CARGO_BIN_EXE_dwell");

/// Longer than any test step takes; a step that hangs fails.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A data directory, which is removed at the end.
pub(crate) struct Sandbox {
    dir: TempDir,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path("data")
    }
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    _stderr: BufReader<std::process::ChildStderr>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The lines of the head, in lower case.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The code of an error, whose form is checked.
    pub(crate) fn error(&self) -> (u16, String) {
        let body = self.json();
        assert!(self.head.contains("content-type: application/json"), "{}", self.head);
        assert!(body["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
        (self.status, body["error"]["code"].as_str().unwrap().to_owned())
    }
}

impl Server {
    pub(crate) fn start(data: &Path) -> Self {
        let mut child = Command::new(DWELL)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .env_remove("DWELL_DATA")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "the server printed no address");
            if let Some((_, rest)) = line.split_once("http://") {
                break rest.trim().trim_end_matches('/').parse().unwrap();
            }
        };
        Self { child, address, _stderr: stderr }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the server with SIGKILL.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Opens a connection and sends a request without reading the answer.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(STEP_TIMEOUT)).unwrap();
        let address = self.address;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        // The server may refuse a request before it has read the body.
        let _ = stream.write_all(body);
        stream
    }

    pub(crate) fn request(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let mut bytes = Vec::new();
        let _ = self.send(method, path, headers, body).read_to_end(&mut bytes);
        answer(&bytes)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request("GET", &format!("/api/v1{path}"), "", b"")
    }

    /// Sends JSON.
    pub(crate) fn json(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let length = body.len();
        let headers = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
        self.request(method, &format!("/api/v1{path}"), &headers, body.as_bytes())
    }

    pub(crate) fn post(&self, path: &str) -> Answer {
        self.json("POST", path, &Value::Null)
    }

    /// Starts an experiment with a plan; returns its name.
    pub(crate) fn experiment(&self, plan: &str) -> String {
        let answer = self.json("POST", "/experiments", &json!({ "plan": plan }));
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    /// Waits until an experiment satisfies a condition; returns it.
    pub(crate) fn wait_for(&self, id: &str, what: &str, is_met: impl Fn(&Value) -> bool) -> Value {
        wait_until(what, || {
            let experiment = self.get(&format!("/experiments/{id}")).json();
            is_met(&experiment).then_some(experiment.clone()).ok_or(experiment)
        })
    }

    pub(crate) fn wait_for_state(&self, id: &str, state: &str) -> Value {
        self.wait_for(id, state, |experiment| experiment["state"] == state)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Repeats an attempt until it succeeds.
pub(crate) fn wait_until<T, E: std::fmt::Debug>(
    what: &str,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> T {
    let since = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(last) => assert!(since.elapsed() < STEP_TIMEOUT, "not {what}: {last:?}"),
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Parses an answer, also one in chunks.
fn answer(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(bytes)));
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut rest = &bytes[end + 4..];
    let mut body = Vec::new();
    if !head.contains("transfer-encoding: chunked") {
        body.extend_from_slice(rest);
        return Answer { status, head, body };
    }
    while let Some(line) = rest.windows(2).position(|two| two == b"\r\n") {
        let length = std::str::from_utf8(&rest[..line]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        body.extend_from_slice(&rest[line + 2..line + 2 + length]);
        rest = &rest[(line + 4 + length).min(rest.len())..];
    }
    Answer { status, head, body }
}

/// An event of a stream.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) data: Value,
}

/// A stream of events.
pub(crate) struct Events(BufReader<TcpStream>);

impl Events {
    pub(crate) fn open(server: &Server, path: &str, last: Option<u64>) -> Self {
        let last = last.map_or(String::new(), |id| format!("last-event-id: {id}\r\n"));
        Self(BufReader::new(server.send("GET", &format!("/api/v1{path}"), &last, b"")))
    }

    /// Returns the next event; `None` at the end. The sizes of chunks are lines without a colon.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let mut event = Event { id: 0, name: String::new(), data: Value::Null };
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("id", id)) => event.id = id.parse().unwrap(),
                Some(("event", name)) => event.name = name.to_owned(),
                Some(("data", data)) => event.data = serde_json::from_str(data).unwrap(),
                _ if !event.data.is_null() => return Some(event),
                _ => {}
            }
        }
    }
}

/// A plan of `trials` trials of about `milliseconds` each.
pub(crate) fn plan(trials: u32, milliseconds: u32) -> String {
    format!(
        "version = 1\nname = \"small\"\n[topology]\nlab = \"line:2\"\n[ping]\nfrom = \"n1\"\n\
         to = \"n2\"\nprotocol = \"udp\"\ncount = {milliseconds}\ninterval = \"1ms\"\nwarm_up = 2\n\
         [trials]\nrepetitions = {trials}\nseed = 7\n"
    )
}

/// Whether labs can be created; prints why a test is skipped.
pub(crate) fn is_root(test: &str) -> bool {
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    if !is_root {
        println!("SKIP {test}: network namespaces need root");
    }
    is_root
}
