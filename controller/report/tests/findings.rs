//! Findings follow from the data of a run.

#[path = "synthetic/contended.rs"]
mod contended;
#[expect(dead_code, reason = "other test programs use the rest")]
mod synthetic;

use dwell_record::{Scalar, TrustWarning, Warning};
use dwell_report::model::{Quantity, RunData, TrialData, TrialState};
use dwell_report::{Figure, figures, findings, fits};
use rand::SeedableRng as _;
use rand_distr::{Distribution as _, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use synthetic::Shape;

fn text(run: &RunData, id: &str) -> String {
    findings(run).into_iter().find(|finding| finding.id == id).map(|f| f.text).unwrap_or_default()
}

fn said(run: &RunData) -> String {
    let findings = findings(run).into_iter().map(|f| format!("{}: {}\n", f.id, f.text));
    let figures = figures(run).into_iter().map(|f| format!("{}: {}\n", f.id, f.finding));
    findings.chain(["\n".to_owned()]).chain(figures).collect()
}

/// Swaps the data of two loads.
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

/// `DWELL_GOLDEN=write cargo test -p dwell-report` rewrites the golden files.
#[test]
fn findings_match_golden_files() {
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
fn swapped_data_swap_findings() {
    let run = synthetic::loads();
    let before = text(&run, "effect-load");
    let after = text(&swapped(&run, "none", "cpu"), "effect-load");
    assert!(
        before.contains("the median fell ") && before.contains(" at load none -> "),
        "{before}"
    );
    assert!(before.contains("p99 rose "), "{before}");
    assert!(after.contains("the median rose ") && after.contains("p99 fell "), "{after}");
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
fn correlated_machine_is_named() {
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
fn uncorrelated_machines_give_no_finding() {
    let mut run = synthetic::with_machines("n1");
    let host = run.host.as_mut().unwrap();
    // Permute the delays.
    let p99s: Vec<Option<i64>> = host.windows.iter().map(|window| window.p99_ns).collect();
    let n = p99s.len();
    for (i, window) in host.windows.iter_mut().enumerate() {
        window.p99_ns = p99s[i * 37 % n];
    }
    assert_eq!(text(&run, "host"), "");
    let figure = |run: &RunData| figures(run).into_iter().find(|figure| figure.id == "host");
    let finding = figure(&run).unwrap().finding;
    assert!(finding.contains("No host activity correlates"), "{finding}");
    // A delay and a temperature that both only rise often correlate by chance.
    let host = run.host.as_mut().unwrap();
    for (i, window) in host.windows.iter_mut().enumerate() {
        window.p99_ns = Some(300_000 + i as i64);
    }
    assert_eq!(text(&run, "host"), "");
    run.host.as_mut().unwrap().windows.truncate(5);
    let finding = figure(&run).unwrap().finding;
    assert!(finding.contains("Cannot tell"), "{finding}");
}

#[test]
fn equal_data_are_about_the_same() {
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
fn few_samples_are_undecided() {
    let mut run = synthetic::loads();
    for (i, trial) in run.trials.iter_mut().enumerate() {
        let delays: Vec<Option<i64>> =
            (0..4).map(|j| Some(200_000 + 40_000 * ((i as i64 + j) % 5))).collect();
        trial.series = [("rtt_ns".to_owned(), synthetic::timed(&delays))].into();
    }
    let said = text(&run, "effect-load");
    assert!(said.starts_with("Cannot tell"), "{said}");
    assert!(
        text(&run, "delay").contains("p99 needs at least 100 samples"),
        "{}",
        text(&run, "delay")
    );
}

#[test]
fn disagreeing_repetitions_are_no_difference() {
    let mut run = synthetic::loads();
    // One of three repetitions is slower by more than the loads differ.
    for trial in run.trials.iter_mut().filter(|trial| trial.repetition == 2) {
        slow_down(trial, 1.5);
    }
    let said = text(&run, "effect-load");
    assert!(!said.contains("the median"), "{said}");
}

/// Multiplies the delays of a trial.
fn slow_down(trial: &mut TrialData, factor: f64) {
    let scaled = |ns: i64| (ns as f64 * factor) as i64;
    for step in &mut trial.series.get_mut("rtt_ns").unwrap().steps {
        step.value_ns = scaled(step.value_ns);
    }
    let figures = trial.summary.as_mut().unwrap().metrics.get_mut("rtt_ns").unwrap();
    for figure in [&mut figures.p50, &mut figures.p99, &mut figures.min, &mut figures.max] {
        *figure = figure.map(scaled);
    }
}

const BODY: Shape = Shape {
    median_ns: 20e3,
    sigma: 0.1,
    tail_share: 0.01,
    tail_factor: 3.0,
    loss: 0.0,
    samples: 400,
};

/// Trials with random levels of standard deviation `spread` (of logarithms), without an effect of
/// the axis.
fn idle(ttls: &[&str], repetitions: u32, seed: u64, spread: f64) -> RunData {
    let mut run = synthetic::run("1", "aa", None, vec![synthetic::axis("ttl", ttls, None)]);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    for repetition in 1..=repetitions {
        for ttl in ttls {
            let stray: f64 = StandardNormal.sample(&mut random);
            let mut trial =
                synthetic::trial(&run, repetition, &[("ttl", *ttl)], BODY, 1_000 * seed);
            slow_down(&mut trial, (spread * stray).exp());
            run.trials.push(trial);
        }
    }
    run
}

fn has_effect(said: &str) -> bool {
    said.contains(" rose ") || said.contains(" fell ")
}

/// Delay between 10 and 100 us as in sentences.
fn in_words(us: f64) -> String {
    let text = format!("{us:.1}");
    format!("{} us", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Value of a table cell, without its interval.
fn cell(figure: &Figure, row: usize, column: &str) -> f64 {
    let of = |name: &String| name.starts_with(column);
    let place = figure.table.columns.iter().position(of).unwrap();
    figure.table.rows[row][place].split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn sentence_mark_and_table_show_the_same_median() {
    const TTLS: [&str; 3] = ["60", "61", "62"];
    for (numbers, seed) in [(None, 11), (Some((vec![60.0, 61.0, 62.0], "")), 12)] {
        // Trials differ far more than the samples within one.
        let mut run = idle(&TTLS, 3, seed, 0.4);
        run.axes = vec![synthetic::axis("ttl", &TTLS, numbers)];
        // One trial at the middle value failed.
        let of_middle = |trial: &&mut TrialData| trial.parameters["ttl"] == "61";
        run.trials.iter_mut().find(of_middle).unwrap().state = TrialState::Failed;
        let said = text(&run, "effect-ttl");
        assert!(said.contains("geometric mean over its trials"), "{said}");
        let all = figures(&run);
        let of = |id: &str| all.iter().find(|figure| figure.id == id);
        let boxes = of("boxes-ttl").unwrap();
        let typical = cell(boxes, 0, "p50");
        assert!(said.contains(&format!("{} at ttl 60", in_words(typical))), "{said}: {typical}");
        let named: Vec<usize> =
            (1..3).filter(|row| said.contains(&format!("at ttl {}", TTLS[*row]))).collect();
        assert!(!named.is_empty(), "{said}");
        for row in named {
            let other = in_words(cell(boxes, row, "p50"));
            assert!(said.contains(&format!("{other} at ttl {}", TTLS[row])), "{said}: {other}");
        }
        // Marks of boxes and bands equal the numbers of the table.
        let marks = |figure: &Figure| -> Vec<f64> {
            let rows = figure.spec["data"]["values"].as_array().unwrap();
            rows.iter().map(|row| row["p50"].as_f64().unwrap()).collect()
        };
        let cells: Vec<f64> = (0..3).map(|row| cell(boxes, row, "p50")).collect();
        let near = |a: &[f64]| a.iter().zip(&cells).all(|(a, b)| (a - b).abs() < 1e-3);
        assert!(near(&marks(boxes)), "{cells:?}");
        if let Some(bands) = of("bands-ttl") {
            assert!(near(&marks(bands)), "{cells:?}");
        }
        // Figures of pooled samples differ, and say so.
        let pooled = of("percentiles").unwrap();
        assert!(pooled.finding.contains("Pooled over all samples of a group"), "{pooled:?}");
        let differ = (0..3).any(|row| (cell(pooled, row, "p50") - cells[row]).abs() > 0.1);
        assert!(differ, "seed {seed}: pooled and mean medians are equal: {cells:?}");
    }
}

#[test]
fn delay_is_the_mean_over_trials() {
    let run = idle(&["60"], 3, 13, 0.4);
    let medians: Vec<f64> = run
        .trials
        .iter()
        .map(|trial| trial.summary.as_ref().unwrap().metrics["rtt_ns"].p50.unwrap() as f64)
        .collect();
    let typical = medians.iter().product::<f64>().cbrt() / 1e3;
    let said = text(&run, "delay");
    assert!(said.contains(&format!("median {}, ", in_words(typical))), "{said}: {medians:?}");
    assert!(said.contains("geometric means over 3 trials"), "{said}");
    let one = text(&idle(&["60"], 1, 13, 0.4), "delay");
    assert!(!one.contains("mean"), "one trial has no mean: {one}");
}

#[test]
fn intervals_share_95_percent_confidence() {
    // Two percentiles of two values against those of the first.
    let said = text(&synthetic::loads(), "effect-load");
    assert_eq!(said.matches(" % CI").count(), said.matches("95 % CI").count(), "{said}");
    assert!(
        said.ends_with(" 95 % for all 4 comparisons of the run together (Bonferroni)."),
        "{said}"
    );
}

#[test]
fn unitless_axis_has_clean_sentences() {
    let ttls = ["60", "61", "62", "63"];
    let mut run = idle(&ttls, 3, 5, 0.02);
    let numbers = (vec![60.0, 61.0, 62.0, 63.0], "");
    run.axes = vec![synthetic::axis("ttl", &ttls, Some(numbers))];
    let all = figures(&run);
    let fit = all.iter().find(|figure| figure.id == "fit-ttl").unwrap();
    assert!(fit.finding.contains("1 of ttl"), "{}", fit.finding);
    let bands = all.iter().find(|figure| figure.id == "bands-ttl").unwrap();
    assert!(!bands.spec.to_string().contains("[]\""), "an axis without a unit needs no brackets");
    let once = text(&idle(&ttls, 1, 3, 0.1), "effect-ttl");
    assert!(
        once.contains("round-trip delay: measured once each; 3 repetitions are needed. Median "),
        "{once}"
    );
    assert!(!once.contains("over its trials"), "single trials have no mean: {once}");
}

#[test]
fn ipdv_of_every_load_is_reported() {
    let all = figures(&synthetic::loads());
    let jitter = all.iter().find(|figure| figure.id == "jitter-load").unwrap();
    for load in ["load none", "load network", "load cpu"] {
        assert!(jitter.finding.contains(&format!("at {load}")), "{}", jitter.finding);
    }
    let all = figures(&synthetic::sweep());
    let jitter = all.iter().find(|figure| figure.id == "jitter-size").unwrap();
    assert!(jitter.finding.contains("at size 100B and"), "{}", jitter.finding);
    assert!(!jitter.finding.contains("at size 700B"), "of many values, only extremes and ends");
}

#[test]
fn sparkline_has_one_line_per_cell() {
    let lines = dwell_report::sparkline(&synthetic::loads(), 40);
    assert!(lines[0].starts_with("Round-trip delay, 172 us to 2.7 ms"), "{}", lines[0]);
    assert_eq!(lines.len(), 4);
    let bars = |line: &str| line.chars().skip("load network  ".len()).collect::<Vec<char>>();
    for line in &lines[1..] {
        assert_eq!(bars(line).len(), 40, "{line}");
        assert!(line.contains('█'), "{line}");
    }
    // The tail under CPU load is longer than that of an idle machine.
    let reach = |line: &str| bars(line).iter().rposition(|bar| *bar != ' ').unwrap();
    assert!(reach(&lines[3]) > reach(&lines[1]), "{lines:?}");
    assert!(dwell_report::sparkline(&synthetic::run("1", "none", None, Vec::new()), 40).is_empty());
}

#[test]
fn single_trials_are_no_effect() {
    let mut run = idle(&["60", "61", "62", "63"], 1, 3, 0.1);
    slow_down(&mut run.trials[2], 8.0);
    let said = text(&run, "effect-ttl");
    assert!(!has_effect(&said), "{said}");
    for words in ["measured once each", "ttl 60", "ttl 62", "Cannot tell whether ttl changes"] {
        assert!(said.contains(words), "{said}");
    }
    let twice = text(&idle(&["60", "61"], 2, 4, 0.1), "effect-ttl");
    assert!(twice.contains("measured twice each") && !has_effect(&twice), "{twice}");
    for figure in figures(&run).iter().filter(|figure| figure.id.starts_with("boxes")) {
        assert!(!has_effect(&figure.finding), "{}", figure.finding);
    }
}

#[test]
fn equal_runs_give_few_false_effects() {
    for (repetitions, spread) in [(3, 0.1), (5, 0.4)] {
        let wrong = |&seed: &u64| {
            has_effect(&text(
                &idle(&["60", "61", "62", "63"], repetitions, seed, spread),
                "effect-ttl",
            ))
        };
        let wrong: Vec<u64> = (100..300).filter(wrong).collect();
        assert!(wrong.len() < 10, "{repetitions} repetitions, seeds {wrong:?}");
    }
}

#[test]
fn equal_runs_give_few_false_effects_and_lines() {
    let wrong = |&seed: &u64| {
        let values = ["60", "61", "62", "63"];
        let mut run = idle(&values, 3, seed, 0.2);
        let numbers = (vec![60.0, 61.0, 62.0, 63.0], "1");
        run.axes = vec![synthetic::axis("ttl", &values, Some(numbers))];
        let line = fits(&run).iter().any(|fit| {
            let slope = fit.slope_ns_per_unit;
            slope.low > 0.0 || slope.high < 0.0
        });
        line || has_effect(&text(&run, "effect-ttl"))
    };
    let wrong: Vec<u64> = (500..700).filter(wrong).collect();
    assert!(wrong.len() < 10, "seeds {wrong:?}");
}

#[test]
fn obvious_effect_in_three_repetitions_is_found() {
    // Medians in nanoseconds by repetition, measured over a slow link.
    let medians = [
        ("100B", "none", [310e3, 300e3, 330e3]),
        ("100B", "busy", [900e3, 1_440e3, 1_100e3]),
        ("1400B", "none", [4_680e3, 4_700e3, 4_750e3]),
        ("1400B", "busy", [5_200e3, 6_900e3, 8_100e3]),
    ];
    let axes = vec![
        synthetic::axis("size", &["100B", "1400B"], Some((vec![100.0, 1400.0], "B"))),
        synthetic::axis("load", &["none", "busy"], None),
    ];
    let mut run = synthetic::run("1", "sizes", None, axes);
    for repetition in 0..3 {
        for (size, load, medians) in medians {
            let shape = Shape { median_ns: medians[repetition], ..BODY };
            let values = [("size", size), ("load", load)];
            let trial = synthetic::trial(&run, repetition as u32 + 1, &values, shape, 31);
            run.trials.push(trial);
        }
    }
    let said = text(&run, "effect-size");
    assert!(said.contains("the median rose ") && said.contains("at size 1400B"), "{said}");
    let what = " Each percentile is the geometric mean over its trials.";
    assert!(said.contains(what), "{said}");
}

#[test]
fn every_load_has_a_verdict() {
    let loads = ["none", "much", "some", "nothing", "wild"];
    let factors =
        [[1.0; 3], [3.0, 3.1, 2.9], [1.5, 1.52, 1.48], [1.0, 1.001, 0.999], [0.4, 1.0, 2.5]];
    let mut run = synthetic::run("1", "loads", None, vec![synthetic::axis("load", &loads, None)]);
    for repetition in 0..3 {
        for (load, factors) in loads.iter().zip(factors) {
            let mut trial =
                synthetic::trial(&run, repetition as u32 + 1, &[("load", *load)], BODY, 77);
            slow_down(&mut trial, factors[repetition]);
            run.trials.push(trial);
        }
    }
    let said = text(&run, "effect-load");
    assert!(said.contains("at load much"), "{said}");
    assert!(said.contains("lso different at load some"), "{said}");
    assert!(said.contains("annot tell at"), "{said}");
    assert!(!said.contains("different at load wild"), "{said}");
}

#[test]
fn drift_is_found_and_noise_is_undecided() {
    let drift = |run: &RunData| {
        figures(run).into_iter().find(|figure| figure.id == "drift").unwrap().finding
    };
    let drifts = |&seed: &u64| drift(&idle(&["60", "61"], 8, seed, 0.02)).starts_with("Delays");
    let wrong: Vec<u64> = (1..=60).filter(drifts).collect();
    assert!(wrong.len() < 3, "seeds {wrong:?}");
    let mut run = idle(&["60", "61"], 8, 8, 0.02);
    for trial in run.trials.iter_mut().filter(|trial| trial.order > 8) {
        slow_down(trial, 1.5);
    }
    assert!(drift(&run).starts_with("Delays rose"), "{}", drift(&run));
    // Single trials differ by a factor of ten.
    let wild = drift(&idle(&["60", "61"], 8, 6, 1.0));
    assert!(wild.starts_with("Cannot tell whether delays drifted"), "{wild}");
}

#[test]
fn finding_uses_stored_median() {
    let mut run = idle(&["60"], 1, 7, 0.0);
    run.trials[0].summary.as_mut().unwrap().metrics.get_mut("rtt_ns").unwrap().p50 = Some(282_519);
    assert!(text(&run, "delay").contains("median 283 us"), "{}", text(&run, "delay"));
}

#[test]
fn failed_trial_is_not_an_effect() {
    let mut run = synthetic::sweep();
    // Without its small packets, one rate would look slow.
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
        text(&run, "failed").contains("8 of 56 trials failed. Trial 2: switched off"),
        "{}",
        text(&run, "failed")
    );
}

#[test]
fn runs_without_delays_give_a_reason() {
    let empty = synthetic::run("1", "nothing", None, Vec::new());
    assert_eq!(text(&empty, "delay"), "This run has no trials.");
    let mut lost = synthetic::loads();
    for trial in &mut lost.trials {
        trial.series.clear();
        let packets = trial.summary.as_mut().unwrap().packets.as_mut().unwrap();
        (packets.received, packets.lost) = (0, packets.sent);
    }
    assert!(text(&lost, "delay").starts_with("None of 36,000 probes was answered"));
    assert!(text(&lost, "loss").contains("(100 %)"));
    let mut open = synthetic::loads();
    open.trials[3].state = TrialState::Running;
    assert!(text(&open, "failed").contains("1 trial not measured yet"));
}

#[test]
fn broken_limits_are_reported_without_node_warning() {
    let mut run = synthetic::loads();
    assert!(text(&run, "trust").starts_with("No trust warnings"));
    let mut imported = run.clone();
    imported.trials[4].summary.as_mut().unwrap().trust.schedule_error_ns = None;
    assert!(text(&imported, "trust").starts_with("Trust unknown"), "no record is not a kept limit");
    run.trials[0].summary.as_mut().unwrap().trust.ring_dropped = 5;
    assert!(
        text(&run, "trust").contains("did not fit into the ring: 5"),
        "{}",
        text(&run, "trust")
    );
    run.trials[1].summary.as_mut().unwrap().trust.schedule_error_ns.as_mut().unwrap().p99 =
        Some(2_000_000);
    assert!(text(&run, "trust").contains("2 warnings"), "{}", text(&run, "trust"));
}

#[test]
fn severity_of_warnings_decides_on_trust() {
    let mut run = synthetic::loads();
    let mut warn = |warning: Warning| {
        run.trials[0].summary.as_mut().unwrap().trust.warn(warning);
        (text(&run, "trust"), dwell_report::page(&run))
    };
    let (said, page) = warn(Warning::OneSidedTrace);
    assert!(said.starts_with("No trust warnings"), "{said}");
    assert!(page.contains("Notes on the experiment") && page.contains("banner good"));
    let (said, _) = warn(Warning::LateReplies(3));
    assert!(said.starts_with("Read this warning") && said.contains("late replies"), "{said}");
    let (said, page) = warn(Warning::TaiMoved);
    assert!(said.starts_with("Do not quote the numbers: CLOCK_TAI moved"), "{said}");
    assert!(page.contains("Do not quote these numbers.") && !page.contains("banner good"));
}

#[test]
fn broken_limit_of_which_the_node_warned_is_one_warning() {
    let mut run = synthetic::loads();
    let trust = &mut run.trials[0].summary.as_mut().unwrap().trust;
    trust.ring_dropped = 5;
    trust.warn(TrustWarning::from(Warning::RingOverflow(5)).about("n2"));
    let warnings = dwell_report::warnings(&run);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].trials, [1, run.trials.len() as u64]);
    assert!(warnings[0].text.starts_with("n2: "), "{warnings:?}");
}

#[test]
fn cpu_use_by_other_programs_breaks_a_trust_limit() {
    let busy = contended::with_other_cpu_use(synthetic::loads(), 0.8);
    let trust = text(&busy, "trust");
    assert!(trust.contains("other programs used 80 % of the CPU time"), "{trust}");
    let page = dwell_report::page(&busy);
    assert!(
        !page.contains("No limit was exceeded") && !trust.contains("No trust warnings"),
        "{trust}"
    );
    let quiet = contended::with_other_cpu_use(synthetic::loads(), 0.02);
    assert!(text(&quiet, "trust").starts_with("No trust warnings"));
}

#[test]
fn busy_host_samples_break_a_trust_limit() {
    let mut run = synthetic::with_machines("n1");
    let mean = |run: &mut RunData, share: f64| {
        for series in &mut run.host.as_mut().unwrap().series {
            if series.quantity == Quantity::CpuUse {
                series.points.iter_mut().for_each(|(_, value)| *value = share);
                (series.lowest, series.highest) = (0.66, 0.9);
            }
        }
    };
    mean(&mut run, 0.8);
    let trust = text(&run, "trust");
    assert!(
        trust.contains("CPU use of n1 was 80 % on average in trial 1 (66 % to 90 %)"),
        "{trust}"
    );
    mean(&mut run, 0.3);
    assert!(text(&run, "trust").starts_with("No trust warnings"));
}

#[test]
fn few_late_probes_are_warned_of_without_p99() {
    let said = |p50: i64, p90: i64, max: i64| {
        let mut run = synthetic::loads();
        let trust = &mut run.trials[1].summary.as_mut().unwrap().trust;
        let error = trust.schedule_error_ns.as_mut().unwrap();
        (error.count, error.p50, error.p90) = (30, Some(p50), Some(p90));
        (error.p95, error.p99, error.p99_9, error.max) = (None, None, None, Some(max));
        text(&run, "trust")
    };
    let late = said(262_000_000, 400_000_000, 412_000_000);
    assert!(late.contains("at least half of the probes were sent more than 100 us late"), "{late}");
    assert!(said(900, 150_000, 412_000).contains("more than 1 in 10 probes were sent"));
    assert!(said(900, 1_000, 412_000).contains("some of fewer than 100 probes were sent"));
    assert!(said(900, 1_000, 2_000).starts_with("No trust warnings"));
}

#[test]
fn trust_banner_lists_only_known_limits() {
    let banner = |run: &RunData| {
        let page = dwell_report::page(run);
        let from = page.split("<p class=\"banner good\">").nth(1).unwrap_or_default();
        from.split("</p>").next().unwrap_or_default().to_owned()
    };
    let mut run = contended::with_other_cpu_use(synthetic::loads(), 0.02);
    let held = "No clock stepped by more than 100 ns, no sample dropped, at most 1 in 100 probes sent \
                more than 100 us late, other programs below 10 % of the CPU time and no warning from a node.";
    assert!(banner(&run).ends_with(held), "{}", banner(&run));
    let summary = run.trials[2].summary.as_mut().unwrap();
    summary.kind = dwell_record::Kind::Import;
    summary.trust.clocks = None;
    let said = banner(&run);
    let known = "At most 1 in 100 probes sent more than 100 us late and other programs below 10 % of \
                 the CPU time. Unknown: clock steps";
    assert!(said.contains(known), "{said}");
    run.trials[2].summary.as_mut().unwrap().trust.schedule_error_ns.as_mut().unwrap().max = None;
    assert_eq!(banner(&run), "", "no banner without schedule errors");
}

#[test]
fn relay_modes_are_compared_on_common_metric() {
    let run = synthetic::relays(synthetic::PI_ZERO);
    let all = findings(&run);
    let text = |id: &str| &all.iter().find(|finding| finding.id == id).unwrap().text;
    let node = text("node-delay");
    assert!(node.contains("between netfilter's hooks") && node.contains("at encrypt"), "{node}");
    assert!(text("effect-relay").contains("rose"), "{}", text("effect-relay"));
    assert!(text("processing").contains("as in Miya 2020"));
    // 2.5 us per byte.
    let line = text("fit-encrypt");
    assert!(line.contains(" + 2,5") || line.contains(" + 25") || line.contains(" + 24"), "{line}");
    assert_eq!(dwell_report::main_metric(&run), Some("node_delay_netfilter_ns"));
    let programs = run.only("relay", "translate");
    assert_eq!(
        dwell_report::main_metric(&programs),
        Some("node_delay_ns"),
        "the first metric of three"
    );
    let fits = dwell_report::fits(&run);
    assert!(fits.iter().any(|f| f.relay.as_deref() == Some("encrypt") && f.axis == "size"));
}

#[test]
fn largest_loss_is_named_only_if_significant() {
    let lose = |run: &mut RunData, lost: &[u64]| {
        for (trial, lost) in run.trials.iter_mut().zip(lost) {
            let packets = trial.summary.as_mut().unwrap().packets.as_mut().unwrap();
            (packets.sent, packets.lost, packets.received) = (4_500, *lost, 4_500 - lost);
        }
    };
    let ttls = ["60", "61", "62", "63", "64", "65", "66"];
    let mut run = idle(&ttls, 1, 9, 0.0);
    lose(&mut run, &[211, 201, 201, 201, 201, 201, 201]);
    assert!(!text(&run, "loss").contains(" at ttl"), "{}", text(&run, "loss"));
    lose(&mut run, &[411, 201, 201, 201, 201, 201, 201]);
    let said = text(&run, "loss");
    assert!(said.contains("The largest share, 411 of 4,500, at ttl 60"), "{said}");
    lose(&mut run, &[411, 1, 2, 1, 1, 1, 1]);
    assert!(text(&run, "loss").contains("Most of them at ttl 60: 411 of 4,500"));
}

#[test]
fn one_way_packets_have_their_own_wording() {
    let mut run = idle(&["60"], 1, 10, 0.0);
    let summary = run.trials[0].summary.as_mut().unwrap();
    (summary.kind, summary.engine) = (dwell_record::Kind::Import, "iperf2".to_owned());
    let packets = summary.packets.as_mut().unwrap();
    (packets.sent, packets.received, packets.lost) = (1_076, 1_061, 15);
    assert!(text(&run, "delay").starts_with("1,061 of 1,076 packets arrived."));
    assert!(text(&run, "loss").starts_with("15 of 1,076 packets did not arrive (1.39 %)"));
    run.trials[0].series.clear();
    assert!(text(&run, "delay").starts_with("There are no delay samples; the file's own"));
}

/// Fact of the trust panel, as on the page.
fn fact(run: &RunData, name: &str) -> String {
    let page = dwell_report::page(run);
    let from = page.split(&format!("<dt>{name}</dt><dd>")).nth(1).unwrap_or_default();
    from.split("</dd>").next().unwrap_or_default().to_owned()
}

#[test]
fn clock_bound_is_shown_beside_one_way_delays() {
    let mut run = synthetic::relays(synthetic::PI_ZERO);
    assert!(!dwell_report::page(&run).contains("Clock bound"), "all machines have one clock");
    for (trial, bound) in run.trials.iter_mut().zip([41_000, 84_200, 12_000]) {
        let summary = trial.summary.as_mut().unwrap();
        summary.values.insert("end_to_end_error_ns".to_owned(), Some(Scalar::Count(bound)));
    }
    let clocks = text(&run, "clocks");
    assert!(clocks.contains("an error of at most 84.2 us"), "{clocks}");
    assert_eq!(fact(&run, "Clock bound"), "± 84.2 us");
    assert!(dwell_report::page(&run).contains("one-way delays ± 84.2 us, dwell"), "figures");
}

#[test]
fn trust_panel_marks_unknown_facts() {
    let mut run = synthetic::loads();
    run.trials[4].summary.as_mut().unwrap().trust.schedule_error_ns.as_mut().unwrap().max =
        Some(1_016_600);
    run.trials[5].summary.as_mut().unwrap().trust.schedule_error_ns.as_mut().unwrap().p99 =
        Some(5_000);
    let said = fact(&run, "Schedule error");
    assert!(said.contains("max of all trials 1.02 ms") && said.contains("p99 5 us"), "{said}");
    for trial in &mut run.trials {
        let summary = trial.summary.as_mut().unwrap();
        summary.trust.planned = None;
        summary.parameters.insert("interval_ns".to_owned(), 2_000_000.into());
        summary.parameters.insert("deadline_ns".to_owned(), 8_000_000_000_i64.into());
    }
    assert!(fact(&run, "Probes").starts_with("36,000 planned"), "{}", fact(&run, "Probes"));
    run.trials[0].summary.as_mut().unwrap().parameters.remove("deadline_ns");
    assert!(fact(&run, "Probes").contains("unknown number planned"), "{}", fact(&run, "Probes"));
    assert!(fact(&run, "Warm-up").starts_with("180 probes"));
    run.trials[0].summary.as_mut().unwrap().kind = dwell_record::Kind::Import;
    for name in ["Warm-up", "Samples dropped"] {
        assert_eq!(fact(&run, name), "unknown", "{name}");
    }
    // A segment has the count at its end.
    run.trials[0].summary.as_mut().unwrap().engine = "segment".to_owned();
    assert_eq!(fact(&run, "Samples dropped"), "0");
    let parameters = &mut run.trials[0].summary.as_mut().unwrap().parameters;
    parameters.insert(dwell_record::CUT_SHORT.to_owned(), true.into());
    assert_eq!(fact(&run, "Samples dropped"), "unknown");
}

#[test]
fn low_and_high_outliers_are_counted() {
    let mut run = idle(&["60"], 1, 11, 0.0);
    let series = run.trials[0].series.get_mut("rtt_ns").unwrap();
    let hampel = series.hampel.as_mut().unwrap();
    (hampel.upper, hampel.lower) = (3, 2);
    for (i, point) in series.points.iter_mut().take(5).enumerate() {
        (point.outlier, point.value_ns) = (true, if i < 3 { 90_000 } else { 2_000 });
    }
    let figures = figures(&run);
    let timeline = figures.iter().find(|figure| figure.id == "timeline").unwrap();
    assert!(
        timeline.finding.contains("5 of 400 samples are outliers, 2 of them low"),
        "{}",
        timeline.finding
    );
    let spec = timeline.spec.to_string();
    assert_eq!(spec.matches(r#""direction":"low""#).count(), 2, "{spec}");
    assert!(spec.matches(r#""direction":"high""#).count() >= 3);
}
