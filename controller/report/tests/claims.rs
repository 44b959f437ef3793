//! What S0 published, held against relays that behave as its board did, and against others.

mod synthetic;

use dwell_report::data::RunData;
use dwell_report::{Claim, ClaimVerdict, claims};
use synthetic::{PI_ZERO, Relay, relays};

fn verdict(run: &RunData, id: &str) -> Claim {
    let found = claims(run).into_iter().find(|claim| claim.id == id);
    found.unwrap_or_else(|| panic!("no claim {id}"))
}

fn is(run: &RunData, wanted: &[(&str, ClaimVerdict)]) {
    for (id, verdict) in wanted {
        let claim = self::verdict(run, id);
        assert_eq!(claim.verdict, *verdict, "{id}: {claim:?}");
    }
}

#[test]
fn a_board_like_that_of_s0_shows_what_s0_found() {
    use ClaimVerdict::{CannotTell, Fail, Pass};
    let run = relays(PI_ZERO);
    is(
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
            ("S0.27", CannotTell),
        ],
    );
    let ratio = self::verdict(&run, "S0.18").value.unwrap();
    assert!((17.0..18.5).contains(&ratio), "{ratio}");
    let more = self::verdict(&run, "S0.23").value.unwrap();
    assert!((490e3..510e3).contains(&more), "{more}");
}

#[test]
fn a_fast_machine_fails_what_only_a_slow_one_shows_and_says_why() {
    use ClaimVerdict::{Fail, Pass};
    let pc = Relay { route_ns: 3e3, program_ns: 12e3, per_byte_ns: 0.9, loss: 0.0, stress: 2.0 };
    let run = relays(pc);
    is(
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
    assert!(verdict(&run, "S0.25").text.contains("keeps up"));
}

#[test]
fn bare_links_say_nothing_of_nlr_and_a_mode_that_is_missing_was_not_run() {
    let whole = relays(PI_ZERO);
    let bare = whole.only("topology.link.rate", "none");
    is(
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
    let mut none = relays(PI_ZERO);
    none.claims = None;
    assert!(claims(&none).is_empty());
}

#[test]
fn without_a_rung_in_common_modes_are_not_compared() {
    let mut run = relays(PI_ZERO);
    for trial in &mut run.trials {
        trial.series.remove("node_delay_netfilter_ns");
    }
    let claim = verdict(&run, "S0.18");
    assert_eq!((claim.verdict, claim.value), (ClaimVerdict::CannotTell, None), "{claim:?}");
    assert!(claim.text.contains("tracing needs root"));
}

#[test]
fn every_claim_of_s0_is_there_once() {
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
