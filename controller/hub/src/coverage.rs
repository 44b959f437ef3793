//! Coverage: how many of the probes that the schedules made due are in the stored rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dwell_rollup::{ClockQuality, Name, NodeSchedule, Stream};

use crate::error::HubError;
use crate::period::SECOND_NS;
use crate::row::NodeId;
use crate::schedule::Window;
use crate::spans::{TimeSpan, join, length, subtract};
use crate::store::{HubTransaction, StatusPoint};

/// A schedule entry while it was in effect.
#[derive(Clone, Debug, PartialEq)]
struct InEffect {
    span: TimeSpan,
    interval_ns: i64,
    /// Daily windows; none: always.
    windows: Vec<Window>,
}

/// Time by which the statuses of a range are read beyond it: a pause, and a new schedule, are reported
/// by a later one.
const REPORT_NS: i64 = 3_600 * SECOND_NS;

/// Time for which the clock error in a status is valid: two intervals of statuses.
pub(crate) const VALID_NS: i64 = 600 * SECOND_NS;

/// The history of one stream's schedule, and the pauses of its nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpectedProbes {
    in_effect: Vec<InEffect>,
    /// Time in which the sender was paused, such as by an experiment.
    pauses: Arc<[TimeSpan]>,
    /// Time in which the reflector was paused.
    reflector_pauses: Arc<[TimeSpan]>,
}

impl ExpectedProbes {
    /// Time in which the sender was paused, as starts and ends in nanoseconds since 1970.
    pub fn sender_pauses(&self) -> &[(i64, i64)] {
        &self.pauses
    }

    /// Time in which the reflector was paused.
    pub fn reflector_pauses(&self) -> &[(i64, i64)] {
        &self.reflector_pauses
    }

    /// Returns the number of probes that were due in [from, to); `None` if no schedule had the stream.
    pub fn in_span(&self, from_ns: i64, to_ns: i64) -> Option<f64> {
        self.sum(from_ns, to_ns, |due| length(&due))
    }

    /// Returns the number of probes that were due in [from, to) while the reflector was paused, so that
    /// their loss is maintenance.
    pub fn unanswerable(&self, from_ns: i64, to_ns: i64) -> f64 {
        let reflected =
            |due: Vec<TimeSpan>| length(&due) - length(&subtract(&due, &self.reflector_pauses));
        self.sum(from_ns, to_ns, reflected).unwrap_or(0.0)
    }

    /// Adds up the number of probes in a part of the time in which they were due.
    fn sum(
        &self,
        from_ns: i64,
        to_ns: i64,
        counted_ns: impl Fn(Vec<TimeSpan>) -> i64,
    ) -> Option<f64> {
        let mut probes = None;
        for entry in &self.in_effect {
            let span = (from_ns.max(entry.span.0), to_ns.min(entry.span.1));
            if span.0 >= span.1 {
                continue;
            }
            let active = if entry.windows.is_empty() {
                vec![span]
            } else {
                let windows = entry.windows.iter();
                join(windows.flat_map(|window| window.spans(span.0, span.1)).collect())
            };
            let counted_ns = counted_ns(subtract(&active, &self.pauses));
            probes = Some(probes.unwrap_or(0.0) + counted_ns as f64 / entry.interval_ns as f64);
        }
        probes
    }

    /// Returns the share of due probes that the rows have, from 0 to 1; `None` if none were due.
    pub fn coverage(&self, from_ns: i64, to_ns: i64, measured: u64) -> Option<f64> {
        let due = self.in_span(from_ns, to_ns).filter(|due| *due > 0.0)?;
        // The phase of a stream is random, so a probe more or less is due.
        Some((measured as f64 / due).min(1.0))
    }
}

/// What several streams have in common in a time span: the schedules that their nodes followed, their
/// pauses, and the errors of their clocks.
#[derive(Debug, Default)]
pub struct FleetHistory {
    nodes: BTreeMap<Name, NodeHistory>,
    /// Parts of nodes in the versions that they followed.
    parts: BTreeMap<u64, BTreeMap<Name, Part>>,
}

/// The entries of a node in a version of the schedule, by stream.
#[derive(Debug, Default)]
struct Part(BTreeMap<Stream, Vec<PartEntry>>);

