//! Coverage: how many of the probes that the schedules made due are in the stored rows.

use std::collections::BTreeMap;

use dwell_rollup::{Name, NodeSchedule, ScheduleEntry, Stream};

use crate::error::HubError;
use crate::period::SECOND_NS;
use crate::schedule::Window;
use crate::spans::{TimeSpan, join, length, subtract};
use crate::store::{HubTransaction, StoredStatus};

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

/// The history of one stream's schedule, and the pauses of its nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpectedProbes {
    in_effect: Vec<InEffect>,
    /// Time in which the sender was paused, such as by an experiment.
    pauses: Vec<TimeSpan>,
    /// Time in which the reflector was paused.
    reflector_pauses: Vec<TimeSpan>,
}

impl ExpectedProbes {
    /// Reads the history of a stream in [from, to) from the applied schedules and the statuses of both
    /// nodes.
    ///
    /// # Errors
    /// The database failed.
    pub fn read(
        transaction: &mut dyn HubTransaction,
        sender: &Name,
        stream: &Stream,
        (from_ns, to_ns): (i64, i64),
    ) -> Result<Self, HubError> {
        let nodes = transaction.nodes()?;
        let mut statuses = |name: &Name| {
            let Some(node) = nodes.iter().find(|node| node.name == *name) else {
                return Ok(Vec::new());
            };
            let from_ns = from_ns.saturating_sub(REPORT_NS);
            transaction.statuses(node.id, from_ns, to_ns.saturating_add(REPORT_NS))
        };
        let (of_sender, of_reflector) = (statuses(sender)?, statuses(&stream.reflector)?);
        let applied = transaction.schedules()?.into_iter();
        let applied: Vec<_> = applied.map(|it| (it.applied_ns, it.version)).collect();
        let reported = of_sender.iter();
        let reported: Vec<_> =
            reported.map(|stored| (stored.wall_ns, stored.status.schedule_version)).collect();
        let mut parts: BTreeMap<u64, NodeSchedule> = BTreeMap::new();
        for (_, version) in &applied {
            if let Some(json) = transaction.node_schedule(*version, sender)? {
                let part = NodeSchedule::from_json(json.as_bytes())
                    .map_err(|error| HubError::stored("schedule", error))?;
                parts.insert(*version, part);
            }
        }
        let mut in_effect = Vec::new();
        for (span, version) in followed(&applied, &reported) {
            let entries = parts.get(&version).map_or(&[][..], |part| &part.entries);
            for entry in entries.iter().filter(|entry| is_of(entry, stream)) {
                let windows = entry.windows.iter().map(|window| window.to_string().parse());
                in_effect.push(InEffect {
                    span,
                    interval_ns: entry.interval.0.max(1),
                    windows: windows
                        .collect::<Result<_, _>>()
                        .map_err(|error: String| HubError::stored("window", error))?,
                });
            }
        }
        let (pauses, reflector_pauses) = (pauses(&of_sender), pauses(&of_reflector));
        Ok(Self { in_effect, pauses, reflector_pauses })
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

/// Returns the pauses that statuses report.
pub(crate) fn pauses(statuses: &[StoredStatus]) -> Vec<TimeSpan> {
    let mut spans = Vec::new();
    for StoredStatus { status, wall_ns, .. } in statuses {
        let ended = status.pauses.iter();
        spans.extend(ended.map(|pause| (pause.from_wall_ns, pause.to_wall_ns)));
        // The pause lasts at least until this status was written.
        spans.extend(status.pause.as_ref().map(|pause| (pause.since_wall_ns, *wall_ns)));
    }
    join(spans)
}

/// Whether a schedule entry is that of a stream. Another protocol under the same name is another stream.
fn is_of(entry: &ScheduleEntry, stream: &Stream) -> bool {
    entry.name == stream.entry
        && entry.reflector == stream.reflector
        && entry.scheme() == stream.protocol.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    #[test]
    fn stream_of_another_protocol_is_not_due() {
        let json = br#"{"version":1,"node":"a","entries":[
            {"name":"m+b","reflector":"b","target":"icmp://192.0.2.2","interval":"1s"},
            {"name":"n+b","reflector":"b","target":"192.0.2.2","interval":"1s"}]}"#;
        let schedule = NodeSchedule::from_json(json).unwrap();
        let stream = |protocol: &str, entry: &str| Stream {
            reflector: "b".parse().unwrap(),
            protocol: protocol.parse().unwrap(),
            entry: entry.parse().unwrap(),
        };
        let is_of = |at: usize, stream: &Stream| super::is_of(&schedule.entries[at], stream);
        assert!(is_of(0, &stream("icmp", "m+b")) && !is_of(0, &stream("stamp", "m+b")));
        assert!(is_of(1, &stream("stamp", "n+b")), "the default");
        assert!(!is_of(0, &stream("icmp", "n+b")));
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
            pauses: vec![(11 * HOUR, 11 * HOUR + HOUR / 2)],
            reflector_pauses: vec![(11 * HOUR, 11 * HOUR + 3 * HOUR / 4)],
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
