//! The systemd unit, read by systemd.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn unit_of_the_uplink_is_valid() {
    let mut version = Command::new("systemd-analyze");
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    if version.status().is_err() {
        println!("SKIP unit_of_the_uplink_is_valid: systemd-analyze is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging");
    let unit = fs::read_to_string(packaging.join("dwell-uplink.service")).unwrap();
    let file = dir.path().join("dwell-uplink.service");
    let program = env!("CARGO_BIN_EXE_dwell-uplink");
    fs::write(&file, unit.replace("/usr/bin/dwell-uplink", program)).unwrap();
    let output =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output().unwrap();
    // Unknown settings are printed, and no failure.
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let about_it = printed.lines().any(|line| line.contains("dwell-uplink"));
    assert!(output.status.success() && !about_it, "{printed}");
}
