//! Starting and resuming runs, and two runners at once.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use dwell_io::process::{Handle, Signal};
use dwell_store::Store;

use crate::fixture::{Sandbox, as_root, object, stderr, stdout, wait_for_exit, wait_until};

#[test]
fn resume_last_continues_the_newest_unfinished_run() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.plan(3);
    let run = |more: &[&str]| {
        let output = sandbox.dwell(&[&["run", &plan, "--json"], more].concat());
        assert!(output.status.success(), "{output:?}");
        object(&output)["run"].as_str().unwrap().to_owned()
    };
    let first = run(&["--resume", "last"]);
    assert_eq!(sandbox.states(&first), ["finished"; 3], "without an unfinished run it starts one");
    assert_eq!(run(&["--resume", "last"]), first, "all are finished: it names the newest");
    let second = run(&[]);
    assert_ne!(second, first, "without --resume it always starts a new run");
    assert_eq!(run(&["--resume", "last"]), second);
    // Makes the first run the only unfinished one, as after a kill.
    let db = rusqlite::Connection::open(sandbox.data().join("catalogue.sqlite")).unwrap();
    let unfinish = "UPDATE trials SET state = 'running' WHERE number = 2 AND run_id =
                    (SELECT id FROM runs WHERE run = ?1)";
    db.execute(unfinish, [&first]).unwrap();
    let kept = sandbox.json(&["show", &first])["trials"][0].clone();
    assert_eq!(run(&["--resume", "last"]), first);
    assert_eq!(sandbox.states(&first), ["finished"; 3]);
    assert_eq!(sandbox.json(&["show", &first])["trials"][0], kept, "must not be measured again");
    // A run of another plan does not count.
    let other = sandbox.plan(6);
    let refused = sandbox.dwell(&["run", &other, "--resume", &second]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(stderr(&refused).contains("another plan"), "{refused:?}");
    let output = sandbox.dwell(&["run", &other, "--resume", "last", "--json"]);
    assert_eq!(object(&output)["trials"], 6, "{output:?}");
    sandbox.assert_no_leftovers();
}

#[test]
fn resuming_a_complete_run_succeeds() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.plan(3);
    let set = ["run", &plan, "--json", "--quiet", "--set", "nodes.n1.cpu=4000"];
    let first = sandbox.dwell(&set);
    assert_eq!(first.status.code(), Some(1), "{first:?}");
    let again = sandbox.dwell(&["run", &plan, "--json", "--resume", "last"]);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert_eq!(object(&again)["run"], object(&first)["run"]);
    sandbox.assert_no_leftovers();
}

#[test]
fn run_is_resumed_with_its_seed_and_settings() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.plan(12);
    let mut runner = sandbox.start(&mut sandbox.command(&["run", &plan, "--set", "ping.count=12"]));
    wait_until("a trial is finished", || {
        !sandbox
            .query(
                "SELECT run FROM runs WHERE EXISTS (SELECT 1 FROM trials WHERE state = 'finished')",
            )
            .is_empty()
    });
    runner.kill().unwrap();
    runner.wait().unwrap();
    let output = sandbox.dwell(&["run", &plan, "--resume", "last"]);
    assert!(output.status.success(), "{output:?}");
    let shown = sandbox.json(&["show", "last"]);
    let trials = shown["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 12);
    assert!(trials.iter().all(|trial| trial["packets"]["sent"] == 12), "{shown}");
}

#[test]
fn deleting_a_killed_run_removes_its_lab() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.plan(12);
    let mut runner = sandbox.start(&mut sandbox.command(&["run", &plan, "--quiet"]));
    wait_until("the runner is at work", || !sandbox.workers().is_empty());
    runner.kill().unwrap();
    runner.wait().unwrap();
    let (run, lab) = (sandbox.query("SELECT run FROM runs"), sandbox.labs());
    let directory = Path::new("/run/dwell/labs").join(&lab[0]);
    assert!(directory.exists(), "the dead runner left its lab");
    let output = sandbox.dwell(&["delete", &run[0], "--yes"]);
    // The catalogue no longer knows the lab.
    let left = directory.exists();
    let _ = sandbox.dwell(&["lab", "down", &lab[0]]);
    assert!(output.status.success(), "{output:?}");
    assert!(!left, "{} still exists", directory.display());
    assert_eq!(sandbox.query("SELECT run FROM runs"), Vec::<String>::new());
    sandbox.assert_no_leftovers();
}

