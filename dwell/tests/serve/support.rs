//! A running `dwell serve`, and a client that sends exactly what a test says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use std::{fs, thread};

use tempfile::TempDir;

/// Time for anything that is expected to happen soon.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns a `dwell` command that knows no data directory from outside.
pub(crate) fn dwell(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    command.args(args).env_remove("DWELL_DATA").stdin(Stdio::null());
    command
}

/// Runs `dwell serve` with arguments that it should refuse, and returns its output and duration.
pub(crate) fn refused(args: &[&str]) -> (Output, Duration) {
    let start = Instant::now();
    let mut child = dwell(&[&["serve"], args].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while child.try_wait().unwrap().is_none() && start.elapsed() < TIMEOUT {
        thread::sleep(Duration::from_millis(5));
    }
    let took = start.elapsed();
    let _ = child.kill();
    (child.wait_with_output().unwrap(), took)
}

/// Makes a token.
pub(crate) fn make_token(data: &Path) -> String {
    let output = dwell(&["serve", "token", "--data", data.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A running server. It is killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) data: TempDir,
    lines: Receiver<String>,
}

impl Server {
    /// Starts a server without a token.
    pub(crate) fn start() -> Self {
        Self::start_with(tempfile::tempdir().unwrap(), &[])
    }

    /// Starts a server that demands the returned token.
    pub(crate) fn with_token() -> (Self, String) {
        let data = tempfile::tempdir().unwrap();
        let token = make_token(data.path());
        (Self::start_with(data, &[]), token)
    }

    /// Starts a server on a data directory, on a free port unless `args` name one.
    pub(crate) fn start_with(data: TempDir, args: &[&str]) -> Self {
        let mut command = dwell(&["serve", "--data", data.path().to_str().unwrap()]);
        if !args.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let mut child = command.args(args).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let start = Instant::now();
        let address = loop {
            let line = lines.recv_timeout(TIMEOUT.saturating_sub(start.elapsed()));
            let line = line.expect("the server says where it listens");
            if let Some((_, url)) = line.split_once("listening on ") {
                break url.split_once("://").unwrap().1.trim_end_matches('/').parse().unwrap();
            }
        };
        Self { child, address, data, lines }
    }

    /// Waits for a line of the server that contains a text.
    pub(crate) fn wait_for_line(&self, text: &str) -> String {
        let start = Instant::now();
        loop {
            let line = self.lines.recv_timeout(TIMEOUT.saturating_sub(start.elapsed()));
            let line = line.unwrap_or_else(|_| panic!("no line with '{text}'"));
            if line.contains(text) {
                return line;
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Waits for the end of the server, and returns its status and how long it took.
    pub(crate) fn wait(&mut self) -> (ExitStatus, Duration) {
        let start = Instant::now();
        while start.elapsed() < TIMEOUT {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, start.elapsed());
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("the server did not end");
    }

    /// Resident memory of a kind (`VmRSS`, `RssAnon`) in KiB.
    pub(crate) fn resident(&self, kind: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(':'));
        let line = line.unwrap_or_else(|| panic!("no {kind}"));
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect_timeout(&self.address, TIMEOUT).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    /// Sends bytes and returns the answer.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        Answer::read(&mut stream)
    }

    /// Sends a request with these headers to the address of the server.
    pub(crate) fn send(&self, request: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let host = self.address.to_string();
        let host = [("Host", host.as_str())];
        let own = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
        let host = host.iter().filter(|_| !own);
        let mut text = format!("{request} HTTP/1.1\r\nConnection: close\r\n");
        for (name, value) in host.chain(headers) {
            text += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            text += &format!("Content-Length: {}\r\n", body.len());
        }
        self.raw(format!("{text}\r\n{body}").as_bytes())
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path}"), &[], "")
    }

    /// Sends a form.
    pub(crate) fn form(&self, path: &str, headers: &[(&str, &str)], fields: &str) -> Answer {
        let kind = [("Content-Type", "application/x-www-form-urlencoded")];
        self.send(&format!("POST {path}"), &[&kind, headers].concat(), fields)
    }

    /// Logs in and returns the cookie.
    pub(crate) fn log_in(&self, token: &str) -> String {
        let csrf = self.get("/login").csrf();
        let answer = self.form("/login", &[], &format!("csrf={csrf}&token={token}&next=/"));
        assert_eq!(answer.status, 303, "{answer:?}");
        answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
    /// Bytes of head and body.
    pub(crate) len: usize,
}

impl Answer {
    /// Reads an answer to the end of the connection.
    pub(crate) fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        let mut buffer = [0; 16 << 10];
        // A server that refuses a body may reset the connection after its answer.
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..count]);
        }
        Self::parse(&bytes)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Self {
            status: status.unwrap_or(0),
            head: head.to_owned(),
            body: body.to_owned(),
            len: bytes.len(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The token of the first form of a page.
    pub(crate) fn csrf(&self) -> String {
        let (_, rest) = self.body.split_once("name=\"csrf\" value=\"").expect("a form");
        rest.split('"').next().unwrap().to_owned()
    }

    /// Whether the request passed all checks, whatever its route made of it.
    pub(crate) fn is_admitted(&self) -> bool {
        !matches!(self.status, 0 | 303 | 400 | 401 | 403 | 408 | 413 | 421 | 429)
    }
}
