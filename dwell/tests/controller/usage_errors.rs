//! Invalid plans and command lines.

use crate::fixture::{Sandbox, said};

const PLAN: &str = "version = 1\nname = \"x\"\ntopology = { lab = \"line:2\" }\n[ping]\nfrom = \"n1\"\n\
    to = \"n2\"\ncount = 10\n[matrix]\nsize = [\"100B\", \"200B\"]\n";

#[test]
fn plan_error_names_line_and_column() {
    let place = Sandbox::new();
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
    ] {
        let text = PLAN.replacen(from, to, 1);
        assert_ne!(text, PLAN, "{to}");
        let plan = place.write("plan.toml", &text);
        for more in [&[][..], &["--dry-run"], &["--resume", "last"]] {
            let output = place.dwell(&[&["run", &plan], more].concat());
            assert_eq!(output.status.code(), Some(2), "{to}: {output:?}");
            let said = said(&output);
            assert!(said.contains("plan.toml"), "{to}: {said}");
            let (line, column) = at.split_once(':').unwrap();
            let place_in_words = format!("line {line}, column {column}");
            assert!(said.contains(&place_in_words), "{to} is not at {at}: {said}");
            assert!(said.contains(words), "{to}: no '{words}' in {said}");
        }
    }
    assert!(!place.data().exists());
}

#[test]
fn million_trials_need_confirmation() {
    let place = Sandbox::new();
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
    let plan = place.write("plan.toml", &text);
    for more in [&[][..], &["--resume", "last"]] {
        let output = place.dwell(&[&["run", &plan], more].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(said(&output).contains("1000000 trials"), "{output:?}");
        assert!(said(&output).contains("--yes"), "{output:?}");
        assert_eq!(place.query("SELECT run FROM runs"), Vec::<String>::new());
    }
    // Larger plans are not expanded at all.
    let plan = place.write("plan.toml", &text.replace("1000\n", "1000000\n"));
    let output = place.dwell(&["run", &plan, "--dry-run"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(said(&output).contains("1000 cells x 1000000 repetitions"), "{output:?}");
}

#[test]
fn missing_files_and_runs_are_named() {
    let place = Sandbox::new();
    for (arguments, code, words) in [
        (&["run", "/nowhere/plan.toml"][..], 2, "/nowhere/plan.toml"),
        (&["import", "/nowhere/file.csv"], 2, "/nowhere/file.csv"),
        (&["show", "last"], 1, "there are no runs in"),
        (&["export", "last", "--format", "csv"], 1, "there are no runs in"),
    ] {
        let output = place.dwell(arguments);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(said(&output).contains(words), "{output:?}");
    }
    assert!(!place.data().exists());
    // A file without an end, and one that is not text.
    for (plan, words) in [
        ("/dev/zero", "4 MiB"),
        (&place.path("latin.toml").display().to_string(), "line 2, column 9: not UTF-8"),
    ] {
        std::fs::write(place.path("latin.toml"), b"version = 1\ntitle = \xe4\n").unwrap();
        let output = place.dwell(&["run", plan]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(said(&output).contains(words), "{output:?}");
    }
    let unknown = place.write("unknown.bin", "some unknown format\n");
    let output = place.dwell(&["import", &unknown]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    for format in ["ping", "irtt", "sockperf", "iperf2", "D-ITG", "pcap"] {
        assert!(said(&output).contains(format), "{format}: {output:?}");
    }
    assert!(!place.data().exists(), "a refused file leaves no directory");
}
