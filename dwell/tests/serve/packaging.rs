//! The files of the service in `packaging/`, read by systemd's own tools.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::{dwell, make_token};

fn packaging(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(file)
}

/// Whether a program is installed; says so otherwise.
fn has(test: &str, program: &str) -> bool {
    let mut command = Command::new(program);
    let found = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        println!("SKIP {test}: {program} is not installed");
    }
    found.is_ok()
}

#[test]
fn unit_of_the_service_is_valid() {
    if !has("unit_of_the_service_is_valid", "systemd-analyze") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let unit = fs::read_to_string(packaging("dwell-serve.service")).unwrap();
    let unit = unit.replace("/usr/bin/dwell", env!("CARGO_BIN_EXE_dwell"));
    let file = dir.path().join("dwell-serve.service");
    fs::write(&file, unit).unwrap();
    let output =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output().unwrap();
    // Unknown settings are printed, and no failure.
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let about_it = printed.lines().any(|line| line.contains("dwell-serve"));
    assert!(output.status.success() && !about_it, "{printed}");
}

#[test]
fn service_does_not_start_without_a_token_and_is_not_retried() {
    let unit = fs::read_to_string(packaging("dwell-serve.service")).unwrap();
    let value = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("the unit has no {key}"))
    };
    assert_eq!(value("ExecStart"), "/usr/bin/dwell serve --require-token $OPTIONS");
    assert_eq!(value("RestartPreventExitStatus"), "2");
    assert_eq!(value("KillMode"), "process", "runs go on when the server ends");
    let dir = tempfile::tempdir().unwrap();
    let mut command = dwell(&["serve", "--require-token", "--listen", "127.0.0.1:0"]);
    command.env("DWELL_DATA", dir.path());
    assert_eq!(command.output().unwrap().status.code(), Some(2));
}

#[test]
fn token_made_by_root_belongs_to_the_owner_of_the_data() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    let dir = tempfile::tempdir().unwrap();
    if chown(dir.path(), Some(65534), Some(65534)).is_err() {
        println!("SKIP token_made_by_root_belongs_to_the_owner_of_the_data: needs root");
        return;
    }
    make_token(dir.path());
    let file = fs::metadata(dir.path().join("serve-token")).unwrap();
    assert_eq!((file.uid(), file.mode() & 0o777), (65534, 0o600));
}

#[test]
fn user_of_the_service_is_created_with_its_directory() {
    let test = "user_of_the_service_is_created_with_its_directory";
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("etc")).unwrap();
    let run = |program: &str, file: &str| {
        let mut command = Command::new(program);
        if program == "systemd-tmpfiles" {
            command.arg("--create");
        }
        command.arg("--root").arg(root.path()).arg(packaging(file)).output().unwrap()
    };
    if !has(test, "systemd-sysusers") || !has(test, "systemd-tmpfiles") {
        return;
    }
    let output = run("systemd-sysusers", "sysusers.d/dwell.conf");
    if !output.status.success() {
        println!("SKIP {test}: {}", String::from_utf8_lossy(&output.stderr).trim());
        return;
    }
    let users = fs::read_to_string(root.path().join("etc/passwd")).unwrap();
    let user = users.lines().find(|line| line.starts_with("dwell:")).expect("the user dwell");
    assert!(user.ends_with(":/var/lib/dwell:/usr/sbin/nologin"), "{user}");
    let output = run("systemd-tmpfiles", "tmpfiles.d/dwell.conf");
    assert!(output.status.success(), "{output:?}");
    assert!(root.path().join("var/lib/dwell").is_dir());
}
