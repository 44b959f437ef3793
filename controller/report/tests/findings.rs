//! What runs say in words follows from their data and from nothing else.

mod synthetic;

use dwell_report::data::{RunData, TrialState};
use dwell_report::{figures, findings};

fn text(run: &RunData, id: &str) -> String {
    findings(run).into_iter().find(|finding| finding.id == id).map(|f| f.text).unwrap_or_default()
}

fn said(run: &RunData) -> String {
    let findings = findings(run).into_iter().map(|f| format!("{}: {}\n", f.id, f.text));
    let figures = figures(run).into_iter().map(|f| format!("{}: {}\n", f.id, f.finding));
    findings.chain(["\n".to_owned()]).chain(figures).collect()
}

/// Gives the trials of one load the data of the other, and the other way round.
fn swapped(run: &RunData, a: &str, b: &str) -> RunData {
    let mut run = run.clone();
    for trial in &mut run.trials {
        let load = trial.parameters.get_mut("load").unwrap();
        if load == a {
            *load = b.to_owned();
        } else if load == b {
            *load = a.to_owned();
        }
    }
    run
}

/// The golden files are written anew with `DWELL_GOLDEN=write cargo test -p dwell-report`.
#[test]
fn findings_of_fixed_runs_are_the_golden_ones() {
    for (name, run) in [("loads", synthetic::loads()), ("sweep", synthetic::sweep())] {
        let path = format!("{}/tests/golden/findings-{name}.txt", env!("CARGO_MANIFEST_DIR"));
        let said = said(&run);
        if std::env::var_os("DWELL_GOLDEN").is_some_and(|value| value == "write") {
            std::fs::write(&path, &said).unwrap();
        }
        assert_eq!(said, std::fs::read_to_string(&path).unwrap(), "{path}");
    }
}

#[test]
fn swapping_two_data_sets_swaps_what_is_said() {
    let run = synthetic::loads();
    let before = text(&run, "effect-load");
    let after = text(&swapped(&run, "none", "cpu"), "effect-load");
    assert!(
        before.contains("the median fell from") && before.contains("at load none to"),
        "{before}"
    );
    assert!(before.contains("(p99) rose from"), "{before}");
    assert!(after.contains("the median rose from") && after.contains("(p99) fell from"), "{after}");
    let loss = |run: &RunData| text(run, "loss");
    assert!(loss(&run).contains("Most of them at load network"));
    assert!(loss(&swapped(&run, "network", "none")).contains("Most of them at load none"));
    for figure in figures(&run) {
        let other = figures(&swapped(&run, "none", "cpu"));
        let other = other.iter().find(|other| other.id == figure.id).unwrap();
        let by_order = figure.id == "drift" || figure.id.starts_with("loss");
        assert!(by_order || other.finding != figure.finding, "{}: {}", figure.id, figure.finding);
    }
}

#[test]
fn the_machine_whose_processors_went_with_the_delay_is_the_one_that_is_named() {
    for (busy, other) in [("n1", "n2"), ("n2", "n1")] {
        let run = synthetic::with_machines(busy);
        let said = text(&run, "host");
        assert!(said.contains(&format!("CPU use of {busy} was 8")), "{said}");
        assert!(said.contains("otherwise") && !said.contains(other), "{said}");
        let all = figures(&run);
        let figure = all.iter().find(|figure| figure.id == "host").unwrap();
        assert!(figure.finding.starts_with(&said), "{}", figure.finding);
    }
}

#[test]
fn machines_that_do_not_go_with_the_delay_are_drawn_and_nothing_is_said_of_them() {
    let mut run = synthetic::with_machines("n1");
    let host = run.host.as_mut().unwrap();
    // The delays of other times.
    let p99s: Vec<Option<i64>> = host.windows.iter().map(|window| window.p99_ns).collect();
    let n = p99s.len();
    for (i, window) in host.windows.iter_mut().enumerate() {
        window.p99_ns = p99s[i * 37 % n];
    }
    assert_eq!(text(&run, "host"), "");
    let figure = |run: &RunData| figures(run).into_iter().find(|figure| figure.id == "host");
    let finding = figure(&run).unwrap().finding;
    assert!(finding.contains("nothing that the machines did"), "{finding}");
    // A delay and a temperature that both only rise are alike by chance as often as not.
    let host = run.host.as_mut().unwrap();
    for (i, window) in host.windows.iter_mut().enumerate() {
        window.p99_ns = Some(300_000 + i as i64);
    }
    assert_eq!(text(&run, "host"), "");
    run.host.as_mut().unwrap().windows.truncate(5);
    let finding = figure(&run).unwrap().finding;
    assert!(finding.contains("cannot tell"), "{finding}");
}

