//! Devices that are lost in the middle of a trial.

use std::process::Child;

use crate::fixture::{DWELL, wait_for_exit, wait_until};
use crate::lab_devices::DeviceLab;

/// Three trials of two seconds.
const PLAN: &str = "version = 1\nname = \"long\"\n[topology]\n\
    roles = [\"sender\", \"receiver\"]\n[ping]\nfrom = \"sender\"\nto = \"receiver\"\n\
    protocol = \"udp\"\nduration = \"2s\"\ninterval = \"10ms\"\n[trials]\nrepetitions = 3\n";

/// Starts a run, and waits until the receiver serves its first trial.
fn start(lab: &DeviceLab) -> Child {
    let plan = lab.sandbox.write("long.toml", PLAN);
    let mut command = lab.controller(&[DWELL, "run", &plan, "--on", "sender=d1,receiver=d2"]);
    let runner = lab.sandbox.start(&mut command);
    wait_until("the first trial to start", || {
        lab.sandbox.query("SELECT state FROM trials WHERE state = 'running'").len() == 1
            && lab.processes(1).iter().any(|(_, line)| line.contains(" worker "))
    });
    runner
}

/// Returns the states of the trials, and the reason of the failed one.
fn outcome(lab: &DeviceLab) -> (Vec<String>, String) {
    let states = lab.sandbox.query("SELECT state FROM trials ORDER BY position");
    (states, lab.sandbox.query("SELECT reason FROM trials WHERE state = 'failed'").concat())
}

#[test]
fn run_survives_a_device_that_reboots() {
    let Some(mut lab) = DeviceLab::new(2) else { return };
    let mut runner = start(&lab);
    lab.kill_all(1);
    wait_until("the trial to fail", || !outcome(&lab).1.is_empty());
    lab.start_sshd(1);
    let status = wait_for_exit(&mut runner);
    assert_eq!(status.code(), Some(0), "{}", lab.sandbox.stderr());
    let (states, reason) = outcome(&lab);
    assert_eq!(states, ["failed", "finished", "finished"]);
    assert!(reason.starts_with("node receiver is gone: "), "{reason}");
    lab.assert_all_idle();
}

#[test]
fn run_survives_a_pulled_cable_that_ends_the_worker() {
    let Some(lab) = DeviceLab::new(2) else { return };
    let mut runner = start(&lab);
    lab.set_link(1, false);
    // The sshd of the device knows of nothing: the worker ends itself.
    wait_until("the worker to end", || {
        lab.processes(1).iter().all(|(_, line)| !line.contains(" worker "))
    });
    assert!(!outcome(&lab).1.is_empty(), "{}", lab.sandbox.stderr());
    lab.set_link(1, true);
    let status = wait_for_exit(&mut runner);
    assert_eq!(status.code(), Some(0), "{}", lab.sandbox.stderr());
    let (states, reason) = outcome(&lab);
    assert_eq!(states, ["failed", "finished", "finished"], "{reason}");
    assert!(reason.contains("receiver"), "{reason}");
    lab.assert_all_idle();
}

#[test]
fn killed_controller_leaves_nothing_on_devices() {
    let Some(lab) = DeviceLab::new(2) else { return };
    let mut runner = start(&lab);
    runner.kill().unwrap();
    runner.wait().unwrap();
    lab.assert_all_idle();
    let output = lab.dwell(&[
        "run",
        &lab.sandbox.path("long.toml").display().to_string(),
        "--resume",
        "last",
    ]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(outcome(&lab).0, ["finished"; 3]);
    lab.assert_all_idle();
}
