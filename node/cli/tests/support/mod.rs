//! Shared by tests of the node commands: running them, checking their JSON, servers that end with
//! their test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use dwell_io::process::{Handle, Signal};
use serde_json::Value;

/// The program under test. `tests/nodes` gives a script that runs the node of another architecture.
pub(crate) const DWELL: &str = match option_env!("DWELL_NODE_PROGRAM") {
    Some(program) => program,
    None => env!("CARGO_BIN_EXE_dwell-node"),
};

pub(crate) fn dwell(arguments: &[&str]) -> Output {
    Command::new(DWELL).args(arguments).stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let path = "../../docs/schema/dwell.summary-1.schema.json";
    let schema = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let schema: Value = serde_json::from_slice(&schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<_> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}\n{text}");
    value
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A server of dwell or another program, ended with its test.
pub(crate) struct Server {
    pub(crate) child: Child,
}

impl Server {
    /// Starts `dwell reflect` on a free port for each scheme; returns the URLs.
    pub(crate) fn reflect(schemes: &[&str], host: &str, more: &[&str]) -> (Self, Vec<String>) {
        let urls: Vec<_> =
            schemes.iter().map(|scheme| format!("{scheme}://{host}:{}", free_port(host))).collect();
        let mut command = Command::new(DWELL);
        command.arg("reflect").args(&urls).args(more);
        (Self::ready(command, "listening on", urls.len()), urls)
    }

    /// Starts a server and waits until it has printed `word` to standard error `times` times.
    pub(crate) fn ready(mut command: Command, word: &str, times: usize) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut lines = stderr.lines().map_while(Result::ok);
        let (mut seen, mut printed) = (0, Vec::new());
        while seen < times {
            let line = lines.next().unwrap_or_else(|| panic!("the server ended: {printed:?}"));
            seen += usize::from(line.contains(word));
            printed.push(line);
        }
        Self { child }
    }

    /// Stops it with SIGINT; returns its output.
    pub(crate) fn stop(mut self) -> Output {
        signal(&self.child, Signal::Interrupt);
        let mut stdout = Vec::new();
        std::io::copy(&mut self.child.stdout.take().unwrap(), &mut stdout).unwrap();
        let status = self.child.wait().unwrap();
        Output { status, stdout, stderr: Vec::new() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    Handle::open(child.id()).unwrap().signal(signal).unwrap();
}

/// A port that is currently free for UDP and for TCP.
pub(crate) fn free_port(host: &str) -> u16 {
    loop {
        let udp = UdpSocket::bind(format!("{host}:0")).unwrap();
        let port = udp.local_addr().unwrap().port();
        if TcpListener::bind(format!("{host}:{port}")).is_ok() {
            return port;
        }
    }
}
