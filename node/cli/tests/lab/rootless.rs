//! Labs without root, in user namespaces.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use dwell_io::process::{Handle, Signal};
use serde_json::Value;

use crate::fixture::{DWELL, TestLab, as_root, assert_follows_the_schema, has, said, skip, until};

/// A user without privileges, with a directory and a copy of the program.
struct Nobody {
    home: tempfile::TempDir,
    lab: String,
}

impl Nobody {
    fn new(test: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::copy(DWELL, home.path().join("dwell-node")).unwrap();
        let chown = Command::new("chown").args(["65534:65534", "."]).current_dir(&home).status();
        assert!(chown.unwrap().success());
        Self { home, lab: TestLab::reserve(test).name.clone() }
    }

    fn program(&self) -> String {
        self.home.path().join("dwell-node").display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", &self.program()])
            .args(arguments)
            .env("XDG_RUNTIME_DIR", self.home.path())
            .current_dir("/")
            .stdin(Stdio::null());
        command
    }

    fn dwell(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn exec(&self, command: &[&str]) -> Output {
        self.dwell(&[&["lab", "exec", "--lab", &self.lab, "n1", "--"], command].concat())
    }

    /// Creates a lab. Prints the reason and returns `None` if user namespaces are forbidden.
    fn up(&self, arguments: &[&str]) -> Option<Value> {
        let up = ["lab", "up", "--name", &self.lab, "--json"];
        let output = self.dwell(&[&up, arguments].concat());
        if output.status.code() == Some(4) {
            skip(said(&output).trim());
            return None;
        }
        assert!(output.status.success(), "{output:?}");
        let lab = serde_json::from_slice(&output.stdout).unwrap();
        assert_follows_the_schema(&lab);
        Some(lab)
    }

    fn holder(&self) -> Handle {
        let text =
            fs::read_to_string(self.home.path().join("dwell/labs").join(&self.lab).join("holder"));
        Handle::open(text.unwrap().split(' ').next().unwrap().parse().unwrap()).unwrap()
    }

    fn down(&self) {
        let down = self.dwell(&["lab", "down", &self.lab]);
        assert!(down.status.success(), "{down:?}");
        assert_eq!(fs::read_dir(self.home.path().join("dwell/labs")).unwrap().count(), 0);
    }
}

impl Drop for Nobody {
    fn drop(&mut self) {
        self.dwell(&["lab", "down", &self.lab]);
    }
}

#[test]
fn without_root_a_lab_lives_in_a_user_namespace() {
    if !as_root() {
        return;
    }
    let nobody = Nobody::new("nobody");
    let Some(lab) = nobody.up(&["line:3", "--rate", "100Mbit/s", "--mechanism", "tbf"]) else {
        return;
    };
    assert_eq!((&lab["rootless"], &lab["state"]), (&Value::Bool(true), &Value::from("up")));
    let hosts = nobody.exec(&["getent", "hosts", "n3"]);
    assert!(String::from_utf8_lossy(&hosts.stdout).contains("fd64:7765:6c6c:ffff::3"), "{hosts:?}");
    let route = nobody.exec(&["ip", "route", "get", "198.19.0.3"]);
    assert!(String::from_utf8_lossy(&route.stdout).contains("src 198.19.0.1"), "{route:?}");
    let inner = [&nobody.program()[..], "lab", "exec", "--lab", &nobody.lab, "n2", "--", "true"];
    let inner = nobody.exec(&inner);
    assert!(inner.status.success(), "also from inside: {inner:?}");
    let all: Value =
        serde_json::from_slice(&nobody.dwell(&["lab", "list", "--json"]).stdout).unwrap();
    let ours = all["labs"].as_array().unwrap().iter().find(|lab| lab["name"] == *nobody.lab);
    let counters = &ours.unwrap()["links"][0]["counters"]["a_to_b"];
    assert!(counters["delivered"].is_u64(), "{ours:?}");
    let holder = nobody.holder();
    nobody.down();
    assert!(holder.wait(dwell_units::Nanos::ZERO), "the holder has ended");
}

#[test]
fn without_root_a_command_in_a_node_works_in_the_directory_it_was_started_in() {
    if !as_root() {
        return;
    }
    let nobody = Nobody::new("cwd");
    if nobody.up(&["line:1"]).is_none() {
        return;
    }
    let script = "pwd; echo here > relative.txt";
    let exec = ["lab", "exec", "--lab", &nobody.lab, "n1", "--", "sh", "-c", script];
    // A directory that also exists inside, and one that the lab's own /run hides.
    let hidden = tempfile::tempdir_in("/run").unwrap();
    let chown = Command::new("chown").arg("65534:65534").arg(hidden.path()).status();
    assert!(chown.unwrap().success());
    for place in [nobody.home.path(), hidden.path()] {
        let output = nobody.command(&exec).current_dir(place).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read_to_string(place.join("relative.txt")).unwrap(), "here\n");
    }
    let output = nobody.command(&exec).current_dir(nobody.home.path()).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        nobody.home.path().to_str().unwrap()
    );
}

