//! Goals for reflectors: ratios of both contestants' figures in each round.

use std::collections::BTreeMap;

use serde::Serialize;

use super::arena::Flood;
use super::program::Times;
use crate::judge::{Bound, Estimate, Judged, Outcome, Unit, paired};
use crate::rtt::RoundTrip;

/// Title, contestant, peer, figure and maximum ratio.
type RoundTripGoal = (&'static str, &'static str, &'static str, fn(&RoundTrip) -> f64, f64);

/// Goals on round trips.
const ROUND_TRIPS: [RoundTripGoal; 4] = [
    ("p50, 64 B, busy: dwell xdp / sockperf", "dwell xdp", "sockperf busy", |trip| trip.p50, 0.4),
    (
        "p50, 64 B, busy: dwell xdp / the kernel's ICMP echo",
        "dwell xdp, by dwell ping",
        "kernel ICMP, by dwell ping",
        |trip| trip.p50,
        0.75,
    ),
    ("p50, 64 B, busy: dwell xdp / minimal C xdp", "dwell xdp", "C xdp", |trip| trip.p50, 1.05),
    (
        "p99 beside stress-ng: dwell xdp / dwell socket",
        "dwell xdp beside a load",
        "dwell socket beside a load",
        |trip| trip.p99,
        0.1,
    ),
];

/// Title of a kind of goal, its goals, and their figure.
type CapacityKind = (&'static str, &'static [Peers], fn(&Capacity) -> f64);

/// Contestant, peer and minimum ratio.
type Peers = (&'static str, &'static str, f64);

/// Goals on capacity. Those of the socket engine, the first two, hold at overload too.
const CAPACITIES: [Peers; 3] =
    [("dwell udp", "C", 0.95), ("dwell stamp", "C", 0.95), ("dwell xdp", "sockperf", 3.0)];

/// Maximum time that the program takes for a malformed frame, beyond that for a frame that passes at
/// the first check, in nanoseconds.
const MALFORMED_LIMIT: f64 = 50.0;

/// Maximum share by which the mean service time of a simulated node differs from the one that was set.
const MAX_SERVICE_DEVIATION: f64 = 0.01;

/// Name of the program in [`Measured::unavailable`].
pub(super) const PROGRAM: &str = "XDP program";

/// Requests and replies per second of one contestant in one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Capacity {
    /// Highest rate with at most 0.1 % loss.
    pub(super) lossless: f64,
    /// Replies per second while requests come as fast as the generator can send them.
    pub(super) overload: f64,
    /// Even the fastest flood had no loss: the contestant may be faster.
    pub(super) is_generator_limited: bool,
}

impl Capacity {
    /// A contestant without loss at the highest rate of the generator.
    pub(super) fn of_generator(flood: &Flood) -> Self {
        Self { lossless: flood.rate, overload: flood.answered, is_generator_limited: true }
    }
}

/// All measurements by contestant, one entry per round.
#[derive(Debug, Default, Serialize)]
pub(super) struct Measured {
    pub(super) round_trips: BTreeMap<&'static str, Vec<RoundTrip>>,
    pub(super) capacities: BTreeMap<&'static str, Vec<Capacity>>,
    /// Times of the program for one frame.
    pub(super) program: Vec<Times>,
    /// Shares by which the mean service time of a simulated node differs from the one that was set.
    pub(super) node_sim: Vec<f64>,
    /// Contestants that cannot run here, with the reason.
    pub(super) unavailable: BTreeMap<&'static str, String>,
}

/// Judges the goals on round trips.
pub(super) fn judge_round_trips(measured: &Measured) -> Vec<Judged> {
    let mut judged = Vec::new();
    for (title, of, than, figure, limit) in ROUND_TRIPS {
        let bound = Bound::AtMost(limit);
        judged.push(reason(measured, of, than).map_or_else(
            || {
                let rounds = |name: &str| figures(measured.round_trips.get(name), figure);
                Judged::new(title, ratio(&rounds(of), &rounds(than)), bound, Unit::Ratio)
            },
            |reason| Judged::unavailable(title, bound, Unit::Ratio, reason),
        ));
    }
    judged
}

/// Judges the goal on the program alone.
pub(super) fn judge_program(measured: &Measured) -> Judged {
    let title = "malformed frame - frame that passes at the first check";
    let bound = Bound::AtMost(MALFORMED_LIMIT);
    match measured.unavailable.get(PROGRAM) {
        Some(reason) => Judged::unavailable(title, bound, Unit::Ns, reason),
        None => {
            let rounds = measured.program.iter().map(|times| (times.malformed, times.passed));
            Judged::new(title, paired::difference(rounds), bound, Unit::Ns)
        }
    }
}

/// Judges the goal on a simulated node.
pub(super) fn judge_node_sim(measured: &Measured) -> Judged {
    let title = "node-sim, 64 clients: mean service time / set time - 1";
    let estimate = paired::location(&measured.node_sim);
    Judged::new(title, estimate, Bound::AtMost(MAX_SERVICE_DEVIATION), Unit::Ratio)
}

