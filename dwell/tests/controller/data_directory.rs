//! Data directories of other versions, damaged or shared.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::fixture::{Sandbox, repository, stderr, stdout, wait_for_exit, wait_until};

/// Imports a file of 200 round trips and returns the run.
fn imported(sandbox: &Sandbox) -> String {
    let file = repository("controller/import/tests/data/roedlach-vock.csv");
    sandbox.json(&["import", file.to_str().unwrap()])["run"].as_str().unwrap().to_owned()
}

fn everything(sandbox: &Sandbox) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut todo = vec![sandbox.data()];
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            all.push((path, Vec::new()));
        } else {
            all.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    all.sort();
    all
}

#[test]
fn newer_data_directory_is_refused_unchanged() {
    let sandbox = Sandbox::new();
    imported(&sandbox);
    let db = rusqlite::Connection::open(sandbox.data().join("catalogue.sqlite")).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);
    // Even a missing directory must not be created.
    fs::remove_dir(sandbox.data().join("incoming")).unwrap();
    let before = everything(&sandbox);
    let file = repository("controller/import/tests/data/roedlach-vock.csv");
    let plan = sandbox.plan(3);
    for arguments in [
        &["runs"][..],
        &["show", "last"],
        &["import", file.to_str().unwrap()],
        &["run", &plan],
        &["delete", "last", "--yes"],
    ] {
        let output = sandbox.dwell(arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let stderr = stderr(&output);
        assert!(stderr.contains("newer dwell") && stderr.contains("version 99"), "{stderr}");
        assert!(everything(&sandbox) == before, "{arguments:?} changed something");
    }
}

