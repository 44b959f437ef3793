//! A capture as an outside witness of a run (S2.9): packets are joined by their ids, and the
//! witness's gaps and delays are set against the run's own stamps.

use std::collections::BTreeMap;

use dwell_engine::stamps::State;
use dwell_record::{Batch, Column, Figures};
use dwell_stats::Distribution;
use dwell_units::Nanos;

/// A probe and what a witness saw of it are of one clock only if they are at most this far apart.
const SAME_CLOCK: i64 = 1_000_000_000;

/// What a run says of one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// Its id.
    pub id: u64,
    /// When it left, as deep as it was stamped: `tx_kernel`, else `tx_app`.
    pub left: i64,
    /// Its round trip between two stamps of the kernel, or else of the program; `None` without a
    /// reply.
    pub rtt: Option<i64>,
}

/// What a capture saw, flow by flow. Sixteen bytes a packet.
#[derive(Clone, Debug, Default)]
pub struct Witness {
    flows: BTreeMap<String, Flow>,
}

/// Rows of one direction of a flow, in the order of the capture.
#[derive(Clone, Debug, Default)]
struct Flow {
    seen: Vec<(u64, i64)>,
    /// Of replies: the round trip that the witness saw.
    rtt: Vec<(u64, i64)>,
}

/// A run and its witness, joined.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Joined {
    /// The flow of the capture that carries the run's probes.
    pub flow: String,
    /// Probes of the run that the capture has.
    pub matched: u64,
    /// Probes of the run that it has not.
    pub unseen: u64,
    /// Packets of that flow that are no probes of the run (its warm-up, for one).
    pub others: u64,
    /// Whether both read one clock, so that times can be compared and not only differences.
    pub same_clock: bool,
    /// What the witness saw and how far the run's own stamps differ from it, by name.
    pub metrics: BTreeMap<String, Figures>,
}

impl Witness {
    /// Takes rows of the capture in.
    pub fn take(&mut self, flow: &str, batch: &Batch) {
        let Some(times) = batch.column(Column::Capture) else { return };
        let rtt = batch.column(Column::Rtt);
        let flow = self.flows.entry(flow.to_owned()).or_default();
        for row in (0..batch.len()).filter(|row| batch.state[*row] == State::Received) {
            let id = batch.id[row];
            if times[row] != Batch::ABSENT {
                flow.seen.push((id, times[row]));
            }
            if let Some(rtt) = rtt.map(|rtt| rtt[row]).filter(|rtt| *rtt != Batch::ABSENT) {
                flow.rtt.push((id, rtt));
            }
        }
    }

    /// Joins the probes of a trial, in the order of their ids; `None` when no flow has any of them.
    ///
    /// The flow is the one that has the most of them at their times, or, of another clock, the one
    /// that has the most of their ids.
    pub fn join(&self, own: &[Own]) -> Option<Joined> {
        let asked = self.flows.iter().filter(|(_, flow)| flow.rtt.is_empty());
        let matched: Vec<_> = asked.map(|(name, flow)| (name, flow, flow.near(own))).collect();
        let timed = matched.iter().max_by_key(|(.., (timed, _))| *timed)?;
        let same_clock = timed.2.0 > 0;
        let (name, requests, _) = match same_clock {
            true => timed,
            false => matched.iter().max_by_key(|(.., (_, by_id))| *by_id)?,
        };
        let seen = requests.by_id();
        let of_run: Vec<(&Own, i64)> = own
            .iter()
            .filter_map(|own| Some((own, *seen.get(&own.id)?)))
            .filter(|(own, at)| !same_clock || at.abs_diff(own.left) < SAME_CLOCK as u64)
            .collect();
        if of_run.is_empty() {
            return None;
        }
        let mut metrics = Metrics::default();
        for (own, at) in of_run.iter().filter(|_| same_clock) {
            metrics.add("left_to_witness_ns", at.checked_sub(own.left));
        }
        for pair in of_run.windows(2) {
            let ((earlier, saw_earlier), (later, saw_later)) = (&pair[0], &pair[1]);
            if later.id != earlier.id + 1 {
                continue;
            }
            let witnessed = saw_later.checked_sub(*saw_earlier);
            let gap = later.left.checked_sub(earlier.left);
            metrics.add("witness_gap_ns", witnessed);
            metrics.add("gap_error_ns", gap.zip(witnessed).and_then(|(a, b)| a.checked_sub(b)));
        }
        // The replies are another flow: the one that has the most of these ids with a round trip.
        let ids: BTreeMap<u64, i64> =
            of_run.iter().filter_map(|(own, _)| Some((own.id, own.rtt?))).collect();
        let replies = self
            .flows
            .values()
            .max_by_key(|flow| flow.rtt.iter().filter(|(id, _)| ids.contains_key(id)).count());
        for (id, witnessed) in replies.into_iter().flat_map(|flow| &flow.rtt) {
            if let Some(own) = ids.get(id) {
                metrics.add("witness_rtt_ns", Some(*witnessed));
                metrics.add("rtt_minus_witness_ns", own.checked_sub(*witnessed));
            }
        }
        let matched = of_run.len() as u64;
        Some(Joined {
            flow: (*name).clone(),
            matched,
            unseen: own.len() as u64 - matched,
            others: (requests.seen.len() as u64).saturating_sub(matched),
            same_clock,
            metrics: metrics.figures(),
        })
    }
}

