//! `roundtrip` as `make run` starts it, with few cycles.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_roundtrip");

fn roundtrip(program: &Path, arguments: &[&str], output: &Path) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).arg("--output").arg(output);
    command.output().unwrap()
}

/// One experiment at a time: they load the machine, and each removes what a killed one left.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(|failed| failed.into_inner())
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < Duration::from_secs(30), "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processes that run in a lab.
fn running_in(lab: &str) -> Vec<String> {
    let mark = format!("DWELL_LAB={lab}");
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes
        .filter_map(|process| {
            let environment = fs::read(process.join("environ")).ok()?;
            let mut entries = environment.split(|byte| *byte == 0);
            entries.any(|entry| entry == mark.as_bytes()).then_some(())?;
            fs::read_to_string(process.join("comm")).ok()
        })
        .collect()
}

/// The `dwell` that the experiment drives is built by its own crate.
fn assert_dwell_is_built() {
    let dwell = Path::new(PROGRAM).with_file_name("dwell");
    assert!(dwell.exists(), "{} is missing: cargo build -p dwell", dwell.display());
}

#[test]
fn every_case_leaves_its_cycles_and_its_summary_and_no_lab() {
    let _alone = alone();
    assert_dwell_is_built();
    let results = tempfile::tempdir().unwrap();
    let output = roundtrip(Path::new(PROGRAM), &["--cycles", "300"], results.path());
    let talk = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(4) {
        println!("SKIP every_case_leaves_its_cycles_and_its_summary_and_no_lab: {}", talk.trim());
        return;
    }
    assert!(output.status.success(), "{}: {talk}", output.status);

    let combined = fs::read(results.path().join("roundtrip.json")).unwrap();
    let combined: Value = serde_json::from_slice(&combined).unwrap();
    assert_eq!(combined["cases"].as_array().unwrap().len(), 3);
    assert_follows_the_schema(&combined);
    for case in ["idle", "network", "cpu"] {
        let csv = results.path().join(format!("roundtrip-{case}.csv"));
        let csv = fs::read_to_string(csv).unwrap();
        let rows: Vec<&str> = csv.lines().collect();
        assert_eq!((rows[0], rows.len()), ("id,roundtrip_time [s]", 301), "{case}");
        assert!(results.path().join(format!("roundtrip-{case}.json")).exists());
    }
    let table = String::from_utf8_lossy(&output.stdout);
    for figure in ["281.4", "278.7", "288.4"] {
        assert!(table.contains(figure), "the true mean {figure} is missing:\n{table}");
    }
}

fn assert_follows_the_schema(combined: &Value) {
    let path = "../docs/schema/dwell.roundtrip-1.schema.json";
    let schema = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let schema: Value = serde_json::from_slice(&schema).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(combined).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:?}\n{combined}");
    let mut broken = combined.clone();
    broken["cases"][0]["rtt_ns"]["p50"] = "fast".into();
    assert!(!validator.is_valid(&broken), "the schema can refuse");
}

#[test]
fn a_killed_experiment_leaves_no_process_and_the_next_one_removes_its_lab() {
    let _alone = alone();
    assert_dwell_is_built();
    let results = tempfile::tempdir().unwrap();
    let mut killed = Command::new(PROGRAM)
        .args(["--case", "network", "--cycles", "10000000", "--output"])
        .arg(results.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lab = format!("bench-run-{}", killed.id());
    let csv = results.path().join("roundtrip-network.csv");
    until("it measures, or says why not", || csv.exists() || killed.try_wait().unwrap().is_some());
    if let Some(status) = killed.try_wait().unwrap() {
        assert_eq!(status.code(), Some(4));
        let test = "a_killed_experiment_leaves_no_process_and_the_next_one_removes_its_lab";
        println!("SKIP {test}: there can be no lab here");
        return;
    }
    // Two sources, two sinks, a reflector and the ping.
    assert_eq!(running_in(&lab).len(), 6, "{:?}", running_in(&lab));
    killed.kill().unwrap();
    killed.wait().unwrap();
    until("its processes end", || running_in(&lab).is_empty());

    let arguments = ["--case", "idle", "--cycles", "100"];
    let output = roundtrip(Path::new(PROGRAM), &arguments, results.path());
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{talk}");
    assert!(talk.contains(&format!("lab {lab} was left behind")), "{talk}");
    let dwell = Path::new(PROGRAM).with_file_name("dwell");
    let list = Command::new(dwell).args(["lab", "list"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&list.stdout).contains(&lab));
}

#[test]
fn a_lab_that_cannot_be_made_is_exit_4_with_the_reason() {
    // A shell writes the two programs: a file that this process had open for writing could still be
    // so in a child it is just starting, and would then not run.
    let beside = tempfile::tempdir().unwrap();
    let script = r#"cp "$0" roundtrip
        printf '#!/bin/sh\necho "dwell: no namespaces here" >&2\nexit 4\n' > dwell
        chmod +x dwell"#;
    let mut shell = Command::new("sh");
    shell.args(["-ec", script, PROGRAM]).current_dir(beside.path());
    assert!(shell.status().unwrap().success());
    let program = beside.path().join("roundtrip");

    let output = roundtrip(&program, &[], beside.path());
    let talk = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{talk}");
    assert!(talk.contains("no namespaces here"), "{talk}");
}

#[test]
fn no_cycles_is_a_wrong_command_line() {
    let results = tempfile::tempdir().unwrap();
    let output = roundtrip(Path::new(PROGRAM), &["--cycles", "0"], results.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--cycles"));
}
