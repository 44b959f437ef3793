//! Goals for dwell's relay: ratios and differences of the figures of each turn.

use std::collections::BTreeMap;

use serde::Serialize;

use super::TRACED_PPS;
use crate::StealBudget;
use crate::judge::{Bound, Estimate, Judged, Unit, median, paired};

/// All measurements by contestant, one entry per round and turn.
#[derive(Debug, Default, Serialize)]
pub(super) struct Measured {
    /// Repetitions of the delay measurements.
    pub(super) patience: StealBudget,
    /// Median round trip without a relay, around each measurement of the contestant, in
    /// nanoseconds.
    pub(super) direct_ns: BTreeMap<&'static str, Vec<f64>>,
    /// Median round trip through the contestant, in nanoseconds.
    pub(super) rtt_ns: BTreeMap<&'static str, Vec<f64>>,
    /// Median time in dwell's relay by its own timestamps, one way, in nanoseconds.
    pub(super) processing_ns: BTreeMap<&'static str, Vec<f64>>,
    /// Packets delivered per second at overload.
    pub(super) delivered: BTreeMap<&'static str, Vec<f64>>,
    /// Highest rate with at most 0.1 % loss, in packets per second.
    pub(super) capacity: BTreeMap<&'static str, Vec<f64>>,
    /// Delivered of 200,000 packets per second, without and with tracing.
    pub(super) untraced: Vec<f64>,
    pub(super) traced: Vec<f64>,
    /// Packets sent per second with tracing.
    pub(super) traced_pps: Vec<f64>,
    /// Tracing events, and lost ones.
    pub(super) events: Vec<u64>,
    pub(super) lost_events: Vec<u64>,
    /// Cost of an event in nanoseconds, of dwell's and of a minimal program.
    pub(super) event_ns: Vec<f64>,
    pub(super) minimal_event_ns: Vec<f64>,
}

/// Parts that can be measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Part {
    /// Delay that relays add to a round trip
    Delay,
    /// Packets that relays deliver
    Flood,
    /// Cost of a tracing event
    Events,
}

impl Measured {
    /// Returns the delay that a contestant adds to the round trip in each turn, in nanoseconds.
    fn added_by_turn(&self, name: &str) -> Vec<f64> {
        let turns = |by: &BTreeMap<&str, Vec<f64>>| by.get(name).cloned().unwrap_or_default();
        let both = turns(&self.rtt_ns).into_iter().zip(turns(&self.direct_ns));
        both.map(|(rtt, direct)| rtt - direct).collect()
    }

    /// Returns the median of that delay over turns.
    pub(super) fn added(&self, name: &str) -> Option<f64> {
        median(&self.added_by_turn(name))
    }
}

/// Judges every goal.
pub(super) fn judge(measured: &Measured) -> Vec<(Part, Judged)> {
    let mut judged = judge_delays(measured);
    judged.extend(judge_floods(measured));
    let event = paired::ratio(turns(&measured.event_ns, &measured.minimal_event_ns));
    judged.push((
        Part::Events,
        Judged::new(
            "an event of tracing: dwell / minimal program",
            event,
            Bound::AtMost(1.1),
            Unit::Ratio,
        ),
    ));
    judged
}

fn judge_delays(measured: &Measured) -> Vec<(Part, Judged)> {
    let added = |of: &str, than: &str| {
        paired::factor(&turns(&measured.added_by_turn(of), &measured.added_by_turn(than)))
    };
    let enciphering = |by: &BTreeMap<&'static str, Vec<f64>>, passes: f64| {
        let rounds = |name: &str| by.get(name).map_or(&[][..], Vec::as_slice);
        let (with, without) = (rounds("dwell busy encrypt, 1400 B"), rounds("dwell busy, 1400 B"));
        Some(paired::difference(turns(with, without))?.map(|more| more / passes / 1e3))
    };
    let at_most = |goal, estimate, limit, unit| {
        (Part::Delay, Judged::new(goal, estimate, Bound::AtMost(limit), unit))
    };
    vec![
        at_most(
            "added delay, 200 pps, 1000 B: dwell blocking / socat",
            added("dwell blocking", "socat"),
            1.0,
            Unit::Ratio,
        ),
        at_most("added delay: dwell busy / socat", added("dwell busy", "socat"), 0.3, Unit::Ratio),
        at_most(
            "added delay: dwell xdp / kernel forwarding",
            added("dwell xdp", "kernel forwarding"),
            1.3,
            Unit::Ratio,
        ),
        // Two passes: enciphered there, deciphered on the way back.
        at_most("enciphering 1400 B, one pass", enciphering(&measured.rtt_ns, 2.0), 1.0, Unit::Us),
        // By the relay's timestamps, which vary less from turn to turn than round trips.
        at_most(
            "the same by the relay's own stamps",
            enciphering(&measured.processing_ns, 1.0),
            1.0,
            Unit::Us,
        ),
    ]
}