impl Flow {
    fn by_id(&self) -> BTreeMap<u64, i64> {
        // Of a probe that was seen twice, the first sight counts.
        self.seen.iter().rev().copied().collect()
    }

    /// How many of the probes are here at their times, and how many by id alone.
    fn near(&self, own: &[Own]) -> (usize, usize) {
        let seen = self.by_id();
        let times = own.iter().filter_map(|own| Some((own, seen.get(&own.id)?)));
        let timed = times.clone().filter(|(own, at)| at.abs_diff(own.left) < SAME_CLOCK as u64);
        (timed.count(), times.count())
    }
}

#[derive(Default)]
struct Metrics(BTreeMap<&'static str, Distribution>);

impl Metrics {
    fn add(&mut self, name: &'static str, value: Option<i64>) {
        if let Some(value) = value {
            self.0.entry(name).or_default().record(Nanos(value));
        }
    }

    fn figures(self) -> BTreeMap<String, Figures> {
        let figures = self.0.into_iter();
        figures.map(|(name, values)| (name.to_owned(), values.figures().into())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// Probes 1 ms apart; the witness sees each 700 ns after it left, and its reply 40 us later.
    fn probes(count: u64) -> Vec<Own> {
        (0..count)
            .map(|id| Own { id, left: 10_000 * MS + id as i64 * MS, rtt: Some(42_000) })
            .collect()
    }

    fn witness(own: &[Own], offset: i64) -> Witness {
        let mut witness = Witness::default();
        let mut requests = Batch::default();
        let mut replies = Batch::default();
        // Another run's probes, with the same ids at other times.
        let mut strangers = Batch::default();
        for own in own.iter().filter(|own| own.id != 3) {
            requests.push(own.id, State::Received);
            requests.set(Column::Capture, own.left + 700 + offset);
            replies.push(own.id, State::Received);
            replies.set(Column::Capture, own.left + 40_700 + offset);
            replies.set(Column::Rtt, 40_000);
            strangers.push(own.id, State::Received);
            strangers.set(Column::Capture, own.left + 60_000 * MS + offset);
        }
        witness.take("strangers", &strangers);
        witness.take("there", &requests);
        witness.take("back", &replies);
        witness
    }

    #[test]
    fn probes_are_found_by_id_and_time_and_their_stamps_are_judged() {
        let own = probes(10);
        let joined = witness(&own, 0).join(&own).unwrap();
        assert_eq!((joined.flow.as_str(), joined.matched, joined.unseen), ("there", 9, 1));
        assert!(joined.same_clock);
        let median = |name: &str| joined.metrics[name].p50.unwrap();
        assert_eq!(median("left_to_witness_ns"), 700);
        assert_eq!(median("witness_gap_ns"), MS);
        assert_eq!(median("gap_error_ns"), 0);
        assert_eq!(median("witness_rtt_ns"), 40_000);
        assert_eq!(median("rtt_minus_witness_ns"), 2_000);
        assert_eq!(joined.metrics["witness_gap_ns"].count, 7, "probe 3 was not seen");
    }

    #[test]
    fn a_witness_with_another_clock_tells_differences_only() {
        let own = probes(10);
        let joined = witness(&own, 7_000_000 * MS).join(&own).unwrap();
        assert!(!joined.same_clock);
        assert!(!joined.metrics.contains_key("left_to_witness_ns"));
        assert_eq!(joined.metrics["witness_rtt_ns"].count, 9);
    }

    #[test]
    fn a_capture_of_something_else_joins_nothing() {
        let own = probes(10);
        let other: Vec<_> = own.iter().map(|own| Own { id: own.id + 1_000, ..*own }).collect();
        assert_eq!(witness(&own, 0).join(&other), None);
    }
}
