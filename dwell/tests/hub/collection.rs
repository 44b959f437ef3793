//! `dwell hub --embedded` with agents on devices over SSH.

use std::fs::{self, File};
use std::process::{Child, Stdio};

use dwell_io::process::{Handle, Signal};
use serde_json::{Value, json};

use crate::fixture::{object, stdout, wait_for_exit, wait_until};
use crate::lab_devices::{DeviceLab, Peculiarity};
use crate::schema::assert_matches_schema;

/// Spool of the agents, in a folder that each device has for itself.
const SPOOL: &str = "/tmp/agent";

const PORT: u16 = 8_620;

/// Devices with agents.
struct AgentLab {
    lab: DeviceLab,
    agents: Vec<Child>,
}

impl AgentLab {
    /// Creates two devices with agents that have no schedule yet; `None` if this machine cannot.
    fn new() -> Option<Self> {
        let config = format!("SetEnv DWELL_AGENT_SPOOL={SPOOL}");
        let of = |_| Peculiarity { config: config.clone(), ..Peculiarity::default() };
        let lab = DeviceLab::with(2, of)?;
        let addresses: Vec<_> = lab.devices.iter().map(|device| device.address.clone()).collect();
        for (number, address) in (1..).zip(&addresses) {
            let name = format!("d{number}");
            let edited = lab.dwell(&["device", "edit", &name, "--address", address]);
            assert!(edited.status.success(), "{edited:?}");
        }
        // This copies the node program to the devices.
        lab.json(&["device", "check"]);
        let agents = (1..).zip(&addresses).map(|(number, address)| {
            let script = format!(
                "mkdir -p {SPOOL} && printf '%s\\n' 'node = \"d{number}\"' 'spool = \"{SPOOL}\"' \
                 '[reflect]' 'urls = [\"stamp://0.0.0.0:{PORT}\"]' > /tmp/agent.toml && \
                 exec timeout 300 ~/.cache/dwell/dwell-node-* agent --config /tmp/agent.toml"
            );
            let ssh = ["sh", "-c", "exec $DWELL_SSH_COMMAND \"$0\" \"$1\"", address, &script];
            let log = File::create(lab.sandbox.path(&format!("agent{number}"))).unwrap();
            let mut command = lab.controller(&ssh);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
        });
        let agents = agents.collect();
        Some(Self { lab, agents })
    }

    /// Starts a hub whose standard error goes to the file `hub`.
    fn start_hub(&self) -> Child {
        let log = File::create(self.lab.sandbox.path("hub")).unwrap();
        let hub = ["hub", "--embedded", "--interval", "1s"];
        let mut command = self.lab.controller(&[&[crate::fixture::DWELL], &hub[..]].concat());
        command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.lab.sandbox.path("hub")).unwrap()
    }

    fn node(&self, name: &str) -> Value {
        let nodes = self.lab.sandbox.json(&["hub", "nodes"]);
        let nodes = nodes["nodes"].as_array().unwrap();
        nodes.iter().find(|node| node["node"] == name).cloned().unwrap_or_default()
    }

    /// Rows of 10 s with probes of a pair.
    fn rows(&self, pair: &str) -> Vec<Value> {
        let arguments = ["query", pair, "--last", "10m", "--step", "10s", "--format", "json"];
        let output = self.lab.sandbox.dwell(&arguments);
        if !output.status.success() {
            return Vec::new();
        }
        let rows = object(&output)["streams"][0]["rows"].as_array().unwrap().clone();
        rows.into_iter().filter(|row| row["packets"]["sent"] != json!(0)).collect()
    }

    fn samples(&self) -> Value {
        object(&self.lab.sandbox.dwell(&["hub", "samples", "list", "--format", "json"]))
    }

    /// Requests samples of a pair, and waits until the hub has stored some and left their receipts.
    fn collects_requested_samples(&self) {
        let sandbox = &self.lab.sandbox;
        let unmeasured = sandbox.dwell(&["hub", "samples", "request", "d1:d9", "--last", "1h"]);
        assert_eq!(unmeasured.status.code(), Some(2), "{unmeasured:?}");
        let past = ["--from", "2026-01-01", "--to", "2026-01-02"];
        for span in [&["--last", "1h"][..], &past] {
            let request = [&["hub", "samples", "request", "d1:d2"], span].concat();
            let requested = sandbox.dwell(&request);
            assert!(requested.status.success(), "{requested:?}");
        }
        wait_until("samples in files", || {
            let files = self.samples()["files"].as_array().unwrap().clone();
            files.iter().map(|file| file["samples"].as_u64().unwrap()).sum::<u64>() >= 500
        });
        let listed = self.samples();
        assert_matches_schema("dwell.hub-samples", &listed);
        wait_until("the end of the request that nothing answers", || {
            let requests = self.samples()["requests"].as_array().unwrap().clone();
            let states: Vec<_> = requests.iter().map(|it| it["state"].clone()).collect();
            states == [json!("pending"), json!("complete")]
        });
        let file = &listed["files"][0];
        assert_eq!((&file["sender"], &file["reflector"]), (&json!("d1"), &json!("d2")));
        assert!(fs::read(file["path"].as_str().unwrap()).unwrap().starts_with(b"PAR1"));
        let incarnation = file["incarnation"].as_str().unwrap().to_owned();
        let left = self.lab.devices[0].folder("/tmp").join("agent/receipts").join(incarnation);
        wait_until("receipts of samples on the node", || left.exists());
        assert_eq!(self.node("d1")["missing"], json!(0));
        let table = stdout(&sandbox.dwell(&["hub", "samples", "list"]));
        assert!(table.contains("pending") && table.contains("d1:d2  mesh"), "{table}");
    }

    /// The receipts that the hub left on a device, by incarnation.
    fn receipts(&self, index: usize) -> Vec<String> {
        let dir = self.lab.devices[index].folder("/tmp").join("agent/receipts");
        let files = fs::read_dir(dir).into_iter().flatten().flatten();
        let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
        texts.map(|text| text.trim().to_owned()).collect()
    }

    fn interrupt(hub: &mut Child) {
        Handle::open(hub.id()).unwrap().signal(Signal::Interrupt).unwrap();
        assert_eq!(wait_for_exit(hub).code(), Some(0));
    }
}

