//! Collects the records of one node whose spool is reachable, and leaves receipts and its schedule there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use dwell_rollup::{
    Incarnation, Level, Name, NodeSchedule, Pause, RangeSet, SpoolCursor, StatusFile,
};
use thiserror::Error;

use crate::batch::Rules;
use crate::error::HubError;
use crate::ingest::ingest;
use crate::object::time_text;
use crate::period::SECOND_NS;
use crate::samples::SampleCollector;
use crate::store::{Counts, HubStore, HubTransaction};
use crate::verify::Delivery;

/// Levels that a hub collects, the coarsest first: it is small, and has the statuses that date the others.
const LEVELS: [Level; 2] = [Level::FiveMinutes, Level::TenSeconds];

/// Maximum number of bytes in one round, so that a node with many records does not delay its schedule.
const MAX_ROUND_BYTES: usize = 16 << 20;

/// Maximum time of a round, for the same reason: a poor line needs minutes for these bytes.
const MAX_ROUND_NS: i64 = 5 * SECOND_NS;

/// Time after which records that the hub deferred are read again.
const DEFERRED_INTERVAL_NS: i64 = 3_600 * SECOND_NS;

const MINUTE_NS: i64 = 60 * SECOND_NS;

/// Maximum time by which the clock of a node may be ahead of the hub's: records beyond have no plausible
/// time.
const MAX_CLOCK_LEAD_NS: i64 = 5 * MINUTE_NS;

/// Maximum age of the last status of a running agent, which writes one every 5 min.
const MAX_STATUS_AGE_NS: i64 = 11 * MINUTE_NS;

/// The spool of a node, over any carrier.
pub trait NodeSpool {
    /// Error of the carrier.
    type Error;

    /// Returns the last status of the agent; `None` if no agent ever ran there.
    ///
    /// # Errors
    /// The node is unreachable, or its spool unreadable.
    fn status(&mut self) -> Result<Option<StatusFile>, Self::Error>;

    /// Returns the next records of a level without those that have receipts, the position after them, and
    /// whether more can be read now.
    ///
    /// # Errors
    /// The node is unreachable, or its spool unreadable.
    fn read(
        &mut self,
        level: Level,
        from: Option<SpoolCursor>,
    ) -> Result<(Vec<u8>, Option<SpoolCursor>, bool), Self::Error>;

    /// Returns the next samples as [`Self::read`], at least those that were written in a span: from the
    /// first to the second time on the node's CLOCK_REALTIME in nanoseconds.
    ///
    /// # Errors
    /// The node is unreachable, or its spool unreadable.
    fn read_samples(
        &mut self,
        from: Option<SpoolCursor>,
        _written_ns: (i64, i64),
    ) -> Result<(Vec<u8>, Option<SpoolCursor>, bool), Self::Error> {
        self.read(Level::Samples, from)
    }

    /// Leaves receipts, which replace earlier ones.
    ///
    /// # Errors
    /// The node is unreachable, or its spool not writable.
    fn put_receipts(
        &mut self,
        receipts: BTreeMap<Incarnation, RangeSet>,
    ) -> Result<(), Self::Error>;

    /// Leaves a schedule.
    ///
    /// # Errors
    /// The node is unreachable, or its spool not writable.
    fn put_schedule(&mut self, schedule: NodeSchedule) -> Result<(), Self::Error>;
}

/// A round that failed. The next one repeats what it did not complete.
#[derive(Debug, Error)]
pub enum CollectError<E> {
    /// The carrier failed.
    #[error(transparent)]
    Carrier(E),
    /// The hub's database failed. The node keeps its records.
    #[error(transparent)]
    Hub(HubError),
    /// The agent has another name than the node.
    #[error(
        "its agent is named {found}, not {expected}; change `node` in its configuration, or rename the \
         device: `dwell device edit {expected} --name {found}`"
    )]
    OtherName {
        /// The name of the agent.
        found: Name,
        /// That of the node.
        expected: Name,
    },
}

/// Result of a round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// Whether an agent ever ran there.
    pub has_agent: bool,
    /// Bytes of records.
    pub bytes: usize,
    /// Records, by what was done with them.
    pub counts: Counts,
    /// Reasons of bad records.
    pub bad: Vec<String>,
    /// Version of the schedule that was left.
    pub schedule: Option<u64>,
    /// The agent's pause.
    pub pause: Option<Pause>,
    /// Time of the agent's last status by the clock of the node, in nanoseconds since 1970.
    pub status_ns: i64,
    /// Time at which it was read by the clock of the hub, in nanoseconds since 1970.
    pub read_ns: i64,
    /// Whether the round ended before everything was read, so the next one should follow at once.
    pub is_cut: bool,
}

