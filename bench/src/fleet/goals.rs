//! Goals of a fleet.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Part;
use super::agents::Agents;
use super::backlog::Backlog;
use super::footprint::Footprint;
use super::pages::{Page, Pages, p95};
use crate::judge::{Bound, Estimate, Judged, Outcome, Unit, paired};

/// All measurements. A part that failed or was not wanted is `None`.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Measured {
    pub(super) agents: Option<Agents>,
    pub(super) backlog: Option<Backlog>,
    pub(super) footprint: Option<Footprint>,
    pub(super) pages: Option<Pages>,
    /// Why parts were not measured.
    pub(super) failures: BTreeMap<Part, Failure>,
}

/// Why a part was not measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Failure {
    pub(super) reason: String,
    /// Whether this machine cannot measure it.
    pub(super) is_unavailable: bool,
}

/// Judges the goals of a part.
pub(super) fn judge(measured: &Measured, part: Part) -> Vec<Judged> {
    let judged = match part {
        Part::Agents => agents(measured.agents.as_ref()),
        Part::Backlog => backlog(measured.backlog.as_ref()),
        Part::Footprint => footprint(measured.footprint.as_ref()),
        Part::Pages => pages(measured.pages.as_ref()),
    };
    let Some(failure) = measured.failures.get(&part) else { return judged };
    let explain = |row: Judged| {
        if failure.is_unavailable {
            Judged::unavailable(row.goal, row.bound, row.unit, failure.reason.clone())
        } else {
            row.with_note(Some(failure.reason.clone()))
        }
    };
    judged.into_iter().map(explain).collect()
}

fn exact(value: Option<f64>) -> Option<Estimate> {
    value.map(Estimate::exact)
}

fn agents(agents: Option<&Agents>) -> Vec<Judged> {
    let resolutions = [("10s", "10 s"), ("5m", "5 min"), ("1h", "1 h"), ("1d", "1 d")];
    let mut judged = Vec::new();
    for (resolution, text) in resolutions {
        let rows = agents.and_then(|agents| agents.rows.iter().find(|row| row.0 == resolution));
        let differing = rows.map(|(_, compared)| compared.differing as f64);
        let note = rows.map(|(_, compared)| {
            compared.first.clone().unwrap_or_else(|| format!("{} rows", compared.rows))
        });
        let goal = format!("agents: rows of {text} with other counts than the generators");
        judged.push(
            Judged::new(goal, exact(differing), Bound::AtMost(0.0), Unit::Count).with_note(note),
        );
    }
    let lost = agents.map(|agents| (agents.without_receipt + agents.refused) as f64);
    let note = agents.map(|agents| format!("{} messages", agents.messages));
    judged.push(
        Judged::new(
            "agents: messages refused or without a receipt",
            exact(lost),
            Bound::AtMost(0.0),
            Unit::Count,
        )
        .with_note(note),
    );
    let p99_ms = agents.and_then(|agents| agents.p99_ms);
    let note = agents.and_then(|agents| {
        let (p50, long, max) = (agents.p50_ms?, agents.long_p99_ms, agents.max_ms?);
        let long = long.map_or(String::new(), |ms| format!(", p99 with 5 min records {ms:.0} ms"));
        Some(format!("p50 {p50:.0} ms{long}, maximum {max:.0} ms"))
    });
    judged.push(
        Judged::new(
            "agents: publish to receipt, p99",
            exact(p99_ms),
            Bound::AtMost(1_000.0),
            Unit::Ms,
        )
        .with_note(note),
    );
    judged.push(Judged::new(
        "agents: peak memory of the hub",
        exact(agents.map(|agents| agents.hub_mb)),
        Bound::AtMost(100.0),
        Unit::Mb,
    ));
    judged
}

fn backlog(backlog: Option<&Backlog>) -> Vec<Judged> {
    let turns = backlog.map(|backlog| backlog.turns.as_slice()).unwrap_or_default();
    let ratio = paired::ratio(turns.iter().map(|turn| (turn.hub, turn.bare)));
    let centre = |of: fn(&super::backlog::Turn) -> f64| {
        paired::location(&turns.iter().map(of).collect::<Vec<_>>()).map(|found| found.value)
    };
    let note = centre(|turn| turn.hub).zip(centre(|turn| turn.bare));
    let note = note.map(|(hub, bare)| format!("{hub:.0} and {bare:.0} messages/s"));
    let goal = "backlog: messages/s, hub / bare consumer";
    vec![Judged::new(goal, ratio, Bound::AtLeast(0.5), Unit::Ratio).with_note(note)]
}

