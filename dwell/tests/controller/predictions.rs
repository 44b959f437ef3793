//! `dwell fit` and `dwell predict`: a model from real relays, a prediction from it, and the
//! measured delays beside it.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::fixture::{Sandbox, as_root, repository, stderr, stdout};
use crate::schema::assert_matches_schema;

/// Largest error of a predicted 95th percentile, as a share of the measured one.
const MAX_P95_ERROR: f64 = 0.15;

/// Deadline that the strong relay meets on a busy machine too, and the weak one on none.
const DEADLINE: &str = "20ms";
const DEADLINE_NS: f64 = 20e6;

/// `make accuracy` judges the error of predictions, which needs a machine without other work, and
/// measures longer.
fn is_strict() -> bool {
    std::env::var("DWELL_PREDICTIONS").is_ok_and(|how| how == "strict")
}

fn run_with(sandbox: &Sandbox, plan: &str, settings: &[&str]) {
    let set = settings.iter().flat_map(|setting| ["--set", setting]);
    let arguments: Vec<&str> = ["run", plan, "--quiet"].into_iter().chain(set).collect();
    // The lab file of a plan is relative to the working directory.
    let output = sandbox.command(&arguments).current_dir(repository("")).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

fn fit(sandbox: &Sandbox, run: &str, quota: &str, file: &str) -> Value {
    let (condition, path) = (format!("topology.quota.n2={quota}"), sandbox.path(file));
    let path = path.to_str().unwrap();
    let model = sandbox.json(&["fit", run, "--where", &condition, "-o", path]);
    let written: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!(written, model);
    model
}

/// Delays of received packets in nanoseconds and the number of packets sent, by relay.
fn measured(sandbox: &Sandbox, relay: &str) -> (Vec<f64>, usize) {
    let output = sandbox.dwell(&["export", "last", "--format", "jsonl"]);
    assert!(output.status.success(), "{output:?}");
    let text = stdout(&output);
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ours = rows.iter().filter(|row| row["relay.on"] == relay);
    let sent = ours.clone().count();
    let mut delays: Vec<f64> = ours.filter_map(|row| row["end_to_end_ns"].as_f64()).collect();
    delays.sort_by(f64::total_cmp);
    (delays, sent)
}

fn p95(delays: &[f64]) -> f64 {
    delays[(0.95 * delays.len() as f64).ceil() as usize - 1]
}

fn missed_ratio((delays, sent): &(Vec<f64>, usize)) -> f64 {
    1.0 - delays.iter().filter(|delay| **delay <= DEADLINE_NS).count() as f64 / *sent as f64
}

#[test]
fn predicted_relay_misses_fewer_deadlines_than_fewest_hops() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let short = ["trials.repetitions=1", "flow.duration=600ms", "matrix.size=[\"200B\",\"1400B\"]"];
    let strict = ["trials.repetitions=3", "flow.duration=2s"];
    let settings = if is_strict() { &strict[..] } else { &short };
    run_with(&sandbox, "plans/relay-model.toml", settings);
    let strong = fit(&sandbox, "last", "none", "strong.json");
    let weak = fit(&sandbox, "last", "10%", "weak.json");
    for model in [&strong, &weak] {
        assert_matches_schema("dwell.node-model", model);
        assert_eq!(model["node"], "n2");
    }
    assert_eq!((&strong["capacity_ratio"], &weak["capacity_ratio"]), (&1.0.into(), &0.1.into()));
    assert_eq!(strong["modes"].as_object().unwrap().len(), 2);
    let range = &weak["modes"]["translate"]["levels"][0]["size_bytes"];
    assert_eq!((&range["min"], &range["max"]), (&200.0.into(), &1_400.0.into()));

    let topology = fs::read_to_string(repository("plans/relay-choice/topology.toml")).unwrap();
    let topology = sandbox.write("topology.toml", &topology);
    let prediction = sandbox.json(&["predict", &topology, "--deadline", DEADLINE]);
    assert_matches_schema("dwell.prediction", &prediction);
    let flow = &prediction["flows"][0];
    assert_eq!(flow["state"], "meets", "{flow:#}");
    let nodes = |path: &str| flow[path]["nodes"].clone();
    assert_eq!(nodes("chosen"), serde_json::json!(["sender", "router", "strong", "receiver"]));
    assert_eq!(nodes("fewest_hops"), serde_json::json!(["sender", "weak", "receiver"]));
    let text = stdout(&sandbox.dwell(&["predict", &topology, "--deadline", DEADLINE]));
    assert!(text.contains("meets the deadline") && text.contains("fewest hops"), "{text}");

    let short = ["trials.repetitions=1", "flow.duration=2s"];
    let strict = ["trials.repetitions=5", "flow.duration=4s"];
    run_with(&sandbox, "plans/relay-choice.toml", if is_strict() { &strict } else { &short });
    sandbox.assert_no_leftovers();
    let [chosen, fewest] = ["strong", "weak"].map(|relay| measured(&sandbox, relay));
    for (name, path, measured) in
        [("chosen", &flow["chosen"], &chosen), ("fewest hops", &flow["fewest_hops"], &fewest)]
    {
        let predicted = path["p95_ns"].as_f64().unwrap();
        let ratio = predicted / p95(&measured.0);
        println!(
            "{name}: p95 predicted {:.3} ms, measured {:.3} ms, ratio {ratio:.3}; misses predicted \
             {:.2} %, measured {:.2} %",
            predicted / 1e6,
            p95(&measured.0) / 1e6,
            100.0 * (1.0 - path["probability"].as_f64().unwrap()),
            100.0 * missed_ratio(measured)
        );
        assert!(!is_strict() || (ratio - 1.0).abs() <= MAX_P95_ERROR, "{name}: ratio {ratio:.3}");
    }
    let [chosen, fewest] = [chosen, fewest].map(|one| missed_ratio(&one));
    assert!(chosen < fewest, "missed {chosen} on the chosen path, {fewest} by the fewest hops");
}