#[test]
fn without_root_a_tap_link_is_refused_with_the_reason_and_nothing_is_left() {
    if !as_root() {
        return;
    }
    let nobody = Nobody::new("notap");
    if nobody.up(&["line:1"]).is_none() {
        return;
    }
    nobody.down();
    let up = ["lab", "up", "line:2", "--mechanism", "tap", "--name", &nobody.lab];
    let refused = nobody.dwell(&up);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    assert!(said(&refused).contains("run it as root"), "{}", said(&refused));
    assert_eq!(fs::read_dir(nobody.home.path().join("dwell/labs")).unwrap().count(), 0);
}

#[test]
fn a_rootless_lab_whose_holder_was_killed_is_removed_with_all_that_ran_in_it() {
    if !as_root() {
        return;
    }
    let nobody = Nobody::new("orphan");
    if nobody.up(&["line:1"]).is_none() {
        return;
    }
    let sleep = ["lab", "exec", "--lab", &nobody.lab, "n1", "--", "sleep", "600"];
    let mut inside = nobody.command(&sleep).spawn().unwrap();
    let comm = format!("/proc/{}/comm", inside.id());
    until("the process sleeps", || fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n"));
    let holder = nobody.holder();
    holder.signal(Signal::Kill).unwrap();
    assert!(holder.wait(dwell_units::Nanos::from_secs(10)));
    let listed = nobody.dwell(&["lab", "list"]).stdout;
    let listed = String::from_utf8(listed).unwrap();
    let line = listed.lines().find(|line| line.starts_with(&nobody.lab)).unwrap();
    assert!(line.contains("broken: its holder process has ended"), "{line}");
    nobody.down();
    assert_eq!(inside.wait().unwrap().signal(), Some(15));
}

#[test]
fn without_root_babeld_keeps_routes_too_and_ends_with_the_lab_when_its_holder_was_killed() {
    if !as_root() || !has("babeld") {
        return;
    }
    let nobody = Nobody::new("nobodybabel");
    let Some(lab) = nobody.up(&["line:2", "--routing", "babel"]) else { return };
    let routes = nobody.dwell(&["lab", "routes", &nobody.lab]);
    assert_eq!(routes.status.code(), Some(0), "{routes:?}");
    let pids = lab["daemons"].as_array().unwrap().iter().map(|daemon| &daemon["pid"]);
    let daemons: Vec<Handle> =
        pids.map(|pid| Handle::open(pid.as_u64().unwrap().try_into().unwrap()).unwrap()).collect();
    assert_eq!(daemons.len(), 2);
    let holder = nobody.holder();
    holder.signal(Signal::Kill).unwrap();
    assert!(holder.wait(dwell_units::Nanos::from_secs(10)));
    nobody.down();
    assert!(daemons.iter().all(|daemon| daemon.wait(dwell_units::Nanos::from_secs(10))));
}

#[test]
fn without_root_a_quota_is_refused_with_the_reason_and_nothing_is_left() {
    if !as_root() {
        return;
    }
    let nobody = Nobody::new("nobodyquota");
    let output = nobody.dwell(&["lab", "up", "line:2", "--quota", "n1=50%", "--name", &nobody.lab]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let none_left = fs::read_dir(nobody.home.path().join("dwell/labs")).map_or(0, Iterator::count);
    assert_eq!(none_left, 0, "{output:?}");
}
