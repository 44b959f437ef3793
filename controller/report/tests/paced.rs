//! Verdicts on senders, their sentences and tables.

#[expect(dead_code, reason = "other test programs use the rest")]
mod synthetic;
#[path = "synthetic/paced.rs"]
mod trains;

use dwell_record::{TrustWarning, Warning};
use dwell_report::model::{RunData, TrialData, TrialState};
use dwell_report::{
    RateVerdictKind, findings, main_metric, page, rates_of_runs, verdict_cards, verdict_table,
    verdict_words, verdicts,
};
use trains::paces;

/// Largest rates of an engine in Mbit/s: without and with 25 flows, for 200 and 1500 B each.
fn largest_mbps(run: &RunData, engine: &str) -> Vec<Option<u64>> {
    let all = verdicts(run);
    let of = all.iter().filter(|verdict| verdict.engine == engine);
    of.map(|verdict| verdict.largest_rate_bps.map(|bps| bps / 1_000_000)).collect()
}

#[test]
fn largest_rate_follows_gap_errors() {
    let run = paces(&[]);
    // The tolerance is a tenth of the gap: 16 us, 1.6 us and 160 ns for 200 B, 7.5x that for 1500
    // B.
    assert_eq!(largest_mbps(&run, "spin"), [100, 1_000, 10, 100].map(Some));
    // sleep keeps not even 10 Mbit/s with 200 B.
    assert_eq!(largest_mbps(&run, "sleep"), [0, 10, 0, 0].map(Some));
    let verdict = |engine: &str| verdicts(&run).into_iter().find(|it| it.engine == engine).unwrap();
    let spin = verdict("spin");
    assert_eq!((spin.node.as_str(), spin.ip_size, spin.flows), ("n1", 200, 0));
    assert!(spin.reason.unwrap().starts_with("1Gbit/s: inaccurate"));
    assert_eq!(verdict("sleep").verdict, RateVerdictKind::None);
}

#[test]
fn user_stamps_and_missing_engines_give_no_verdict() {
    let run = paces(&[]);
    assert_eq!(largest_mbps(&run, "packet-ring"), [None; 4], "no kernel timestamps");
    for verdict in verdicts(&run) {
        let reason = verdict.reason.as_deref().unwrap_or_default();
        match verdict.engine.as_str() {
            "packet-ring" => {
                assert_eq!(verdict.verdict, RateVerdictKind::CannotTell);
                assert!(reason.contains("user-space timestamps"), "{reason}");
            }
            "xsk" | "gso" | "txtime" | "uring" => {
                assert_eq!(
                    (verdict.verdict, verdict.largest_rate_bps),
                    (RateVerdictKind::NotRun, None)
                );
                assert!(reason.ends_with("is not supported here"), "{reason}");
                // Sizes come from the plan, because no trial reported any.
                assert!([200, 1_500].contains(&verdict.ip_size));
            }
            _ => assert!(verdict.largest_rate_bps.is_some()),
        }
    }
}

#[test]
fn unseen_limit_or_lost_stamps_are_undecided() {
    let mut run = paces(&[]);
    let spin = |trial: &&mut TrialData| trial.parameters["engine"] == "spin";
    for trial in run.trials.iter_mut().filter(spin) {
        let summary = trial.summary.as_mut().unwrap();
        summary.parameters.insert("limit_unseen".into(), true.into());
    }
    assert_eq!(largest_mbps(&run, "spin"), [None; 4]);
    let reason = verdicts(&run).into_iter().find(|it| it.engine == "spin").unwrap().reason;
    assert!(reason.unwrap().contains("a rate limit on the egress path is not visible"));
    assert!(!verdict_words(&run)[0].contains("best is spin"), "{:#?}", verdict_words(&run));
    // Rate and gaps of a train without a timestamp are unknown.
    let mut run = paces(&[]);
    for trial in run.trials.iter_mut().filter(spin) {
        for train in trial.summary.as_mut().unwrap().trains.iter_mut().step_by(2) {
            (train.rate_bps, train.gap_error_p95_ns) = (None, None);
        }
    }
    assert_eq!(largest_mbps(&run, "spin"), [None; 4]);
}