impl Round {
    /// Whether another message would make the round too long.
    pub(crate) fn is_over(&self, now_ns: i64) -> bool {
        // A clock that is set back ends the round as well.
        let took = now_ns.abs_diff(self.read_ns);
        self.bytes >= MAX_ROUND_BYTES || took >= MAX_ROUND_NS.unsigned_abs()
    }

    /// Returns why the hub collects nothing, or nothing that is usable now, and what to do.
    pub fn fault(&self) -> Option<String> {
        if !self.has_agent {
            return Some(
                "no agent has run there; start it by `dwell-node agent --config agent.toml`, and check \
                 `spool` in its configuration (docs/fleet.md)"
                    .to_owned(),
            );
        }
        // The text stays the same while the fault does.
        let offset_ns = self.status_ns.saturating_sub(self.read_ns);
        if offset_ns > MAX_CLOCK_LEAD_NS {
            return Some(
                "its clock is more than 5 min ahead of this machine's; synchronise both, such as by \
                 `timedatectl set-ntp true`"
                    .to_owned(),
            );
        }
        (offset_ns < -MAX_STATUS_AGE_NS).then(|| {
            format!(
                "its agent wrote the last status at {}: start the agent again if it has ended; \
                 otherwise its clock is behind, so synchronise it, such as by `timedatectl set-ntp true`",
                time_text(self.status_ns.div_euclid(SECOND_NS).saturating_mul(SECOND_NS))
            )
        })
    }
}

/// The collection from one node, over one connection.
#[derive(Debug)]
pub struct Collector {
    node: Name,
    rules: Rules,
    /// Position in each level.
    cursors: BTreeMap<Level, SpoolCursor>,
    /// The agent's start whose positions these are.
    incarnation: Option<Incarnation>,
    /// Version of the schedule that was left in this connection.
    schedule: Option<u64>,
    /// Time at which the hub first deferred records that were not read again since.
    deferred_ns: Option<i64>,
    /// The collection of requested samples.
    samples: Option<SampleCollector>,
}

impl Collector {
    /// Begins with the oldest records.
    pub fn new(node: Name, rules: Rules) -> Self {
        Self {
            node,
            rules,
            cursors: BTreeMap::new(),
            incarnation: None,
            schedule: None,
            deferred_ns: None,
            samples: None,
        }
    }

    /// Also collects requested samples, as files in the data directory `dir`.
    #[must_use]
    pub fn with_samples(self, dir: &Path) -> Self {
        let samples = SampleCollector::new(self.node.clone(), self.rules, dir.to_owned());
        Self { samples: Some(samples), ..self }
    }

    /// Leaves a new schedule, collects new records and leaves receipts. `now` reads CLOCK_REALTIME.
    ///
    /// # Errors
    /// See [`CollectError`]. What was committed before has receipts in the database.
    pub fn round<S: NodeSpool>(
        &mut self,
        spool: &mut S,
        store: &Mutex<dyn HubStore + Send>,
        now: impl Fn() -> i64,
    ) -> Result<Round, CollectError<S::Error>> {
        let Some(status) = spool.status().map_err(CollectError::Carrier)? else {
            return Ok(Round::default());
        };
        if status.node != self.node {
            let (found, expected) = (status.node, self.node.clone());
            return Err(CollectError::OtherName { found, expected });
        }
        let mut round =
            Round { has_agent: true, pause: status.status.pause.clone(), ..Round::default() };
        (round.status_ns, round.read_ns) = (status.wall_ns, now());
        round.schedule = self.leave_schedule(spool, store)?;
        let is_overdue = |since: &mut i64| now().saturating_sub(*since) >= DEFERRED_INTERVAL_NS;
        if self.deferred_ns.take_if(is_overdue).is_some() {
            self.cursors.clear();
        }
        // A spool that was created anew has other files. Records with receipts are not read again.
        if self.incarnation.replace(status.incarnation) != Some(status.incarnation) {
            self.cursors.clear();
            self.samples.iter_mut().for_each(SampleCollector::restart);
        }
        for level in LEVELS {
            while !round.is_cut && self.collect(spool, store, level, &now, &mut round)? {
                round.is_cut = round.is_over(now());
            }
        }
        if let Some(samples) = &mut self.samples
            && !round.is_cut
        {
            samples.round(spool, store, &status, &now, &mut round)?;
        }
        Ok(round)
    }

