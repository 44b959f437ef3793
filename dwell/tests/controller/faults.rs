//! Faults during a plan that must not stop the rest of the run.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use dwell_io::process::{Handle, Signal};

use crate::fixture::{DWELL, Sandbox, as_root, object, skip, stderr, wait_for_exit, wait_until};

/// Four consecutive trials of 300 ms.
const SLOW: &str = "version = 1\nname = \"slow\"\ntopology = { lab = \"line:2\" }\n\
    [ping]\nfrom = \"n1\"\nto = \"n2\"\nprotocol = \"udp\"\nduration = \"300ms\"\n\
    interval = \"2ms\"\n[trials]\nrepetitions = 4\n";

#[test]
fn killed_node_fails_only_its_trial() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    // A trial must last longer than it takes to find its node processes, even on a busy machine.
    let plan = sandbox.write("slow.toml", &SLOW.replace("300ms", "1500ms"));
    let mut runner = sandbox.start(&mut sandbox.command(&["run", &plan]));
    let running = "SELECT run FROM runs JOIN trials ON run_id = runs.id
                   WHERE trials.state = 'running' AND number = 2";
    wait_until("the second trial runs", || !sandbox.query(running).is_empty());
    thread::sleep(Duration::from_millis(150));
    let nodes = sandbox.workers();
    assert_eq!(nodes.len(), 2, "{:?}", sandbox.processes());
    for node in nodes {
        Handle::open(node).unwrap().signal(Signal::Kill).unwrap();
    }
    let status = wait_for_exit(&mut runner);
    assert!(status.success(), "{status}: {}", sandbox.stderr());
    assert_eq!(sandbox.states("last"), ["finished", "failed", "finished", "finished"]);
    let reason = &sandbox.json(&["show", "last"])["trials"][1]["reason"];
    let reason = reason.as_str().unwrap();
    assert!(reason.starts_with("node n") && reason.contains(" is gone: "), "{reason}");
    assert!(sandbox.stderr().contains(reason), "{}", sandbox.stderr());
    sandbox.assert_no_leftovers();
}

#[test]
fn killed_babeld_fails_only_its_trial() {
    if !as_root() {
        return;
    }
    if Command::new("babeld").arg("-V").output().is_err() {
        return skip("needs babeld");
    }
    let sandbox = Sandbox::new();
    let plan = SLOW
        .replace("\"line:2\"", "\"line:3\", routing = \"babel\"")
        .replace("to = \"n2\"", "to = \"n3\"")
        .replace("300ms", "3s")
        .replace("repetitions = 4", "repetitions = 3");
    let plan = sandbox.write("babel.toml", &plan);
    let mut runner = sandbox.start(&mut sandbox.command(&["run", &plan]));
    let running = "SELECT json_extract(fleet, '$.lab') FROM runs JOIN trials ON run_id = runs.id
                   WHERE trials.state = 'running' AND number = 2";
    let mut lab = Vec::new();
    wait_until("the second trial runs", || {
        lab = sandbox.query(running);
        !lab.is_empty()
    });
    let described = object(&sandbox.dwell(&["lab", "list", "--json"]));
    let labs = described["labs"].as_array().unwrap();
    let ours = labs.iter().find(|one| one["name"] == lab[0].as_str()).unwrap();
    let daemons = ours["daemons"].as_array().unwrap();
    let babeld = daemons.iter().find(|daemon| daemon["node"] == "n2").unwrap();
    let pid = babeld["pid"].as_u64().unwrap().try_into().unwrap();
    Handle::open(pid).unwrap().signal(Signal::Kill).unwrap();
    let status = wait_for_exit(&mut runner);
    assert!(status.success(), "{status}: {}", sandbox.stderr());
    assert_eq!(sandbox.states("last"), ["finished", "failed", "finished"]);
    let reason = &sandbox.json(&["show", "last"])["trials"][1]["reason"];
    assert!(reason.as_str().unwrap().starts_with("babeld in n2 has ended"), "{reason}");
    sandbox.assert_no_leftovers();
}