#[test]
fn equal_data_are_never_said_to_differ() {
    let mut run = synthetic::loads();
    let first = run.trials[0].clone();
    for trial in &mut run.trials {
        trial.series = first.series.clone();
        trial.summary = first.summary.clone();
    }
    let said = text(&run, "effect-load");
    assert!(said.contains("about the same"), "{said}");
}

#[test]
fn few_samples_cannot_tell() {
    let mut run = synthetic::loads();
    for (i, trial) in run.trials.iter_mut().enumerate() {
        let delays: Vec<Option<i64>> =
            (0..4).map(|j| Some(200_000 + 40_000 * ((i as i64 + j) % 5))).collect();
        trial.series = [("rtt_ns".to_owned(), synthetic::timed(&delays))].into();
    }
    let said = text(&run, "effect-load");
    assert!(said.starts_with("Cannot tell"), "{said}");
    assert!(text(&run, "delay").contains("cannot tell how slow"), "{}", text(&run, "delay"));
}

#[test]
fn repetitions_that_disagree_take_a_difference_back() {
    let mut run = synthetic::loads();
    // One repetition in three is slower by more than the loads differ.
    for trial in run.trials.iter_mut().filter(|trial| trial.repetition == 2) {
        for step in &mut trial.series.get_mut("rtt_ns").unwrap().steps {
            step.value_ns = step.value_ns * 3 / 2;
        }
    }
    let said = text(&run, "effect-load");
    assert!(!said.contains("the median"), "{said}");
}

#[test]
fn a_failed_trial_does_not_pass_for_an_effect() {
    let mut run = synthetic::sweep();
    // Without the small packets of one rate, that rate would look slow.
    for trial in &mut run.trials {
        let small = ["100B", "300B", "500B", "700B"].contains(&trial.parameters["size"].as_str());
        if trial.parameters["rate"] == "200pps" && small {
            trial.state = TrialState::Failed;
            trial.reason = Some("switched off".to_owned());
        }
    }
    let said = text(&run, "effect-rate");
    assert!(!said.contains("at rate 200pps"), "{said}");
    assert!(
        text(&run, "failed").contains("8 of 56 trials failed; trial 2: switched off"),
        "{}",
        text(&run, "failed")
    );
}

#[test]
fn runs_without_delays_say_why() {
    let empty = synthetic::run("1", "nothing", None, Vec::new());
    assert_eq!(text(&empty, "delay"), "This run has no trials.");
    let mut lost = synthetic::loads();
    for trial in &mut lost.trials {
        trial.series.clear();
        let packets = trial.summary.as_mut().unwrap().packets.as_mut().unwrap();
        (packets.received, packets.lost) = (0, packets.sent);
    }
    assert!(text(&lost, "delay").starts_with("No reply came to any of 36,000 probes"));
    assert!(text(&lost, "loss").contains("(100 %)"));
    let mut open = synthetic::loads();
    open.trials[3].state = TrialState::Running;
    assert!(text(&open, "failed").contains("1 trial not measured yet"));
}

#[test]
fn broken_limits_are_told_even_when_the_node_did_not_warn() {
    let mut run = synthetic::loads();
    assert!(text(&run, "trust").starts_with("No limit of trust was broken"));
    let mut imported = run.clone();
    imported.trials[4].summary.as_mut().unwrap().trust.schedule_error_ns = None;
    assert!(text(&imported, "trust").starts_with("Nothing is known"), "silence is not health");
    run.trials[0].summary.as_mut().unwrap().trust.ring_dropped = 5;
    assert!(text(&run, "trust").contains("dropped"), "{}", text(&run, "trust"));
    run.trials[1].summary.as_mut().unwrap().trust.schedule_error_ns.as_mut().unwrap().p99 =
        Some(2_000_000);
    assert!(text(&run, "trust").contains("2 warnings"), "{}", text(&run, "trust"));
}