#[test]
fn second_runner_is_refused_and_changes_nothing() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    // Long in wall-clock time but not in CPU time.
    let plan = sandbox.plan(6);
    let text = fs::read_to_string(&plan).unwrap();
    fs::write(&plan, text.replace("count = 30\n", "count = 1500\n")).unwrap();
    let mut first = sandbox.start(&mut sandbox.command(&["run", &plan, "--quiet"]));
    wait_until("the first is at work", || !sandbox.workers().is_empty());
    let runs = sandbox.query("SELECT run FROM runs");
    for more in [&[][..], &["--resume", "last"], &["--resume", &runs[0]]] {
        let output = sandbox.dwell(&[&["run", &plan], more].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr(&output).contains("another runner is active in"), "{output:?}");
    }
    let output = sandbox.dwell(&["delete", &runs[0], "--yes"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(wait_for_exit(&mut first).success(), "{}", sandbox.stderr());
    assert_eq!(sandbox.query("SELECT run FROM runs"), runs);
    assert_eq!(sandbox.states("last"), ["finished"; 6]);
    sandbox.assert_no_leftovers();
}

#[test]
fn run_does_not_overtake_one_that_waits() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.plan(3);
    let place = Store::open(&sandbox.data()).unwrap().queue().unwrap();
    let output = sandbox.dwell(&["run", &plan]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("another runner is active in"), "{output:?}");
    drop(place);
    let output = sandbox.dwell(&["run", &plan, "--quiet"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn interrupt_ends_the_run_with_130_and_it_resumes() {
    interrupted(&|runner| Handle::open(runner).unwrap().signal(Signal::Interrupt).unwrap());
}

#[test]
fn interrupt_of_the_process_group_ends_the_run_with_130() {
    interrupted(&|runner| {
        let kill = Command::new("kill").args(["-INT", "--", &format!("-{runner}")]).status();
        assert!(kill.unwrap().success());
    });
}

#[test]
fn closed_terminal_ends_the_run_like_an_interrupt() {
    interrupted(&|runner| {
        let kill = Command::new("kill").args(["-HUP", &runner.to_string()]).status();
        assert!(kill.unwrap().success());
    });
}

/// Interrupts a runner at several moments, some of them while its lab is created.
fn interrupted(interrupt: &dyn Fn(u32)) {
    if !as_root() {
        return;
    }
    for after in [0, 5, 10, 20, 40, 80, 160, 320, 640] {
        let sandbox = Sandbox::new();
        // Long enough not to be finished by then, even if other processes delay the interrupt.
        let plan = sandbox.plan(120);
        let mut runner =
            sandbox.start(sandbox.command(&["run", &plan, "--quiet", "--json"]).process_group(0));
        // Without a run there is nothing to resume.
        wait_until("it has begun", || !sandbox.query("SELECT run FROM runs").is_empty());
        thread::sleep(Duration::from_millis(after));
        interrupt(runner.id());
        let status = wait_for_exit(&mut runner);
        assert_eq!((status.code(), status.signal()), (Some(130), None), "{}", sandbox.stderr());
        sandbox.assert_no_leftovers();
        let states = sandbox.states("last");
        assert!(states.contains(&"planned".to_owned()), "after {after} ms: {states:?}");
        assert!(!states.contains(&"failed".to_owned()), "after {after} ms: {states:?}");
        let runs = sandbox.json(&["runs"]);
        assert_eq!(runs["runs"][0]["state"], "stopped", "{runs}");
        // Completing all trials takes a while, so it is done only once.
        if after < 640 {
            continue;
        }
        let output = sandbox.dwell(&["run", &plan, "--resume", "last"]);
        assert!(output.status.success(), "{output:?}");
        assert!(stdout(&output).contains("120 of 120 trials measured, 0 failed"), "{output:?}");
    }
}
