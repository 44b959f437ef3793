//! `dwell replay`: experiments of the founding documents, repeated and judged.

use std::collections::BTreeSet;

use dwell_documents::{LINES, REPLAYS, claims_not_run, lines_of};
use serde_json::Value;

use crate::fixture::{DWELL, Sandbox, as_root, repository, stderr, stdout};
use crate::schema::assert_matches_schema;

#[test]
fn list_of_replays_has_their_cost() {
    let sandbox = Sandbox::new();
    let listed = sandbox.json(&["replay", "--list"]);
    assert_matches_schema("dwell.replays", &listed);
    assert_eq!(listed["replays"].as_array().unwrap().len(), REPLAYS.len());
    let names = stdout(&sandbox.dwell(&["replay", "--list", "--names"]));
    let known: Vec<&str> = REPLAYS.iter().map(|replay| replay.name).collect();
    assert_eq!(names.lines().collect::<Vec<_>>(), known);
    let text = stdout(&sandbox.dwell(&["replay", "--list"]));
    assert!(known.iter().all(|name| text.contains(name)), "{text}");
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(row("microcontroller").contains("6 min") && row("microcontroller").contains("40 min"));
    assert!(row("round-trip").contains("90s") && row("round-trip").contains("4 min"), "{text}");
    assert!(!sandbox.data().exists(), "a list creates no directory");
}

#[test]
fn replay_is_stored_and_judged_like_any_run() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let short = ["--set", "trials.repetitions=1", "--set", "ping.count=20", "--quiet"];
    let command = [&["replay", "stable-ping", "--short"][..], &short].concat();
    let replayed = sandbox.json(&command);
    assert_matches_schema("dwell.replay", &replayed);
    let case = &replayed["cases"][0];
    let claims = case["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 9);
    assert!(claims.iter().all(|claim| claim["id"].as_str().unwrap().starts_with("S1.8")));
    let run = sandbox.json(&["show", case["run"].as_str().unwrap()]);
    assert_eq!(run["claims"], case["claims"]);
    let page = std::fs::read_to_string(case["report"].as_str().unwrap()).unwrap();
    assert!(page.contains("S1.8-log"));
    let lines = replayed["lines"].as_array().unwrap();
    assert_eq!(lines.len(), lines_of("S1").count());
    sandbox.assert_no_leftovers();
}

#[test]
fn replays_judge_every_claim_of_the_documents() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    // Lines of each document, and those that are claims.
    let miya: Vec<String> = (18..=27).map(|line| format!("S0.{line}")).collect();
    let miya: Vec<&str> = miya.iter().map(String::as_str).collect();
    for (name, document, lines, claims, more) in [
        ("relay-delay", "S0", 27, &miya[..], "flow.duration=100ms"),
        ("stable-ping", "S1", 8, &["S1.8"], "ping.count=20"),
        ("send-accuracy", "S2", 9, &["S2.6", "S2.8"], "pace.repeat=1"),
        ("microcontroller", "S3", 5, &["S3.4", "S3.5"], "ping.duration=100ms"),
        ("round-trip", "S4", 5, &["S4.4"], "trials.repetitions=1"),
    ] {
        // The rule ends the run after its first trials.
        let short =
            ["--set", more, "--set", "stop.time=200ms", "--set", "trials.seed=7", "--quiet"];
        let replayed = sandbox.json(&[&["replay", name, "--short"][..], &short].concat());
        let ids = |of: &Value| -> Vec<String> {
            let all = of.as_array().unwrap().iter();
            all.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
        };
        let expected: Vec<_> = (1..=lines).map(|line| format!("{document}.{line}")).collect();
        assert_eq!(ids(&replayed["lines"]), expected, "{name}");
        for case in replayed["cases"].as_array().unwrap() {
            let judged = ids(&case["claims"]);
            let line = |id: &String| id.split('-').next().unwrap().to_owned();
            let judged: BTreeSet<_> = judged.iter().map(line).collect();
            let claims: BTreeSet<_> = claims.iter().map(|line| (*line).to_owned()).collect();
            assert_eq!(judged, claims, "{name}: {case:#}");
        }
    }
    sandbox.assert_no_leftovers();
}

#[test]
fn case_without_its_program_is_not_run_and_names_the_remedy() {
    let sandbox = Sandbox::new();
    // A copy of dwell beside which no other program lies.
    let dwell = sandbox.path("dwell");
    std::fs::copy(DWELL, &dwell).unwrap();
    let run = |more: &[&str]| {
        let mut command = std::process::Command::new(&dwell);
        command.args(["replay", "relay-delay", "--short", "--case", "slow-board"]).args(more);
        command.env("DWELL_DATA", sandbox.data()).output().unwrap()
    };
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(stderr(&output).contains("`make soft-aes` builds it"), "{output:?}");
    let text = stdout(&output);
    assert!(text.contains("not run") && text.contains("S0.19-translate, S0.20"), "{text}");

    let output = run(&["--json"]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let replayed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_matches_schema("dwell.replay", &replayed);
    let case = &replayed["cases"][0];
    let claims = case["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 15);
    for claim in claims {
        assert_eq!(claim["verdict"], "not-run", "{claim:#}");
        let reason = case["reason"].as_str().unwrap();
        assert!(claim["text"].as_str().unwrap().ends_with(&format!("Not run: {reason}.")));
    }
}

#[test]
fn unknown_replays_and_cases_are_usage_errors() {
    let sandbox = Sandbox::new();
    for (arguments, words) in [
        (&["replay", "ping"][..], "known: relay-delay"),
        (&["replay", "round-trip", "--case", "mars"], "round-trip has this-machine"),
        (&["replay", "round-trip", "--short", "--on", "n1=pi4"], "device"),
        (&["replay", "round-trip", "--short", "--set", "ping.count=none"], "ping.count"),
    ] {
        let output = sandbox.dwell(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(stderr(&output).contains(words), "{arguments:?}: {output:?}");
    }
}

#[test]
fn page_of_the_founding_documents_has_every_line() {
    let page = std::fs::read_to_string(repository("docs/founding-documents.md")).unwrap();
    for line in LINES {
        let how = line.how.replace('|', "\\|");
        let row = format!("| {} | {} | {} | {how} |", line.id, line.what, line.status.name());
        assert!(page.contains(&row), "the page lacks or differs in: {row}");
    }
}

#[test]
fn page_of_the_founding_documents_has_every_claim() {
    let page = std::fs::read_to_string(repository("docs/founding-documents.md")).unwrap();
    for name in ["miya-2020", "ramstetter", "mok-2015", "chung-2021", "roedlach-vock"] {
        let claims = claims_not_run(name, "");
        assert!(!claims.is_empty(), "{name}");
        for claim in claims.iter().filter(|claim| !claim.id.ends_with("-arduino")) {
            assert!(page.contains(&format!("| `{}` ", claim.id)), "{}", claim.id);
        }
    }
}