#[test]
fn failed_trial_counts_as_unknown_trains() {
    let fail = |up_to: u32| {
        let mut run = paces(&["trials.repetitions=4"]);
        let spin = |trial: &&mut TrialData| trial.parameters["engine"] == "spin";
        for trial in run.trials.iter_mut().filter(spin) {
            if trial.repetition <= up_to {
                trial.state = TrialState::Failed;
            }
        }
        largest_mbps(&run, "spin")
    };
    let all = fail(0);
    assert!(all.iter().all(Option::is_some), "{all:?}");
    assert_eq!(fail(1), all, "the median is still that of a successful trial");
    assert_eq!(fail(2), [None; 4], "half of the trains are unknown");
}

#[test]
fn verdict_text_names_engines_and_tolerance() {
    let lines = verdict_words(&paces(&[]));
    assert_eq!(
        lines[0],
        "n1: best is spin: measures 1 Gbit/s networks with packets of 1500 B; 100 Mbit/s with 200 B; \
         under 25 cross flows 100 Mbit/s with packets of 1500 B and 10 Mbit/s with 200 B"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("n1: packet-ring: cannot tell")),
        "{lines:#?}"
    );
    let not_run: Vec<_> = lines.iter().filter(|line| line.contains("not run")).collect();
    assert_eq!(not_run.len(), 1, "one sentence: {not_run:?}");
    assert!(
        not_run[0].contains("gso: gso is not supported here") && not_run[0].contains("uring"),
        "{not_run:?}"
    );
    assert!(lines.last().unwrap().starts_with("accurate: at least 20 trains"), "{lines:#?}");
}

#[test]
fn card_has_the_best_engine_of_one_node() {
    let run = paces(&[]);
    let cards = verdict_cards(&run, "n1");
    let [card] = &cards[..] else { panic!("{cards:?}") };
    assert_eq!(
        card.text,
        "measures up to 1 Gbit/s with 1500 B; 100 Mbit/s with 200 B; \
         under 25 cross flows 100 Mbit/s with 1500 B and 10 Mbit/s with 200 B"
    );
    assert_eq!(card.engines, ["spin"]);
    assert_eq!(card.all_sizes_bps, Some(100_000_000));
    assert_eq!((card.large_packets_bps, card.large_packets_from), (Some(1_000_000_000), 1_500));
    let measured = run.summaries().filter(|summary| !summary.trains.is_empty()).count();
    assert!(card.trials >= measured && card.trials < run.trials.len(), "{}", card.trials);
    assert!(card.accurate.starts_with("accurate: at least 20 trains"), "{}", card.accurate);
    assert!(verdict_cards(&run, "n2").is_empty(), "the receiver sends nothing");
}

#[test]
fn card_without_a_rate_states_the_reason() {
    let mut run = paces(&[]);
    let of = |engine: &'static str| move |trial: &TrialData| trial.parameters["engine"] == engine;
    run.trials.retain(of("packet-ring"));
    let card = verdict_cards(&run, "n1").remove(0);
    assert!(card.text.starts_with("cannot tell (packet-ring: 10Mbit/s: "), "{}", card.text);
    assert!(!card.is_decided() && card.engines.is_empty(), "{card:?}");
    let mut run = paces(&["matrix.flows=[0]"]);
    let (sleep, ring) = (of("sleep"), of("packet-ring"));
    let small = |trial: &TrialData| trial.parameters["size"] == "200B";
    run.trials.retain(|trial| sleep(trial) && small(trial) || ring(trial));
    let card = verdict_cards(&run, "n1").remove(0);
    assert!(
        card.text.starts_with("cannot tell (packet-ring: "),
        "not the first row: {}",
        card.text
    );
    assert!(!card.is_decided(), "another engine may keep a rate: {card:?}");
    let mut run = paces(&[]);
    run.trials.retain(of("xsk"));
    let card = verdict_cards(&run, "n1").remove(0);
    assert!(card.text.starts_with("no engine was run (xsk: "), "{}", card.text);
    assert_eq!((card.all_sizes_bps, card.trials), (None, 0));
    let mut run = paces(&["matrix.flows=[0]"]);
    let sleep = of("sleep");
    run.trials.retain(|trial| sleep(trial) && trial.parameters["size"] == "200B");
    let card = verdict_cards(&run, "n1").remove(0);
    assert!(card.text.starts_with("keeps none of the tested rates (sleep: "), "{}", card.text);
    assert_eq!((card.all_sizes_bps, card.large_packets_bps), (Some(0), Some(0)));
    assert!(card.is_decided());
}

