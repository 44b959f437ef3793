//! Claims of Mok 2015 about senders.

#[path = "synthetic/paced.rs"]
mod paced;
#[expect(dead_code, reason = "other test programs use the rest")]
mod synthetic;

use dwell_documents::judge_claims;
use dwell_record::{Figures, Scalar};
use dwell_report::model::{Claim, ClaimVerdict, RunData};
use paced::paces;

fn claim(run: &RunData, id: &str) -> Claim {
    let claims = judge_claims(run, "mok-2015").unwrap().claims;
    claims.into_iter().find(|claim| claim.id == id).unwrap()
}

#[test]
fn verdicts_on_a_sender_are_judged_beside_the_boards() {
    let run = paces(&[]);
    let large = claim(&run, "S2.8-large-packets");
    // Its spin engine keeps every rate of the plan.
    assert_eq!(large.verdict, ClaimVerdict::Pass, "{large:?}");
    assert!(large.value.unwrap() >= 100e6, "{large:?}");
    let top = claim(&run, "S2.8-top-rate");
    assert!(top.value.unwrap() > 0.9 && top.published == Some(0.76), "{top:?}");
    let small = claim(&run, "S2.8-small-packets");
    assert_ne!(small.verdict, ClaimVerdict::NotRun, "{small:?}");
}

#[test]
fn cross_traffic_that_slows_the_sender_is_found() {
    let cross = claim(&paces(&["trials.repetitions=8"]), "S2.8-cross-traffic");
    assert_eq!(cross.verdict, ClaimVerdict::Pass, "{cross:?}");
    assert!(cross.value.unwrap() < 1.0, "{cross:?}");
}

#[test]
fn literal_variability_is_the_mean_gap() {
    let mut run = paces(&[]);
    let unknown = claim(&run, "S2.6-literal");
    assert_eq!(unknown.verdict, ClaimVerdict::CannotTell, "{unknown:?}");
    let mut set = |factor: f64| {
        for (n, trial) in (0..).zip(&mut run.trials) {
            let Some(summary) = &mut trial.summary else { continue };
            let mean = 1e5 + f64::from(n);
            let figures = Figures { count: 100, mean: Some(mean), ..Figures::default() };
            summary.metrics.insert("gap_ns".to_owned(), figures);
            summary.values.insert("j_literal_ns".to_owned(), Some(Scalar::Real(factor * mean)));
        }
        claim(&run, "S2.6-literal")
    };
    let equal = set(1.0);
    assert_eq!(equal.verdict, ClaimVerdict::Pass, "{equal:?}");
    let other = set(1.5);
    assert_eq!(other.verdict, ClaimVerdict::Fail, "{other:?}");
}

#[test]
fn run_without_trains_judges_nothing() {
    let run = synthetic::loads();
    let claims = judge_claims(&run, "mok-2015").unwrap().claims;
    assert!(claims.iter().all(|claim| claim.verdict == ClaimVerdict::NotRun), "{claims:?}");
}