fn footprint(footprint: Option<&Footprint>) -> Vec<Judged> {
    let memory = |goal: &str, mb: Option<f64>, limit: f64| {
        Judged::new(goal, exact(mb), Bound::AtMost(limit), Unit::Mb)
    };
    let note = footprint.map(|footprint| {
        let is_small = footprint.agent.components().any(|part| part.as_os_str() == "nodes");
        match is_small {
            true => "program of make nodes".to_owned(),
            false => "release build; make nodes builds the smaller one".to_owned(),
        }
    });
    let turns = footprint.map(|footprint| footprint.turns.as_slice()).unwrap_or_default();
    let ratio = paired::ratio(turns.iter().map(|turn| (turn.draining_us, turn.alone_us)));
    vec![
        memory("node: peak memory of the agent", footprint.map(|of| of.agent_mb), 4.0)
            .with_note(note),
        memory("node: peak memory of its uplink", footprint.map(|of| of.uplink_mb), 8.0),
        memory(
            "node: peak memory of an uplink that drains",
            footprint.map(|of| of.draining_uplink_mb),
            8.0,
        )
        .with_note(footprint.map(|of| format!("a spool of {:.0} MB", of.spool_mb))),
        undisturbed(ratio),
    ]
}

/// The goal is reached if the lower bound of the ratio's interval is at most 1: no increase is shown.
fn undisturbed(ratio: Option<Estimate>) -> Judged {
    let goal = "node: p99 of the schedule error, an uplink drains / none";
    let judged = Judged::new(goal, ratio, Bound::AtMost(1.0), Unit::Ratio);
    let outcome = match ratio.and_then(|ratio| ratio.low) {
        Some(low) if low <= 1.0 => Outcome::Reached,
        _ => judged.outcome,
    };
    let note = Some("reached if the lower bound is at most 1".to_owned());
    Judged { outcome, ..judged }.with_note(note)
}

fn pages(pages: Option<&Pages>) -> Vec<Judged> {
    type Of = fn(&super::pages::StorePages) -> &Page;
    let of: [(&str, Of, f64); 4] = [
        ("/mesh, last hour", |store| &store.mesh_hour, 300.0),
        ("/mesh, last 24 h", |store| &store.mesh_day, 300.0),
        ("pair over 90 days", |store| &store.pair, 200.0),
        ("figures of the pair over 90 days", |store| &store.pair_figures, 200.0),
    ];
    let (nodes, days) = pages.map_or((0, 0), |pages| (pages.nodes, pages.days));
    let mut judged = Vec::new();
    for name in ["SQLite", "PostgreSQL"] {
        let store = pages.and_then(|pages| pages.stores.iter().find(|store| store.store == name));
        for (page, get, limit_ms) in &of {
            let page_of = store.map(get);
            let estimate = page_of.and_then(|page| paired::location(&page.ms));
            let note = page_of.and_then(|page| {
                let kilobytes = page.bytes as f64 / 1e3;
                let (p95, n) = (p95(&page.ms)?, page.ms.len());
                Some(format!(
                    "p95 {p95:.0} ms of {n}, {kilobytes:.0} kB, {nodes} nodes, {days} days"
                ))
            });
            judged.push(
                Judged::new(
                    format!("{name}: {page}"),
                    estimate,
                    Bound::AtMost(*limit_ms),
                    Unit::Ms,
                )
                .with_note(note),
            );
        }
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::expected::Comparison;

    #[test]
    fn goals_are_documented() {
        let judged: Vec<Judged> =
            Part::ALL.iter().flat_map(|part| judge(&Measured::default(), *part)).collect();
        crate::judge::assert_documented(judged.iter().map(|row| &*row.goal));
        assert!(judged.iter().all(|row| row.outcome == Outcome::Missed), "nothing was measured");
    }

    #[test]
    fn wrong_count_misses_its_goal_only() {
        let compared = |differing| Comparison { rows: 9, differing, first: None };
        let rows = vec![
            ("10s", compared(0)),
            ("5m", compared(1)),
            ("1h", compared(0)),
            ("1d", compared(0)),
        ];
        let agents = Agents { rows, p99_ms: Some(12.0), ..Agents::default() };
        let measured = Measured { agents: Some(agents), ..Measured::default() };
        let missed: Vec<_> = judge(&measured, Part::Agents)
            .into_iter()
            .filter(|row| row.outcome == Outcome::Missed)
            .map(|row| row.goal)
            .collect();
        assert_eq!(missed, ["agents: rows of 5 min with other counts than the generators"]);
    }

    #[test]
    fn disturbance_is_missed_only_above_one() {
        let outcome = |low: f64, high: f64| {
            let value = f64::midpoint(low, high);
            undisturbed(Some(Estimate { value, low: Some(low), high: Some(high) })).outcome
        };
        assert_eq!(outcome(0.9, 1.3), Outcome::Reached);
        assert_eq!(outcome(0.5, 0.7), Outcome::Reached);
        assert_eq!(outcome(1.1, 1.3), Outcome::Missed);
        let few = Estimate { value: 1.0, low: None, high: None };
        assert_eq!(undisturbed(Some(few)).outcome, Outcome::CannotTell);
    }

    #[test]
    fn unavailable_part_is_not_missed() {
        let failure = Failure { reason: "no nats-server".to_owned(), is_unavailable: true };
        let measured =
            Measured { failures: [(Part::Backlog, failure)].into(), ..Measured::default() };
        let judged = judge(&measured, Part::Backlog);
        assert_eq!(judged[0].outcome, Outcome::Unavailable);
    }
}