#[test]
fn unreadable_nodes_of_a_killed_run_are_an_error() {
    let sandbox = Sandbox::new();
    let run = imported(&sandbox);
    let db = rusqlite::Connection::open(sandbox.data().join("catalogue.sqlite")).unwrap();
    let killed = "UPDATE runs SET kind = 'run', state = 'running', fleet = '{\"balloon\": 7}'";
    db.execute(killed, []).unwrap();
    drop(db);
    let output = sandbox.dwell(&["delete", &run, "--yes"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = stderr(&output);
    assert!(stderr.contains(&run) && stderr.contains("balloon"), "{stderr}");
    assert_eq!(sandbox.query("SELECT run FROM runs"), [run]);
}

#[test]
fn missing_or_truncated_samples_are_reported() {
    let sandbox = Sandbox::new();
    let run = imported(&sandbox);
    let samples = sandbox.data().join("samples").join(&run).join("1.parquet");
    let whole = fs::read(&samples).unwrap();
    let damage_reported = || {
        let shown = sandbox.dwell(&["show", &run]);
        assert!(shown.status.success(), "{shown:?}");
        let page = sandbox.path("page.html");
        let report = sandbox.dwell(&["report", &run, "-o", page.to_str().unwrap()]);
        assert!(report.status.success(), "{report:?}");
        let words = "samples of trial 1 are damaged or missing";
        (stdout(&shown).contains(words), fs::read_to_string(page).unwrap().contains(words))
    };
    assert_eq!(damage_reported(), (false, false));
    fs::write(&samples, &whole[..whole.len() - 5]).unwrap();
    assert_eq!(damage_reported(), (true, true), "cut");
    let mut overwritten = whole.clone();
    let end = overwritten.len();
    overwritten[end - 8..].fill(7);
    fs::write(&samples, &overwritten).unwrap();
    assert_eq!(damage_reported(), (true, true), "overwritten");
    fs::remove_file(&samples).unwrap();
    assert_eq!(damage_reported(), (true, true), "gone");
}

#[test]
fn unknown_values_of_imports_are_null() {
    let sandbox = Sandbox::new();
    let run = imported(&sandbox);
    let shown = sandbox.json(&["show", &run]);
    assert_eq!(shown["seed"], serde_json::Value::Null);
    // Dwell computed this value itself.
    assert_eq!(shown["trials"][0]["trust"]["percentile_resolution"], "exact");
    for name in ["warm_up_sent", "ring_dropped", "void"] {
        assert_eq!(shown["trials"][0]["trust"][name], serde_json::Value::Null, "{name}");
    }
    let capture = repository("controller/import/tests/data/stamp-roundtrip-iperf2.pcap");
    sandbox.json(&["import", capture.to_str().unwrap()]);
    let shown = stdout(&sandbox.dwell(&["show", "last"]));
    let line = |words: &str| shown.lines().find(|line| line.contains(words)).unwrap().to_owned();
    assert!(line("delay in").contains("delay in "), "{shown}");
    let object = sandbox.json(&["show", "last"]);
    let trials = object["trials"].as_array().unwrap();
    for (flow, metric) in [("ssid 34883 replies", "rtt"), ("5002 iperf2", "gap")] {
        let of_flow = |trial: &&serde_json::Value| {
            trial["parameters"]["flow"].as_str().unwrap().ends_with(flow)
        };
        let trial = trials.iter().find(of_flow).unwrap()["trial"].to_string();
        let of = |line: &&str| line.split_whitespace().next() == Some(&trial);
        let figures = shown.lines().rfind(of).unwrap();
        assert!(figures.ends_with(metric), "{flow}: {shown}");
    }
}

#[test]
fn damaged_catalogue_is_named_and_samples_stay() {
    let sandbox = Sandbox::new();
    let run = imported(&sandbox);
    let catalogue = sandbox.data().join("catalogue.sqlite");
    let samples = sandbox.data().join("samples").join(&run).join("1.parquet");
    let whole = fs::read(&catalogue).unwrap();
    let kept = fs::read(&samples).unwrap();
    let noise: Vec<u8> = (0..whole.len() as u32).map(|n| ((n * 31) >> 3) as u8).collect();
    let mut middle = whole.clone();
    middle[4096..].copy_from_slice(&noise[4096..]);
    for (what, bytes) in [("noise", noise.clone()), ("damaged pages", middle)] {
        fs::write(&catalogue, bytes).unwrap();
        let output = sandbox.dwell(&["show", "last"]);
        assert_eq!(output.status.code(), Some(1), "{what}: {output:?}");
        let stderr = stderr(&output);
        assert!(stderr.contains("catalogue"), "{what}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        assert_eq!(fs::read(&samples).unwrap(), kept);
    }
    fs::write(&catalogue, &whole).unwrap();
    assert!(sandbox.dwell(&["show", &run]).status.success(), "nothing else was changed");
}

#[test]
fn damaged_sample_file_is_named_and_others_are_readable() {
    let sandbox = Sandbox::new();
    let (broken, good) = (imported(&sandbox), imported(&sandbox));
    let path = sandbox.data().join("samples").join(&broken).join("1.parquet");
    let whole = fs::read(&path).unwrap();
    let mut noise = whole.clone();
    noise[20..100].fill(0x55);
    let mut flipped = whole.clone();
    flipped[whole.len() / 3] ^= 1;
    for (what, bytes) in [
        ("one bit flipped", &flipped[..]),
        ("cut short", &whole[..whole.len() / 2]),
        ("a stretch overwritten", &noise),
        ("empty", &[]),
        ("gone", &[]),
    ] {
        fs::write(&path, bytes).unwrap();
        if what == "gone" {
            fs::remove_file(&path).unwrap();
        }
        let output = sandbox.dwell(&["export", &broken, "--format", "csv"]);
        assert_eq!(output.status.code(), Some(1), "{what}: {output:?}");
        let stderr = stderr(&output);
        assert!(stderr.contains(path.to_str().unwrap()), "{what}: {stderr}");
        assert!(!stderr.contains("panicked"), "{what}: {stderr}");
        assert!(
            sandbox.dwell(&["show", &broken]).status.success(),
            "summaries are stored in the catalogue"
        );
        let rest = sandbox.dwell(&["export", &good, "--format", "csv"]);
        assert_eq!(stdout(&rest).lines().count(), 201, "{what}");
    }
}

#[test]
fn delete_removes_only_the_run_and_its_samples() {
    let sandbox = Sandbox::new();
    let (first, second) = (imported(&sandbox), imported(&sandbox));
    let asked = sandbox.dwell(&["delete", &first]);
    assert_eq!(
        asked.status.code(),
        Some(2),
        "without a terminal the prompt must be refused: {asked:?}"
    );
    assert!(stderr(&asked).contains("--yes"), "{asked:?}");
    assert_eq!(sandbox.json(&["delete", &first, "--yes"])["run"], first.as_str());
    assert_eq!(sandbox.query("SELECT run FROM runs"), [second.as_str()]);
    assert_eq!(sandbox.query("SELECT CAST(count(*) AS TEXT) FROM trials"), ["1"]);
    assert!(!sandbox.data().join("samples").join(&first).exists());
    assert!(sandbox.dwell(&["export", &second, "--format", "csv"]).status.success());
    let output = sandbox.dwell(&["show", &first]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn concurrent_imports_into_a_new_directory_succeed() {
    let sandbox = Sandbox::new();
    let file = repository("controller/import/tests/data/roedlach-vock.csv");
    let file = file.to_str().unwrap();
    for round in 1..=5 {
        let children: Vec<_> = (0..4)
            .map(|_| {
                let mut command = sandbox.command(&["import", file, "--json"]);
                command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
                command.spawn().unwrap()
            })
            .collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        let mut runs = sandbox.query("SELECT run FROM runs WHERE state = 'finished'");
        runs.dedup();
        assert_eq!(runs.len(), 4, "round {round}");
        fs::remove_dir_all(sandbox.data()).unwrap();
    }
}

#[test]
fn closed_pipe_is_not_a_failure() {
    let sandbox = Sandbox::new();
    let file = repository("controller/import/tests/data/roedlach-vock.csv");
    let file = file.to_str().unwrap();
    let dir = sandbox.path("parquet").display().to_string();
    let page = sandbox.path("page.html").display().to_string();
    for arguments in [
        &["import", file][..],
        &["import", file, "--json"],
        &["runs"],
        &["show", "last"],
        &["show", "last", "--json"],
        &["export", "last", "--format", "csv"],
        &["export", "last", "--format", "parquet", "-o", &dir],
        &["report", "last", "-o", &page],
        &["delete", "last", "--yes"],
    ] {
        // A pipe without a reader.
        let mut reader = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
        let closed = reader.stdin.take().unwrap();
        reader.wait().unwrap();
        let output = sandbox.command(arguments).stdout(closed).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    assert_eq!(sandbox.query("SELECT run FROM runs").len(), 1, "one of two was deleted");
}

#[test]
fn killed_import_is_removed_by_the_next_one() {
    let sandbox = Sandbox::new();
    let fifo = sandbox.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut child = sandbox.start(&mut sandbox.command(&["import", fifo.to_str().unwrap()]));
    let mut pipe = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    let head = fs::read(repository("controller/import/tests/data/roedlach-vock.csv")).unwrap();
    for _ in 0..100 {
        pipe.write_all(&head).unwrap();
    }
    wait_until("the import is under way", || !sandbox.query("SELECT run FROM runs").is_empty());
    let state = || sandbox.json(&["runs"])["runs"][0]["state"].clone();
    assert_eq!(state(), "running");
    child.kill().unwrap();
    wait_for_exit(&mut child);
    drop(pipe);
    assert_eq!(state(), "interrupted");
    let run = imported(&sandbox);
    assert_eq!(
        sandbox.query("SELECT run FROM runs"),
        [run],
        "the incomplete import must be deleted"
    );
    assert_eq!(state(), "finished");
    let left: Vec<_> = fs::read_dir(sandbox.data().join("samples")).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(fs::read_dir(left[0].path()).unwrap().count(), 1, "samples only, without a lock");
}

#[test]
fn runs_table_is_aligned_in_every_state() {
    let sandbox = Sandbox::new();
    imported(&sandbox);
    imported(&sandbox);
    let db = rusqlite::Connection::open(sandbox.data().join("catalogue.sqlite")).unwrap();
    // Without a runner's lock it is shown as interrupted, the longest state.
    let one = "UPDATE runs SET state = 'running' WHERE id = (SELECT max(id) FROM runs)";
    assert_eq!(db.execute(one, []).unwrap(), 1);
    let listed = stdout(&sandbox.dwell(&["runs"]));
    let lines: Vec<&str> = listed.lines().collect();
    let started = lines[0].find("started").unwrap();
    assert!(lines[1..].iter().any(|line| line.contains("interrupted")), "{listed}");
    for line in &lines[1..] {
        // The century of the year, and the space before it.
        assert!(line[started - 1..].starts_with(" 2") && line.ends_with('B'), "{listed}");
        assert_eq!(line.len(), lines[0].len(), "{listed}");
    }
}

#[test]
fn note_is_shown_with_its_run() {
    let sandbox = Sandbox::new();
    imported(&sandbox);
    let output = sandbox.dwell(&["note", "last", "the fan was off"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(sandbox.json(&["show", "last"])["notes"][0], "the fan was off");
    assert!(stdout(&sandbox.dwell(&["show", "last"])).contains("user note: the fan was off"));
    assert_eq!(sandbox.dwell(&["note", "last", " "]).status.code(), Some(2));
}
