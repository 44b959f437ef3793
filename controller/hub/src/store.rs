//! The seam between the hub and its database. One transaction stores the rows of a batch and their
//! receipts. The rules are in `ingest`, so that all databases follow the same ones; `tests/store`
//! checks each database.

use std::collections::{BTreeMap, BTreeSet};

use dwell_rollup::{BootId, Incarnation, Name, Status, Stream};

use crate::dating::{ClockPairing, MAX_AGE_NS};
use crate::error::HubError;
use crate::incarnation::{IncarnationState, Source};
use crate::period::{Horizons, Partition, Resolution};
use crate::row::{NodeId, RecordKey, Row, StreamId};
use crate::window::{Window, WindowFigures};

/// A database of a hub.
pub trait HubStore {
    /// Begins a transaction. Without [`HubTransaction::commit`] it has no effect. Other hubs wait, or
    /// see the state before or after it.
    ///
    /// # Errors
    /// The database cannot be used.
    fn begin(&mut self) -> Result<Box<dyn HubTransaction + '_>, HubError>;

    /// Begins a transaction that only reads, from one state of the database.
    ///
    /// # Errors
    /// The database cannot be used.
    fn begin_to_read(&mut self) -> Result<Box<dyn HubTransaction + '_>, HubError>;
}

impl<S: HubStore + ?Sized> HubStore for Box<S> {
    fn begin(&mut self) -> Result<Box<dyn HubTransaction + '_>, HubError> {
        (**self).begin()
    }

    fn begin_to_read(&mut self) -> Result<Box<dyn HubTransaction + '_>, HubError> {
        (**self).begin_to_read()
    }
}

/// A stream with its sender.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SentStream {
    /// Number in the store.
    pub id: StreamId,
    /// The node that sends the probes.
    pub sender: Name,
    /// Reflector, protocol and schedule entry.
    pub stream: Stream,
}

/// A time span of a stream, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The stream.
    pub stream: StreamId,
    /// Start; part of the span.
    pub from_ns: i64,
    /// End; not part of the span.
    pub to_ns: i64,
}

/// A record without a plausible time, or with that of a clock that was not synchronised.
#[derive(Clone, Debug, PartialEq)]
pub struct UndatedRecord {
    /// The node.
    pub node: NodeId,
    /// The record.
    pub key: RecordKey,
    /// Its kernel.
    pub boot_id: BootId,
    /// Arrival in nanoseconds since 1970.
    pub arrival_ns: i64,
    /// Measured time on CLOCK_BOOTTIME in nanoseconds.
    pub measured_boot_ns: i64,
    /// The record's own measured time in nanoseconds since 1970; `None` if it is implausible.
    pub own_ns: Option<i64>,
    /// Time by which it is stored: by a clock pairing of the same boot, or its own.
    pub dated_ns: Option<i64>,
    /// The encoding.
    pub raw: Vec<u8>,
}

/// A status of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredStatus {
    /// The node.
    pub node: NodeId,
    /// The record.
    pub key: RecordKey,
    /// CLOCK_REALTIME of the record, or its time by a clock pairing, in nanoseconds.
    pub wall_ns: i64,
    /// Arrival in nanoseconds since 1970.
    pub arrival_ns: i64,
    /// The status.
    pub status: Status,
}

impl StoredStatus {
    /// Returns a status with this time, without pauses beyond [`MAX_PAUSES`].
    pub(crate) fn new(
        (node, key): (NodeId, RecordKey),
        wall_ns: i64,
        arrival_ns: i64,
        mut status: Status,
    ) -> Self {
        status.pauses.truncate(MAX_PAUSES);
        Self { node, key, wall_ns, arrival_ns, status }
    }
}

/// Maximum number of ended pauses in a status that are kept: as many as an agent writes.
const MAX_PAUSES: usize = 100;