impl Drop for AgentLab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = |name: &str| fs::read_to_string(self.lab.sandbox.path(name));
            for name in ["hub", "agent1", "agent2"] {
                println!("--- {name}:\n{}", log(name).unwrap_or_default());
            }
        }
        for agent in &mut self.agents {
            let _ = agent.kill();
            let _ = agent.wait();
        }
        (0..self.lab.devices.len()).for_each(|index| self.lab.kill_all(index));
    }
}

#[test]
fn mesh_of_agents_is_collected_over_ssh() {
    let Some(test) = AgentLab::new() else { return };
    let sandbox = &test.lab.sandbox;
    let mesh = sandbox.write(
        "mesh.toml",
        &format!(
            "version = 1\n[[measure]]\nname = \"mesh\"\nmesh = \"all\"\nport = {PORT}\n\
             interval = \"20ms\"\n"
        ),
    );
    let mut hub = test.start_hub();
    wait_until("the hub to collect from both", || {
        let log = test.log();
        log.contains("d1: collecting") && log.contains("d2: collecting")
    });
    let second = test.lab.dwell(&["hub", "--embedded"]);
    assert_eq!(second.status.code(), Some(1), "{second:?}");
    assert!(String::from_utf8_lossy(&second.stderr).contains("another hub is active in"));
    let applied = sandbox.dwell(&["hub", "schedule", "apply", &mesh]);
    assert!(applied.status.success(), "{applied:?}");
    wait_until("both nodes to receive the schedule", || {
        let log = test.log();
        ["d1", "d2"]
            .iter()
            .all(|node| log.contains(&format!("{node}: received schedule version 1")))
    });
    for pair in ["d1:d2", "d2:d1"] {
        wait_until("rows of 10 s", || test.rows(pair).len() >= 2);
    }
    // Killed at any moment, the hub continues where it was.
    hub.kill().unwrap();
    hub.wait().unwrap();
    let before = test.rows("d1:d2").len();
    let mut hub = test.start_hub();
    wait_until("rows after the kill", || test.rows("d1:d2").len() > before);
    for (index, name) in ["d1", "d2"].into_iter().enumerate() {
        let node = test.node(name);
        assert_eq!((&node["missing"], &node["bad"]), (&json!(0), &json!(0)), "{node}");
        assert_eq!(node["warnings"], json!([]), "{node}");
        wait_until("receipts on the node", || {
            let stored = test.node(name)["stored"].as_u64().unwrap();
            let receipts = test.receipts(index);
            receipts.iter().any(|text| *text == format!("1-{stored}"))
        });
    }
    let rows = test.rows("d1:d2");
    let full = rows.iter().filter(|row| {
        let sent = row["packets"]["sent"].as_u64().unwrap();
        let coverage = row["coverage"].as_f64().unwrap_or_default();
        (495..=501).contains(&sent) && coverage > 0.98
    });
    assert!(full.count() >= 1, "{rows:#?}");
    let delays = &rows[1]["delays"];
    assert!(delays["percentiles"]["p99"]["high_ns"].as_i64().unwrap() > 0, "{delays}");
    let one_way =
        sandbox.dwell(&["query", "d1:d2", "--metric", "one_way_forward", "--last", "10m"]);
    assert!(stdout(&one_way).contains("one_way_forward_ns"), "{one_way:?}");
    test.collects_requested_samples();
    // A run on the devices pauses their agents.
    let plan = "version = 1\nname = \"p\"\n[topology]\nroles = [\"sender\", \"receiver\"]\n[ping]\n\
                from = \"sender\"\nto = \"receiver\"\nprotocol = \"icmp\"\nduration = \"6s\"\n\
                interval = \"100ms\"\n";
    let plan = sandbox.write("plan.toml", plan);
    let ran = test.lab.dwell(&["run", &plan, "--on", "sender=d1,receiver=d2"]);
    assert!(ran.status.success(), "{ran:?}");
    wait_until("the pause to be noticed", || test.log().contains("the agent is paused: run "));
    AgentLab::interrupt(&mut hub);
    assert!(test.log().contains("hub stopped"));
}
