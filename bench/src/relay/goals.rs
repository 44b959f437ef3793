//! Goals for dwell's relay and their verdicts: ratios of medians over rounds.

use std::collections::BTreeMap;

use serde::Serialize;

use super::TRACED_PPS;
use crate::StealBudget;

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

/// A judged goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct RelayVerdict {
    pub(super) goal: &'static str,
    pub(super) part: Part,
    /// `None` if it could not be measured, which counts as missed.
    pub(super) value: Option<f64>,
    pub(super) limit: f64,
    /// Whether the limit is a minimum.
    pub(super) at_least: bool,
    pub(super) reached: bool,
}

impl Measured {
    /// Returns the delay that a contestant adds to the round trip, in nanoseconds: the median over
    /// turns.
    pub(super) fn added(&self, name: &str) -> Option<f64> {
        of_pairs(self.rtt_ns.get(name)?, self.direct_ns.get(name)?)
    }
}

/// Judges every goal.
pub(super) fn judge(measured: &Measured) -> Vec<RelayVerdict> {
    // Negative delays mean a measurement too inaccurate to compare.
    let ratio = |of: Option<f64>, by: Option<f64>| {
        let (of, by) = (of?, by?);
        (of > 0.0 && by > 0.0).then_some(of / by)
    };
    let added = |name| measured.added(name);
    let delivered = |name: &str| median(measured.delivered.get(name)?);
    let capacity = |name: &str| median(measured.capacity.get(name)?);
    let enciphering = |by: &BTreeMap<&'static str, Vec<f64>>| {
        let turns = |name: &str| by.get(name).map_or(&[][..], Vec::as_slice);
        of_pairs(turns("dwell busy encrypt, 1400 B"), turns("dwell busy, 1400 B"))
    };
    // Two passes: encrypted on the way there, decrypted on the way back.
    let cipher = enciphering(&measured.rtt_ns).map(|both| both / 2.0 / 1e3);
    // By the relay's own timestamps: round trips vary more between turns.
    let cipher_told = enciphering(&measured.processing_ns).map(|more| more / 1e3);
    // Two hooks see each delivered packet; without any event, a loss of zero is meaningless.
    let mut seen = measured.events.iter().zip(&measured.traced);
    let saw_all = !measured.events.is_empty()
        && measured.events.len() == measured.traced.len()
        && seen.all(|(events, delivered)| *events > 0 && *events as f64 >= 2.0 * delivered);
    let lost = saw_all.then(|| measured.lost_events.iter().sum::<u64>() as f64);
    vec![
        at_most(
            Part::Delay,
            "added delay, 200 pps, 1000 B: dwell blocking / socat",
            ratio(added("dwell blocking"), added("socat")),
            1.0,
        ),
        at_most(
            Part::Delay,
            "added delay: dwell busy / socat",
            ratio(added("dwell busy"), added("socat")),
            0.3,
        ),
        at_most(
            Part::Delay,
            "added delay: dwell xdp / kernel forwarding",
            ratio(added("dwell xdp"), added("kernel forwarding")),
            1.3,
        ),
        at_most(Part::Delay, "enciphering 1400 B, one pass, us", cipher, 1.0),
        at_most(Part::Delay, "the same by the relay's own stamps, us", cipher_told, 1.0),
        at_least(
            Part::Flood,
            "delivered at overload, 100 B: dwell batch / socat",
            ratio(delivered("dwell batch"), delivered("socat")),
            2.0,
        ),
        at_least(
            Part::Flood,
            "delivered at overload: dwell batch / C",
            ratio(delivered("dwell batch"), delivered("C")),
            1.0,
        ),
        at_least(
            Part::Flood,
            "delivered at overload: dwell batch encrypt / C encrypt",
            ratio(delivered("dwell batch encrypt"), delivered("C encrypt")),
            1.0,
        ),
        at_least(
            Part::Flood,
            "delivered at overload, 100 B: dwell batch --no-merge / socat",
            ratio(delivered("dwell batch --no-merge"), delivered("socat")),
            2.0,
        ),
        at_least(
            Part::Flood,
            "delivered at overload: dwell batch --no-merge / C",
            ratio(delivered("dwell batch --no-merge"), delivered("C")),
            1.0,
        ),
        at_least(
            Part::Flood,
            "delivered at overload: dwell batch encrypt --no-merge / C encrypt",
            ratio(delivered("dwell batch encrypt --no-merge"), delivered("C encrypt")),
            1.0,
        ),
        at_least(
            Part::Flood,
            "capacity at 0.1 % loss: dwell batch / C",
            ratio(capacity("dwell batch"), capacity("C")),
            2.0,
        ),
        at_least(
            Part::Flood,
            "capacity at 0.1 % loss: dwell batch --no-merge / C",
            ratio(capacity("dwell batch --no-merge"), capacity("C")),
            2.0,
        ),
        at_least(
            Part::Flood,
            "200,000 packets/s traced: delivered with / without",
            ratio(median(&measured.traced), median(&measured.untraced)),
            0.9,
        ),
        at_least(
            Part::Flood,
            "200,000 packets/s traced: sent / asked",
            ratio(median(&measured.traced_pps), Some(TRACED_PPS as f64)),
            0.95,
        ),
        at_most(Part::Flood, "200,000 packets/s traced: events lost", lost, 0.0),
        at_most(
            Part::Events,
            "an event of tracing: dwell / minimal program",
            ratio(median(&measured.event_ns), median(&measured.minimal_event_ns)),
            1.1,
        ),
    ]
}

