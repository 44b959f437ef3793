//! Comparisons of runs.

use std::fs;
use std::path::{Path, PathBuf};

use dwell_record::{
    Batch, Column, Environment, Figures, Kind, Packets, Stamps, Summary, Trust, Warning,
};
use dwell_sample::State;
use dwell_store::{NewTrial, Role, RunState, Store};
use serde_json::json;

use crate::fixture::{Sandbox, begin_run, object, repository, skip, stderr, stdout};

fn import(sandbox: &Sandbox, file: &Path) -> String {
    let imported = sandbox.json(&["import", file.to_str().unwrap()]);
    imported["run"].as_str().unwrap().to_owned()
}

/// Returns the published round trips with this name, if the machine has them.
fn published(name: &str) -> Option<PathBuf> {
    let beside = std::env::var_os("DWELL_SHARED").map(PathBuf::from);
    let shared = beside.unwrap_or_else(|| repository("../shared"));
    let path = shared.join("data/roundtrip").join(name);
    path.exists().then_some(path)
}

#[test]
fn run_compared_with_itself_is_undecided() {
    let sandbox = Sandbox::new();
    let file = repository("controller/import/tests/data/roedlach-vock.csv");
    let (a, b) = (import(&sandbox, &file), import(&sandbox, &file));
    let output = sandbox.dwell(&["compare", &a, &b]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stdout(&output).contains("cannot tell"), "{output:?}");
    let compared = sandbox.json(&["compare", &a, &b, "--fail-if", "p50 < 1ns"]);
    for shift in compared["cells"][0]["shifts"].as_array().unwrap() {
        assert_eq!(shift["verdict"], "cannot-tell", "{shift}");
    }
}

