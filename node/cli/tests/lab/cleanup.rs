//! Labs are removed completely after any failure, and foreign namespaces are left alone.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use dwell_io::netns;
use dwell_io::process::{Handle, Signal};

use crate::fixture::{DWELL, TestLab, as_root, dwell, kill, said, until};

/// A foreign namespace with a process in it, removed when the test ends.
struct ForeignNamespace {
    netns: String,
    process: Child,
}

impl ForeignNamespace {
    fn new(netns: String) -> Self {
        assert!(Command::new("ip").args(["netns", "add", &netns]).status().unwrap().success());
        let sleep = ["netns", "exec", &netns, "sleep", "600"];
        let process = Command::new("ip").args(sleep).spawn().unwrap();
        let comm = format!("/proc/{}/comm", process.id());
        until("the process sleeps", || {
            fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n")
        });
        Self { netns, process }
    }

    fn assert_unharmed(&mut self) {
        assert!(Path::new("/run/netns").join(&self.netns).exists(), "the namespace stays");
        assert_eq!(self.process.try_wait().unwrap(), None, "its process runs");
    }
}

impl Drop for ForeignNamespace {
    fn drop(&mut self) {
        kill(&mut self.process);
        let _ = Command::new("ip").args(["netns", "del", &self.netns]).status();
    }
}

#[test]
fn foreign_namespace_with_a_lab_name_is_left_alone() {
    if !as_root() {
        return;
    }
    // One with the name of a node, and one with another name.
    for node in ["n2", "box"] {
        let lab = TestLab::reserve(&format!("strange{node}"));
        let mut foreign = ForeignNamespace::new(format!("dwell-{}-{node}", lab.name));
        let listed = dwell(&["lab", "list"]);
        assert!(!String::from_utf8_lossy(&listed.stdout).contains(&lab.name), "{listed:?}");
        let refused = lab.try_up(&["line:3"]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(said(&refused).contains(&foreign.netns), "{}", said(&refused));
        assert_eq!(lab.namespaces(), 1, "no namespace was created");
        assert!(!lab.directory().exists());
        foreign.assert_unharmed();
        assert_eq!(lab.down().status.code(), Some(2), "there is no such lab");
        foreign.assert_unharmed();
    }
    // One that appears while the lab exists.
    let lab = TestLab::up("stranger", &["line:2"]);
    let mut foreign = ForeignNamespace::new(format!("dwell-{}-late", lab.name));
    assert!(lab.down().status.success());
    assert_eq!(lab.namespaces(), 1, "only the foreign one");
    assert_eq!(netns::within(&lab.netns("late"), dwell_lab::here).unwrap(), None);
    foreign.assert_unharmed();
}

#[test]
fn foreign_namespace_created_during_lab_up_is_left_alone() {
    if !as_root() {
        return;
    }
    let lab = TestLab::reserve("race");
    let arguments = ["lab", "up", "line:200", "--name", &lab.name];
    let up = Command::new(DWELL).args(arguments).stderr(Stdio::piped()).spawn().unwrap();
    until("namespaces appear", || lab.namespaces() >= 1);
    let mut foreign = ForeignNamespace::new(format!("dwell-{}-n200", lab.name));
    let output = up.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).contains("File exists"), "{}", said(&output));
    assert_eq!(lab.namespaces(), 1, "only the foreign one");
    assert!(!lab.directory().exists());
    foreign.assert_unharmed();
}

#[test]
fn lab_up_killed_early_is_removed_by_down() {
    if !as_root() {
        return;
    }
    for namespaces in [1, 40, 80] {
        let lab = TestLab::reserve(&format!("kill{namespaces}"));
        let arguments = ["lab", "up", "line:80", "--name", &lab.name, "--rate", "10Mbit/s"];
        let mut up = Command::new(DWELL).args(arguments).stdout(Stdio::null()).spawn().unwrap();
        until("namespaces appear", || lab.namespaces() >= namespaces);
        kill(&mut up);
        let down = lab.down();
        assert!(down.status.success(), "{down:?}");
        lab.assert_nothing_is_left();
    }
}