/// What coverage and the errors of one-way delays need of a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPoint {
    /// CLOCK_REALTIME of the status in nanoseconds.
    pub wall_ns: i64,
    /// Version of the schedule in effect.
    pub schedule_version: u64,
    /// Maximum error of CLOCK_REALTIME against UTC in nanoseconds.
    pub clock_bound_ns: Option<u64>,
    /// Pauses, as start and end in nanoseconds since 1970. One in effect ends with the status.
    pub pauses: Vec<(i64, i64)>,
}

impl StatusPoint {
    /// Returns the pauses of a status that was written at this time. A start before the clock of the node
    /// was set does not make years a pause.
    pub fn pauses_of(status: &Status, wall_ns: i64) -> Vec<(i64, i64)> {
        let ended = status.pauses.iter().take(MAX_PAUSES);
        let ended = ended.map(|pause| (pause.from_wall_ns, pause.to_wall_ns));
        // The pause lasts at least until this status was written.
        let all = ended.chain(status.pause.iter().map(|pause| (pause.since_wall_ns, wall_ns)));
        let oldest_ns = wall_ns.saturating_sub(MAX_AGE_NS);
        let plausible = all.map(|(from_ns, to_ns)| (from_ns.max(oldest_ns), to_ns.min(wall_ns)));
        plausible.filter(|(from_ns, to_ns)| from_ns < to_ns).collect()
    }
}

/// Bytes that are no record of their node, or of an unknown version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBadRecord {
    /// Number in the store.
    pub id: i64,
    /// The node.
    pub node: NodeId,
    /// First arrival in nanoseconds since 1970.
    pub arrival_ns: i64,
    /// Number of arrivals.
    pub arrivals: u64,
    /// The version, if only that is unknown.
    pub version: Option<u8>,
    /// Why it is not stored as a record.
    pub reason: String,
    /// The bytes.
    pub raw: Vec<u8>,
}

/// Number of records of a node by what was done with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Stored, with or without a time.
    pub stored: u64,
    /// Arrived again.
    pub duplicates: u64,
    /// Older than the retention of their level: receipted, not stored.
    pub expired: u64,
    /// Bad: kept raw.
    pub bad: u64,
    /// Samples that were not requested: neither stored nor receipted.
    pub unrequested: u64,
    /// Neither stored nor receipted now, because the node has too many incarnations or gaps. The node
    /// delivers them again. Not counted in the database.
    pub deferred: u64,
}

impl Counts {
    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.stored += other.stored;
        self.duplicates += other.duplicates;
        self.expired += other.expired;
        self.bad += other.bad;
        self.unrequested += other.unrequested;
        self.deferred += other.deferred;
    }
}

/// A node in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredNode {
    /// Number in the store.
    pub id: NodeId,
    /// Name.
    pub name: Name,
    /// Last arrival of a record in nanoseconds since 1970.
    pub last_arrival_ns: Option<i64>,
    /// Records since the database was created.
    pub counts: Counts,
    /// Records without a plausible time.
    pub undated: u64,
}

/// An applied schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedSchedule {
    /// Version, from 1.
    pub version: u64,
    /// Time of its application in nanoseconds since 1970.
    pub applied_ns: i64,
    /// Who applied it, as `USER@HOST`.
    pub author: String,
    /// The file.
    pub text: String,
}

/// What a text of [`HubTransaction::texts`] belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TextKind {
    /// The applied file of alert rules; the key is empty.
    AlertRules,
    /// The state of an alert, by rule and subject.
    AlertState,
    /// The hub that evaluates alerts.
    AlertLease,
    /// An event of alerts, by number.
    AlertEvent,
    /// A message to a receiver that is not delivered yet, by event and receiver.
    AlertDelivery,
    /// Announced maintenance, by node.
    Maintenance,
    /// Times in which a node was not heard, by node.
    ContactGaps,
    /// A request for samples, by node and number.
    SampleRequest,
    /// Held by a transaction that gives a number to a request for samples; the key is empty.
    SampleLock,
    /// The collection from a node over SSH, by node and hub.
    Collection,
}

