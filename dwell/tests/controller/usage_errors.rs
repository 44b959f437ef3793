//! Invalid plans and command lines.

use crate::fixture::{Sandbox, stderr};

const PLAN: &str = "version = 1\nname = \"x\"\ntopology = { lab = \"line:2\" }\n[ping]\nfrom = \"n1\"\n\
    to = \"n2\"\ncount = 10\n[matrix]\nsize = [\"100B\", \"200B\"]\n";

#[test]
fn plan_error_names_line_and_column() {
    let sandbox = Sandbox::new();
    for (from, to, at, words) in [
        ("to = \"n2\"", "to = \"n7\"", "6:6", "n7"),
        ("from = \"n1\"", "from = \"router\"", "5:8", "router"),
        ("\"200B\"", "\"-200B\"", "9:17", "-200B"),
        ("[\"100B\", \"200B\"]", "[]", "9:8", "empty"),
        ("count = 10", "count = \"ten\"", "7:9", "ten"),
        ("count = 10", "cuont = 10", "7:1", "did you mean 'count'"),
        ("version = 1", "", "1:1", "missing field 'version'"),
        ("count = 10", "count = 10\ninterval = \"5\"", "8:12", "unit"),
        ("version = 1", "version = 9", "1:11", "version 1"),
        ("line:2", "ring:2", "3:20", "ring:2"),
        ("[matrix]", "[matrix]\nload = [\"none\", \"busy\"]", "9:17", "busy"),
        ("name = \"x\"", "name = ", "2:", ""),
        ("name = \"x\"", "name = \"x\"\nclaims = \"x\"", "3:10", "known: miya-2020"),
    ] {
        let text = PLAN.replacen(from, to, 1);
        assert_ne!(text, PLAN, "{to}");
        let plan = sandbox.write("plan.toml", &text);
        for more in [&[][..], &["--dry-run"], &["--resume", "last"]] {
            let output = sandbox.dwell(&[&["run", &plan], more].concat());
            assert_eq!(output.status.code(), Some(2), "{to}: {output:?}");
            let stderr = stderr(&output);
            assert!(stderr.contains("plan.toml"), "{to}: {stderr}");
            let (line, column) = at.split_once(':').unwrap();
            let place_in_words = format!("line {line}, column {column}");
            assert!(stderr.contains(&place_in_words), "{to} is not at {at}: {stderr}");
            assert!(stderr.contains(words), "{to}: no '{words}' in {stderr}");
        }
    }
    assert!(!sandbox.data().exists());
}

#[test]
fn plan_of_devices_has_a_dry_run_and_needs_devices() {
    let sandbox = Sandbox::new();
    let text = PLAN.replace("lab = \"line:2\"", "roles = [\"n1\", \"n2\"]");
    let plan = sandbox.write("plan.toml", &text);
    let output = sandbox.dwell(&["run", &plan, "--dry-run"]);
    assert!(output.status.success(), "{output:?}");
    let output = sandbox.dwell(&["run", &plan]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("add --on n1=DEVICE,n2=DEVICE"), "{output:?}");
    assert_eq!(sandbox.query("SELECT run FROM runs"), Vec::<String>::new());
}

#[test]
fn million_trials_need_confirmation() {
    let sandbox = Sandbox::new();
    let sizes = "size = { from = 100, to = 1099, step = 1 }";
    let text = PLAN
        .replace(
            "size = [\"100B\", \"200B\"]",
            &sizes
                .replace("100,", "\"100B\",")
                .replace("1099", "\"1099B\"")
                .replace("step = 1", "step = \"1B\""),
        )
        .replace("[matrix]", "[trials]\nrepetitions = 1000\n[matrix]");
    let plan = sandbox.write("plan.toml", &text);
    for more in [&[][..], &["--resume", "last"]] {
        let output = sandbox.dwell(&[&["run", &plan], more].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).contains("1000000 trials"), "{output:?}");
        assert!(stderr(&output).contains("--yes"), "{output:?}");
        assert_eq!(sandbox.query("SELECT run FROM runs"), Vec::<String>::new());
    }
    // Larger plans are not expanded at all.
    let plan = sandbox.write("plan.toml", &text.replace("1000\n", "1000000\n"));
    let output = sandbox.dwell(&["run", &plan, "--dry-run"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("1000 cells x 1000000 repetitions"), "{output:?}");
}

#[test]
fn missing_files_and_runs_are_named() {
    let sandbox = Sandbox::new();
    for (arguments, code, words) in [
        (&["run", "/nowhere/plan.toml"][..], 2, "/nowhere/plan.toml"),
        (&["import", "/nowhere/file.csv"], 2, "/nowhere/file.csv"),
        (&["show", "last"], 1, "there are no runs in"),
        (&["export", "last", "--format", "csv"], 1, "there are no runs in"),
    ] {
        let output = sandbox.dwell(arguments);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(stderr(&output).contains(words), "{output:?}");
    }
    assert!(!sandbox.data().exists());
    // A file without an end, and one that is not text.
    for (plan, words) in [
        ("/dev/zero", "4 MiB"),
        (&sandbox.path("latin.toml").display().to_string(), "line 2, column 9: not UTF-8"),
    ] {
        std::fs::write(sandbox.path("latin.toml"), b"version = 1\ntitle = \xe4\n").unwrap();
        let output = sandbox.dwell(&["run", plan]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).contains(words), "{output:?}");
    }
    let unknown = sandbox.write("unknown.bin", "some unknown format\n");
    let output = sandbox.dwell(&["import", &unknown]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    for format in ["ping", "irtt", "sockperf", "iperf2", "D-ITG", "pcap"] {
        assert!(stderr(&output).contains(format), "{format}: {output:?}");
    }
    assert!(!sandbox.data().exists(), "a refused file leaves no directory");
}