/// A schedule entry.
#[derive(Debug)]
struct PartEntry {
    interval_ns: i64,
    windows: Vec<Window>,
}

impl Part {
    fn from_json(json: &str) -> Result<Self, HubError> {
        let part = NodeSchedule::from_json(json.as_bytes())
            .map_err(|error| HubError::stored("schedule", error))?;
        let mut entries: BTreeMap<Stream, Vec<PartEntry>> = BTreeMap::new();
        for entry in part.entries {
            // Another protocol under the same name is another stream.
            let protocol =
                entry.scheme().parse().map_err(|error| HubError::stored("schedule", error))?;
            let windows = entry.windows.iter().map(|window| window.to_string().parse());
            let windows = windows
                .collect::<Result<_, _>>()
                .map_err(|error: String| HubError::stored("window", error))?;
            let interval_ns = entry.interval.0.max(1);
            let stream = Stream { reflector: entry.reflector, protocol, entry: entry.name };
            entries.entry(stream).or_default().push(PartEntry { interval_ns, windows });
        }
        Ok(Self(entries))
    }
}

/// The history of one node.
#[derive(Debug, Default)]
struct NodeHistory {
    /// When it followed which version of the schedule.
    followed: Vec<(TimeSpan, u64)>,
    pauses: Arc<[TimeSpan]>,
    bounds: ClockBounds,
}

/// What a node declared about the error of its clock, over time.
#[derive(Debug, Default)]
pub(crate) struct ClockBounds {
    /// Time of each status and the maximum error of the clock in it, in ascending order.
    bounds: Vec<(i64, Option<u64>)>,
}

impl ClockBounds {
    /// Returns the bounds of statuses.
    pub(crate) fn of(points: &[StatusPoint]) -> Self {
        let bounds = points.iter().map(|point| (point.wall_ns, point.clock_bound_ns));
        Self { bounds: bounds.collect() }
    }

    /// Returns the maximum error in nanoseconds of one-way delays to this node in [from, to), which the
    /// clocks of both nodes cause; `None` if unknown. `clock` is that of the sender.
    pub(crate) fn error_ns(&self, clock: &ClockQuality, from_ns: i64, to_ns: i64) -> Option<u64> {
        if clock.is_one_clock {
            return Some(0);
        }
        let from_ns = from_ns.saturating_sub(VALID_NS);
        let to_ns = to_ns.saturating_add(VALID_NS);
        let first = self.bounds.partition_point(|(at, _)| *at < from_ns);
        let mut largest = None;
        for (_, bound) in self.bounds[first..].iter().take_while(|(at, _)| *at < to_ns) {
            largest = Some((*bound)?.max(largest.unwrap_or(0)));
        }
        Some(clock.bound_ns?.saturating_add(largest?))
    }
}

impl NodeHistory {
    /// Returns the history in [from, to). `applied` are the time and version of each schedule.
    fn new(points: Vec<StatusPoint>, applied: &[(i64, u64)], (from_ns, to_ns): (i64, i64)) -> Self {
        let reported: Vec<_> =
            points.iter().map(|point| (point.wall_ns, point.schedule_version)).collect();
        let mut followed = followed(applied, &reported);
        followed.retain(|(span, _)| from_ns < span.1 && span.0 < to_ns);
        let bounds = ClockBounds::of(&points);
        let pauses = join(points.into_iter().flat_map(|point| point.pauses).collect());
        Self { followed, pauses: pauses.into(), bounds }
    }
}

