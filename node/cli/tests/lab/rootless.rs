//! Labs without root, in user namespaces.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use dwell_io::process::{Handle, Signal};
use serde_json::Value;

use crate::fixture::{DWELL, TestLab, as_root, assert_follows_the_schema, has, said, skip, until};

/// A user without privileges, with a directory and a copy of the program.
struct UnprivilegedUser {
    home: tempfile::TempDir,
    lab: String,
}

impl UnprivilegedUser {
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

    fn keeper(&self) -> Handle {
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

impl Drop for UnprivilegedUser {
    fn drop(&mut self) {
        self.dwell(&["lab", "down", &self.lab]);
    }
}

#[test]
fn rootless_lab_runs_in_a_user_namespace() {
    if !as_root() {
        return;
    }
    let user = UnprivilegedUser::new("user");
    let Some(lab) = user.up(&["line:3", "--rate", "100Mbit/s", "--mechanism", "tbf"]) else {
        return;
    };
    assert_eq!((&lab["rootless"], &lab["state"]), (&Value::Bool(true), &Value::from("up")));
    let hosts = user.exec(&["getent", "hosts", "n3"]);
    assert!(String::from_utf8_lossy(&hosts.stdout).contains("fd64:7765:6c6c:ffff::3"), "{hosts:?}");
    let route = user.exec(&["ip", "route", "get", "198.19.0.3"]);
    assert!(String::from_utf8_lossy(&route.stdout).contains("src 198.19.0.1"), "{route:?}");
    let inner = [&user.program()[..], "lab", "exec", "--lab", &user.lab, "n2", "--", "true"];
    let inner = user.exec(&inner);
    assert!(inner.status.success(), "also from inside: {inner:?}");
    let all: Value =
        serde_json::from_slice(&user.dwell(&["lab", "list", "--json"]).stdout).unwrap();
    let ours = all["labs"].as_array().unwrap().iter().find(|lab| lab["name"] == *user.lab);
    let counters = &ours.unwrap()["links"][0]["counters"]["a_to_b"];
    assert!(counters["delivered"].is_u64(), "{ours:?}");
    let keeper = user.keeper();
    user.down();
    assert!(keeper.wait(dwell_units::Nanos::ZERO), "the namespace keeper has ended");
}

#[test]
fn rootless_exec_keeps_the_working_directory() {
    if !as_root() {
        return;
    }
    let user = UnprivilegedUser::new("cwd");
    if user.up(&["line:1"]).is_none() {
        return;
    }
    let script = "pwd; echo here > relative.txt";
    let exec = ["lab", "exec", "--lab", &user.lab, "n1", "--", "sh", "-c", script];
    // A directory that also exists inside, and one that the lab's own /run hides.
    let hidden = tempfile::tempdir_in("/run").unwrap();
    let chown = Command::new("chown").arg("65534:65534").arg(hidden.path()).status();
    assert!(chown.unwrap().success());
    for place in [user.home.path(), hidden.path()] {
        let output = user.command(&exec).current_dir(place).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read_to_string(place.join("relative.txt")).unwrap(), "here\n");
    }
    let output = user.command(&exec).current_dir(user.home.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), user.home.path().to_str().unwrap());
}

#[test]
fn rootless_tap_link_is_refused_and_leaves_nothing() {
    if !as_root() {
        return;
    }
    let user = UnprivilegedUser::new("notap");
    if user.up(&["line:1"]).is_none() {
        return;
    }
    user.down();
    let up = ["lab", "up", "line:2", "--mechanism", "tap", "--name", &user.lab];
    let refused = user.dwell(&up);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    assert!(said(&refused).contains("run it as root"), "{}", said(&refused));
    assert_eq!(fs::read_dir(user.home.path().join("dwell/labs")).unwrap().count(), 0);
}

#[test]
fn rootless_lab_with_dead_holder_is_removed_by_down() {
    if !as_root() {
        return;
    }
    let user = UnprivilegedUser::new("orphan");
    if user.up(&["line:1"]).is_none() {
        return;
    }
    let sleep = ["lab", "exec", "--lab", &user.lab, "n1", "--", "sleep", "600"];
    let mut inside = user.command(&sleep).spawn().unwrap();
    let comm = format!("/proc/{}/comm", inside.id());
    until("the process sleeps", || fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n"));
    let keeper = user.keeper();
    keeper.signal(Signal::Kill).unwrap();
    assert!(keeper.wait(dwell_units::Nanos::from_secs(10)));
    let listed = user.dwell(&["lab", "list"]).stdout;
    let listed = String::from_utf8(listed).unwrap();
    let line = listed.lines().find(|line| line.starts_with(&user.lab)).unwrap();
    assert!(line.contains("broken: its namespace keeper has ended"), "{line}");
    user.down();
    assert_eq!(inside.wait().unwrap().signal(), Some(15));
}

#[test]
fn rootless_babeld_ends_with_a_lab_whose_holder_died() {
    if !as_root() || !has("babeld") {
        return;
    }
    let user = UnprivilegedUser::new("userbabel");
    let Some(lab) = user.up(&["line:2", "--routing", "babel"]) else { return };
    let routes = user.dwell(&["lab", "routes", &user.lab]);
    assert_eq!(routes.status.code(), Some(0), "{routes:?}");
    let pids = lab["daemons"].as_array().unwrap().iter().map(|daemon| &daemon["pid"]);
    let daemons: Vec<Handle> =
        pids.map(|pid| Handle::open(pid.as_u64().unwrap().try_into().unwrap()).unwrap()).collect();
    assert_eq!(daemons.len(), 2);
    let keeper = user.keeper();
    keeper.signal(Signal::Kill).unwrap();
    assert!(keeper.wait(dwell_units::Nanos::from_secs(10)));
    user.down();
    assert!(daemons.iter().all(|daemon| daemon.wait(dwell_units::Nanos::from_secs(10))));
}

#[test]
fn rootless_quota_is_refused_and_leaves_nothing() {
    if !as_root() {
        return;
    }
    let user = UnprivilegedUser::new("userquota");
    let output = user.dwell(&["lab", "up", "line:2", "--quota", "n1=50%", "--name", &user.lab]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let none_left = fs::read_dir(user.home.path().join("dwell/labs")).map_or(0, Iterator::count);
    assert_eq!(none_left, 0, "{output:?}");
}
