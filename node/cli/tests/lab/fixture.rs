//! Shared by tests of labs: a lab that ends with its test, running dwell, waiting.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use dwell_io::netns;
use serde_json::Value;

/// The program under test. `tests/nodes` gives a script that runs the node of another architecture.
pub(crate) const DWELL: &str = match option_env!("DWELL_NODE_PROGRAM") {
    Some(program) => program,
    None => env!("CARGO_BIN_EXE_dwell-node"),
};

/// Time-out for all waits; longer than any of them takes.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A lab that is removed when the test ends, even after a panic.
pub(crate) struct TestLab {
    pub(crate) name: String,
}

impl TestLab {
    /// Reserves a name that is unique among tests and runs.
    pub(crate) fn reserve(test: &str) -> Self {
        Self { name: format!("t{}-{test}", std::process::id()) }
    }

    pub(crate) fn up(test: &str, arguments: &[&str]) -> Self {
        let lab = Self::reserve(test);
        let output = lab.try_up(arguments);
        assert!(output.status.success(), "{output:?}");
        lab
    }

    pub(crate) fn try_up(&self, arguments: &[&str]) -> Output {
        dwell(&[&["lab", "up", "--name", &self.name], arguments].concat())
    }

    pub(crate) fn exec(&self, node: &str, command: &[&str]) -> Output {
        dwell(&[&["lab", "exec", "--lab", &self.name, node, "--"], command].concat())
    }

    pub(crate) fn netns(&self, node: &str) -> PathBuf {
        Path::new("/run/netns").join(format!("dwell-{}-{node}", self.name))
    }

    /// Opens a UDP socket in a node.
    pub(crate) fn socket(&self, node: &str, address: &str) -> UdpSocket {
        let socket =
            netns::within(&self.netns(node), || UdpSocket::bind(address)).unwrap().unwrap();
        socket.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        socket
    }

    pub(crate) fn describe(&self) -> Value {
        let output = dwell(&["lab", "list", "--json"]);
        assert!(output.status.success(), "{output:?}");
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(all["schema"], "dwell.labs/1");
        assert_follows_the_schema(&all);
        let labs = all["labs"].as_array().unwrap();
        labs.iter().find(|lab| lab["name"] == self.name.as_str()).expect("the lab").clone()
    }

    /// Runs `lab routes --json`; returns its output and exit code.
    pub(crate) fn routes(&self) -> (Value, Option<i32>) {
        let output = dwell(&["lab", "routes", &self.name, "--json"]);
        let table = serde_json::from_slice(&output.stdout).unwrap();
        assert_follows("dwell.lab-routes-1", &table);
        (table, output.status.code())
    }

    /// The events that link 0 has logged.
    pub(crate) fn events(&self) -> Vec<Value> {
        let lab = self.describe();
        let text = fs::read_to_string(lab["links"][0]["event_log"].as_str().unwrap()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn down(&self) -> Output {
        dwell(&["lab", "down", &self.name])
    }

    pub(crate) fn namespaces(&self) -> usize {
        let prefix = format!("dwell-{}-", self.name);
        let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        // The name of another lab may begin with this one and a hyphen; names of nodes have none.
        names
            .filter(|name| name.strip_prefix(&prefix).is_some_and(|node| !node.contains('-')))
            .count()
    }

    pub(crate) fn directory(&self) -> PathBuf {
        Path::new("/run/dwell/labs").join(&self.name)
    }

    /// Processes of the lab, found by its directory on their command line.
    pub(crate) fn processes(&self) -> Vec<String> {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let directory = self.directory().display().to_string();
        pids.filter(|pid| *pid != std::process::id())
            .filter_map(|pid| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                // The directory of another lab may begin with the same name.
                let is_of_lab = line
                    .match_indices(&directory)
                    .any(|(at, name)| line[at + name.len()..].starts_with([' ', '/']));
                is_of_lab.then(|| format!("{pid} {line}"))
            })
            .collect()
    }

    pub(crate) fn assert_nothing_is_left(&self) {
        assert_eq!(self.namespaces(), 0, "namespaces of {}", self.name);
        assert!(!self.directory().exists(), "{}", self.directory().display());
        assert_eq!(self.processes(), Vec::<String>::new());
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        if self.directory().exists() || self.namespaces() > 0 {
            self.down();
        }
    }
}

/// A dwell command that runs in a node until it is ended.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(lab: &TestLab, node: &str, ready: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(DWELL)
            .args(["lab", "exec", "--lab", &lab.name, node, "--", DWELL])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut lines = stderr.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains(ready)), "{arguments:?} is ready");
        Self(child)
    }

    /// Process id of the command.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn end(self) -> Value {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let output = self.0.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }
}

pub(crate) fn dwell(arguments: &[&str]) -> Output {
    Command::new(DWELL).args(arguments).stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn assert_follows_the_schema(printed: &Value) {
    assert_follows("dwell.lab-1", printed);
}

pub(crate) fn assert_follows(schema: &str, printed: &Value) {
    let path = format!("../../docs/schema/{schema}.schema.json");
    let text = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let schema = serde_json::from_slice(&text).unwrap();
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    let errors: Vec<String> =
        schema.iter_errors(printed).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:?}\n{printed}");
}

/// Whether these tests can run; if not, prints why.
pub(crate) fn as_root() -> bool {
    let may = netns::may_create() && Path::new("/dev/net/tun").exists();
    if !may {
        skip("needs root and /dev/net/tun");
    }
    may
}

/// Whether a program is installed; if not, prints that.
pub(crate) fn has(program: &str) -> bool {
    let path = dwell_io::process::search_path();
    let is_there = std::env::split_paths(&path).any(|directory| directory.join(program).is_file());
    if !is_there {
        skip(&format!("needs the program {program}"));
    }
    is_there
}

pub(crate) fn skip(reason: &str) {
    // The test runner names threads after their tests.
    println!("SKIP {}: {reason}", std::thread::current().name().unwrap_or("lab"));
}

/// Waits until `condition` holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < WAIT_TIMEOUT, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}