fn judge_floods(measured: &Measured) -> Vec<(Part, Judged)> {
    let ratio = |by: &BTreeMap<&'static str, Vec<f64>>, of: &str, than: &str| {
        paired::ratio(turns(by.get(of)?, by.get(than)?))
    };
    let delivered = |of, than| ratio(&measured.delivered, of, than);
    let capacity = |of, than| ratio(&measured.capacity, of, than);
    // Each delivered packet passes two hooks.
    let mut seen = measured.events.iter().zip(&measured.traced);
    let saw_all = !measured.events.is_empty()
        && measured.events.len() == measured.traced.len()
        && seen.all(|(events, delivered)| *events > 0 && *events as f64 >= 2.0 * delivered);
    let lost = saw_all.then(|| measured.lost_events.iter().sum::<u64>() as f64);
    let sent = paired::location(&measured.traced_pps);
    let at_least = |goal, estimate, limit| {
        (Part::Flood, Judged::new(goal, estimate, Bound::AtLeast(limit), Unit::Ratio))
    };
    vec![
        at_least(
            "delivered at overload, 100 B: dwell batch / socat",
            delivered("dwell batch", "socat"),
            2.0,
        ),
        at_least("delivered at overload: dwell batch / C", delivered("dwell batch", "C"), 1.0),
        at_least(
            "delivered at overload: dwell batch encrypt / C encrypt",
            delivered("dwell batch encrypt", "C encrypt"),
            1.0,
        ),
        at_least(
            "delivered at overload, 100 B: dwell batch --no-merge / socat",
            delivered("dwell batch --no-merge", "socat"),
            2.0,
        ),
        at_least(
            "delivered at overload: dwell batch --no-merge / C",
            delivered("dwell batch --no-merge", "C"),
            1.0,
        ),
        at_least(
            "delivered at overload: dwell batch encrypt --no-merge / C encrypt",
            delivered("dwell batch encrypt --no-merge", "C encrypt"),
            1.0,
        ),
        at_least("capacity at 0.1 % loss: dwell batch / C", capacity("dwell batch", "C"), 2.0),
        at_least(
            "capacity at 0.1 % loss: dwell batch --no-merge / C",
            capacity("dwell batch --no-merge", "C"),
            2.0,
        ),
        at_least(
            "200,000 packets/s traced: delivered with / without",
            paired::ratio(turns(&measured.traced, &measured.untraced)),
            0.9,
        ),
        at_least(
            "200,000 packets/s traced: sent / asked",
            sent.map(|sent| sent.map(|pps| pps / TRACED_PPS as f64)),
            0.95,
        ),
        (
            Part::Flood,
            Judged::new(
                "200,000 packets/s traced: events lost",
                lost.map(Estimate::exact),
                Bound::AtMost(0.0),
                Unit::Count,
            ),
        ),
    ]
}

/// Values of both in the same turns.
fn turns(of: &[f64], by: &[f64]) -> Vec<(f64, f64)> {
    of.iter().copied().zip(by.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Outcome;

    fn outcome(measured: &Measured, goal: &str) -> Outcome {
        let found = judge(measured).into_iter().find(|(_, row)| row.goal == goal);
        found.unwrap_or_else(|| panic!("no goal '{goal}'")).1.outcome
    }

    #[test]
    fn nothing_measured_is_a_miss_of_every_goal() {
        assert!(judge(&Measured::default()).iter().all(|(_, row)| row.outcome == Outcome::Missed));
    }

    #[test]
    fn goals_are_documented() {
        let judged = judge(&Measured::default());
        crate::judge::assert_documented(judged.iter().map(|(_, row)| &*row.goal));
    }

    #[test]
    fn added_delay_excludes_direct_path() {
        let mut measured = Measured::default();
        for (name, rtt) in
            [("socat", 240_000.0), ("dwell blocking", 230_000.0), ("dwell busy", 101_000.0)]
        {
            measured.direct_ns.insert(name, vec![40_000.0; 7]);
            measured.rtt_ns.insert(name, vec![rtt; 7]);
        }
        let judged = judge(&measured);
        let value = |n: usize| judged[n].1.estimate.unwrap().value;
        assert!((value(0) - 0.95).abs() < 1e-6 && (value(1) - 0.305).abs() < 1e-6, "{judged:?}");
        assert_eq!(judged[0].1.outcome, Outcome::Reached);
        assert_eq!(judged[1].1.outcome, Outcome::Missed);
    }

    #[test]
    fn merging_does_not_reach_unmerged_goals() {
        let mut measured = Measured::default();
        for (name, delivered) in [
            ("dwell batch", 5e6),
            ("dwell batch --no-merge", 9e5),
            ("dwell batch encrypt", 4e6),
            ("dwell batch encrypt --no-merge", 8e5),
            ("socat", 5e5),
            ("C", 1e6),
            ("C encrypt", 7e5),
        ] {
            measured.delivered.insert(name, vec![delivered; 7]);
        }
        let judged = judge(&measured);
        let at_overload: Vec<_> = judged
            .iter()
            .filter(|(_, row)| row.goal.starts_with("delivered at overload"))
            .map(|(_, row)| (row.goal.contains("--no-merge"), row.outcome == Outcome::Reached))
            .collect();
        let merged = [(false, true); 3];
        assert_eq!(at_overload[..3], merged);
        assert_eq!(at_overload[3..], [(true, false), (true, false), (true, true)]);
    }

    #[test]
    fn incomplete_tracing_misses_goal() {
        let seen = |events| {
            let (traced, lost_events) = (vec![45.0; 2], vec![0; 2]);
            let measured = Measured { events, traced, lost_events, ..Measured::default() };
            outcome(&measured, "200,000 packets/s traced: events lost")
        };
        assert_eq!(seen(vec![100, 0]), Outcome::Missed);
        assert_eq!(seen(vec![100, 89]), Outcome::Missed);
        assert_eq!(seen(vec![100, 90]), Outcome::Reached);
    }

    #[test]
    fn negative_added_delay_misses_goal() {
        let mut measured = Measured::default();
        for (name, rtt) in [("kernel forwarding", 30_000.0), ("dwell xdp", 31_000.0)] {
            measured.direct_ns.insert(name, vec![40_000.0; 7]);
            measured.rtt_ns.insert(name, vec![rtt; 7]);
        }
        let goal = "added delay: dwell xdp / kernel forwarding";
        assert_eq!(outcome(&measured, goal), Outcome::Missed);
    }
}