#[test]
fn tolerance_comes_from_plan_or_command_line() {
    let mut run = paces(&["accurate.gap=1%", "accurate.trains=15"]);
    assert_eq!(largest_mbps(&run, "spin")[0], Some(10), "one hundredth of the gap is too strict");
    let line = verdict_words(&run).pop().unwrap();
    assert!(line.contains("at least 15 trains") && line.contains("below 1 %"), "{line}");
    run.accurate = Some("gap 90%, rate 50%".parse().unwrap());
    assert_eq!(largest_mbps(&run, "spin")[0], Some(1_000));
    let line = verdict_words(&run).pop().unwrap();
    assert!(line.contains("at least 15 trains") && line.contains("below 90 %"), "{line}");
    run.accurate = Some("trains 61".parse().unwrap());
    assert_eq!(largest_mbps(&run, "spin"), [None; 4], "60 trains are too few");
}

#[test]
fn missing_rate_is_undecided_repetitions_are_merged() {
    let mut run = paces(&[]);
    let slow = |trial: &&mut dwell_report::model::TrialData| {
        let is = |name: &str, value: &str| trial.parameters[name] == value;
        is("engine", "spin") && is("rate", "10Mbit/s") && is("size", "200B") && is("flows", "0")
    };
    for trial in run.trials.iter_mut().filter(slow) {
        trial.state = TrialState::Failed;
        trial.summary = None;
    }
    assert_eq!(largest_mbps(&run, "spin"), [None, Some(1_000), Some(10), Some(100)]);
    // Two repetitions of ten trains are twenty trains.
    let halves = paces(&["pace.repeat=10", "trials.repetitions=2"]);
    assert_eq!(largest_mbps(&halves, "spin"), [100, 1_000, 10, 100].map(Some));
    let once = paces(&["pace.repeat=10", "trials.repetitions=1"]);
    assert_eq!(largest_mbps(&once, "spin"), [None; 4]);
}

#[test]
fn frame_and_ip_size_are_separate_senders() {
    let both = paces(&["matrix.size=[\"1500B\", \"frame:1514B\"]"]);
    let spin: Vec<_> =
        verdicts(&both).into_iter().filter(|verdict| verdict.engine == "spin").collect();
    let senders: Vec<_> = spin
        .iter()
        .map(|verdict| {
            (verdict.ip_size, verdict.flows, verdict.parameters["size counted as"].as_str())
        })
        .collect();
    assert_eq!(
        senders,
        [(1_500, 0, "frame"), (1_500, 25, "frame"), (1_500, 0, "ip"), (1_500, 25, "ip")]
    );
    assert!(spin.iter().all(|verdict| verdict.largest_rate_bps.is_some()));
    // The plan distinguishes the senders of unsupported engines.
    let uring = verdicts(&both).into_iter().filter(|verdict| verdict.engine == "uring");
    assert_eq!(uring.count(), 4);
    // Sizes given in one way need no distinction.
    assert!(verdicts(&paces(&[])).iter().all(|verdict| verdict.parameters.is_empty()));
}

#[test]
fn other_parameters_separate_verdicts() {
    let several = paces(&["matrix.\"topology.link.rate\"=[\"50Mbit/s\", \"none\"]"]);
    let all = verdicts(&several);
    let links: Vec<&str> =
        all.iter().map(|verdict| verdict.parameters["topology.link.rate"].as_str()).collect();
    assert_eq!(links.iter().filter(|link| **link == "50Mbit/s").count() * 2, all.len());
    assert_eq!(verdict_words(&several).iter().filter(|line| line.contains("best is")).count(), 2);
    let (one, other) = (paces(&[]), paces(&["pace.from=n2", "pace.to=n1"]));
    let table = rates_of_runs(&[one, other]).unwrap();
    assert!(table.columns[3].contains("(n1)") && table.columns[4].contains("(n2)"));
    let spin: Vec<_> = table.rows.iter().filter(|row| row[0] == "spin").collect();
    assert_eq!(spin.len(), 4);
    assert_eq!(spin[0][1..], ["200B", "0", "100Mbit/s", "100Mbit/s"].map(str::to_owned));
    assert!(rates_of_runs(&[synthetic::loads(), paces(&[])]).is_none());
}