impl TextKind {
    /// Name in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::AlertRules => "alert-rules",
            Self::AlertState => "alert-state",
            Self::AlertLease => "alert-lease",
            Self::AlertEvent => "alert-event",
            Self::AlertDelivery => "alert-delivery",
            Self::Maintenance => "maintenance",
            Self::ContactGaps => "contact-gaps",
            Self::SampleRequest => "sample-request",
            Self::SampleLock => "sample-lock",
            Self::Collection => "collection",
        }
    }
}

/// A transaction. Every method fails if the database does.
#[expect(clippy::missing_errors_doc, reason = "every method fails if the database does")]
pub trait HubTransaction {
    /// Makes all changes durable.
    fn commit(self: Box<Self>) -> Result<(), HubError>;

    /// Returns the time that [`Self::set_clock`] stored last; `None` in a new database.
    fn clock(&mut self) -> Result<Option<i64>, HubError>;

    /// Stores the time of the hub, in nanoseconds since 1970.
    fn set_clock(&mut self, now_ns: i64) -> Result<(), HubError>;

    /// Returns the numbers of nodes, adding nodes that are missing, and locks them until the end of the
    /// transaction: no other hub stores records of these nodes at the same time. A batch asks once, in
    /// ascending order.
    fn add_nodes(&mut self, names: &[Name]) -> Result<Vec<NodeId>, HubError>;

    /// Returns all nodes, by name.
    fn nodes(&mut self) -> Result<Vec<StoredNode>, HubError>;

    /// Adds to the counts of a node, and notes an arrival.
    fn count(&mut self, node: NodeId, counts: &Counts, arrival_ns: i64) -> Result<(), HubError>;

    /// Returns the numbers of streams of nodes, adding those that are missing while their node has fewer
    /// than `limit`; `None` beyond.
    fn add_streams(
        &mut self,
        streams: &[(NodeId, Stream)],
        limit: u64,
    ) -> Result<Vec<Option<StreamId>>, HubError>;

    /// Notes the starts of rows of streams, in nanoseconds since 1970. The last one counts.
    fn note_streams(&mut self, last: &[(StreamId, i64)]) -> Result<(), HubError>;

    /// Removes streams whose last row starts before this time.
    fn remove_streams(&mut self, before_ns: i64) -> Result<(), HubError>;

    /// Returns the streams of a sender, or of all senders.
    fn streams(&mut self, sender: Option<&Name>) -> Result<Vec<SentStream>, HubError>;

    /// Returns the states of incarnations of nodes that the transaction locked. An unknown incarnation has
    /// the default state.
    fn incarnations(&mut self, sources: &[Source]) -> Result<Vec<IncarnationState>, HubError>;

    /// Counts a new incarnation of a node on a day, which is in days since 1970, unless `limit` were
    /// counted on that day. Returns whether it is counted.
    fn admit_incarnation(&mut self, node: NodeId, day: i64, limit: u64) -> Result<bool, HubError>;

    /// Stores the states of incarnations.
    fn set_incarnations(&mut self, states: &[(Source, IncarnationState)]) -> Result<(), HubError>;

    /// Returns all incarnations of a node.
    fn incarnations_of(
        &mut self,
        node: NodeId,
    ) -> Result<Vec<(Incarnation, IncarnationState)>, HubError> {
        Ok(self.incarnations_of_nodes(&[node])?.remove(&node).unwrap_or_default())
    }

    /// Returns all incarnations of these nodes. A node without any may be missing.
    fn incarnations_of_nodes(
        &mut self,
        nodes: &[NodeId],
    ) -> Result<BTreeMap<NodeId, Vec<(Incarnation, IncarnationState)>>, HubError>;

    /// Adds rows of records to a partition, creating it. A row that is there stays.
    fn add_rows(&mut self, partition: Partition, rows: &[Row]) -> Result<(), HubError>;

