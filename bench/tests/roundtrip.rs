//! `roundtrip` as `make run` starts it, with few cycles.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_roundtrip");

fn roundtrip(program: &Path, arguments: &[&str], output: &Path) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).arg("--output").arg(output);
    command.output().unwrap()
}

/// The `dwell` that the experiment drives is built by its own crate.
fn assert_dwell_is_built() {
    let dwell = Path::new(PROGRAM).with_file_name("dwell");
    assert!(dwell.exists(), "{} is missing: cargo build -p dwell", dwell.display());
}

#[test]
fn every_case_leaves_its_cycles_and_its_summary_and_no_lab() {
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
    let combined: serde_json::Value = serde_json::from_slice(&combined).unwrap();
    assert_eq!(combined["cases"].as_array().unwrap().len(), 3);
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