#[test]
fn lab_up_killed_while_links_start_is_removed_by_down() {
    if !as_root() {
        return;
    }
    let lab = TestLab::reserve("killtap");
    let arguments =
        ["lab", "up", "line:6", "--name", &lab.name, "--delay", "1ms", "--mechanism", "tap"];
    let mut up = Command::new(DWELL).args(arguments).stdout(Stdio::null()).spawn().unwrap();
    until("a link writes its pid", || lab.directory().join("link-0.pid").exists());
    kill(&mut up);
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}

#[test]
fn failed_lab_up_is_rolled_back() {
    if !as_root() {
        return;
    }
    let broken = tempfile::tempdir().unwrap();
    let tc = broken.path().join("tc");
    fs::write(&tc, "#!/bin/sh\necho 'simulated failure' >&2\nexit 1\n").unwrap();
    Command::new("chmod").arg("755").arg(&tc).status().unwrap();
    let lab = TestLab::reserve("rollback");
    let path = format!("{}:{}", broken.path().display(), std::env::var("PATH").unwrap());
    let output = Command::new(DWELL)
        .args(["lab", "up", "line:3", "--rate", "1Mbit/s", "--mechanism", "tbf", "--name"])
        .arg(&lab.name)
        .env("PATH", path)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).contains("tc failed: simulated failure"), "{}", said(&output));
    lab.assert_nothing_is_left();
}

#[test]
fn interrupted_lab_up_is_rolled_back_and_exits_130() {
    if !as_root() {
        return;
    }
    let lab = TestLab::reserve("interrupt");
    let up = Command::new(DWELL)
        .args(["lab", "up", "line:100", "--name", &lab.name])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("namespaces appear", || lab.namespaces() >= 1);
    Handle::open(up.id()).unwrap().signal(Signal::Interrupt).unwrap();
    let output = up.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    lab.assert_nothing_is_left();
}

#[test]
fn lab_down_ends_and_reports_running_processes() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("busy", &["line:2"]);
    // One that ends on SIGTERM, and one that ignores it.
    let start = |script: &str| {
        let ready = tempfile::NamedTempFile::new().unwrap();
        let script = format!("{script} echo ready > {}; exec sleep 600", ready.path().display());
        let child = Command::new(DWELL)
            .args(["lab", "exec", "--lab", &lab.name, "n2", "--", "sh", "-c", &script])
            .spawn()
            .unwrap();
        until("the process runs", || {
            fs::read_to_string(ready.path()).is_ok_and(|text| !text.is_empty())
        });
        let comm = format!("/proc/{}/comm", child.id());
        until("the process sleeps", || {
            fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n")
        });
        child
    };
    let (mut meek, mut stubborn) = (start(""), start("trap '' TERM;"));
    let down = lab.down();
    assert!(down.status.success(), "{down:?}");
    assert!(said(&down).contains(&format!("ended sleep ({}), which still ran in n2", meek.id())));
    assert_eq!(meek.wait().unwrap().signal(), Some(15));
    assert_eq!(stubborn.wait().unwrap().signal(), Some(9));
    lab.assert_nothing_is_left();
}

#[test]
fn lab_without_state_directory_is_removed_by_down() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("lost", &["line:2", "--delay", "1ms", "--mechanism", "tap"]);
    assert_eq!(lab.processes().len(), 1, "the link");
    fs::remove_dir_all(lab.directory()).unwrap();
    let down = lab.down();
    assert!(down.status.success(), "{down:?}");
    until("the link ends", || lab.processes().is_empty());
    lab.assert_nothing_is_left();
}

#[test]
fn lab_down_survives_a_closed_stderr() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("closed", &["line:2"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(DWELL).args(["lab", "down", &lab.name]).stderr(writer).output();
    assert_eq!(output.unwrap().status.code(), Some(0));
    lab.assert_nothing_is_left();
}
