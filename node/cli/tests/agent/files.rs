//! Files that start an agent, read by the tools of their systems.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::DWELL;

fn packaging(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

#[test]
fn unit_of_the_agent_is_valid() {
    let mut version = Command::new("systemd-analyze");
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    if version.status().is_err() {
        println!("SKIP unit_of_the_agent_is_valid: systemd-analyze is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let unit = fs::read_to_string(packaging("dwell-agent.service")).unwrap();
    let file = dir.path().join("dwell-agent.service");
    fs::write(&file, unit.replace("/usr/bin/dwell-node", DWELL)).unwrap();
    let output =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output().unwrap();
    // Unknown settings are printed, and no failure.
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let about_it = printed.lines().any(|line| line.contains("dwell-agent"));
    assert!(output.status.success() && !about_it, "{printed}");
}

#[test]
fn init_script_starts_the_agent_under_procd() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("agent.toml");
    let script = fs::read_to_string(packaging("openwrt/dwell-agent")).unwrap();
    assert!(script.starts_with("#!/bin/sh /etc/rc.common\n"));
    let script = script.replace("/etc/dwell/agent.toml", &config.display().to_string());
    // procd's functions print what they are asked for.
    let functions = "procd_open_instance() { :; }; procd_close_instance() { echo closed; }\n\
                     procd_set_param() { echo \"$@\"; }\n";
    let run = || {
        let whole = format!("{functions}{script}\nstart_service");
        Command::new("sh").args(["-eu", "-c", &whole]).output().unwrap()
    };
    let without = run();
    assert_eq!(without.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&without.stderr).contains("no configuration"));
    fs::write(&config, "node = \"n1\"\n").unwrap();
    let started = String::from_utf8(run().stdout).unwrap();
    let command = format!("command /usr/bin/dwell-node agent --config {}", config.display());
    assert!(started.contains(&command) && started.ends_with("closed\n"), "{started}");
}