#[test]
fn report_has_published_boards_and_no_delay() {
    let run = paces(&[]);
    let table = verdict_table(&run);
    assert_eq!(table.rows.len(), 5 * 2 * 2 + 4 + 8, "one row per unsupported engine");
    let liva: Vec<_> = table.rows.iter().filter(|row| row[0] == "ECS LIVA").collect();
    assert_eq!([&liva[0][4], &liva[1][4]], ["50Mbit/s", "100Mbit/s"]);
    let all = findings(&run);
    assert!(all.iter().all(|finding| finding.id != "delay" && !finding.id.starts_with("effect")));
    let cross = all.iter().find(|finding| finding.id == "cross").unwrap();
    assert!(cross.text.contains("25 flows reached at least 97 %"), "{}", cross.text);
    assert_eq!(main_metric(&run), Some("gap_error_ns"));
    // Warnings of one node that differ only in numbers are merged.
    let mut warned = run.clone();
    for (n, trial) in warned.trials.iter_mut().enumerate() {
        if let Some(summary) = &mut trial.summary {
            let holes = TrustWarning::from(Warning::TrainHoles(n as u64 + 1));
            summary.trust.warn(holes.about(&format!("n{}", n % 2)));
        }
    }
    let warnings = dwell_report::warnings(&warned);
    let holes: Vec<_> = warnings.iter().filter(|it| it.code == "train-holes").collect();
    let mut nodes: Vec<_> = holes.iter().map(|it| &it.text[..4]).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["n0: ", "n1: "]);
    assert!(holes.iter().all(|it| it.varies && it.trials[0] > 1), "{holes:?}");
    assert!(dwell_report::page(&warned).contains(", numbers vary)"));
    let page = page(&run);
    assert!(page.contains("Largest accurate rate per sender"));
    assert!(page.contains("best is spin: measures 1 Gbit/s"));
    // Other kinds of runs have no verdicts.
    let other = synthetic::loads();
    assert!(verdicts(&other).is_empty() && verdict_words(&other).is_empty());
    assert!(verdict_table(&other).rows.is_empty());
}

#[test]
fn loss_covers_only_trials_with_receive_counts() {
    let mut run = paces(&[]);
    let lost = |run: &RunData| findings(run).into_iter().find(|finding| finding.id == "loss");
    let said = lost(&run).unwrap().text;
    assert!(said.ends_with(" was lost or late."), "{said}");
    assert!(page(&run).contains("the sink discards arrivals."), "no trial used the sink");
    let mut totals = (0, 0, 0);
    for trial in &mut run.trials {
        let Some(summary) = &mut trial.summary else { continue };
        let asked = summary.engine == "spin";
        summary.parameters.insert("sink".to_owned(), asked.into());
        summary.trust.planned = summary.packets.map(|packets| packets.sent);
        totals.0 += u64::from(asked);
        totals.1 += 1;
        match asked {
            true => totals.2 += summary.packets.unwrap().sent,
            false => summary.packets = None,
        }
    }
    let (some, all, sent) = totals;
    let said = lost(&run).unwrap().text;
    assert!(said.contains(&format!("lost or late in {some} of {all} trials")), "{said}");
    let html = page(&run);
    let digits = |n: u64| {
        let text = n.to_string();
        if n < 1_000 {
            text
        } else {
            format!("{},{}", &text[..text.len() - 3], &text[text.len() - 3..])
        }
    };
    let said = format!(
        "{0} planned, {0} sent and {0} received (in the {some} of {all} trials with receive counts)",
        digits(sent)
    );
    assert!(html.contains(&said), "{said}");
    assert!(html.contains("<dt>Dropped by the sender</dt><dd>unknown"));
    assert!(
        html.contains("the sink timestamps arrivals of senders without timestamps of their own")
    );
}
