//! Claims of Miya 2020, judged for relays that behave like its board, and for others.

#[expect(dead_code, reason = "other test programs use the rest")]
#[path = "../../report/tests/synthetic/mod.rs"]
mod synthetic;

use dwell_documents::judge_claims;
use dwell_record::Scalar;
use dwell_report::model::{Claim, ClaimVerdict, RunData, Step, TrialData};
use dwell_report::{findings, fits};
use rand::SeedableRng as _;
use rand_distr::{Distribution as _, Normal};
use rand_xoshiro::Xoshiro256PlusPlus;
use synthetic::{PI_ZERO, Relay, relays, relays_repeated};

fn claims(run: &RunData) -> Vec<Claim> {
    judge_claims(run, "miya-2020").unwrap().claims
}

fn verdict(run: &RunData, id: &str) -> Claim {
    let found = claims(run).into_iter().find(|claim| claim.id == id);
    found.unwrap_or_else(|| panic!("no claim {id}"))
}

fn assert_verdicts(run: &RunData, wanted: &[(&str, ClaimVerdict)]) {
    for (id, verdict) in wanted {
        let claim = self::verdict(run, id);
        assert_eq!(claim.verdict, *verdict, "{id}: {claim:?}");
    }
}

#[test]
fn board_like_miya_2020_confirms_its_claims() {
    use ClaimVerdict::{CannotTell, Fail, Pass};
    let run = relays_repeated(PI_ZERO, 2);
    assert_verdicts(
        &run,
        &[
            ("S0.18", Pass),
            ("S0.19-route", Fail),
            ("S0.20", Pass),
            ("S0.21-route-rate", Pass),
            ("S0.21-route-load", Pass),
            ("S0.21-translate-rate", Pass),
            ("S0.21-translate-load", Pass),
            ("S0.22-linear", Pass),
            ("S0.22-order", Pass),
            ("S0.23", Pass),
            ("S0.24", Pass),
            ("S0.25", Pass),
            ("S0.26", CannotTell),
            // Load has no effect on this board, and the repetitions are close enough to decide.
            ("S0.27", Fail),
        ],
    );
    let ratio = self::verdict(&run, "S0.18").value.unwrap();
    assert!((17.0..18.5).contains(&ratio), "{ratio}");
    let text = self::verdict(&run, "S0.27").text();
    assert!(text.contains(" Why: without load a packet waits "), "{text}");
    let more = self::verdict(&run, "S0.23").value.unwrap();
    assert!((520e3..545e3).contains(&more), "{more}");
}

#[test]
fn fast_machine_fails_claims_with_explanation() {
    use ClaimVerdict::{Fail, Pass};
    let pc = Relay { route_ns: 3e3, program_ns: 12e3, per_byte_ns: 0.9, loss: 0.0, stress: 2.0 };
    let run = relays_repeated(pc, 2);
    assert_verdicts(
        &run,
        &[
            ("S0.18", Fail),
            ("S0.19-route", Pass),
            ("S0.20", Fail),
            ("S0.21-route-load", Pass),
            ("S0.21-translate-load", Fail),
            ("S0.22-order", Fail),
            ("S0.23", Fail),
            ("S0.25", Fail),
            ("S0.27", Pass),
        ],
    );
    assert!(verdict(&run, "S0.25").text().contains("keeps up"));
    let flat = verdict(&run, "S0.21-translate-load").text();
    assert!(flat.contains(" Why: at load ") && flat.contains("us in the socket until"), "{flat}");
    for id in ["S0.18", "S0.20", "S0.22-order", "S0.23"] {
        let text = verdict(&run, id).text();
        assert!(text.contains(" Why: "), "{id}: {text}");
    }
    let order = verdict(&run, "S0.22-order").text();
    let wait = order.find("a packet waits 1.6 us in the socket");
    assert!(wait < order.find("us in the program (95th"), "{order}");
    assert!(wait.is_some(), "{order}");
    // Components that no figure draws have a summary but no distribution.
    let mut run = run;
    run.trials.iter_mut().for_each(|trial| drop(trial.series.remove("queueing_in_ns")));
    assert_eq!(verdict(&run, "S0.22-order").text(), order);
}