fn at_most(part: Part, goal: &'static str, value: Option<f64>, limit: f64) -> RelayVerdict {
    let reached = value.is_some_and(|value| value <= limit);
    RelayVerdict { goal, part, value, limit, at_least: false, reached }
}

fn at_least(part: Part, goal: &'static str, value: Option<f64>, limit: f64) -> RelayVerdict {
    let reached = value.is_some_and(|value| value >= limit);
    RelayVerdict { goal, part, value, limit, at_least: true, reached }
}

/// Returns the median difference between both in the same turn.
fn of_pairs(more: &[f64], less: &[f64]) -> Option<f64> {
    let differences: Vec<f64> = more.iter().zip(less).map(|(more, less)| more - less).collect();
    median(&differences)
}

/// Returns the median; the lower of the two middle values for an even count.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_measured_is_a_miss_of_every_goal() {
        assert!(judge(&Measured::default()).iter().all(|verdict| !verdict.reached));
    }

    #[test]
    fn added_delay_excludes_direct_path() {
        let mut measured = Measured::default();
        for (name, rtt) in
            [("socat", 240_000.0), ("dwell blocking", 230_000.0), ("dwell busy", 101_000.0)]
        {
            measured.direct_ns.insert(name, vec![40_000.0]);
            measured.rtt_ns.insert(name, vec![rtt]);
        }
        let verdicts = judge(&measured);
        assert_eq!(verdicts[0].value, Some(0.95));
        assert!(verdicts[0].reached);
        assert_eq!(verdicts[1].value, Some(0.305));
        assert!(!verdicts[1].reached);
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
            measured.delivered.insert(name, vec![delivered]);
        }
        let judged = judge(&measured);
        let at_overload: Vec<_> = judged
            .iter()
            .filter(|verdict| verdict.goal.starts_with("delivered at overload"))
            .map(|verdict| (verdict.goal.contains("--no-merge"), verdict.reached))
            .collect();
        let merged = [(false, true); 3];
        assert_eq!(at_overload[..3], merged);
        assert_eq!(at_overload[3..], [(true, false), (true, false), (true, true)]);
    }

    #[test]
    fn incomplete_tracing_misses_goal() {
        let seen = |events| {
            let (traced, lost_events) = (vec![45.0; 2], vec![0; 2]);
            Measured { events, traced, lost_events, ..Measured::default() }
        };
        let lost = |measured: &Measured| {
            let verdicts = judge(measured);
            let lost = |verdict: &&RelayVerdict| verdict.goal.ends_with("events lost");
            verdicts.iter().find(lost).map(|verdict| verdict.reached)
        };
        assert_eq!(lost(&seen(vec![100, 0])), Some(false));
        assert_eq!(lost(&seen(vec![100, 89])), Some(false));
        assert_eq!(lost(&seen(vec![100, 90])), Some(true));
    }

    #[test]
    fn negative_added_delay_misses_goal() {
        let mut measured = Measured::default();
        for (name, rtt) in [("kernel forwarding", 30_000.0), ("dwell xdp", 31_000.0)] {
            measured.direct_ns.insert(name, vec![40_000.0]);
            measured.rtt_ns.insert(name, vec![rtt]);
        }
        assert_eq!(judge(&measured)[2].value, None);
        assert!(!judge(&measured)[2].reached);
    }
}
