//! Limit of messages to the log about faults of nodes, so that one that sends bad records does not fill it.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Minimum interval between messages about the same node and reason.
const REPEAT_INTERVAL: Duration = Duration::from_secs(600);

/// Maximum number of reasons of a node that are distinguished. Others are one reason.
const MAX_REASONS: usize = 8;

/// Reason beyond [`MAX_REASONS`].
const OTHER_REASONS: &str = "other reasons";

/// Number of sources beyond which those without a recent message are removed.
const MAX_SOURCES: usize = 20_000;

/// Faults that were reported, and numbers of those that were not.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    sources: HashMap<String, BTreeMap<String, Reported>>,
}

#[derive(Debug)]
struct Reported {
    at: Instant,
    /// Number of faults since then.
    unreported: u64,
}

impl LogLimit {
    /// Counts faults of a source. Returns the reason to report with the number of faults since the last
    /// report, if a report is due.
    pub(crate) fn count(
        &mut self,
        source: &str,
        reason: &str,
        count: u64,
        now: Instant,
    ) -> Option<(String, u64)> {
        let is_recent = |reported: &Reported| now.duration_since(reported.at) < REPEAT_INTERVAL;
        if self.sources.len() >= MAX_SOURCES && !self.sources.contains_key(source) {
            self.sources.retain(|_, reasons| reasons.values().any(is_recent));
        }
        let reasons = self.sources.entry(source.to_owned()).or_default();
        if reasons.len() >= MAX_REASONS && !reasons.contains_key(reason) {
            reasons.retain(|_, reported| is_recent(reported));
        }
        let is_known = reasons.len() < MAX_REASONS || reasons.contains_key(reason);
        let reason = if is_known { reason } else { OTHER_REASONS };
        match reasons.get_mut(reason) {
            Some(reported) if is_recent(reported) => {
                reported.unreported += count;
                None
            }
            Some(reported) => {
                let unreported = std::mem::take(&mut reported.unreported);
                reported.at = now;
                Some((reason.to_owned(), unreported + count))
            }
            None => {
                reasons.insert(reason.to_owned(), Reported { at: now, unreported: 0 });
                Some((reason.to_owned(), count))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_faults_are_reported_every_ten_minutes_with_a_count() {
        let (mut limit, start) = (LogLimit::default(), Instant::now());
        let mut count = |source, reason, secs| {
            limit.count(source, reason, 2, start + Duration::from_secs(secs))
        };
        let due = |reason: &str, count| Some((reason.to_owned(), count));
        assert_eq!(count("a", "x", 0), due("x", 2));
        assert_eq!(count("a", "x", 1), None);
        assert_eq!(count("a", "y", 1), due("y", 2), "another reason");
        assert_eq!(count("b", "x", 1), due("x", 2), "another node");
        assert_eq!(count("a", "x", 599), None);
        assert_eq!(count("a", "x", 600), due("x", 6));
        assert_eq!(count("a", "x", 1_200), due("x", 2));
    }

    #[test]
    fn reasons_of_a_node_are_bounded() {
        let (mut limit, start) = (LogLimit::default(), Instant::now());
        let mut reports = 0;
        for n in 0..1_000 {
            reports += usize::from(limit.count("a", &n.to_string(), 1, start).is_some());
        }
        assert_eq!(reports, MAX_REASONS + 1);
        assert_eq!(limit.sources["a"].len(), MAX_REASONS + 1);
        assert!(limit.count("b", "0", 1, start).is_some(), "another node");
    }
}
