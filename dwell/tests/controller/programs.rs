//! Imports of the output of real programs in a lab.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::fixture::{DWELL, Sandbox, as_root, skip, stderr, stdout};

/// A lab that is removed when the test ends.
struct Lab {
    name: String,
}

impl Lab {
    fn up(test: &str, topology: &str) -> Self {
        let name = format!("p{}-{test}", std::process::id());
        let output = dwell(&["lab", "up", "--name", &name, topology]);
        assert!(output.status.success(), "{}", stderr(&output));
        Self { name }
    }

    fn exec(&self, node: &str, program: &[&str]) -> Command {
        let mut command = Command::new(DWELL);
        command.args(["lab", "exec", "--lab", &self.name, node, "--"]).args(program);
        command
    }

    /// Returns what a program prints.
    fn output(&self, node: &str, program: &[&str]) -> String {
        let output = self.exec(node, program).output().unwrap();
        assert!(!output.stdout.is_empty(), "{program:?}: {}", stderr(&output));
        stdout(&output)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        dwell(&["lab", "down", &self.name]);
    }
}

fn dwell(arguments: &[&str]) -> Output {
    Command::new(DWELL).args(arguments).output().unwrap()
}

/// Whether a program is installed; reports a skip if not.
fn has(program: &str) -> bool {
    let is_found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let is_found = is_found.is_ok_and(|output| output.status.success());
    if !is_found {
        skip(&format!("{program} is not installed"));
    }
    is_found
}

/// Imports a text and returns its trials.
fn imported(sandbox: &Sandbox, name: &str, text: &str) -> (Value, Vec<Value>) {
    let file = sandbox.write(name, text);
    let about = sandbox.json(&["import", &file]);
    let run = sandbox.json(&["show", about["run"].as_str().unwrap()]);
    (about, run["trials"].as_array().unwrap().clone())
}

#[test]
fn busybox_ping_in_a_lab_is_imported_with_its_figures() {
    if !as_root() || !has("busybox") {
        return;
    }
    let (lab, sandbox) = (Lab::up("busybox", "line:3"), Sandbox::new());
    let text = lab.output("n1", &["busybox", "ping", "-c", "20", "-i", "0.01", "n3"]);
    let (about, trials) = imported(&sandbox, "busybox.txt", &text);
    assert_eq!((&about["format"], &about["samples"]), (&"ping".into(), &20.into()), "{text}");
    assert_eq!(trials[0]["packets"]["received"], 20, "{text}");
    let stated = text.split_once("min/avg/max = ").unwrap().1.split(' ').next().unwrap();
    let stated: Vec<f64> = stated.split('/').map(|ms| ms.parse::<f64>().unwrap() * 1e6).collect();
    let rtt = &trials[0]["metrics"]["rtt_ns"];
    for (name, stated) in ["min", "mean", "max"].iter().zip(stated) {
        let found = rtt[name].as_f64().unwrap();
        // BusyBox truncates its mean.
        assert!((found - stated).abs() <= 1_000.0, "{name} {found}: {text}");
    }
}

#[test]
fn mtr_in_a_lab_is_imported_hop_by_hop() {
    if !as_root() || !has("mtr") {
        return;
    }
    let (lab, sandbox) = (Lab::up("mtr", "line:3"), Sandbox::new());
    let text = lab.output("n1", &["mtr", "--json", "-n", "-c", "5", "-i", "0.1", "n3"]);
    let (about, trials) = imported(&sandbox, "mtr.json", &text);
    assert_eq!((&about["format"], &about["samples"]), (&"mtr".into(), &0.into()), "{text}");
    assert_eq!(trials.len(), 2, "{text}");
    for trial in &trials {
        let rtt = &trial["metrics"]["rtt_ns"];
        assert!(rtt["mean"].as_f64().unwrap() > 0.0 && rtt["p50"].is_null(), "{trial:#}");
        assert_eq!(trial["packets"]["sent"], 5, "{text}");
    }
    let shown = stdout(&sandbox.dwell(&["show", "last"]));
    assert!(shown.contains("hop 2 "), "{shown}");
}

/// An iperf3 server that ends after one test.
struct Server(Child);

impl Server {
    fn start(lab: &Lab, node: &str) -> Self {
        let mut server = lab.exec(node, &["iperf3", "-s", "--one-off", "--forceflush"]);
        let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let listens = lines.find(|line| line.as_ref().unwrap().starts_with("Server listening"));
        assert!(listens.is_some(), "iperf3 ended before it listened");
        // The server continues to write to the pipe.
        std::thread::spawn(move || lines.count());
        Self(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn iperf3_in_a_lab_is_imported_with_its_figures() {
    if !as_root() || !has("iperf3") {
        return;
    }
    let (lab, sandbox) = (Lab::up("iperf3", "line:2"), Sandbox::new());
    for (name, more) in [("tcp", &["-b", "20M"][..]), ("udp", &["-u", "-b", "1M"])] {
        let _server = Server::start(&lab, "n2");
        let client = [&["iperf3", "-c", "n2", "-J", "-t", "1", "-i", "0.25"][..], more].concat();
        let text = lab.output("n1", &client);
        let stated: Value = serde_json::from_str(&text).unwrap();
        let (about, trials) = imported(&sandbox, &format!("{name}.json"), &text);
        assert_eq!(about["format"], "iperf3", "{text}");
        let (trial, stated) = (&trials[0], &stated["end"]["streams"][0]);
        if name == "tcp" {
            let rtt = &trial["metrics"]["tcp_smoothed_rtt_ns"];
            for (end, us) in [("min", "min_rtt"), ("max", "max_rtt")] {
                let us = stated["sender"][us].as_i64().unwrap();
                assert_eq!(rtt[end].as_i64(), Some(us * 1_000), "{end}: {text}");
            }
        } else {
            let packets = &trial["packets"];
            assert_eq!(packets["sent"], stated["udp"]["packets"], "{text}");
            assert_eq!(packets["lost"], stated["udp"]["lost_packets"], "{text}");
        }
    }
}

#[test]
fn log_without_samples_leaves_no_run_and_exits_with_2() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("empty.txt", "PING 10.0.0.9 (10.0.0.9): 56 data bytes\n");
    let output = sandbox.dwell(&["import", &file]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("no sample in this output of ping"), "{}", stderr(&output));
    assert_eq!(sandbox.query("SELECT run FROM runs"), [""; 0]);
}
