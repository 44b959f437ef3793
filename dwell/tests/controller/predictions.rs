//! `dwell fit` and `dwell predict`: a model from real relays, a prediction from it, and the
//! measured delays beside it.

use std::fs;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fixture::{Sandbox, as_root, repository, stderr, stdout};
use crate::schema::assert_matches_schema;

/// Largest error of a predicted 95th percentile, as a share of the measured one, on a machine without
/// other work.
const MAX_P95_ERROR: f64 = 0.15;

/// Largest factor between both on any machine: wrong units or a missing component exceed it.
const MAX_P95_FACTOR: f64 = 4.0;

/// Maximum time of a whole `dwell predict` of 100,000 nodes and 200,000 links (docs/predict.md) in a release
/// build on a machine without other work.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum time for a tenth of these nodes in any build on any machine.
const SLOW_TIMEOUT: Duration = Duration::from_secs(60);

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

/// Delays of received packets in nanoseconds and the number of packets sent, in trials of the newest run
/// through this relay.
fn measured(sandbox: &Sandbox, relay: &str) -> (Vec<f64>, usize) {
    let output = sandbox.dwell(&["export", "last", "--format", "jsonl"]);
    assert!(output.status.success(), "{output:?}");
    let text = stdout(&output);
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // A plan with one relay has no such axis.
    let ours = rows.iter().filter(|row| row["relay.on"].as_str().is_none_or(|on| on == relay));
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
    let levels = weak["modes"]["translate"]["levels"].as_array().unwrap();
    let loads: Vec<f64> =
        levels.iter().map(|level| level["load_ratio"].as_f64().unwrap()).collect();
    assert_eq!(loads, [0.0, 1.0], "requested loads");
    let range = &levels[0]["size_bytes"];
    assert_eq!((&range["min"], &range["max"]), (&200.0.into(), &1_400.0.into()));
    // Within its quota, the busy program never reaches a whole processor.
    let notes = weak["notes"].to_string();
    assert!(notes.contains("a load of 100 % reached"), "{notes}");

    let topology = fs::read_to_string(repository("plans/relay-choice/topology.toml")).unwrap();
    let topology = sandbox.write("topology.toml", &topology);
    let prediction = sandbox.json(&["predict", &topology, "--deadline", DEADLINE]);
    assert_matches_schema("dwell.prediction", &prediction);
    let flow = &prediction["flows"][0];
    assert_eq!(flow["state"], "meets", "{flow:#}");
    let nodes = |path: &str| flow[path]["nodes"].clone();
    assert_eq!(nodes("chosen"), json!(["sender", "router", "strong", "receiver"]));
    assert_eq!(nodes("fewest_hops"), json!(["sender", "weak", "receiver"]));
    let text = stdout(&sandbox.dwell(&["predict", &topology, "--deadline", DEADLINE]));
    assert!(text.contains("meets the deadline") && text.contains("fewest hops"), "{text}");

    let short = ["trials.repetitions=1", "flow.duration=2s"];
    let strict = ["trials.repetitions=5", "flow.duration=4s"];
    run_with(&sandbox, "plans/relay-choice.toml", if is_strict() { &strict } else { &short });
    sandbox.assert_no_leftovers();
    let [chosen, fewest] = ["strong", "weak"].map(|relay| measured(&sandbox, relay));
    let beside = beside_another_flow(&sandbox);
    for (name, path, measured) in [
        ("chosen", &flow["chosen"], &chosen),
        ("fewest hops", &flow["fewest_hops"], &fewest),
        ("beside another flow", &beside.0, &beside.1),
    ] {
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
        assert!(
            (1.0 / MAX_P95_FACTOR..MAX_P95_FACTOR).contains(&ratio),
            "{name}: ratio {ratio:.3}"
        );
        assert!(!is_strict() || (ratio - 1.0).abs() <= MAX_P95_ERROR, "{name}: ratio {ratio:.3}");
    }
    let [chosen, fewest] = [chosen, fewest].map(|one| missed_ratio(&one));
    assert!(chosen < fewest, "missed {chosen} on the chosen path, {fewest} by the fewest hops");
}

