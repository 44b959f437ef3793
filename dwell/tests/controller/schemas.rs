//! The output of `--json` matches the schemas in `docs/schema/`, and the schemas reject deviations.

use std::fs;

use serde_json::{Value, json};

use crate::fixture::{Sandbox, as_root, object, repository};
use crate::schema::{assert_matches_schema, assert_refuses};

#[test]
fn import_output_matches_the_schemas() {
    let sandbox = Sandbox::new();
    assert_matches_schema("dwell.runs", &sandbox.json(&["runs"]));
    let data = repository("controller/import/tests/data");
    let mut runs = Vec::new();
    let mut files: Vec<_> = fs::read_dir(&data).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| !file.ends_with("README.md")) {
        let output = sandbox.dwell(&["import", file.to_str().unwrap(), "--json"]);
        assert!(output.status.success(), "{}: {output:?}", file.display());
        let imported = object(&output);
        assert_matches_schema("dwell.import", &imported);
        runs.push(imported["run"].as_str().unwrap().to_owned());
        assert_matches_schema("dwell.run", &sandbox.json(&["show", runs.last().unwrap()]));
    }
    let listed = sandbox.json(&["runs"]);
    assert_matches_schema("dwell.runs", &listed);
    assert_eq!(listed["runs"].as_array().unwrap().len(), runs.len());
    assert_refuses("dwell.runs", &listed, |object| object["runs"][0]["kind"] = json!("gift"));
    let round_trips = data.join("roedlach-vock.csv");
    let again = sandbox.json(&["import", round_trips.to_str().unwrap()]);
    let first = files.iter().position(|file| *file == round_trips).unwrap();
    let compared = sandbox.json(&["compare", &runs[first], again["run"].as_str().unwrap()]);
    assert_matches_schema("dwell.comparison", &compared);
    let verdict = |object: &mut Value| object["cells"][0]["shifts"][0]["verdict"] = json!("maybe");
    assert_refuses("dwell.comparison", &compared, verdict);
    assert_matches_schema("dwell.delete", &sandbox.json(&["delete", &runs[0], "--yes"]));
}

#[test]
fn witness_output_matches_its_schema_and_is_shown() {
    let sandbox = Sandbox::new();
    let data = repository("controller/import/tests/data");
    let file = |name: &str| data.join(name).to_str().unwrap().to_owned();
    let run = sandbox.json(&["import", &file("dwell.csv")])["run"].as_str().unwrap().to_owned();
    let capture = "stamp-roundtrip-iperf2.pcap";
    let seen = sandbox.json(&["import", &file(capture), "--witness", &run]);
    assert_matches_schema("dwell.witness", &seen);
    assert_eq!((&seen["run"], &seen["witness"]), (&json!(run), &json!(capture)));
    let of_trial = seen["trials"][0].as_object().unwrap().clone();
    let metrics = of_trial["metrics"].as_object().unwrap();
    assert_eq!(metrics.len(), 5, "all metrics: {metrics:?}");
    for field in of_trial.keys() {
        assert_refuses("dwell.witness", &seen, |object| {
            object["trials"][0].as_object_mut().unwrap().remove(field);
        });
    }
    for (metric, field) in [("witness_rtt_ns", "p99"), ("gap_error_ns", "count")] {
        assert_refuses("dwell.witness", &seen, |object| {
            let figures = &mut object["trials"][0]["metrics"][metric];
            figures.as_object_mut().unwrap().remove(field);
        });
    }
    assert_refuses("dwell.witness", &seen, |object| {
        let metrics = &mut object["trials"][0]["metrics"];
        metrics["heard_ns"] = metrics["witness_rtt_ns"].clone();
    });
    assert_refuses("dwell.witness", &seen, |object| object["trials"] = json!([]));

    let shown = sandbox.json(&["show", &run]);
    assert_matches_schema("dwell.run", &shown);
    let witness = &shown["trials"][0]["witnesses"][0];
    assert_matches_schema("dwell.summary", witness);
    assert_eq!(witness["metrics"], seen["trials"][0]["metrics"]);
    for name in ["flow", "matched", "unseen", "others", "same_clock"] {
        assert_eq!(witness["parameters"][name], of_trial[name], "{name}");
    }

    // Importing the same capture again adds no second witness.
    assert_eq!(sandbox.json(&["import", &file(capture), "--witness", &run]), seen);
    let shown = sandbox.json(&["show", &run]);
    assert_eq!(shown["trials"][0]["witnesses"].as_array().unwrap().len(), 1, "{shown}");
}

#[test]
fn run_output_matches_the_schemas_in_every_state() {
    let sandbox = Sandbox::new();
    let plan = sandbox.plan(3);
    for plan in [plan.as_str(), repository("plans/quick.toml").to_str().unwrap()] {
        let dry = sandbox.json(&["run", plan, "--dry-run"]);
        assert_matches_schema("dwell.dry-run", &dry);
        assert_refuses("dwell.dry-run", &dry, |object| object["trials"][0]["order"] = json!(0));
    }
    if !as_root() {
        return;
    }
    let end = sandbox.json(&["run", &plan, "--quiet"]);
    assert_matches_schema("dwell.run-end", &end);
    assert_refuses("dwell.run-end", &end, |object| object["end"] = json!("well"));
    let shown = sandbox.json(&["show", "last"]);
    assert_matches_schema("dwell.run", &shown);
    let placement = &shown["trials"][0]["environment"]["placement"];
    assert_eq!(placement["far"]["waiting"], "blocking", "dwell started the far end: {placement}");
    assert_refuses("dwell.run", &shown, |object| {
        object["trials"][0]["metrics"]["rtt_ns"]["p42"] = json!(1);
    });
    assert_refuses("dwell.run", &shown, |object| object["trials"][1]["state"] = json!("failed"));
    let failing = ["run", &plan, "--quiet", "--json", "--set", "nodes.n1.cpu=4000"];
    let failing = sandbox.dwell(&failing);
    assert_eq!(failing.status.code(), Some(1), "{failing:?}");
    assert_matches_schema("dwell.run-end", &object(&failing));
    assert_matches_schema("dwell.run", &sandbox.json(&["show", "last"]));
    let stopped = ["run", &plan, "--quiet", "--json", "--set", "stop.time=1ns"];
    let stopped = sandbox.dwell(&stopped);
    assert_eq!(stopped.status.code(), Some(1), "{stopped:?}");
    assert_matches_schema("dwell.run-end", &object(&stopped));
    assert_matches_schema("dwell.run", &sandbox.json(&["show", "last"]));
    assert_matches_schema("dwell.runs", &sandbox.json(&["runs"]));
}