/// Number before a word in a text.
fn before(text: &str, word: &str) -> f64 {
    let (before, _) = text.split_once(word).unwrap_or_else(|| panic!("no `{word}` in: {text}"));
    before.rsplit(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{text}"))
}

#[test]
fn explanation_uses_the_judged_trials() {
    let pc = Relay { route_ns: 3e3, program_ns: 12e3, per_byte_ns: 0.9, loss: 0.0, stress: 1.0 };
    let claim = verdict(&relays_repeated(pc, 2), "S0.20");
    let (node, links) =
        (before(&claim.text(), " us and both"), before(&claim.text(), " us (95th perc"));
    let nlr = claim.value.unwrap();
    assert!((node / links / nlr - 1.0).abs() < 0.02, "{node} over {links} is not {nlr}");
}

#[test]
fn factor_names_both_levels_and_no_guess() {
    let base = cells();
    // The lowest rate takes three times as long and has fewer sizes.
    let mut run = varied(&base, 3, 0.02, 5, |_, _| 50e3);
    run.trials.retain(|t| t.parameters["rate"] != "200pps" || t.parameters["size"] == "100B");
    for made in &mut run.trials {
        let times = if made.parameters["size"] == "100B" { 1.0 } else { 7.0 };
        let slow = if made.parameters["rate"] == "200pps" { 3.0 } else { 1.0 };
        *made = trial(made, made.repetition, 50e3 * times * slow, 200e3);
    }
    let claim = verdict(&run, "S0.21-route-rate");
    assert_eq!(claim.verdict, ClaimVerdict::Fail, "{claim:?}");
    assert!(claim.text().contains("50 us at rate 1200pps against 150 us at 200pps"), "{claim:?}");
    assert!(claim.text().contains(" Why: no timestamp splits the node delay"), "{claim:?}");
    assert!((claim.value.unwrap() - 3.0).abs() < 1e-6, "{claim:?}");
    assert!(!claim.text().contains("likely"), "{claim:?}");
}

#[test]
fn byte_cost_has_interval_or_is_undecided() {
    let steep = Relay { per_byte_ns: 9.0, loss: 0.0, ..PI_ZERO };
    let mut run = relays_repeated(steep, 2);
    // The node delay is not linear.
    for made in run.trials.iter_mut().filter(|t| t.parameters["relay"] == "encrypt") {
        let times = if made.parameters["size"] == "700B" { 0.2 } else { 1.0 };
        let series = made.series.get_mut("node_delay_netfilter_ns").unwrap();
        series.steps.iter_mut().for_each(|s| s.value_ns = (s.value_ns as f64 * times) as i64);
        let figures = &mut made.summary.as_mut().unwrap().metrics;
        figures.get_mut("node_delay_netfilter_ns").unwrap().p95 = None;
    }
    let text = verdict(&run, "S0.22-linear").text();
    assert!(text.contains("the program needs 1") && text.contains(" more (interval "), "{text}");
    for made in &mut run.trials {
        let noisy = f64::from(1 + made.trial * 7 % 5);
        let Some(series) = made.series.get_mut("processing_ns") else { continue };
        series.steps.iter_mut().for_each(|s| s.value_ns = (s.value_ns as f64 * noisy) as i64);
        made.summary.as_mut().unwrap().metrics.get_mut("processing_ns").unwrap().p95 = None;
    }
    let text = verdict(&run, "S0.22-linear").text();
    assert!(text.contains("cannot tell the cost of bytes in the program: -"), "{text}");
}

#[test]
fn node_claims_use_netfilter_timestamps() {
    let run = relays(PI_ZERO);
    let links = ["S0.19", "S0.20", "S0.24", "S0.25"];
    for claim in claims(&run) {
        let of_links = links.iter().any(|id| claim.id.starts_with(id));
        assert!(of_links || claim.text().contains("between netfilter's hooks"), "{claim:?}");
    }
    // Node and links make up the path at the timestamps where the links end.
    assert!(verdict(&run, "S0.20").text().contains("(node delay, 95th"));
}

#[test]
fn no_link_rate_undecided_missing_mode_not_run() {
    let whole = relays(PI_ZERO);
    let bare = whole.only("topology.link.rate", "none");
    assert_verdicts(
        &bare,
        &[
            ("S0.19-route", ClaimVerdict::CannotTell),
            ("S0.20", ClaimVerdict::CannotTell),
            ("S0.18", ClaimVerdict::Pass),
        ],
    );
    let route = whole.only("relay", "route");
    for id in ["S0.18", "S0.20", "S0.22-linear", "S0.23", "S0.25", "S0.27"] {
        let claim = verdict(&route, id);
        assert_eq!((claim.verdict, claim.value), (ClaimVerdict::NotRun, None), "{claim:?}");
    }
    assert_eq!(judge_claims(&whole, "other"), None);
}

#[test]
fn modes_without_common_metric_are_undecided() {
    let mut run = relays(PI_ZERO);
    for trial in &mut run.trials {
        trial.series.remove("node_delay_netfilter_ns");
    }
    let claim = verdict(&run, "S0.18");
    assert_eq!((claim.verdict, claim.value), (ClaimVerdict::CannotTell, None), "{claim:?}");
    assert!(claim.text().contains("tracing needs root"));
}

#[test]
fn published_and_own_limits_are_separate() {
    let run = relays(PI_ZERO);
    let numbers = |id: &str| {
        let [_, published, own] = verdict(&run, id).numbers();
        [published, own]
    };
    assert_eq!(numbers("S0.18"), ["10x", "-"]);
    assert_eq!(numbers("S0.19-route"), ["5 %", "-"]);
    assert_eq!(numbers("S0.21-route-rate"), ["-", "1.25x"]);
    assert_eq!(numbers("S0.22-order"), ["-", "1 ms"]);
    assert_eq!(numbers("S0.22-linear"), ["-", "0.9"]);
    assert_eq!(numbers("S0.23"), ["100 us", "-"]);
    let claim = verdict(&run, "S0.22-order");
    let ns = claim.value.unwrap();
    assert_eq!(claim.numbers()[0], format!("{} ms", (ns / 1e4).round() / 100.0));
}

#[test]
fn every_claim_occurs_once() {
    let all = claims(&relays(PI_ZERO));
    for line in 18..=27 {
        let id = format!("S0.{line}");
        assert!(all.iter().any(|claim| claim.id.split('-').next() == Some(&id)), "{id}");
    }
    let mut ids: Vec<_> = all.iter().map(|claim| &claim.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all.len());
}

/// A trial like another one, with constant node and link delay.
fn trial(like: &TrialData, repetition: u32, node_ns: f64, link_ns: f64) -> TrialData {
    let mut trial = like.clone();
    trial.repetition = repetition;
    let summary = trial.summary.as_mut().unwrap();
    for (name, ns) in [("node_delay_netfilter_ns", node_ns), ("link_delay_ns", link_ns)] {
        let value_ns = ns as i64;
        let series = trial.series.entry(name.to_owned()).or_default();
        series.steps = vec![Step { value_ns, count: 300 }];
        let figures = summary.metrics.get_mut(name).unwrap();
        (figures.count, figures.mean) = (300, Some(ns));
        (figures.p50, figures.p95) = (Some(value_ns), Some(value_ns));
    }
    trial.series.retain(|name, _| name.starts_with("node_delay_net") || name.starts_with("link_d"));
    trial
}

/// The experiment of Miya 2020 with log-normal levels of standard deviation `spread`; `of` returns
/// the node delay of a mode, with or without load.
fn varied(
    base: &RunData,
    repetitions: u32,
    spread: f64,
    seed: u64,
    of: impl Fn(&str, bool) -> f64,
) -> RunData {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let normal = Normal::new(0.0, spread).unwrap();
    let mut run = RunData { trials: Vec::new(), ..base.clone() };
    for repetition in 1..=repetitions {
        for like in &base.trials {
            let mut level = || normal.sample(&mut random).exp();
            let stressed = like.parameters["load"] != "none";
            let node = of(&like.parameters["relay"], stressed) * level();
            let link = 200e3 * level();
            let jitter = 5e3 * level();
            let mut made = trial(like, repetition, node, link);
            let summary = made.summary.as_mut().unwrap();
            summary.values.insert("jitter_rfc3550_ns".into(), Some(Scalar::Real(jitter)));
            run.trials.push(made);
        }
    }
    run
}

/// Base of [`varied`]: the smallest and the largest size, without samples.
fn cells() -> RunData {
    let mut base = relays(PI_ZERO);
    base.trials.retain(|trial| trial.parameters["size"] != "700B");
    for trial in &mut base.trials {
        trial.series.values_mut().for_each(|series| *series = Default::default());
        trial.summary.as_mut().unwrap().packets.as_mut().unwrap().lost = 0;
    }
    base
}

#[test]
fn true_false_and_undecidable_claims_are_judged() {
    use ClaimVerdict::{CannotTell, Fail, Pass};
    let base = cells();
    let ids = ["S0.18", "S0.23", "S0.27", "S0.21-translate-load", "S0.22-order", "S0.19-translate"];
    let judged = |repetitions, spread, route: f64, program: f64, stress: f64| -> Vec<_> {
        let run = varied(&base, repetitions, spread, 11, |mode, stressed| match (mode, stressed) {
            ("route", _) => route,
            (_, true) => program * stress,
            (_, false) => program,
        });
        ids.map(|id| verdict(&run, id).verdict).into()
    };
    // 20x the delay, much more than 100 us, 3x under load, of the order of milliseconds.
    assert_eq!(judged(3, 0.1, 80e3, 1.6e6, 3.0), [Pass, Pass, Pass, Fail, Pass, Fail]);
    // 3x the delay, 40 us more, no effect of load, 60 us, about 30 % of 200 us.
    assert_eq!(judged(3, 0.03, 20e3, 60e3, 1.0), [Fail, Fail, Fail, Pass, Fail, Pass]);
    // At the limits, with trials that differ by a factor of two.
    let open = judged(3, 0.7, 10e3, 100e3, 1.1);
    assert_eq!(open[0], CannotTell);
    assert_eq!(open[2..4], [CannotTell, CannotTell]);
    // One size and rate, measured once: the spread of trials is unknown.
    let mut one = varied(&base, 1, 0.1, 11, |mode, _| if mode == "route" { 1e3 } else { 1e6 });
    one.trials.retain(|t| t.parameters["size"] == "1400B" && t.parameters["rate"] == "200pps");
    for id in ids {
        let claim = verdict(&one, id);
        assert_eq!(claim.verdict, CannotTell, "{claim:?}");
        assert!(claim.text().contains("set trials.repetitions"), "{claim:?}");
    }
}

#[test]
fn relay_claims_name_the_delay_without_load() {
    // Programs take three times as long under load.
    let level = |mode: &str, stressed| match (mode, stressed) {
        ("route", _) => 80e3,
        (_, true) => 4.8e6,
        (_, false) => 1.6e6,
    };
    let run = varied(&cells(), 3, 0.01, 11, level);
    let idle = |id: &str| {
        let text = verdict(&run, id).text();
        let found = text.split_once(" Without load: ").unwrap_or_else(|| panic!("{id}: {text}")).1;
        found.split(" ns per byte").next().unwrap().to_owned()
    };
    let first = |id: &str| -> f64 {
        let text = idle(id);
        let digits = text.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap();
        digits.parse().unwrap_or_else(|_| panic!("{text}"))
    };
    assert!((19.0..21.0).contains(&first("S0.18")), "{}", idle("S0.18"));
    assert!((1.48..1.56).contains(&first("S0.23")), "{}", idle("S0.23"));
    assert!((1.57..1.63).contains(&first("S0.22-order")), "{}", idle("S0.22-order"));

    let mut bare = run;
    bare.trials.retain(|trial| trial.parameters["load"] == "none");
    for id in ["S0.18", "S0.22-order", "S0.23"] {
        let text = verdict(&bare, id).text();
        assert!(!text.contains("Without load"), "{id}: {text}");
    }
}

#[test]
fn equal_runs_give_few_false_claims() {
    let base = cells();
    for (repetitions, spread) in [(2, 0.15), (3, 0.15), (3, 0.6)] {
        let mut wrong = 0;
        let runs = 120;
        for seed in 0..runs {
            let run = varied(&base, repetitions, spread, seed, |_, _| 50e3);
            let all = claims(&run);
            let has = |id: &str, verdict| {
                all.iter().any(|claim| claim.id.starts_with(id) && claim.verdict == verdict)
            };
            // Claims that would need an effect of the mode, rate, load or size.
            wrong += u32::from(
                has("S0.18", ClaimVerdict::Pass)
                    || has("S0.21", ClaimVerdict::Fail)
                    || has("S0.23", ClaimVerdict::Pass)
                    || has("S0.24", ClaimVerdict::Pass)
                    || has("S0.26", ClaimVerdict::Pass)
                    || has("S0.26", ClaimVerdict::Fail)
                    || has("S0.27", ClaimVerdict::Pass),
            );
        }
        assert!(
            f64::from(wrong) <= 0.05 * f64::from(u32::try_from(runs).unwrap()),
            "{wrong} of {runs}: {repetitions} repetitions, spread {spread}"
        );
    }
}

#[test]
fn load_claim_judges_tail_not_median() {
    let base = cells();
    let mut run = varied(&base, 3, 0.05, 5, |_, _| 55e3);
    for trial in run.trials.iter_mut().filter(|trial| trial.parameters["load"] != "none") {
        let steps = &mut trial.series.get_mut("node_delay_netfilter_ns").unwrap().steps;
        let level = steps[0].value_ns;
        *steps = vec![
            Step { value_ns: level * 6 / 10, count: 200 },
            Step { value_ns: level * 71, count: 100 },
        ];
        let figures = trial.summary.as_mut().unwrap().metrics.get_mut("node_delay_netfilter_ns");
        let figures = figures.unwrap();
        (figures.p50, figures.p95) = (Some(level * 6 / 10), Some(level * 71));
    }
    let claim = verdict(&run, "S0.27");
    assert_eq!(claim.verdict, ClaimVerdict::Pass, "{claim:?}");
    assert!((65.0..77.0).contains(&claim.value.unwrap()), "{claim:?}");
    assert!(claim.text().contains("95th percentile"), "{claim:?}");
    assert_eq!(verdict(&run, "S0.21-translate-load").verdict, ClaimVerdict::Fail);
}

#[test]
fn trials_with_missed_load_are_left_out() {
    let base = cells();
    let mut run = varied(&base, 3, 0.05, 5, |_, stressed| if stressed { 150e3 } else { 50e3 });
    let stressed = |trial: &&mut TrialData| trial.parameters["load"] != "none";
    let burn = |trial: &mut TrialData, share: f64| {
        let values = &mut trial.loads[0].values;
        values.insert("burnt_ratio".into(), Some(Scalar::Real(share)));
    };
    // One repetition has little load, and 100x the delay for another reason.
    for made in run.trials.iter_mut().filter(stressed).filter(|trial| trial.repetition == 2) {
        burn(made, 0.24);
        *made = trial(made, 2, 5e6, 200e3);
    }
    let claim = verdict(&run, "S0.27");
    assert_eq!(claim.verdict, ClaimVerdict::Pass, "{claim:?}");
    assert!((2.8..3.2).contains(&claim.value.unwrap()), "{claim:?}");
    let programs = run.trials.iter().filter(|t| t.parameters["relay"] != "route");
    let bare = programs.filter(|t| t.parameters["topology.link.rate"] == "none");
    let left_out = bare.clone().filter(|t| t.parameters["load"] != "none").count() / 3;
    let said = format!("{left_out} of {} trials are left out", bare.count());
    assert!(claim.text().contains(&said), "{said}: {claim:?}");
    // Without any trial at the requested load there is no verdict.
    run.trials.iter_mut().filter(stressed).for_each(|trial| burn(trial, 0.5));
    let claim = verdict(&run, "S0.27");
    assert_eq!((claim.verdict, claim.value), (ClaimVerdict::CannotTell, None), "{claim:?}");
    assert!(claim.text().contains("no trial had the requested load"), "{claim:?}");
}

#[test]
fn lost_combinations_are_named() {
    let base = cells();
    let mut run = varied(&base, 3, 0.7, 5, |_, stressed| if stressed { 55e3 } else { 50e3 });
    let out = |t: &TrialData| t.parameters["load"] != "none" && t.parameters["rate"] == "1200pps";
    // One more trial misses its load at another rate, where repetitions remain.
    let one = run
        .trials
        .iter()
        .position(|t| t.parameters["load"] != "none" && t.parameters["rate"] == "200pps");
    for (place, made) in run.trials.iter_mut().enumerate() {
        if out(made) || Some(place) == one {
            let values = &mut made.loads[0].values;
            values.insert("burnt_ratio".into(), Some(Scalar::Real(0.6)));
        }
    }
    let claim = verdict(&run, "S0.21-translate-load");
    assert_eq!(claim.verdict, ClaimVerdict::CannotTell, "{claim:?}");
    let named = "No trial remains at load most, rate 1200pps: more repetitions cannot decide this.";
    assert!(claim.text().contains(named), "{claim:?}");
    assert!(!claim.text().contains("add repetitions"), "{claim:?}");
    // A finding says so, because other findings and figures include these trials.
    run.claims = judge_claims(&run, "miya-2020");
    let said = findings(&run).into_iter().find(|finding| finding.id == "stress").unwrap().text;
    assert!(said.contains("All trials at load most, rate 1200pps missed it."), "{said}");
    assert!(findings(&base).iter().all(|finding| finding.id != "stress"));
    // Encryption was not measured at that rate, so its claim is unaffected.
    let claim = verdict(&run, "S0.22-order");
    assert!(!claim.text().contains("left out"), "{claim:?}");
}

#[test]
fn uncertain_jitter_growth_is_undecided() {
    let sharp = relays_repeated(PI_ZERO, 2);
    assert_eq!(verdict(&sharp, "S0.24").verdict, ClaimVerdict::Pass);
    let mut run = sharp;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let normal = Normal::new(0.0, 1.5).unwrap();
    for trial in run.trials.iter_mut().filter(|trial| trial.parameters["relay"] != "encrypt") {
        let values = &mut trial.summary.as_mut().unwrap().values;
        let Some(Some(Scalar::Real(jitter))) = values.get_mut("jitter_rfc3550_ns") else {
            panic!()
        };
        *jitter *= f64::exp(normal.sample(&mut random));
    }
    let claim = verdict(&run, "S0.24");
    assert_eq!(claim.verdict, ClaimVerdict::CannotTell, "{claim:?}");
    assert!(claim.text().contains("route cannot tell"), "{claim:?}");
}

#[test]
fn failed_jitter_and_rate_claims_are_explained() {
    let mut run = relays_repeated(PI_ZERO, 2);
    for (n, trial) in run.trials.iter_mut().enumerate() {
        let pps: f64 = trial.parameters["rate"].trim_end_matches("pps").parse().unwrap();
        let summary = trial.summary.as_mut().unwrap();
        let jitter = Scalar::Real(900.0 + (n % 3) as f64);
        summary.values.insert("jitter_rfc3550_ns".into(), Some(jitter));
        for figures in summary.metrics.values_mut() {
            figures.mean = Some(5e4 * (1.0 + pps / 200.0));
        }
    }
    for (id, reason) in [("S0.24", "the program needs"), ("S0.26", "a packet waits")] {
        let claim = verdict(&run, id);
        assert_eq!(claim.verdict, ClaimVerdict::Fail, "{claim:?}");
        assert!(claim.text().contains(" Why: ") && claim.text().contains(reason), "{claim:?}");
    }
}

#[test]
fn rare_loss_is_undecided() {
    let mut run = cells();
    let fast = |trial: &&mut TrialData| {
        trial.parameters["relay"] == "encrypt" && trial.parameters["rate"] != "100pps"
    };
    for trial in &mut run.trials {
        let packets = trial.summary.as_mut().unwrap().packets.as_mut().unwrap();
        (packets.sent, packets.received) = (20, 20);
    }
    let claim = verdict(&run, "S0.25");
    assert_eq!(claim.verdict, ClaimVerdict::CannotTell, "{claim:?}");
    assert!(claim.text().contains("send more packets"), "{claim:?}");
    let lose = |trial: &mut TrialData| {
        trial.summary.as_mut().unwrap().packets.as_mut().unwrap().lost = 3;
    };
    run.trials.iter_mut().filter(fast).take(1).for_each(lose);
    assert_eq!(verdict(&run, "S0.25").verdict, ClaimVerdict::CannotTell);
    run.trials.iter_mut().filter(fast).for_each(lose);
    assert_eq!(verdict(&run, "S0.25").verdict, ClaimVerdict::Pass);
    run.trials.iter_mut().filter(|t| t.parameters["relay"] == "route").take(3).for_each(lose);
    assert_eq!(verdict(&run, "S0.25").verdict, ClaimVerdict::Fail);
}

#[test]
fn lines_share_the_error_probability() {
    let each = fits(&relays(PI_ZERO));
    assert!(!each.is_empty());
    let alpha: f64 = each.iter().map(|fit| 1.0 - fit.confidence).sum();
    assert!(alpha <= 0.01 + 1e-12, "{alpha}");
}
