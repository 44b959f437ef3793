//! A capture as an external witness of a run (Mok 2015): packets are matched by id, and the witness's
//! gaps and delays are compared with the run's own timestamps.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use dwell_record::{Batch, Column, Figures};
use dwell_sample::State;
use dwell_stats::Distribution;
use dwell_units::Nanos;

/// Maximum time from sending to capture for the timestamps of run and witness to be of the same
/// clock.
const MAX_CAPTURE_DELAY_NS: i64 = 1_000_000_000;

/// Maximum time by which a packet may be captured before its send timestamp: a tap on the sending
/// machine runs before the driver, which takes the timestamp.
const MAX_CAPTURE_LEAD_NS: i64 = 100_000;

/// A probe as recorded by the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunProbe {
    /// Id of the probe.
    pub id: u64,
    /// Send time, `tx_kernel` if available, else `tx_app`.
    pub left: i64,
    /// Round-trip time from kernel timestamps if available, else from the program's; `None` without
    /// a reply.
    pub rtt: Option<i64>,
}

/// Properties of a run's probes that a capture shows, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeSignature {
    /// `stamp`, `roundtrip`, `udp`, ...
    pub scheme: Option<String>,
    /// Destination UDP port. A forwarder may change it.
    pub port: Option<u16>,
}

/// The flows of a capture. Uses 16 bytes per packet.
#[derive(Clone, Debug, Default)]
pub struct Witness {
    flows: BTreeMap<String, WitnessedFlow>,
}

/// Rows of one direction of a flow, in capture order.
#[derive(Clone, Debug, Default)]
struct WitnessedFlow {
    seen: Vec<(u64, i64)>,
    /// Round-trip times seen by the witness, for replies.
    rtt: Vec<(u64, i64)>,
}

/// The parts of a flow name made by the capture reader.
#[derive(Clone, Copy)]
struct Name<'a> {
    source: &'a str,
    destination: &'a str,
    /// Protocol and session identifier.
    protocol: &'a str,
    is_reply: bool,
}

/// A run matched with its witness.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WitnessMatch {
    /// The flow that carries the run's probes.
    pub flow: String,
    /// Number of probes of the run in the capture.
    pub matched: u64,
    /// Number of probes of the run not in the capture.
    pub unseen: u64,
    /// Number of packets of the flow that are not probes of the run, such as the warm-up.
    pub others: u64,
    /// Whether run and witness use the same clock, so that times can be compared and not only
    /// differences.
    pub same_clock: bool,
    /// Figures of the witness and of the run's differences from it, by metric name.
    pub metrics: BTreeMap<String, Figures>,
}

impl Witness {
    /// Adds rows of the capture.
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

    /// Matches the probes of a trial, in the order of their ids, to a flow; `None` if no flow
    /// contains any of them.
    ///
    /// Only flows that fit `signature` are considered, first those with its port. Among these, the
    /// flow whose probes are nearest in time is chosen. If the clocks differ, the flow with the
    /// most matching ids is chosen, then the nearest.
    pub fn join(&self, own: &[RunProbe], signature: &ProbeSignature) -> Option<WitnessMatch> {
        let asked = self.flows.iter().filter_map(|(name, flow)| {
            let parts = Name::of(name).filter(|parts| !parts.is_reply && signature.fits(parts))?;
            let at_port = signature.port.is_some() && parts.port() == signature.port;
            Some((parts, flow, (at_port, flow.near(own))))
        });
        let asked: Vec<_> = asked.filter(|(.., (_, near))| near.by_id > 0).collect();
        let timed = asked
            .iter()
            .filter(|(.., (_, near))| near.timed > 0)
            .max_by_key(|(.., (at_port, near))| (*at_port, Reverse(near.median), near.timed));
        let same_clock = timed.is_some();
        let by_id = || {
            let near = |near: &FlowFit| (near.by_id, Reverse(near.apart));
            asked.iter().max_by_key(|(.., (at_port, flow))| (*at_port, near(flow)))
        };
        let (name, requests, _) = timed.or_else(by_id)?;
        let seen = requests.by_id();
        let of_run: Vec<(&RunProbe, i64)> = own
            .iter()
            .filter_map(|own| Some((own, *seen.get(&own.id)?)))
            .filter(|(own, at)| !same_clock || after(own, *at).is_some())
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
        let ids: BTreeMap<u64, i64> =
            of_run.iter().filter_map(|(own, _)| Some((own.id, own.rtt?))).collect();
        let replies = self.flows.get(&name.replies().to_string());
        for (id, witnessed) in replies.into_iter().flat_map(|flow| &flow.rtt) {
            if let Some(own) = ids.get(id) {
                metrics.add("witness_rtt_ns", Some(*witnessed));
                metrics.add("rtt_minus_witness_ns", own.checked_sub(*witnessed));
            }
        }
        let matched = of_run.len() as u64;
        Some(WitnessMatch {
            flow: name.to_string(),
            matched,
            unseen: own.len() as u64 - matched,
            others: (requests.seen.len() as u64).saturating_sub(matched),
            same_clock,
            metrics: metrics.figures(),
        })
    }
}

