//! NLR: which trials have one, and that all parts of a page agree on it.

#[expect(dead_code, reason = "other test programs use the rest")]
mod synthetic;

use dwell_documents::judge_claims;
use dwell_report::model::{Claim, ClaimVerdict, RunData, TrialData};
use dwell_report::{figures, findings};
use synthetic::{PI_ZERO, relays, relays_repeated};

fn claims(run: &RunData) -> Vec<Claim> {
    judge_claims(run, "miya-2020").unwrap().claims
}

fn verdict(run: &RunData, id: &str) -> Claim {
    let found = claims(run).into_iter().find(|claim| claim.id == id);
    found.unwrap_or_else(|| panic!("no claim {id}"))
}

/// Text of the NLR finding.
fn nlr(run: &RunData) -> String {
    findings(run).into_iter().find(|finding| finding.id == "nlr").unwrap().text
}

#[test]
fn nlr_ignores_trials_under_load() {
    let quiet = relays_repeated(PI_ZERO, 2);
    let mut run = quiet.clone();
    for made in run.trials.iter_mut().filter(|trial| trial.parameters["load"] != "none") {
        links_times(made, 20.0);
    }
    for id in ["S0.19-route", "S0.19-translate", "S0.20"] {
        let [found, without] = [&run, &quiet].map(|run| verdict(run, id));
        assert_eq!((found.verdict, found.value), (without.verdict, without.value), "{found:?}");
        assert!(found.text().contains("without load"), "{found:?}");
    }
    // 2 x 1442 B at 65 Mbit/s, for the only size above 1,200 B.
    let text = verdict(&run, "S0.20").text();
    assert!(text.contains("transmission alone 355 us."), "{text}");
    run.trials.retain(|trial| trial.parameters["load"] != "none");
    let claim = verdict(&run, "S0.19-route");
    assert_eq!((claim.verdict, claim.value), (ClaimVerdict::CannotTell, None), "{claim:?}");
    assert!(claim.text().contains("was under load"), "{claim:?}");
}

#[test]
fn size_with_slow_links_has_no_nlr() {
    let whole = relays_repeated(PI_ZERO, 2);
    let mut run = whole.clone();
    for made in run.trials.iter_mut().filter(|trial| trial.parameters["size"] == "100B") {
        links_times(made, 4.0);
    }
    let mut other_sizes = whole.clone();
    other_sizes.trials.retain(|trial| trial.parameters["size"] != "100B");
    let [found, without] = [&run, &other_sizes].map(|run| verdict(run, "S0.19-translate"));
    assert_eq!(found.value, without.value, "{found:?}");
    for text in [found.text(), nlr(&run)] {
        assert!(text.contains("No NLR for 100 B (3.6"), "{text}");
    }
    assert!(!nlr(&whole).contains("No NLR for"), "{}", nlr(&whole));
    run.trials.iter_mut().for_each(|made| links_times(made, 4.0));
    let claim = verdict(&run, "S0.19-translate");
    assert_eq!((claim.verdict, claim.value), (ClaimVerdict::CannotTell, None), "{claim:?}");
    assert!(claim.text().contains("No NLR for 100 B"), "{claim:?}");
}

#[test]
fn findings_and_claims_agree_on_nlr() {
    let run = relays_repeated(PI_ZERO, 2);
    let claim = verdict(&run, "S0.19-translate").value.unwrap() * 100.0;
    let text = nlr(&run);
    let percent: f64 = {
        let (before, _) = text.split_once(" % at translate").unwrap();
        before.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!((percent / claim - 1.0).abs() < 0.006, "{percent} against {claim}");
    assert!(text.contains("95th"), "{text}");
}

#[test]
fn nlr_finding_names_node_delay_metrics() {
    let said = nlr(&relays(PI_ZERO));
    let metric_names =
        "node delay between netfilter's hooks (route) and node delay (translate and encrypt)";
    assert!(said.contains(metric_names), "{said}");
}

#[test]
fn figure_omits_invalid_nlr_and_shows_transmission() {
    let mut run = relays(PI_ZERO);
    for made in run.trials.iter_mut().filter(|trial| trial.parameters["size"] == "100B") {
        links_times(made, 4.0);
    }
    let all = figures(&run);
    let figure = all.iter().find(|figure| figure.id == "end-to-end").unwrap();
    let place = |name: &str| figure.table.columns.iter().position(|it| it.starts_with(name));
    let (nlr, alone) = (place("node over").unwrap(), place("transmission alone").unwrap());
    for row in &figure.table.rows {
        assert_eq!(row[nlr] == "-", row[0].ends_with("100B"), "{row:?}");
        if row[0].ends_with("1400B") {
            assert!(row[alone].starts_with("354.9") || row[alone] == "0.355", "{row:?}");
        }
    }
    assert!(figure.finding.contains("No NLR for 100 B"), "{}", figure.finding);
    assert!(figure.finding.contains(" us), NLR "), "{}", figure.finding);
}

/// Multiplies the link delay of a trial.
fn links_times(trial: &mut TrialData, factor: f64) {
    let scaled = |ns: i64| (ns as f64 * factor) as i64;
    let series = trial.series.get_mut("link_delay_ns").unwrap();
    series.steps.iter_mut().for_each(|step| step.value_ns = scaled(step.value_ns));
    let figures = trial.summary.as_mut().unwrap().metrics.get_mut("link_delay_ns").unwrap();
    (figures.p50, figures.p95) = (figures.p50.map(scaled), figures.p95.map(scaled));
}
