//! Collects the records of one node whose spool is reachable, and leaves receipts and its schedule there.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use dwell_rollup::{
    Incarnation, Level, Name, NodeSchedule, Pause, RangeSet, SpoolCursor, StatusFile,
};
use thiserror::Error;

use crate::error::HubError;
use crate::ingest::{Rules, ingest};
use crate::period::SECOND_NS;
use crate::store::{Counts, HubStore, HubTransaction};
use crate::verify::Delivery;

/// Levels that a hub collects, the coarsest first: it is small, and has the statuses that date the others.
const LEVELS: [Level; 2] = [Level::FiveMinutes, Level::TenSeconds];

/// Maximum number of bytes in one round, so that a node with many records does not delay its schedule.
const MAX_ROUND_BYTES: usize = 16 << 20;

/// Time after which records that the hub deferred are read again.
const DEFERRED_INTERVAL_NS: i64 = 3_600 * SECOND_NS;

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
    #[error("its agent is named {found}, not {expected}; give both the same name")]
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
        }
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
        round.schedule = self.leave_schedule(spool, store)?;
        let is_overdue = |since: &mut i64| now().saturating_sub(*since) >= DEFERRED_INTERVAL_NS;
        if self.deferred_ns.take_if(is_overdue).is_some() {
            self.cursors.clear();
        }
        // A spool that was created anew has other files. Records with receipts are not read again.
        if self.incarnation.replace(status.incarnation) != Some(status.incarnation) {
            self.cursors.clear();
        }
        for level in LEVELS {
            while self.collect(spool, store, level, &now, &mut round)?
                && round.bytes < MAX_ROUND_BYTES
            {}
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
    let Some(json) = transaction.node_schedule(version, node)? else {
        return Ok(Some(NodeSchedule { version, node: node.clone(), entries: Vec::new() }));
    };
    let part = NodeSchedule::from_json(json.as_bytes());
    part.map(Some).map_err(|error| HubError::stored("schedule", error))
}