impl WitnessedFlow {
    fn by_id(&self) -> BTreeMap<u64, i64> {
        // The first capture of a probe counts.
        self.seen.iter().rev().copied().collect()
    }

    fn near(&self, own: &[RunProbe]) -> FlowFit {
        let seen = self.by_id();
        let seen: Vec<_> = own.iter().map(|own| (own, seen.get(&own.id).copied())).collect();
        let after = seen.iter().map(|(own, at)| at.and_then(|at| after(own, at)));
        let apart = seen.iter().filter_map(|(own, at)| Some((*at)?.abs_diff(own.left)));
        let apart: Vec<u64> = apart.collect();
        FlowFit {
            timed: after.clone().flatten().count(),
            median: middle(after.map(|after| after.map_or(u64::MAX, i64::unsigned_abs)).collect()),
            by_id: apart.len(),
            apart: middle(apart),
        }
    }
}

/// How well a flow matches the probes of a trial.
struct FlowFit {
    /// Number of probes captured at their times.
    timed: usize,
    /// Median time from sending to capture; probes not captured at their times count as infinite.
    median: u64,
    /// Number of probes captured, by id alone.
    by_id: usize,
    /// Median distance of these, whatever the clock.
    apart: u64,
}

/// Returns the median, or `u64::MAX` for no values.
fn middle(mut values: Vec<u64>) -> u64 {
    let middle = values.len() / 2;
    if values.is_empty() { u64::MAX } else { *values.select_nth_unstable(middle).1 }
}

/// Returns the time from sending to capture; `None` if the packet cannot be this probe.
fn after(own: &RunProbe, at: i64) -> Option<i64> {
    at.checked_sub(own.left)
        .filter(|after| (-MAX_CAPTURE_LEAD_NS..MAX_CAPTURE_DELAY_NS).contains(after))
}

impl ProbeSignature {
    /// Returns what a target such as `stamp://n2:862` shows. Missing parts are unknown.
    pub fn of_target(target: &str) -> Self {
        let Some((scheme, rest)) = target.split_once("://") else { return Self::default() };
        let port = rest.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        Self { scheme: Some(scheme.to_owned()), port }
    }

    /// Whether a flow can consist of these probes.
    fn fits(&self, name: &Name<'_>) -> bool {
        // The reader numbers unrecognised packets. These numbers count as ids only if the port
        // shows that the packets are the probes.
        let is_recognised = name.scheme() != "udp";
        match self.scheme.as_deref() {
            Some(scheme @ ("stamp" | "roundtrip" | "iperf2")) => name.scheme() == scheme,
            Some("icmp" | "tcp" | "text+tcp") => false,
            _ => is_recognised || self.port.is_some() && name.port() == self.port,
        }
    }
}

impl<'a> Name<'a> {
    /// Parses `SOURCE > DESTINATION PROTOCOL`, followed by ` replies` for a reply flow.
    fn of(name: &'a str) -> Option<Self> {
        let (source, rest) = name.split_once(" > ")?;
        let (destination, protocol) = rest.split_once(' ')?;
        let requests = protocol.strip_suffix(" replies");
        let (protocol, is_reply) = (requests.unwrap_or(protocol), requests.is_some());
        Some(Self { source, destination, protocol, is_reply })
    }

    fn scheme(&self) -> &str {
        self.protocol.split(' ').next().unwrap_or_default()
    }

    fn port(&self) -> Option<u16> {
        self.destination.rsplit_once(':')?.1.parse().ok()
    }

    /// Returns the flow of replies to this one.
    fn replies(&self) -> Self {
        let Self { source, destination, protocol, .. } = *self;
        Self { source: destination, destination: source, protocol, is_reply: true }
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, destination, protocol, is_reply } = self;
        let replies = if *is_reply { " replies" } else { "" };
        write!(f, "{source} > {destination} {protocol}{replies}")
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
    const REQUEST_FLOW: &str = "198.19.0.1:46475 > 198.19.0.2:862 stamp ssid 7";
    const REPLY_FLOW: &str = "198.19.0.2:862 > 198.19.0.1:46475 stamp ssid 7 replies";

    /// Returns probes 1 ms apart. The witness sees each 700 ns after it was sent, and its reply 40
    /// us later.
    fn probes(count: u64) -> Vec<RunProbe> {
        (0..count)
            .map(|id| RunProbe { id, left: 10_000 * MS + id as i64 * MS, rtt: Some(42_000) })
            .collect()
    }