/// Another flow, which occupies a link of the strong path for a quarter of the time. Its packets come at
/// random times, as predictions assume.
const OTHER_FLOW: &str = r#"
[[flows]]
name = "other"
from = "sender"
to = "router"
size = "1000B"
rate = "300pps"
"#;

/// The same flows as a plan.
const TWO_FLOWS: &str = r#"version = 1
name = "two-flows"
load = "other"

[topology]
lab = "plans/relay-choice/lab.toml"

[flow]
from = "sender"
to = "receiver"
size = "1000B"
rate = "200pps"
duration = "1s"

[relay]
on = "strong"
mode = "translate"

[[loads.other.traffic]]
from = "sender"
to = "router"
size = "1000B"
rate = "300pps"
distribution = "poisson"

[trials]
repetitions = 1
"#;

/// Prediction for the path over the strong relay beside another flow, and measured delays.
fn beside_another_flow(sandbox: &Sandbox) -> (Value, (Vec<f64>, usize)) {
    let topology = fs::read_to_string(repository("plans/relay-choice/topology.toml")).unwrap();
    let topology = sandbox.write("topology.toml", &(topology + OTHER_FLOW));
    let prediction = sandbox.json(&["predict", &topology, "--deadline", DEADLINE]);
    let flows = prediction["flows"].as_array().unwrap();
    assert_eq!(flows[1]["chosen"]["nodes"], json!(["sender", "router"]));
    let plan = sandbox.write("two-flows.toml", TWO_FLOWS);
    let strict = ["trials.repetitions=5", "flow.duration=4s"];
    run_with(sandbox, &plan, if is_strict() { &strict } else { &[] });
    (flows[0]["chosen"].clone(), measured(sandbox, "strong"))
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

/// A grid of `side` by `side` relays, each with a load of its own, joined by links with rates of their own,
/// as JSON.
fn large_topology(side: u32) -> String {
    let last = side * side - 1;
    let name = |node: u32| format!("n{node}");
    let node = |node: u32| {
        let load = f64::from(node) / f64::from(last) * 50.0;
        (name(node), json!({ "model": "m", "mode": "translate", "load": format!("{load:.4}%") }))
    };
    let nodes: serde_json::Map<String, Value> = (0..=last).map(node).collect();
    let link = |(a, b): (u32, u32)| {
        let rate = format!("{}bit/s", 20_000_000 + a * 1_000 + b - a);
        json!({ "between": [name(a), name(b)], "rate": rate })
    };
    let right = (0..=last).filter(|a| a % side + 1 < side).map(|a| (a, a + 1));
    let below = (0..=last - side).map(|a| (a, a + side));
    let links: Vec<Value> = right.chain(below).map(link).collect();
    let quantiles = json!({ "p95": "20us", "p100": "1ms" });
    let model = json!({ "delay": "50us", "cost": "30us", "quantiles": quantiles });
    let flow = json!({ "from": "n0", "to": name(last), "size": "700B", "rate": "200pps" });
    json!({ "version": 1, "models": { "m": model }, "nodes": nodes, "links": links, "flows": [flow] })
        .to_string()
}

#[test]
fn large_topology_as_json_is_predicted_in_time() {
    // Parsers are not optimised in debug builds.
    let (side, timeout) = if is_strict() { (317, QUERY_TIMEOUT) } else { (100, SLOW_TIMEOUT) };
    let sandbox = Sandbox::new();
    let path = sandbox.write("grid.json", &large_topology(side));
    let start = Instant::now();
    let prediction = sandbox.json(&["predict", &path, "--deadline", "1s"]);
    let elapsed = start.elapsed();
    assert_matches_schema("dwell.prediction", &prediction);
    assert_eq!(prediction["node_count"], side * side);
    let flow = &prediction["flows"][0];
    assert_eq!(flow["state"], "meets", "{flow:#}");
    println!("{} nodes from JSON: {elapsed:.1?}", side * side);
    assert!(elapsed < timeout, "{elapsed:?}");
}

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
