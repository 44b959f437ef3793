//! Other programs use the API: Prometheus scrapes, schemathesis attacks.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::fleet_data::fill;
use crate::server::{Sandbox, Server, wait_until};

/// A child that is killed at the end.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn prometheus_scrapes_the_metrics() {
    if Command::new("prometheus").arg("--version").output().is_err() {
        println!("SKIP prometheus_scrapes_the_metrics: prometheus is not installed");
        return;
    }
    let sandbox = Sandbox::new();
    fill(&sandbox.data());
    let server = Server::start(&sandbox.data());
    let device = json!({ "name": "pi4", "destination": "pi@192.0.2.7" });
    assert_eq!(server.json("POST", "/devices", &device).status, 201);
    // A free port; another program may take it before Prometheus does, which fails the test.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = server.address;
    let config = sandbox.path("prometheus.yml");
    let text = format!(
        "global: {{ scrape_interval: 1s }}\nscrape_configs:\n  - job_name: dwell\n    static_configs:\n      \
         - targets: ['{address}']\n"
    );
    fs::write(&config, text).unwrap();
    let log = File::create(sandbox.path("prometheus.log")).unwrap();
    let prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", sandbox.path("tsdb").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let _prometheus = Killed(prometheus);
    let query = |path: &str| {
        get(port, path).ok_or_else(|| fs::read_to_string(sandbox.path("prometheus.log")).unwrap())
    };
    wait_until("scraped", || {
        let value = query("/api/v1/query?query=dwell_devices")?;
        let result = &value["data"]["result"][0];
        if result["value"][1] == "1" { Ok(()) } else { Err(value.to_string()) }
    });
    let targets = query("/api/v1/targets").unwrap();
    let target = &targets["data"]["activeTargets"][0];
    assert_eq!((&target["health"], &target["lastError"]), (&json!("up"), &json!("")), "{target}");
    let kinds = query("/api/v1/metadata?metric=dwell_last_loss_ratio").unwrap();
    let kind = &kinds["data"]["dwell_last_loss_ratio"][0];
    assert_eq!((&kind["type"], &kind["unit"]), (&json!("gauge"), &json!("ratio")), "{kinds}");
    let paused = query("/api/v1/query?query=dwell_node_paused").unwrap();
    let nodes: Vec<_> = paused["data"]["result"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sample| (sample["metric"]["node"].as_str(), sample["value"][1].as_str()))
        .collect();
    let expected = [("a", "0"), ("b", "0"), ("c", "1")];
    assert_eq!(nodes, expected.map(|(node, paused)| (Some(node), Some(paused))));
    let kinds = query("/api/v1/metadata?metric=dwell_node_records").unwrap();
    assert_eq!(kinds["data"]["dwell_node_records"][0]["type"], "counter", "{kinds}");
}

/// Returns a JSON object by HTTP/1.0, which has no chunks.
fn get(port: u16, path: &str) -> Option<Value> {
    use std::io::{Read as _, Write as _};
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
}

/// The Python environment of these tests; `None` if it cannot be made, for example without network.
pub(crate) fn venv() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let made = Command::new(root.join("setup/api-venv")).stdin(Stdio::null()).output().ok()?;
    let path = String::from_utf8(made.stdout).ok()?;
    made.status.success().then(|| PathBuf::from(path.trim()))
}

#[test]
fn schemathesis_finds_no_error() {
    let Some(venv) = venv() else {
        println!("SKIP schemathesis_finds_no_error: setup/api-venv cannot install schemathesis");
        return;
    };
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    // The name in the examples of the description.
    let device = json!({ "name": "pi4", "destination": "pi@192.0.2.7" });
    assert_eq!(server.json("POST", "/devices", &device).status, 201);
    let address = server.address;
    let log = sandbox.path("schemathesis.log");
    let output = File::create(&log).unwrap();
    // Streams of events have no end, and a check of a device waits for its network.
    let status = Command::new("timeout")
        .args(["--kill-after=5", "300"])
        .arg(venv.join("bin/schemathesis"))
        .arg("run")
        .arg(format!("http://{address}/api/v1/openapi.json"))
        .args(["--max-examples", "30", "--seed", "1", "--phases", "examples,coverage,fuzzing"])
        .args(["--exclude-path-regex", "/(events|check)$", "--request-timeout", "20"])
        // Texts that a schema allows and dwell refuses, such as a plan with a mistake, get 422.
        .args(["--exclude-checks", "positive_data_acceptance", "--no-color"])
        .current_dir(sandbox.path("."))
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .status()
        .unwrap();
    let text = fs::read_to_string(&log).unwrap();
    let end: Vec<&str> = text.lines().rev().take(12).collect();
    println!("{}", end.into_iter().rev().collect::<Vec<_>>().join("\n"));
    assert!(status.success(), "{text}");
    assert_eq!(server.get("/version").status, 200);
}