impl FleetHistory {
    /// Reads the history of nodes in [from, to).
    ///
    /// # Errors
    /// The database failed.
    pub fn read(
        transaction: &mut dyn HubTransaction,
        names: &BTreeSet<Name>,
        (from_ns, to_ns): (i64, i64),
    ) -> Result<Self, HubError> {
        let applied = transaction.schedules()?.into_iter();
        let applied: Vec<_> = applied.map(|it| (it.applied_ns, it.version)).collect();
        let known = transaction.nodes()?.into_iter().filter(|node| names.contains(&node.name));
        let ids: BTreeMap<Name, NodeId> = known.map(|node| (node.name, node.id)).collect();
        let mut histories = transaction.status_histories(
            &ids.values().copied().collect::<Vec<_>>(),
            from_ns.saturating_sub(REPORT_NS),
            to_ns.saturating_add(REPORT_NS),
        )?;
        let mut nodes = BTreeMap::new();
        let mut followers: BTreeMap<u64, BTreeSet<Name>> = BTreeMap::new();
        for name in names {
            let points = ids.get(name).and_then(|id| histories.remove(id)).unwrap_or_default();
            let history = NodeHistory::new(points, &applied, (from_ns, to_ns));
            for (_, version) in &history.followed {
                followers.entry(*version).or_default().insert(name.clone());
            }
            nodes.insert(name.clone(), history);
        }
        let mut parts = BTreeMap::new();
        for (version, names) in followers {
            let of_version = transaction.node_schedules(version, Some(&names))?.into_iter();
            let of_version = of_version.map(|(name, json)| Ok((name, Part::from_json(&json)?)));
            parts.insert(version, of_version.collect::<Result<_, HubError>>()?);
        }
        Ok(Self { nodes, parts })
    }

    /// Returns the history of one stream between two of the nodes.
    pub fn expected(&self, sender: &Name, stream: &Stream) -> ExpectedProbes {
        let followed = self.nodes.get(sender).map_or(&[][..], |node| &node.followed);
        let in_effect = followed.iter().flat_map(|(span, version)| {
            let part = self.parts.get(version).and_then(|parts| parts.get(sender));
            let entries = part.and_then(|part| part.0.get(stream)).into_iter().flatten();
            entries.map(move |entry| InEffect {
                span: *span,
                interval_ns: entry.interval_ns,
                windows: entry.windows.clone(),
            })
        });
        let pauses = |name: &Name| {
            self.nodes.get(name).map(|node| Arc::clone(&node.pauses)).unwrap_or_default()
        };
        ExpectedProbes {
            in_effect: in_effect.collect(),
            pauses: pauses(sender),
            reflector_pauses: pauses(&stream.reflector),
        }
    }

    /// Returns the maximum error in nanoseconds of one-way delays in [from, to), which the clocks of
    /// both nodes cause; `None` if unknown. `clock` is that of the sender.
    pub fn error_ns(
        &self,
        clock: &ClockQuality,
        reflector: &Name,
        from_ns: i64,
        to_ns: i64,
    ) -> Option<u64> {
        if clock.is_one_clock {
            return Some(0);
        }
        self.nodes.get(reflector)?.bounds.error_ns(clock, from_ns, to_ns)
    }
}