    /// Collects one message. Returns whether more can be read now.
    fn collect<S: NodeSpool>(
        &mut self,
        spool: &mut S,
        store: &Mutex<dyn HubStore + Send>,
        level: Level,
        now: &impl Fn() -> i64,
        round: &mut Round,
    ) -> Result<bool, CollectError<S::Error>> {
        let from = self.cursors.get(&level).copied();
        let (message, next, has_more) = spool.read(level, from).map_err(CollectError::Carrier)?;
        if !message.is_empty() {
            let delivery = Delivery { node: &self.node, arrival_ns: now(), message: &message };
            let committed = {
                let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
                ingest(&mut *store, &[delivery], &self.rules).map_err(CollectError::Hub)?
            };
            round.bytes += message.len();
            committed.counts.values().for_each(|counts| round.counts.add(counts));
            if committed.counts.values().any(|counts| counts.deferred > 0) {
                self.deferred_ns.get_or_insert(delivery.arrival_ns);
            }
            round.bad.extend(committed.bad.into_iter().map(|(_, reason)| reason));
            let receipts = committed.receipts.into_iter();
            let receipts = receipts.map(|((_, incarnation), set)| (incarnation, set)).collect();
            spool.put_receipts(receipts).map_err(CollectError::Carrier)?;
        }
        if let Some(next) = next {
            self.cursors.insert(level, next);
        }
        Ok(has_more)
    }

    /// Leaves the newest schedule once per connection. The node's version does not show that it has
    /// it: another hub may have used the same number. Returns its version.
    fn leave_schedule<S: NodeSpool>(
        &mut self,
        spool: &mut S,
        store: &Mutex<dyn HubStore + Send>,
    ) -> Result<Option<u64>, CollectError<S::Error>> {
        let newest = {
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            let newest =
                store.begin_to_read().and_then(|mut it| newest_schedule(&mut *it, &self.node));
            newest.map_err(CollectError::Hub)?
        };
        let Some(newest) = newest else { return Ok(None) };
        let version = newest.version;
        if self.schedule == Some(version) {
            return Ok(None);
        }
        spool.put_schedule(newest).map_err(CollectError::Carrier)?;
        self.schedule = Some(version);
        Ok(Some(version))
    }
}

/// Returns the part of a node in the newest schedule; empty for a node that was added later; `None`
/// without a schedule.
///
/// # Errors
/// The database failed.
pub fn newest_schedule(
    transaction: &mut dyn HubTransaction,
    node: &Name,
) -> Result<Option<NodeSchedule>, HubError> {
    let Some(version) = transaction.newest_version()? else { return Ok(None) };
    schedule_of(transaction, version, node).map(Some)
}

/// Returns the part of a node in a version of the schedule; empty for a node that it does not name.
///
/// # Errors
/// The database failed.
pub fn schedule_of(
    transaction: &mut dyn HubTransaction,
    version: u64,
    node: &Name,
) -> Result<NodeSchedule, HubError> {
    let Some(json) = transaction.node_schedule(version, node)? else {
        return Ok(NodeSchedule { version, node: node.clone(), entries: Vec::new() });
    };
    NodeSchedule::from_json(json.as_bytes()).map_err(|error| HubError::stored("schedule", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_names_the_remedy() {
        let round = |has_agent, minutes: i64| Round {
            has_agent,
            status_ns: 1_000 * MINUTE_NS,
            read_ns: (1_000 - minutes) * MINUTE_NS,
            ..Round::default()
        };
        for (round, expected) in [
            (round(false, 0), "start it by `dwell-node agent"),
            (round(true, 180), "5 min ahead of this machine's; synchronise both"),
            (round(true, -90), "at 1970-01-01T16:40:00Z: start the agent again"),
        ] {
            let fault = round.fault().unwrap();
            assert!(fault.contains(expected), "{fault}");
        }
        for minutes in [-10, 0, 4] {
            assert_eq!(round(true, minutes).fault(), None);
        }
    }
}
