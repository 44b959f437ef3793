//! `dwell ping --no-idle` holds the limit of idle states while it measures, and only then.

#[expect(dead_code, reason = "other test programs use the rest")]
mod support;

use std::fs;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use dwell_io::process::Signal;
use serde_json::Value;
use support::{DWELL, Server, dwell, json, said, signal};

const LATENCY_FILE: &str = "/dev/cpu_dma_latency";

/// Longer than any wait of these tests.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// User without privileges.
const UNPRIVILEGED: u32 = 65_534;

/// Whether a process has the file open.
fn holds_limit(child: &Child) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let mut targets = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.any(|target| target == Path::new(LATENCY_FILE))
}

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(DWELL);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn stop(child: Child) -> Output {
    signal(&child, Signal::Interrupt);
    child.wait_with_output().unwrap()
}

fn warnings(result: &Value) -> Vec<&str> {
    let all = result["trust"]["warnings"].as_array().unwrap();
    all.iter().map(|warning| warning["code"].as_str().unwrap()).collect()
}

#[test]
fn limit_is_held_during_the_measurement_only() {
    if OpenOptions::new().write(true).open(LATENCY_FILE).is_err() {
        println!("SKIP limit_is_held_during_the_measurement_only: needs root");
        return;
    }
    let (_server, urls) = Server::reflect(&["udp"], "127.0.0.1", &[]);
    let endless = ["ping", &urls[0], "-i", "0.005", "--json", "-q"];
    let child = start(&[&endless[..], &["--no-idle"]].concat());
    let since = Instant::now();
    while !holds_limit(&child) {
        assert!(since.elapsed() < STEP_TIMEOUT, "the limit is not held");
        std::thread::sleep(Duration::from_millis(2));
    }
    // Probes leave while the limit is held.
    std::thread::sleep(Duration::from_millis(100));
    assert!(holds_limit(&child));
    let held = json(&stop(child));
    assert!(held["packets"]["received"].as_u64().unwrap() > 0, "{held}");
    let idle = &held["environment"]["cpu_idle"];
    assert_eq!(
        (&idle["no_idle_held"], &held["parameters"]["no_idle"]),
        (&true.into(), &true.into())
    );
    assert_eq!(idle["driver"].is_null(), warnings(&held).contains(&"idle-not-held"), "{held}");
    assert!(idle["driver"].is_null() || !idle["states"].as_array().unwrap().is_empty(), "{idle}");

    let free = dwell(&["ping", &urls[0], "-i", "0.005", "-c", "5", "--json"]);
    let free = json(&free);
    assert_eq!(free["environment"]["cpu_idle"]["no_idle_held"], false);
    assert_eq!(free["environment"]["cpu_idle"]["driver"], idle["driver"]);
    assert!(!warnings(&free).contains(&"idle-not-held"));
}

#[test]
fn refused_limit_is_a_warning() {
    if !dwell_io::netns::may_create() {
        println!("SKIP refused_limit_is_a_warning: changing the user needs root");
        return;
    }
    let (_server, urls) = Server::reflect(&["udp"], "127.0.0.1", &[]);
    // The build directory may be closed to other users.
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let program = dir.path().join("dwell-node");
    fs::copy(DWELL, &program).unwrap();
    for path in [dir.path(), &program] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, open).unwrap();
    }
    let output = Command::new(&program)
        .args(["ping", &urls[0], "-i", "0.005", "-c", "5", "--json", "--no-idle"])
        .uid(UNPRIVILEGED)
        .gid(UNPRIVILEGED)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let result = json(&output);
    assert_eq!(result["environment"]["cpu_idle"]["no_idle_held"], false);
    assert!(warnings(&result).contains(&"idle-not-held"), "{result}");
    assert_eq!(result["packets"]["received"], 5);
}