const TOPOLOGY: &str = r#"version = 1

[nodes]
a = {}
b = { model = { delay = "1ms", cost = "1ms" } }
c = {}
island = {}

[[links]]
between = ["a", "b"]
rate = "10Mbit/s"

[[links]]
between = ["b", "c"]
rate = "10Mbit/s"

[[flows]]
from = "a"
to = "c"
size = "1000B"
rate = "200pps"
"#;

fn predicted(sandbox: &Sandbox, text: &str) -> Output {
    let path = sandbox.write("t.toml", text);
    sandbox.dwell(&["predict", &path, "--deadline", "5ms", "--json"])
}

#[test]
fn flows_without_a_path_end_with_exit_code_3() {
    let sandbox = Sandbox::new();
    let output = predicted(&sandbox, TOPOLOGY);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for (from, to, state, words) in [
        ("to = \"c\"", "to = \"island\"", "unreachable", "'a' and 'island'"),
        ("200pps", "1050pps", "above-capacity", "node 'b' would use 105 % of its CPU capacity"),
        ("10Mbit/s", "1Mbit/s", "above-capacity", "would use 167 % of its rate"),
        ("delay = \"1ms\"", "delay = \"4ms\"", "misses", "least possible delay is 5.667 ms"),
    ] {
        let output = predicted(&sandbox, &TOPOLOGY.replace(from, to));
        assert_eq!(output.status.code(), Some(3), "{to}: {output:?}");
        let prediction = crate::fixture::object(&output);
        assert_matches_schema("dwell.prediction", &prediction);
        let flow = &prediction["flows"][0];
        assert_eq!(flow["state"], state, "{flow:#}");
        assert!(flow["reason"].as_str().unwrap().contains(words), "{flow:#}");
    }
}

#[test]
fn wrong_topologies_and_options_are_usage_errors() {
    let sandbox = Sandbox::new();
    let flow = "from = \"a\"\n";
    for (from, to, words) in [
        (flow, "from = \"a\"\npath = [\"a\", \"b\", \"a\", \"c\"]\n", "visits node 'a' twice"),
        ("\"b\", \"c\"", "\"c\", \"c\"", "joins node 'c' to itself"),
        ("\"b\", \"c\"", "\"b\", \"x\"", "there is no node 'x'"),
        (
            "island = {}",
            "island = { model = \"m.json\" }",
            "write it with `dwell fit RUN -o m.json`",
        ),
        ("rate = \"10Mbit/s\"", "rate = 10", "line 11"),
    ] {
        let output = predicted(&sandbox, &TOPOLOGY.replacen(from, to, 1));
        assert_eq!(output.status.code(), Some(2), "{to}: {output:?}");
        assert!(stderr(&output).contains(words), "{to}: {output:?}");
        assert!(output.stdout.is_empty());
    }
    let path = sandbox.write("t.toml", TOPOLOGY);
    for (options, words) in [
        (&["--deadline", "0s"][..], "--deadline"),
        (&["--deadline", "5ms", "--probability", "1"], "--probability"),
        (&["--deadline", "5"], "--deadline"),
    ] {
        let output = sandbox.dwell(&[&["predict", &path], options].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}: {output:?}");
        assert!(stderr(&output).contains(words), "{options:?}: {output:?}");
    }
}

#[test]
fn runs_without_a_relay_are_not_fitted() {
    let sandbox = Sandbox::new();
    let file = repository("controller/import/tests/data/roedlach-vock.csv");
    let imported = sandbox.json(&["import", file.to_str().unwrap()]);
    let output = sandbox.dwell(&["fit", imported["run"].as_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = stderr(&output);
    assert!(said.contains("has no relay") && said.contains("plans/relay-model.toml"), "{said}");
    for (options, words) in [
        (&["20200101-1"][..], "20200101-1"),
        (&["last", "--where", "load"], "like load=none"),
        (&["last", "--where", "load=none"], "no trial has an axis 'load'"),
    ] {
        let output = sandbox.dwell(&[&["fit"], options].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}: {output:?}");
        assert!(stderr(&output).contains(words), "{options:?}: {output:?}");
    }
}