#[test]
fn killed_run_is_shown_as_interrupted() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.write("slow.toml", &SLOW.replace("300ms", "3s"));
    let mut runner = sandbox.start(&mut sandbox.command(&["run", &plan]));
    let running = "SELECT run FROM runs JOIN trials ON run_id = runs.id
                   WHERE trials.state = 'running' AND number = 2";
    wait_until("the second trial runs", || !sandbox.query(running).is_empty());
    assert_eq!(sandbox.json(&["runs"])["runs"][0]["state"], "running");
    runner.kill().unwrap();
    runner.wait().unwrap();
    assert_eq!(sandbox.json(&["runs"])["runs"][0]["state"], "interrupted");
    assert_eq!(sandbox.json(&["show", "last"])["state"], "interrupted");
    assert_eq!(sandbox.states("last"), ["finished", "planned", "planned", "planned"]);
    // Another run corrects the state and removes the lab.
    let other = sandbox.plan(3);
    let output = sandbox.dwell(&["run", &other, "--quiet"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(sandbox.query("SELECT state FROM runs ORDER BY id"), ["stopped", "finished"]);
    sandbox.assert_no_leftovers();
}

#[test]
fn run_continues_when_its_output_is_closed() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.write("slow.toml", &SLOW.replace("300ms", "50ms"));
    let mut command = sandbox.command(&["run", &plan]);
    let mut runner = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((runner.stdout.take(), runner.stderr.take()));
    let status = wait_for_exit(&mut runner);
    assert_eq!(status.code(), Some(0), "{status}");
    assert_eq!(sandbox.states("last"), ["finished"; 4]);
    // The same applies to errors.
    let mut command = sandbox.command(&["run", "/nowhere/plan.toml"]);
    let mut runner = command.stderr(Stdio::piped()).spawn().unwrap();
    drop(runner.stderr.take());
    assert_eq!(wait_for_exit(&mut runner).code(), Some(2));
}

#[test]
fn run_without_measured_trials_exits_with_1() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.write("slow.toml", &SLOW.replace("300ms", "50ms"));
    // CPU 4000 does not exist.
    let output = sandbox.dwell(&["run", &plan, "--set", "nodes.n1.cpu=4000"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(sandbox.states("last"), ["failed"; 4]);
    let reason = &sandbox.json(&["show", "last"])["trials"][0]["reason"];
    assert!(reason.as_str().unwrap().starts_with("ping on n1: "), "{reason}");
    sandbox.assert_no_leftovers();
}

#[test]
fn full_disk_pauses_the_run_until_space_is_free() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let output = with_full_disk(
        &sandbox,
        "rm $DWELL_DATA/filler; wait $runner\n\
         $dwell show last; $dwell show last --json >$shown; ls -A $DWELL_DATA/incoming",
    );
    let Some(output) = output else { return };
    let log = fs::read_to_string(sandbox.path("stderr")).unwrap_or_default();
    assert!(output.status.success(), "{}\n{output:?}\n{log}", stderr(&output));
    assert!(log.contains("space is available again; repeating trial"), "{log}");
    let shown = fs::read(sandbox.path("shown")).unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
    let trials = shown["trials"].as_array().unwrap();
    assert!(trials.iter().all(|trial| trial["state"] == "finished"), "{shown}");
    assert_eq!(trials.len(), 4);
    wait_until("every process to end", || sandbox.processes().is_empty());
}

#[test]
fn run_waiting_for_space_can_be_interrupted() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let output = with_full_disk(
        &sandbox,
        "kill -INT $runner; code=0; wait $runner || code=$?\n\
         [ $code = 130 ] || { cat $stderr >&2; exit $code; }\n\
         rm $DWELL_DATA/filler; $dwell run $plan --resume last --json >$shown",
    );
    let Some(output) = output else { return };
    assert!(output.status.success(), "{output:?}");
    let end: serde_json::Value =
        serde_json::from_slice(&fs::read(sandbox.path("shown")).unwrap()).unwrap();
    assert_eq!((&end["finished"], &end["failed"]), (&4.into(), &0.into()), "{end}");
    wait_until("every process to end", || sandbox.processes().is_empty());
}

/// Runs a plan of four trials on a disk that is filled up to some 16 KiB after the first trial,
/// then runs `then` once the runner reports it. Returns `None`, after reporting the reason, if that
/// is impossible.
fn with_full_disk(sandbox: &Sandbox, then: &str) -> Option<Output> {
    if !Command::new("unshare").args(["--mount", "true"]).status().unwrap().success() {
        skip("mount namespaces are forbidden here");
        return None;
    }
    let plan = sandbox.write("slow.toml", &SLOW.replace("300ms", "1s"));
    fs::create_dir(sandbox.data()).unwrap();
    let script = "set -e; mount -t tmpfs -o size=4m tmpfs $DWELL_DATA\n\
         $dwell run $plan >&2 2>$stderr & runner=$!; trap 'kill -KILL $runner 2>/dev/null || :' EXIT\n\
         while [ ! -e $DWELL_DATA/samples/*/1.parquet ]; do sleep 0.005; done\n\
         free=$(df --output=avail -k $DWELL_DATA | tail -n 1)\n\
         head -c $(((free - 16) * 1024)) /dev/zero >$DWELL_DATA/filler || :\n\
         until grep -q 'is full; waiting for' $stderr; do kill -0 $runner; sleep 0.01; done\n";
    let output = Command::new("timeout")
        .args(["120", "unshare", "--mount", "sh", "-c", &format!("{script}{then}")])
        .env("DWELL_DATA", sandbox.data())
        .env("dwell", DWELL)
        .env("plan", plan)
        .env("stderr", sandbox.path("stderr"))
        .env("shown", sandbox.path("shown"))
        .process_group(0)
        .output();
    Some(output.unwrap())
}
