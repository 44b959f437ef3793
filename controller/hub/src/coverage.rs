//! Coverage: how many of the probes that the schedules made due are in the stored rows.

use dwell_rollup::{Name, NodeSchedule, ScheduleEntry, Stream};

use crate::error::HubError;
use crate::row::NodeId;
use crate::schedule::Window;
use crate::spans::{TimeSpan, join, length, subtract};
use crate::store::HubTransaction;

/// A schedule entry while it was in effect.
#[derive(Clone, Debug, PartialEq)]
struct InEffect {
    span: TimeSpan,
    interval_ns: i64,
    /// Daily windows; none: always.
    windows: Vec<Window>,
}

/// The history of one stream's schedule, and the pauses of its sender.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpectedProbes {
    in_effect: Vec<InEffect>,
    /// Time in which the sender was paused, such as by an experiment.
    pauses: Vec<TimeSpan>,
}

impl ExpectedProbes {
    /// Reads the history of a stream from the applied schedules.
    ///
    /// # Errors
    /// The database failed.
    pub fn read(
        transaction: &mut dyn HubTransaction,
        sender: &Name,
        stream: &Stream,
    ) -> Result<Self, HubError> {
        let schedules = transaction.schedules()?;
        let mut in_effect = Vec::new();
        for (at, schedule) in schedules.iter().enumerate() {
            let Some(json) = transaction.node_schedule(schedule.version, sender)? else { continue };
            let part = NodeSchedule::from_json(json.as_bytes())
                .map_err(|error| HubError::stored("schedule", error))?;
            let until = schedules.get(at + 1).map_or(i64::MAX, |next| next.applied_ns);
            for entry in part.entries.iter().filter(|entry| is_of(entry, stream)) {
                let windows = entry.windows.iter().map(|window| window.to_string().parse());
                in_effect.push(InEffect {
                    span: (schedule.applied_ns, until),
                    interval_ns: entry.interval.0.max(1),
                    windows: windows
                        .collect::<Result<_, _>>()
                        .map_err(|error: String| HubError::stored("window", error))?,
                });
            }
        }
        Ok(Self { in_effect, pauses: Vec::new() })
    }

    /// Adds the pauses that statuses of the sender from [from, to) report.
    ///
    /// # Errors
    /// The database failed.
    pub fn read_pauses(
        &mut self,
        transaction: &mut dyn HubTransaction,
        sender: NodeId,
        from_ns: i64,
        to_ns: i64,
    ) -> Result<(), HubError> {
        /// A pause is reported by the status after its end.
        const REPORT_NS: i64 = 3_600_000_000_000;
        let mut spans = std::mem::take(&mut self.pauses);
        let until = to_ns.saturating_add(REPORT_NS);
        for stored in transaction.statuses(sender, from_ns, until)? {
            let ended = stored.status.pauses.iter();
            spans.extend(ended.map(|pause| (pause.from_wall_ns, pause.to_wall_ns)));
            // The pause lasts at least until this status was written.
            spans.extend(stored.status.pause.map(|pause| (pause.since_wall_ns, stored.wall_ns)));
        }
        self.pauses = join(spans);
        Ok(())
    }

    /// Returns the number of probes that were due in [from, to); `None` if no schedule had the stream.
    pub fn in_span(&self, from_ns: i64, to_ns: i64) -> Option<f64> {
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
            let due = length(&subtract(&active, &self.pauses)) as f64 / entry.interval_ns as f64;
            probes = Some(probes.unwrap_or(0.0) + due);
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
    }
}