    fn witness(own: &[RunProbe], offset: i64) -> Witness {
        let mut witness = Witness::default();
        let mut requests = Batch::default();
        let mut replies = Batch::default();
        // Another run's probes with the same ids at other times.
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
        witness.take("198.19.0.1:46476 > 198.19.0.2:862 stamp ssid 8", &strangers);
        witness.take(REQUEST_FLOW, &requests);
        witness.take(REPLY_FLOW, &replies);
        witness
    }

    #[test]
    fn witness_matches_probes_by_id_and_time() {
        let own = probes(10);
        let joined = witness(&own, 0).join(&own, &signature()).unwrap();
        assert_eq!((joined.flow.as_str(), joined.matched, joined.unseen), (REQUEST_FLOW, 9, 1));
        assert!(joined.same_clock);
        let median = |name: &str| joined.metrics[name].p50.unwrap();
        assert_eq!(median("left_to_witness_ns"), 700);
        assert_eq!(median("witness_gap_ns"), MS);
        assert_eq!(median("gap_error_ns"), 0);
        assert_eq!(median("witness_rtt_ns"), 40_000);
        assert_eq!(median("rtt_minus_witness_ns"), 2_000);
        assert_eq!(joined.metrics["witness_gap_ns"].count, 7, "probe 3 was not seen");
    }

    fn signature() -> ProbeSignature {
        ProbeSignature::of_target("stamp://n2:862")
    }

    /// Adds a flow with the ids of the probes, each captured `after` nanoseconds after it was sent.
    fn add(witness: &mut Witness, name: &str, own: &[RunProbe], after: i64) {
        let mut batch = Batch::default();
        for own in own {
            batch.push(own.id, State::Received);
            batch.set(Column::Capture, own.left + after);
            if name.ends_with(" replies") {
                batch.set(Column::Rtt, 9 * MS);
            }
        }
        witness.take(name, &batch);
    }

    #[test]
    fn witness_rejects_similar_flows() {
        let own = probes(10);
        for (name, after) in [
            // Numbered load packets: captured before the probes were sent, and just after.
            ("198.19.0.1:45821 > 198.19.0.2:5009 udp", -360 * MS),
            ("198.19.0.1:45822 > 198.19.0.2:862 udp", 100),
            ("198.19.0.1:45823 > 198.19.0.2:862 iperf2", 100),
            // Other sessions of the same kind: another port, another time, captured before the
            // probes were sent.
            ("198.19.0.1:45824 > 198.19.0.2:20864 stamp ssid 1", 500),
            ("198.19.0.1:99 > 198.19.0.2:862 stamp ssid 2", 300 * MS),
            ("198.19.0.1:98 > 198.19.0.2:862 stamp ssid 3", -MS),
            ("198.19.0.2:20864 > 198.19.0.1:45824 stamp ssid 1 replies", 600),
        ] {
            let mut witness = witness(&own, 0);
            add(&mut witness, name, &own, after);
            let joined = witness.join(&own, &signature()).unwrap();
            assert_eq!(joined.flow, REQUEST_FLOW, "{name}");
            assert_eq!(joined.metrics["witness_rtt_ns"].p50, Some(40_000), "{name}");
        }
        let mut load = Witness::default();
        add(&mut load, "198.19.0.1:45821 > 198.19.0.2:5009 udp", &own, 100);
        assert_eq!(load.join(&own, &signature()), None, "packet numbers are not ids");
    }

    #[test]
    fn witness_matches_probes_after_a_port_change() {
        let own = probes(10);
        let joined =
            witness(&own, 0).join(&own, &ProbeSignature::of_target("stamp://[fe80::1]:20862"));
        assert_eq!(joined.unwrap().flow, REQUEST_FLOW);
        let joined = witness(&own, 0).join(&own, &ProbeSignature::of_target(""));
        assert_eq!(joined.unwrap().flow, REQUEST_FLOW, "the target of an import is unknown");
    }

    #[test]
    fn witness_with_another_clock_yields_only_differences() {
        let own = probes(10);
        let joined = witness(&own, 7_000_000 * MS).join(&own, &signature()).unwrap();
        assert!(!joined.same_clock);
        assert!(!joined.metrics.contains_key("left_to_witness_ns"));
        assert_eq!(joined.metrics["witness_rtt_ns"].count, 9);
    }

    #[test]
    fn capture_of_other_traffic_matches_nothing() {
        let own = probes(10);
        let other: Vec<_> = own.iter().map(|own| RunProbe { id: own.id + 1_000, ..*own }).collect();
        assert_eq!(witness(&own, 0).join(&other, &signature()), None);
    }
}