#[test]
fn load_on_published_boards_is_detected() {
    let names = ["no_load", "cpu_stress_both", "nw_stress"];
    let found: Option<Vec<_>> =
        names.iter().map(|name| published(&format!("pi4_to_pi3_{name}_50000.csv"))).collect();
    let Some(found) = found else {
        return skip("the published round trips are missing (set DWELL_SHARED to their root)");
    };
    let sandbox = Sandbox::new();
    let runs: Vec<_> = found.iter().map(|file| import(&sandbox, file)).collect();
    let [idle, stressed, network] = &runs[..] else { panic!("expected three runs") };
    let compare = |a: &str, b: &str, condition: &str| {
        sandbox.dwell(&["compare", a, b, "--fail-if", condition, "--json"])
    };
    let beyond = compare(idle, stressed, "p99.9 change > 10%");
    assert_eq!(beyond.status.code(), Some(3), "{beyond:?}");
    assert!(stderr(&beyond).contains("--fail-if p99.9 change > 10%: it is"), "{beyond:?}");
    let verdicts = |output| {
        let object = object(output);
        let shifts = object["cells"][0]["shifts"].as_array().unwrap().clone();
        shifts.iter().map(|shift| shift["verdict"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // Without load the CPUs sleep, so the median round trip is slower but the slowest are not.
    let [p50, p90, _, p99_9] = &verdicts(&beyond)[..] else { panic!("expected four percentiles") };
    assert_eq!((&p50[..], &p90[..], &p99_9[..]), ("falls", "falls", "rises"));
    let swapped = compare(stressed, idle, "p99.9 change > 10%");
    assert_eq!(swapped.status.code(), Some(0), "it falls: {swapped:?}");
    assert_eq!(verdicts(&swapped)[3], "falls");
    let far = compare(idle, stressed, "p99.9 change > 1000000%");
    assert_eq!(far.status.code(), Some(0), "{far:?}");
    // Each of these recordings drifts by more than they differ.
    let network = compare(idle, network, "p99.9 change > 10%");
    assert_eq!(network.status.code(), Some(5), "{network:?}");
    assert_eq!(verdicts(&network), ["cannot-tell"; 4]);
}

/// Creates a run of a plan whose trials have not started.
fn begun(sandbox: &Sandbox, trials: u32) -> String {
    let mut store = Store::open(&sandbox.data()).unwrap();
    let trial = |number: u32| NewTrial {
        number,
        cell: 0,
        repetition: number,
        parameters: [("ttl".to_owned(), "60".to_owned())].into(),
    };
    begin_run(&mut store, (1..=trials).map(trial).collect()).run
}

/// Creates a run with one trial per level, each of 400 round trips around it.
fn measured(sandbox: &Sandbox, levels: &[i64]) -> String {
    let run = begun(sandbox, levels.len() as u32);
    let mut store = Store::open(&sandbox.data()).unwrap();
    let row = store.run(&run).unwrap();
    for (trial, level) in store.trials(&row).unwrap().iter().zip(levels) {
        store.begin_trial(trial).unwrap();
        let mut batch = Batch::default();
        for id in 0..400_i64 {
            batch.push(id as u64, State::Received);
            batch.set(Column::Rtt, level + id * 7_919 % 1_000);
        }
        let mut ingest = store.ingest(&row, trial).unwrap().with_figures();
        ingest.push(batch).unwrap();
        let ingested = ingest.finish().unwrap();
        let summaries: [(Role, String, Summary); 0] = [];
        store.end_trial(trial, Ok(()), &summaries, Some(&ingested)).unwrap();
    }
    store.set_run_state(&row, RunState::Finished).unwrap();
    run
}

#[test]
fn runs_of_one_trial_each_are_undecided() {
    let sandbox = Sandbox::new();
    let (a, b) = (measured(&sandbox, &[20_000]), measured(&sandbox, &[90_000]));
    let object = sandbox.json(&["compare", &a, &b]);
    let cell = &object["cells"][0];
    assert_eq!((&cell["basis"], &cell["trials"]), (&json!("trials"), &json!(1)));
    for shift in cell["shifts"].as_array().unwrap() {
        assert_eq!((&shift["verdict"], &shift["low_ns"]), (&json!("cannot-tell"), &json!(null)));
    }
    let output = sandbox.dwell(&["compare", &a, &b, "--fail-if", "p50 change > 10%"]);
    assert!(
        stdout(&output).contains("one trial each: a difference of trials, not of runs"),
        "{output:?}"
    );
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(stderr(&output).contains("too few trials"), "{output:?}");
}

#[test]
fn closed_loop_run_is_labelled() {
    let sandbox = Sandbox::new();
    let (open, closed) = (measured(&sandbox, &[20_000]), measured(&sandbox, &[21_000]));
    for (run, mode) in [(&open, "open-loop"), (&closed, "closed-loop")] {
        let mut store = Store::open(&sandbox.data()).unwrap();
        let row = store.run(run).unwrap();
        let trial = store.trials(&row).unwrap().remove(0);
        store.add_summary(&trial, Role::Measurement, "n1", &ping_summary(mode), |_| false).unwrap();
    }
    assert_eq!(sandbox.json(&["compare", &open, &closed])["closed_loop"], json!([closed]));
    let compared = stdout(&sandbox.dwell(&["compare", &open, &closed]));
    assert!(compared.contains(&format!("closed loop: {closed}\n")), "{compared}");
    let shown = sandbox.json(&["show", &closed]);
    assert_eq!(shown["trials"][0]["mode"], "closed-loop");
    assert!(shown["findings"][0]["text"].as_str().unwrap().contains("(closed loop)"), "{shown:#}");
    let shown = stdout(&sandbox.dwell(&["show", &closed]));
    assert!(shown.contains("closed loop") && shown.contains('█'), "{shown}");
    assert!(!stdout(&sandbox.dwell(&["show", &open])).contains("closed loop"));
}

/// Returns a minimal summary of a measurement.
fn ping_summary(mode: &str) -> Summary {
    Summary {
        kind: Kind::Ping,
        target: "udp://n2:7100".to_owned(),
        parameters: [("mode".to_owned(), json!(mode))].into(),
        packets: None,
        metrics: Default::default(),
        values: Default::default(),
        stamps: Stamps::default(),
        engine: mode.to_owned(),
        trains: Vec::new(),
        spikes: None,
        driver: None,
        trust: Trust::default(),
        environment: Environment::default(),
    }
}

#[test]
fn show_counts_warnings_by_trial_and_lists_lost_trials() {
    let sandbox = Sandbox::new();
    let run = measured(&sandbox, &[20_000, 21_000]);
    let mut store = Store::open(&sandbox.data()).unwrap();
    let row = store.run(&run).unwrap();
    for (trial, received) in store.trials(&row).unwrap().iter().zip([1, 0]) {
        let mut summary = ping_summary("open-loop");
        summary.trust.warn(Warning::RepeatedIds(2));
        summary.trust.warn(Warning::RepeatedIds(2));
        let lost = 400 - received;
        summary.packets = Some(Packets { sent: 400, received, lost, ..Packets::default() });
        if received > 0 {
            let figures = Figures { count: 1, min: Some(20_000), ..Figures::default() };
            summary.metrics.insert("rtt_ns".to_owned(), figures);
        }
        store.add_summary(trial, Role::Measurement, "n1", &summary, |_| false).unwrap();
    }
    let shown = stdout(&sandbox.dwell(&["show", &run]));
    assert!(
        shown.contains("note: ids that the sender used twice: 2, joined once (in 2 of 2 trials)"),
        "{shown}"
    );
    let rows = |trial: &str| -> Vec<String> {
        let of = |line: &&str| line.split_whitespace().next() == Some(trial);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        shown.lines().filter(of).map(words).collect()
    };
    // Counts, then figures, which a trial without replies does not have.
    assert_eq!(rows("1"), ["1 400 1 0 399 0 0 60, #1", "1 - - 20.00 - - - - -"], "{shown}");
    assert_eq!(rows("2"), ["2 400 0 0 400 0 0 60, #2"], "{shown}");
}

#[test]
fn runs_are_compared_against_repetition_spread() {
    let sandbox = Sandbox::new();
    let steady = measured(&sandbox, &[20_000, 20_400, 19_800]);
    let slower = measured(&sandbox, &[40_000, 41_000, 39_500]);
    let wild = measured(&sandbox, &[20_000, 60_000, 30_000]);
    let verdict = |a: &str, b: &str| {
        let object = sandbox.json(&["compare", a, b]);
        assert_eq!(object["cells"][0]["basis"], "repetitions");
        object["cells"][0]["shifts"][0]["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(verdict(&steady, &slower), "rises");
    assert_eq!(verdict(&slower, &steady), "falls");
    assert_eq!(verdict(&steady, &wild), "cannot-tell");
    let failed = sandbox.dwell(&["compare", &steady, &slower, "--fail-if", "p50 change > 10%"]);
    assert_eq!(failed.status.code(), Some(3), "{failed:?}");
    let output = stdout(&failed);
    assert!(output.contains("95% interval of the shift"), "{output}");
    assert!(output.contains("Intervals: 95% for all 4 percentiles together"), "{output}");
    let passed = sandbox.dwell(&["compare", &slower, &steady, "--fail-if", "p50 change > 10%"]);
    assert_eq!(passed.status.code(), Some(0), "{passed:?}");
}

#[test]
fn percent_condition_holds_for_a_large_rise() {
    let sandbox = Sandbox::new();
    let unsteady = measured(&sandbox, &[40_000, 62_000, 115_000]);
    let slow = measured(&sandbox, &[1_880_000, 1_900_000, 1_920_000]);
    for condition in ["p50 change > 10%", "p50 change > 100us"] {
        let output = sandbox.dwell(&["compare", &unsteady, &slow, "--fail-if", condition]);
        assert_eq!(output.status.code(), Some(3), "{condition}: {output:?}");
        assert!(stdout(&output).contains("%)  rises"), "{output:?}");
    }
    let object = sandbox.json(&["compare", &unsteady, &slow]);
    let shift = &object["cells"][0]["shifts"][0];
    assert!(shift["low_percent"].as_f64().unwrap() > 10.0, "{shift}");
    // In the other direction, no fall exceeds 100 %.
    let object = sandbox.json(&["compare", &slow, &unsteady]);
    let shift = &object["cells"][0]["shifts"][0];
    let low = shift["low_percent"].as_f64().unwrap();
    assert!(low > -100.0 && low < shift["shift_percent"].as_f64().unwrap(), "{shift}");
}

#[test]
fn limit_inside_the_change_interval_exits_with_5() {
    let sandbox = Sandbox::new();
    let steady = measured(&sandbox, &[20_000, 20_400, 19_800]);
    let wild = measured(&sandbox, &[20_000, 60_000, 30_000]);
    for condition in ["p50 change > 10%", "p50 change > 1us"] {
        let output = sandbox.dwell(&["compare", &steady, &wild, "--fail-if", condition]);
        assert_eq!(output.status.code(), Some(5), "{condition}: {output:?}");
        let stderr = stderr(&output);
        assert!(stderr.contains(condition) && stderr.contains("inside the interval"), "{stderr}");
    }
    let output = sandbox.dwell(&["compare", &steady, &wild, "--fail-if", "p50 change > 10s"]);
    assert_eq!((output.status.code(), stderr(&output).trim()), (Some(0), ""), "{output:?}");
    let slower = measured(&sandbox, &[40_000, 41_000, 39_500]);
    let both = ["--fail-if", "p99.9 change > 1ns", "--fail-if", "p50 change > 1ns"];
    let output = sandbox.dwell(&[&["compare", &steady, &slower][..], &both].concat());
    assert_eq!(output.status.code(), Some(3), "a failed condition takes precedence: {output:?}");
}

#[test]
fn failed_condition_takes_precedence_over_damaged_trials() {
    let sandbox = Sandbox::new();
    let steady = measured(&sandbox, &[20_000, 20_400, 19_800]);
    let slower = measured(&sandbox, &[40_000, 41_000, 39_500, 40_500]);
    let damaged = sandbox.data().join("samples").join(&slower).join("2.parquet");
    let mut bytes = fs::read(&damaged).unwrap();
    bytes[30] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    for (condition, exit) in
        [("p50 change > 10%", 3), ("p50 > 30us", 3), ("p50 > 10s", 1), ("p99.9 > 50us", 1)]
    {
        let output = sandbox.dwell(&["compare", &steady, &slower, "--fail-if", condition]);
        assert_eq!(output.status.code(), Some(exit), "{condition}: {output:?}");
        let stderr = stderr(&output);
        assert!(stderr.contains("left out because their samples are damaged: 1"), "{stderr}");
    }
}

#[test]
fn percent_change_from_a_negative_baseline_is_undecided() {
    let sandbox = Sandbox::new();
    let negative = measured(&sandbox, &[-20_000, -20_400, -19_800]);
    let slower = measured(&sandbox, &[40_000, 41_000, 39_500]);
    let judge = |condition: &str| {
        let output = sandbox.dwell(&["compare", &negative, &slower, "--fail-if", condition]);
        (output.status.code(), stderr(&output))
    };
    let (code, stderr) = judge("p50 change > 10%");
    assert_eq!(code, Some(5), "{stderr}");
    assert!(stderr.contains("the baseline is zero or can be negative"), "{stderr}");
    assert!(
        stderr.contains("state the change as a time") && !stderr.contains("too few"),
        "{stderr}"
    );
    assert_eq!(judge("p50 change > 10us").0, Some(3));
}

#[test]
fn compare_counts_lost_packets_as_beyond_gap_limits() {
    let sandbox = Sandbox::new();
    let judge = |departures: &str| {
        let (a, b) = (paced(&sandbox, departures), paced(&sandbox, departures));
        let limit = ["--metric", "gap_error", "--fail-if", "gap_error.p50 > 1ms"];
        let output = sandbox.dwell(&[&["compare", &a, &b][..], &limit].concat());
        (output.status.code(), stderr(&output))
    };
    let (code, stderr) = judge("sink");
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("among the late and lost probes"), "{stderr}");
    let (code, stderr) = judge("tx_kernel");
    assert_eq!(code, Some(0), "{stderr}");
}

/// Creates a run of `dwell pace` with one trial: 100 packets arrived and 300 were lost.
fn paced(sandbox: &Sandbox, departures: &str) -> String {
    let run = begun(sandbox, 1);
    let mut store = Store::open(&sandbox.data()).unwrap();
    let row = store.run(&run).unwrap();
    let trial = store.trials(&row).unwrap().remove(0);
    store.begin_trial(&trial).unwrap();
    let mut batch = Batch::default();
    for id in 0..400_i64 {
        let state = if id < 100 { State::Received } else { State::Lost };
        batch.push(id as u64, state);
        if id < 100 {
            batch.set(Column::GapError, id * 7_919 % 1_000);
        }
    }
    let mut ingest = store.ingest(&row, &trial).unwrap().with_figures();
    ingest.push(batch).unwrap();
    let ingested = ingest.finish().unwrap();
    let mut summary = ping_summary("open-loop");
    summary.kind = Kind::Pace;
    summary.parameters = [("departures".to_owned(), json!(departures))].into();
    let of_node = [(Role::Measurement, "n1".to_owned(), summary)];
    store.end_trial(&trial, Ok(()), &of_node, Some(&ingested)).unwrap();
    store.set_run_state(&row, RunState::Finished).unwrap();
    run
}

#[test]
fn compare_judges_the_new_run_like_ping() {
    let sandbox = Sandbox::new();
    let (a, b) = (measured(&sandbox, &[90_000, 90_000]), measured(&sandbox, &[20_000, 20_400]));
    let judge = |conditions: &[&str]| {
        let conditions = conditions.iter().flat_map(|condition| ["--fail-if", *condition]);
        let arguments: Vec<_> = ["compare", &a, &b].into_iter().chain(conditions).collect();
        let output = sandbox.dwell(&arguments);
        (output.status.code(), stderr(&output))
    };
    // 800 round trips from 20.0 to 21.4 us; those of the baseline are longer.
    assert_eq!(judge(&["p99 > 50us", "rtt.p95 > 50us", "loss > 1%", "max > 1ms"]).0, Some(0));
    let (code, stderr) = judge(&["p50 > 20us"]);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("--fail-if p50 > 20us: it is 20."), "{stderr}");
    let (code, stderr) = judge(&["p99.9 > 50us"]);
    assert_eq!(code, Some(5), "{stderr}");
    assert!(stderr.contains("no probe of 800") && stderr.contains("2995 or more"), "{stderr}");
    let (code, stderr) = judge(&["p99.9 > 50us", "min < 50us"]);
    assert_eq!(code, Some(3), "a failed condition takes precedence: {stderr}");
}

#[test]
fn fewer_than_two_runs_are_a_usage_error() {
    let sandbox = Sandbox::new();
    for runs in [&["compare"][..], &["compare", "last"]] {
        let output = sandbox.dwell(runs);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

#[test]
fn imported_recordings_are_compared_with_a_caveat() {
    let sandbox = Sandbox::new();
    let round_trips = repository("controller/import/tests/data/roedlach-vock.csv");
    let (a, b) = (import(&sandbox, &round_trips), import(&sandbox, &round_trips));
    let output = sandbox.dwell(&["compare", &a, &b]);
    let output = stdout(&output);
    assert!(output.contains("within these two recordings"), "{output}");
    assert!(!output.contains("flow "), "an unnamed flow has no label: {output}");
    let object = sandbox.json(&["compare", &a, &b]);
    assert_eq!(object["cells"][0]["basis"], "recordings");
    assert_eq!(object["findings"][0]["id"], format!("shift-{b}"));
}

#[test]
fn invalid_condition_is_a_usage_error() {
    let sandbox = Sandbox::new();
    let file = repository("controller/import/tests/data/roedlach-vock.csv");
    let (a, b) = (import(&sandbox, &file), import(&sandbox, &file));
    for (condition, words) in [
        ("p99", "p99 > 10ms"),
        ("p42 > 1ms", "p42"),
        ("p99 > fast", "fast"),
        ("p99 > 5", "unit"),
        ("p99 > 10%", "'p99 change > 10%'"),
        ("mean change > 10%", "is not compared"),
        ("rtt_kernel.p99 change > 10%", "--metric"),
        ("wire.p99 > 10ms", "known are"),
    ] {
        let output = sandbox.dwell(&["compare", &a, &b, "--fail-if", condition]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).contains(words), "{condition}: {output:?}");
    }
    let output = sandbox.dwell(&["compare", &a, "20200101-9"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("20200101-9"), "{output:?}");
}