/// Returns when a node followed which version of the schedule: from its first to its last status as they
/// say, otherwise from the application of each version. Both are times and versions, in ascending order.
fn followed(applied: &[(i64, u64)], reported: &[(i64, u64)]) -> Vec<(TimeSpan, u64)> {
    let first_ns = reported.first().map_or(i64::MAX, |(at, _)| *at);
    let last_ns = reported.last().map_or(i64::MAX, |(at, _)| *at);
    let before = applied.iter().filter(|(at, _)| *at < first_ns);
    let after = applied.iter().filter(|(at, _)| *at > last_ns);
    let mut changes: Vec<(i64, u64)> = before.chain(reported).chain(after).copied().collect();
    changes.dedup_by_key(|(_, version)| *version);
    let ends = changes.iter().skip(1).map(|(at, _)| *at).chain([i64::MAX]);
    let spans = changes.iter().zip(ends).map(|((from, version), to)| ((*from, to), *version));
    spans.filter(|(span, _)| span.0 < span.1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    #[test]
    fn stream_of_another_protocol_is_not_due() {
        let json = r#"{"version":1,"node":"a","entries":[
            {"name":"m+b","reflector":"b","target":"icmp://192.0.2.2","interval":"1s"},
            {"name":"n+b","reflector":"b","target":"192.0.2.2","interval":"1s"}]}"#;
        let part = Part::from_json(json).unwrap();
        let stream = |protocol: &str, entry: &str| Stream {
            reflector: "b".parse().unwrap(),
            protocol: protocol.parse().unwrap(),
            entry: entry.parse().unwrap(),
        };
        let has = |protocol: &str, entry: &str| part.0.contains_key(&stream(protocol, entry));
        assert!(has("icmp", "m+b") && !has("stamp", "m+b"));
        assert!(has("stamp", "n+b"), "the default");
        assert!(!has("icmp", "n+b"));
    }

    #[test]
    fn due_probes_follow_versions_windows_and_pauses() {
        let entry = |from: i64, to: i64, seconds: i64, windows: &[&str]| InEffect {
            span: (from * HOUR, to * HOUR),
            interval_ns: seconds * 1_000_000_000,
            windows: windows.iter().map(|window| window.parse().unwrap()).collect(),
        };
        let probes = ExpectedProbes {
            in_effect: vec![
                entry(10, 12, 1, &[]),
                entry(12, i64::MAX / HOUR, 10, &["12:00-13:00", "12:30-14:00"]),
            ],
            pauses: [(11 * HOUR, 11 * HOUR + HOUR / 2)].into(),
            reflector_pauses: [(11 * HOUR, 11 * HOUR + 3 * HOUR / 4)].into(),
        };
        let due = |from: i64, to: i64| probes.in_span(from * HOUR, to * HOUR);
        assert_eq!(due(0, 10), None, "before the first schedule");
        assert_eq!(due(9, 11), Some(3_600.0));
        assert_eq!(due(11, 12), Some(1_800.0), "half of it paused");
        assert_eq!(due(11, 13), Some(1_800.0 + 360.0));
        assert_eq!(due(12, 24), Some(720.0), "the windows overlap");
        assert_eq!(due(15, 24), Some(0.0));
        let coverage = |measured: u64| probes.coverage(10 * HOUR, 11 * HOUR, measured);
        assert_eq!((coverage(900), coverage(3_601)), (Some(0.25), Some(1.0)));
        assert_eq!(probes.coverage(15 * HOUR, 24 * HOUR, 5), None);
        let unanswerable = |from: i64, to: i64| probes.unanswerable(from * HOUR, to * HOUR);
        assert_eq!(
            [unanswerable(10, 11), unanswerable(11, 12)],
            [0.0, 900.0],
            "one of both paused"
        );
    }

    #[test]
    fn error_of_one_way_delays_needs_both_clocks() {
        let reflector: Name = "b".parse().unwrap();
        let history = |bounds: &[(i64, Option<u64>)]| FleetHistory {
            nodes: BTreeMap::from([(
                reflector.clone(),
                NodeHistory {
                    bounds: ClockBounds { bounds: bounds.to_vec() },
                    ..NodeHistory::default()
                },
            )]),
            ..FleetHistory::default()
        };
        let sender = |bound_ns| ClockQuality { bound_ns, ..ClockQuality::default() };
        let error = |bounds: &[(i64, Option<u64>)], sender: &ClockQuality| {
            history(bounds).error_ns(sender, &reflector, HOUR, HOUR + 10)
        };
        let both = [(HOUR, Some(30)), (HOUR + 1, Some(20)), (3 * HOUR, None)];
        assert_eq!(error(&both, &sender(Some(7))), Some(37));
        assert_eq!(error(&both, &sender(None)), None);
        assert_eq!(error(&[], &sender(Some(7))), None);
        assert_eq!(error(&[(HOUR, Some(1)), (HOUR + 5, None)], &sender(Some(7))), None);
        assert_eq!(error(&[(0, Some(1))], &sender(Some(7))), None, "an old status");
        let one = ClockQuality { is_one_clock: true, ..ClockQuality::default() };
        assert_eq!(error(&[], &one), Some(0));
    }

    #[test]
    fn node_follows_the_version_of_its_statuses() {
        let applied = [(10, 1), (20, 2), (90, 3)];
        assert_eq!(followed(&applied, &[]), [((10, 20), 1), ((20, 90), 2), ((90, i64::MAX), 3)]);
        // It was unreachable until 50.
        let reported = [(15, 1), (40, 1), (50, 2), (60, 2)];
        let expected = [((10, 50), 1), ((50, 90), 2), ((90, i64::MAX), 3)];
        assert_eq!(followed(&applied, &reported), expected);
        assert_eq!(followed(&[], &[(5, 0)]), [((5, i64::MAX), 0)]);
        assert_eq!(followed(&[], &[]), []);
    }
}