    /// Removes rows of records from a partition, which need not exist.
    fn remove_rows(
        &mut self,
        partition: Partition,
        rows: &[(StreamId, i64, RecordKey)],
    ) -> Result<(), HubError>;

    /// Replaces or removes computed rows, by stream and start.
    fn set_computed(
        &mut self,
        resolution: Resolution,
        rows: &[(StreamId, i64, Option<Row>)],
    ) -> Result<(), HubError>;

    /// Returns the rows whose middle is in each span, in ascending order of start and key
    /// ([`Resolution::middle`]).
    fn rows(&mut self, resolution: Resolution, spans: &[Span]) -> Result<Vec<Vec<Row>>, HubError>;

    /// Replaces or removes figures of windows.
    fn set_windows(
        &mut self,
        windows: &[(StreamId, Window, Option<WindowFigures>)],
    ) -> Result<(), HubError>;

    /// Returns the figures of a window, of these streams or of all, in ascending order of the stream.
    fn windows(
        &mut self,
        window: Window,
        streams: Option<&[StreamId]>,
    ) -> Result<Vec<(StreamId, WindowFigures)>, HubError>;

    /// Returns the stored horizons. They stay as they are until the end of a transaction that changes
    /// the database.
    fn horizons(&mut self) -> Result<Horizons, HubError>;

    /// Raises the stored horizons to these, and drops the partitions before them. Returns the stored
    /// horizons and the dropped partitions. No transaction that asked for the horizons is still open
    /// then, nor begins before the end of this one.
    fn drop_expired(&mut self, horizons: &Horizons)
    -> Result<(Horizons, Vec<Partition>), HubError>;

    /// Adds clock pairings of a boot. One that is there stays, synchronised if either is.
    fn add_pairings(
        &mut self,
        pairings: &[(NodeId, BootId, ClockPairing)],
        arrival_ns: i64,
    ) -> Result<(), HubError>;

    /// Returns the clock pairings of a boot.
    fn pairings(&mut self, node: NodeId, boot: BootId) -> Result<Vec<ClockPairing>, HubError>;

    /// Counts bytes of new undated records of a node, unless it would have more than `limit` bytes.
    /// Returns whether they are counted.
    fn admit_undated(&mut self, node: NodeId, bytes: u64, limit: u64) -> Result<bool, HubError>;

    /// Adds undated records that are admitted, or changes the time by which they are dated.
    fn set_undated(&mut self, records: &[UndatedRecord]) -> Result<(), HubError>;

    /// Returns at most `limit` undated records of a boot, dated or not, that were measured in
    /// [from, to) on CLOCK_BOOTTIME, in ascending order of that time and their key, behind `after`.
    fn undated(
        &mut self,
        of: (NodeId, BootId),
        from_ns: i64,
        to_ns: i64,
        after: Option<(i64, RecordKey)>,
        limit: u64,
    ) -> Result<Vec<UndatedRecord>, HubError>;

    /// Adds statuses. A status that is there stays.
    fn add_statuses(&mut self, statuses: &[StoredStatus]) -> Result<(), HubError>;

    /// Removes statuses, by node, time and record.
    fn remove_statuses(&mut self, statuses: &[(NodeId, i64, RecordKey)]) -> Result<(), HubError>;

    /// Returns the statuses of a node in [from, to), by time.
    fn statuses(
        &mut self,
        node: NodeId,
        from_ns: i64,
        to_ns: i64,
    ) -> Result<Vec<StoredStatus>, HubError>;

    /// Returns the statuses of nodes in [from, to), by time and without their bodies: a node writes
    /// 26,000 in 90 days. A node without any may be missing.
    fn status_histories(
        &mut self,
        nodes: &[NodeId],
        from_ns: i64,
        to_ns: i64,
    ) -> Result<BTreeMap<NodeId, Vec<StatusPoint>>, HubError>;

    /// Returns the newest status of a node by time.
    fn last_status(&mut self, node: NodeId) -> Result<Option<StoredStatus>, HubError> {
        Ok(self.last_statuses(&[node])?.remove(&node))
    }

