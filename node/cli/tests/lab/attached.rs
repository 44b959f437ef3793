//! Labs of a controller that may be killed at any time: an unfinished lab is undone, and a finished
//! one can be replaced by the next controller.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::fixture::{DWELL, TestLab, as_root, dwell, said, until};

/// Starts `lab up` as a controller does, holding the other end of its standard input.
fn start_up(lab: &TestLab, topology: &str) -> Child {
    Command::new(DWELL)
        .args(["lab", "up", topology, "--name", &lab.name, "--attached"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs a command whose controller has already ended.
fn orphan(arguments: &[&str]) -> Output {
    let (input, controller) = std::io::pipe().unwrap();
    drop(controller);
    Command::new(DWELL).args(arguments).stdin(input).output().unwrap()
}

#[test]
fn lab_up_replaces_a_lab_of_the_same_name() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("replace", &["line:3"]);
    let refused = lab.try_up(&["line:2"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(said(&refused).contains("already exists"), "{refused:?}");
    let replaced = lab.try_up(&["line:2", "--replace"]);
    assert!(replaced.status.success(), "{replaced:?}");
    assert_eq!(lab.namespaces(), 2);
    assert!(lab.down().status.success());
    let first = lab.try_up(&["line:2", "--replace"]);
    assert!(first.status.success(), "without a lab it creates one: {first:?}");
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}

#[test]
fn lab_up_replaces_a_lab_being_created() {
    if !as_root() {
        return;
    }
    let lab = TestLab::reserve("making");
    let mut other = start_up(&lab, "line:60");
    until("the other command creates its lab", || lab.directory().exists());
    let replaced = lab.try_up(&["line:2", "--replace"]);
    assert!(replaced.status.success(), "{replaced:?}");
    other.wait().unwrap();
    assert_eq!(lab.namespaces(), 2);
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}

#[test]
fn attached_lab_up_is_undone_when_its_stdin_closes() {
    if !as_root() {
        return;
    }
    for namespaces in [0, 1, 40] {
        let lab = TestLab::reserve(&format!("eof{namespaces}"));
        let mut up = start_up(&lab, "line:80");
        let begun = || lab.directory().exists() && lab.namespaces() >= namespaces;
        until("the lab is being created", begun);
        drop(up.stdin.take());
        let output = up.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        lab.assert_nothing_is_left();
    }
}

#[test]
fn attached_commands_do_nothing_after_stdin_closed() {
    if !as_root() {
        return;
    }
    let lab = TestLab::reserve("orphan");
    let name = lab.name.as_str();
    let up = orphan(&["lab", "up", "line:2", "--name", name, "--attached"]);
    assert_eq!(up.status.code(), Some(130), "{up:?}");
    lab.assert_nothing_is_left();

    assert!(lab.try_up(&["line:2"]).status.success());
    let down = orphan(&["lab", "down", name, "--attached"]);
    assert_eq!(down.status.code(), Some(130), "{down:?}");
    assert_eq!(lab.namespaces(), 2, "the lab of the next controller stays");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("begun").display().to_string();
    let exec = orphan(&["lab", "exec", "--attached", "--lab", name, "n1", "--", "touch", &file]);
    assert_eq!(exec.status.code(), Some(130), "{exec:?}");
    assert!(!Path::new(&file).exists());

    // Without the flag, standard input may already be closed.
    let exec = orphan(&["lab", "exec", "--lab", name, "n1", "--", "touch", &file]);
    assert!(exec.status.success() && Path::new(&file).exists(), "{exec:?}");
    assert!(dwell(&["lab", "down", name]).status.success());
    lab.assert_nothing_is_left();
}
