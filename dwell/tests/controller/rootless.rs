//! Plans run by an unprivileged user, where user namespaces are allowed.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::fixture::{DWELL, as_root, skip, stderr};
use crate::host::{LOADED, assert_load_is_own};

/// Home directory of an unprivileged user, with a copy of dwell and a plan.
struct Home(TempDir);

impl Home {
    fn new(plan: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::copy(DWELL, home.path().join("dwell-copy")).unwrap();
        fs::write(home.path().join("plan.toml"), plan).unwrap();
        let mut chown = Command::new("chown");
        chown.args(["-R", "65534:65534", "."]).current_dir(&home);
        assert!(chown.status().unwrap().success());
        Self(home)
    }

    fn dwell(&self, arguments: &[&str]) -> Output {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", "./dwell-copy"])
            .args(arguments)
            .env("XDG_RUNTIME_DIR", self.0.path())
            .current_dir(&self.0)
            .output()
            .unwrap()
    }
}

#[test]
fn rootless_load_is_not_counted_as_another_program() {
    // Root can become another user.
    if !as_root() {
        return;
    }
    let home = Home::new(LOADED);
    let output = home.dwell(&["run", "plan.toml", "--quiet"]);
    if output.status.code() == Some(4) {
        return skip(stderr(&output).trim());
    }
    assert!(output.status.success(), "{output:?}");
    let shown = home.dwell(&["show", "last", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_load_is_own(&shown["trials"][0]);
}

#[test]
fn rootless_plan_runs_in_a_user_namespace() {
    // Root can become another user.
    if !as_root() {
        return;
    }
    let home = Home::new(
        "version = 1\nname = \"small\"\ntopology = { lab = \"line:2\" }\n[ping]\nfrom = \"n1\"\n\
         to = \"n2\"\nprotocol = \"udp\"\ncount = 30\ninterval = \"1ms\"\n[trials]\nrepetitions = 3\n",
    );
    let output = home.dwell(&["run", "plan.toml", "--json", "--quiet"]);
    if output.status.code() == Some(4) {
        return skip(stderr(&output).trim());
    }
    assert!(output.status.success(), "{output:?}");
    let end: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&end["finished"], &end["failed"]), (&3.into(), &0.into()), "{end}");
    let shown = home.dwell(&["show", "last", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["trials"][0]["packets"]["received"], 30, "{shown}");
    let labs = home.0.path().join("dwell/labs");
    assert_eq!(fs::read_dir(labs).map_or(0, Iterator::count), 0, "no lab is left");
}
