//! Routes by babeld: complete when the lab is up, lost when a daemon dies, and no daemon left
//! behind.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use dwell_io::process::{Handle, Signal};
use serde_json::Value;

use crate::fixture::{DWELL, TestLab, as_root, has, kill, said, until};

fn can_run() -> bool {
    as_root() && has("babeld")
}

/// The IPv4 route from one node to another in the output of `lab routes --json`.
fn route<'a>(table: &'a Value, from: &str, to: &str) -> &'a Value {
    let is_v4 = |route: &Value| route["address"].as_str().unwrap().contains('.');
    let mut routes = table["routes"].as_array().unwrap().iter();
    routes.find(|route| route["from"] == from && route["to"] == to && is_v4(route)).unwrap()
}

fn pid(lab: &Value, node: &str) -> u32 {
    let daemons = lab["daemons"].as_array().unwrap();
    let daemon = daemons.iter().find(|daemon| daemon["node"] == node).expect("a daemon");
    daemon["pid"].as_u64().unwrap().try_into().unwrap()
}

#[test]
fn dead_babeld_breaks_the_lab_and_its_routes_expire() {
    if !can_run() {
        return;
    }
    let lab = TestLab::up("babel", &["line:3", "--routing", "babel"]);
    let (table, code) = lab.routes();
    assert_eq!((code, &table["complete"]), (Some(0), &Value::Bool(true)), "{table}");
    let all = table["routes"].as_array().unwrap();
    assert_eq!(all.len(), 12, "both families, each way between three nodes");
    assert!(all.iter().all(|route| route["protocol"] == "babel"), "{table}");
    assert_eq!(route(&table, "n1", "n3")["interface"], "n2");
    let described = lab.describe();
    assert_eq!(described["routing"], "babel");
    let ping = lab.exec("n1", &["ping", "-4", "-c", "1", "-W", "5", "n3"]);
    assert!(String::from_utf8_lossy(&ping.stdout).contains("ttl=63"), "{ping:?}");

    Handle::open(pid(&described, "n2")).unwrap().signal(Signal::Kill).unwrap();
    until("the lab knows", || lab.describe()["state"] == "broken");
    let (table, code) = lab.routes();
    assert_eq!(code, Some(1));
    let reason = table["reason"].as_str().unwrap();
    assert!(reason.starts_with("babeld in n2 has ended"), "{reason}");
    until("n1 loses its route to n3", || route(&lab.routes().0, "n1", "n3")["protocol"].is_null());
    let (table, _) = lab.routes();
    assert!(table["reason"].as_str().unwrap().contains("n1 has no route"), "{table}");

    let down = lab.down();
    assert!(down.status.success(), "{down:?}");
    assert!(!said(&down).contains("still ran"), "the lab's own daemons are not reported: {down:?}");
    lab.assert_nothing_is_left();
}

#[test]
fn babeld_ends_when_its_supervisor_is_killed() {
    if !can_run() {
        return;
    }
    let lab = TestLab::up("babelkeep", &["line:2", "--routing", "babel"]);
    let text = fs::read_to_string(lab.directory().join("babel.pid")).unwrap();
    let supervisor: u32 = text.split(' ').next().unwrap().parse().unwrap();
    Handle::open(supervisor).unwrap().signal(Signal::Kill).unwrap();
    until("all processes have ended", || lab.processes().is_empty());
    assert_eq!(lab.routes().1, Some(1));
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}

#[test]
fn lab_killed_during_babel_convergence_is_removed_by_down() {
    if !can_run() {
        return;
    }
    let lab = TestLab::reserve("babelkill");
    let arguments = ["lab", "up", "line:6", "--name", &lab.name, "--routing", "babel"];
    let mut up = Command::new(DWELL).args(arguments).stdout(Stdio::null()).spawn().unwrap();
    until("a daemon runs", || lab.directory().join("babel-3.pid").exists());
    kill(&mut up);
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}

#[test]
fn failed_babeld_is_reported_and_the_lab_rolled_back() {
    if !as_root() {
        return;
    }
    let broken = tempfile::tempdir().unwrap();
    let babeld = broken.path().join("babeld");
    fs::write(&babeld, "#!/bin/sh\necho 'simulated failure' >&2\nexit 1\n").unwrap();
    fs::set_permissions(&babeld, Permissions::from_mode(0o755)).unwrap();
    let lab = TestLab::reserve("babelbroken");
    let path = format!("{}:{}", broken.path().display(), std::env::var("PATH").unwrap());
    let output = Command::new(DWELL)
        .args(["lab", "up", "line:2", "--routing", "babel", "--name", &lab.name])
        .env("PATH", path)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = said(&output);
    assert!(said.contains("has ended") && said.contains("simulated failure"), "{said}");
    lab.assert_nothing_is_left();
}

#[test]
fn lab_routes_reports_static_and_missing_routes() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("static", &["line:3"]);
    let (table, code) = lab.routes();
    assert_eq!(code, Some(0), "{table}");
    assert_eq!(route(&table, "n3", "n1")["protocol"], "static");
    let delete = lab.exec("n1", &["ip", "-4", "route", "flush", "proto", "static"]);
    assert!(delete.status.success(), "{delete:?}");
    let (table, code) = lab.routes();
    assert_eq!((code, &table["complete"]), (Some(1), &Value::Bool(false)));
    assert_eq!(table["reason"], "n1 has no route to n2 (198.19.0.2)");
}
