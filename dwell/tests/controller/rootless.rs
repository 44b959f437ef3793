//! Plans run by somebody without any privilege, where user namespaces are allowed.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::fixture::{DWELL, as_root, said, skip};

#[test]
fn without_root_a_plan_runs_in_a_lab_of_a_user_namespace() {
    // Who is root can become nobody.
    if !as_root() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    fs::copy(DWELL, home.path().join("program")).unwrap();
    let plan = "version = 1\nname = \"small\"\ntopology = { lab = \"line:2\" }\n[ping]\n\
                from = \"n1\"\nto = \"n2\"\nprotocol = \"udp\"\ncount = 30\ninterval = \"1ms\"\n\
                [trials]\nrepetitions = 3\n";
    fs::write(home.path().join("plan.toml"), plan).unwrap();
    let chown = Command::new("chown").args(["-R", "65534:65534", "."]).current_dir(&home).status();
    assert!(chown.unwrap().success());
    let dwell = |arguments: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", "./program"])
            .args(arguments)
            .env("XDG_RUNTIME_DIR", home.path())
            .current_dir(&home)
            .output()
            .unwrap()
    };
    let output = dwell(&["run", "plan.toml", "--json", "--quiet"]);
    if output.status.code() == Some(4) {
        return skip(said(&output).trim());
    }
    assert!(output.status.success(), "{output:?}");
    let end: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&end["finished"], &end["failed"]), (&3.into(), &0.into()), "{end}");
    let shown = dwell(&["show", "last", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["trials"][0]["packets"]["received"], 30, "{shown}");
    let labs = home.path().join("dwell/labs");
    assert_eq!(fs::read_dir(labs).map_or(0, Iterator::count), 0, "no lab is left");
}