/// Judges the goals on capacity.
pub(super) fn judge_capacities(measured: &Measured) -> Vec<Judged> {
    let mut judged = Vec::new();
    let kinds: [CapacityKind; 2] = [
        ("capacity at 0.1 % loss", &CAPACITIES, |capacity| capacity.lossless),
        ("answered at overload", &CAPACITIES[..2], |capacity| capacity.overload),
    ];
    for (kind, peers, figure) in kinds {
        for (of, than, limit) in peers {
            let (title, bound) = (format!("{kind}: {of} / {than}"), Bound::AtLeast(*limit));
            judged.push(match reason(measured, of, than) {
                Some(reason) => Judged::unavailable(title, bound, Unit::Ratio, reason),
                None => judge_capacity(measured, title, (of, than), figure, bound),
            });
        }
    }
    judged
}

/// Judges a capacity. A contestant that the generator cannot overload has no known capacity, only a
/// lower limit of it, so it cannot miss a goal.
fn judge_capacity(
    measured: &Measured,
    title: String,
    (of, than): (&str, &str),
    figure: fn(&Capacity) -> f64,
    bound: Bound,
) -> Judged {
    let rounds = |name: &str| figures(measured.capacities.get(name), figure);
    let estimate = ratio(&rounds(of), &rounds(than));
    let judged = Judged::new(title, estimate, bound, Unit::Ratio);
    if !measured.capacities.get(of).is_some_and(|rounds| are_generator_limited(rounds)) {
        return judged;
    }
    let note = "at least; limited by the generator";
    let is_reached = judged.outcome == Outcome::Reached;
    let outcome = if is_reached { judged.outcome } else { Outcome::Unavailable };
    Judged { outcome, note: Some(note.to_owned()), ..judged }
}

/// Whether the generator limited most rounds. A single one may be limited because the machine held the
/// generator up.
pub(super) fn are_generator_limited(rounds: &[Capacity]) -> bool {
    2 * rounds.iter().filter(|round| round.is_generator_limited).count() > rounds.len()
}

/// Why a comparison is impossible.
fn reason(measured: &Measured, of: &str, than: &str) -> Option<String> {
    [of, than].iter().find_map(|name| measured.unavailable.get(name)).cloned()
}

fn figures<T>(rounds: Option<&Vec<T>>, figure: fn(&T) -> f64) -> Vec<f64> {
    rounds.map(|rounds| rounds.iter().map(figure).collect()).unwrap_or_default()
}

fn ratio(of: &[f64], than: &[f64]) -> Option<Estimate> {
    paired::ratio(of.iter().copied().zip(than.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::super::contestant::{FLOODED, TIMED};
    use super::*;

    #[test]
    fn every_goal_compares_contestants_that_exist() {
        for (_, of, than, ..) in ROUND_TRIPS {
            assert!(
                [of, than].iter().all(|name| TIMED.iter().any(|one| one.name == *name)),
                "{of}"
            );
        }
        for (of, than, _) in CAPACITIES {
            assert!([of, than].iter().all(|name| FLOODED.iter().any(|c| c.name == *name)), "{of}");
        }
    }

    fn outcome_of(measured: &Measured, title: &str) -> Outcome {
        judge_capacities(measured).iter().find(|row| row.goal == title).unwrap().outcome
    }

    #[test]
    fn goals_are_documented() {
        let measured = Measured::default();
        let program = vec![judge_program(&measured), judge_node_sim(&measured)];
        let judged = [judge_round_trips(&measured), judge_capacities(&measured), program].concat();
        crate::judge::assert_documented(judged.iter().map(|row| &*row.goal));
    }

    #[test]
    fn generator_limit_never_misses_a_capacity_goal() {
        let mut measured = Measured::default();
        let rounds = |lossless, is_generator_limited| {
            vec![Capacity { lossless, overload: lossless, is_generator_limited }; 6]
        };
        let title = "capacity at 0.1 % loss: dwell xdp / sockperf";
        measured.capacities.insert("sockperf", rounds(400e3, false));
        for (xdp, limited, expected) in [
            (1.1e6, false, Outcome::Missed),
            (1.1e6, true, Outcome::Unavailable),
            (1.3e6, true, Outcome::Reached),
        ] {
            measured.capacities.insert("dwell xdp", rounds(xdp, limited));
            assert_eq!(outcome_of(&measured, title), expected);
        }
    }

    #[test]
    fn malformed_frame_is_judged_by_its_extra_time() {
        let times = |malformed| Times {
            malformed,
            passed: 20.0,
            bad_checksum: 130.0,
            bad_checksum_longest: 500.0,
        };
        let rounds = |malformed| vec![times(malformed); 6];
        for (malformed, expected) in [(69.0, Outcome::Reached), (71.0, Outcome::Missed)] {
            let measured = Measured { program: rounds(malformed), ..Measured::default() };
            assert_eq!(judge_program(&measured).outcome, expected);
        }
    }

    #[test]
    fn simulated_node_is_judged_by_its_mean_service_time() {
        for (deviation, expected) in [(0.004, Outcome::Reached), (0.02, Outcome::Missed)] {
            let measured = Measured { node_sim: vec![deviation; 6], ..Measured::default() };
            assert_eq!(judge_node_sim(&measured).outcome, expected);
        }
    }

    #[test]
    fn missing_engine_makes_its_goals_unavailable() {
        let mut measured = Measured::default();
        measured.unavailable.insert("dwell xdp", "no engine 'xdp'".to_owned());
        let rows = [judge_round_trips(&measured), judge_capacities(&measured)].concat();
        let unavailable = rows.iter().filter(|row| row.outcome == Outcome::Unavailable);
        assert!(unavailable.clone().all(|row| row.note.as_deref() == Some("no engine 'xdp'")));
        assert_eq!(unavailable.count(), 3);
    }
}