    /// Returns the newest status of each of these nodes by time.
    fn last_statuses(
        &mut self,
        nodes: &[NodeId],
    ) -> Result<BTreeMap<NodeId, StoredStatus>, HubError>;

    /// Keeps a bad record once, whatever the number of its arrivals, while the node has at most
    /// `limit` bytes of them; each counts as at least 256 bytes. Returns whether it is kept. The time
    /// that this takes does not grow with the number of kept records.
    fn keep_bad(&mut self, bad: &StoredBadRecord, limit: u64) -> Result<bool, HubError>;

    /// Returns bad records of a node, or of all nodes, the newest first.
    fn bad(&mut self, node: Option<NodeId>, limit: u64) -> Result<Vec<StoredBadRecord>, HubError>;

    /// Returns kept records of unknown versions with a number above `after`, in ascending order. No other
    /// hub stores records until the end of the transaction.
    fn unknown_versions(
        &mut self,
        after: i64,
        limit: u64,
    ) -> Result<Vec<StoredBadRecord>, HubError>;

    /// Removes a bad record.
    fn remove_bad(&mut self, id: i64) -> Result<(), HubError>;

    /// Removes what is no longer needed: statuses before `statuses_before_ns`, clock pairings and
    /// dated records that arrived before `dated_before_ns`, undated and bad records that arrived
    /// before `undated_before_ns`.
    fn remove_old(
        &mut self,
        statuses_before_ns: i64,
        dated_before_ns: i64,
        undated_before_ns: i64,
    ) -> Result<(), HubError>;

    /// Stores a schedule with the part of each node, under the next version, which `parts` receives.
    fn add_schedule(
        &mut self,
        applied_ns: i64,
        author: &str,
        text: &str,
        parts: &dyn Fn(u64) -> BTreeMap<Name, String>,
    ) -> Result<u64, HubError>;

    /// Returns all schedules, the oldest first.
    fn schedules(&mut self) -> Result<Vec<AppliedSchedule>, HubError>;

    /// Returns the version of the newest schedule.
    fn newest_version(&mut self) -> Result<Option<u64>, HubError>;

    /// Returns the part of a node in a version.
    fn node_schedule(&mut self, version: u64, node: &Name) -> Result<Option<String>, HubError> {
        let nodes = BTreeSet::from([node.clone()]);
        Ok(self.node_schedules(version, Some(&nodes))?.remove(node))
    }

    /// Returns the parts of these nodes in a version, or of all nodes that have one.
    fn node_schedules(
        &mut self,
        version: u64,
        nodes: Option<&BTreeSet<Name>>,
    ) -> Result<BTreeMap<Name, String>, HubError>;

    /// Returns the texts of a kind, by key.
    fn texts(&mut self, kind: TextKind) -> Result<BTreeMap<String, String>, HubError>;

    /// Replaces a text; `None` removes it.
    fn set_text(&mut self, kind: TextKind, key: &str, text: Option<&str>) -> Result<(), HubError>;
}

#[cfg(test)]
mod tests {
    use dwell_rollup::{Pause, PauseInterval};

    use super::*;

    #[test]
    fn pauses_do_not_begin_before_the_clock_was_set() {
        let wall_ns = 100 * MAX_AGE_NS;
        let ended = |from_wall_ns, to_wall_ns| PauseInterval {
            reason: "run".into(),
            from_wall_ns,
            to_wall_ns,
        };
        let status = Status {
            pauses: vec![ended(wall_ns - 20, wall_ns - 10), ended(wall_ns + 5, wall_ns + 9)],
            pause: Some(Pause { reason: "run".into(), since_wall_ns: 7 }),
            ..Status::default()
        };
        let expected = [(wall_ns - 20, wall_ns - 10), (wall_ns - MAX_AGE_NS, wall_ns)];
        assert_eq!(StatusPoint::pauses_of(&status, wall_ns), expected);
    }
}
