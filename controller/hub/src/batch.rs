//! The changes of one transaction: records and bad bytes are added to a batch, which stores rows, receipts,
//! dates and computed rows at its end.

use std::collections::{BTreeMap, BTreeSet};

use dwell_rollup::{
    Body, BootId, Identity, Incarnation, Level, Name, RangeSet, Record, Rollup, Status, Stream,
};

use crate::dating::{BootClock, ClockPairing, is_plausible};
use crate::error::HubError;
use crate::incarnation::{IncarnationState, MAX_RANGES, Source};
use crate::period::{DAY_NS, Horizons, Partition, Resolution, Retention};
use crate::row::{NodeId, RecordKey, Row, StreamId};
use crate::spans::{TimeSpan, join};
use crate::store::{Counts, HubTransaction, Span, StoredBadRecord, StoredStatus, UndatedRecord};
use crate::verify::{BadRecord, Decoder, Delivery, Verified};
use crate::window_update::{self, ChangedRows};

/// Maximum number of streams of a node. A schedule has at most 1,000 entries per node.
const MAX_STREAMS: u64 = 10_000;

/// Maximum number of incarnations of a node that begin to arrive on one day.
const MAX_INCARNATIONS_PER_DAY: u64 = 1_000;

/// Maximum number of bytes of bad records that are kept of a node.
const MAX_BAD_BYTES: u64 = 16 << 20;

/// Maximum number of parts of one message that are kept although they have no identity: noise, or
/// records of other nodes.
const MAX_UNIDENTIFIED: usize = 100;

/// Maximum number of bytes of records of a node that wait for a time, or may get another one.
const MAX_UNDATED_BYTES: u64 = 64 << 20;

/// Maximum number of bytes beyond which a record keeps its own plausible time for good.
const MAX_CORRECTABLE_BYTES: u64 = 16 << 20;

/// Number of undated records that are read at once.
const UNDATED_BATCH: usize = 200;

/// Rules by which records are stored.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How long rows are kept.
    pub retention: Retention,
    /// The decoder of records.
    pub decode: Decoder,
}

impl Default for Rules {
    fn default() -> Self {
        Self { retention: Retention::default(), decode: Record::decode }
    }
}

/// Result of a committed batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Committed {
    /// All receipts of the incarnations in the batch, by node.
    pub receipts: BTreeMap<(Name, Incarnation), RangeSet>,
    /// Sequence numbers of records of the batch that have receipts, by node.
    pub receipted: BTreeMap<(Name, Incarnation), RangeSet>,
    /// What was done with the records, by node.
    pub counts: BTreeMap<Name, Counts>,
    /// Reasons of bad records, with their nodes.
    pub bad: Vec<(Name, String)>,
}

fn has_plausible_time(record: &Record, arrival_ns: i64) -> bool {
    let (wall_ns, _) = record.body.measured_at(record);
    is_plausible(wall_ns, arrival_ns)
}

/// Whether CLOCK_REALTIME of the node was synchronised when the record was written.
fn is_synchronised(body: &Body) -> bool {
    match body {
        Body::Rollup(rollup) => rollup.clock.is_synchronised,
        Body::Status(status) => status.clock_synchronised,
        Body::Samples(_) => false,
    }
}

/// Start of the hour of a row of 5 min.
const fn hour_of(start_ns: i64) -> i64 {
    Resolution::Hour.floor(Resolution::FiveMinutes.middle(start_ns))
}

/// A record that is to be stored.
struct Arrived {
    node: NodeId,
    name: Name,
    arrival_ns: i64,
    record: Record,
    raw: Vec<u8>,
    /// Number of the kept bytes of an unknown version that it was decoded from; its receipt exists.
    held: Option<i64>,
}

/// Bytes that are no record of a known version.
struct ArrivedBad {
    node: NodeId,
    name: Name,
    arrival_ns: i64,
    raw: Vec<u8>,
    reason: String,
    version: Option<u8>,
    identity: Option<Identity>,
}

/// What one batch adds to a boot.
#[derive(Default)]
struct BootChanges {
    pairings: Vec<ClockPairing>,
    /// Measured times of undated records on CLOCK_BOOTTIME.
    measured_ns: Vec<i64>,
}

/// The changes of one transaction.
pub(crate) struct Batch<'a> {
    transaction: &'a mut dyn HubTransaction,
    rules: &'a Rules,
    stored_horizons: Horizons,
    states: BTreeMap<Source, IncarnationState>,
    names: BTreeMap<Name, NodeId>,
    streams: BTreeMap<(NodeId, Stream), Option<StreamId>>,
    arrived: Vec<Arrived>,
    bad: Vec<ArrivedBad>,
    rows: BTreeMap<Partition, Vec<Row>>,
    statuses: Vec<StoredStatus>,
    undated: Vec<UndatedRecord>,
    /// Boots whose undated records may get another time.
    boots: BTreeMap<(NodeId, BootId), BootChanges>,
    /// Hours of streams whose rows of 5 min changed.
    changed_hours: BTreeSet<(StreamId, i64)>,
    /// Streams whose windows may change.
    changed_rows: BTreeMap<StreamId, ChangedRows>,
    committed: Committed,
    last_arrivals: BTreeMap<Name, i64>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(
        transaction: &'a mut dyn HubTransaction,
        rules: &'a Rules,
    ) -> Result<Self, HubError> {
        let stored_horizons = transaction.horizons()?;
        Ok(Self {
            transaction,
            rules,
            stored_horizons,
            states: BTreeMap::new(),
            names: BTreeMap::new(),
            streams: BTreeMap::new(),
            arrived: Vec::new(),
            bad: Vec::new(),
            rows: BTreeMap::new(),
            statuses: Vec::new(),
            undated: Vec::new(),
            boots: BTreeMap::new(),
            changed_hours: BTreeSet::new(),
            changed_rows: BTreeMap::new(),
            committed: Committed::default(),
            last_arrivals: BTreeMap::new(),
        })
    }

    pub(crate) fn add(
        &mut self,
        delivery: &Delivery<'_>,
        parts: Vec<Verified<'_>>,
    ) -> Result<(), HubError> {
        let name = delivery.node;
        let node = self.node(name)?;
        let last = self.last_arrivals.entry(name.clone()).or_insert(delivery.arrival_ns);
        *last = delivery.arrival_ns.max(*last);
        let mut unidentified = 0;
        for part in parts {
            match part {
                Verified::Record { record, raw } => self.arrived.push(Arrived {
                    node,
                    name: name.clone(),
                    arrival_ns: delivery.arrival_ns,
                    record: *record,
                    raw: raw.to_vec(),
                    held: None,
                }),
                Verified::Bad(bad) => {
                    unidentified += usize::from(bad.identity.is_none());
                    if bad.identity.is_none() && unidentified > MAX_UNIDENTIFIED {
                        self.counts(name).bad += 1;
                        continue;
                    }
                    let BadRecord { raw, reason, version, identity } = bad;
                    self.bad.push(ArrivedBad {
                        node,
                        name: name.clone(),
                        arrival_ns: delivery.arrival_ns,
                        raw: raw.to_vec(),
                        reason,
                        version,
                        identity,
                    });
                }
            }
        }
        Ok(())
    }

    pub(crate) fn add_held(
        &mut self,
        name: &Name,
        bad: StoredBadRecord,
        record: Record,
    ) -> Result<(), HubError> {
        let node = self.node(name)?;
        self.arrived.push(Arrived {
            node,
            name: name.clone(),
            arrival_ns: bad.arrival_ns,
            record,
            raw: bad.raw,
            held: Some(bad.id),
        });
        Ok(())
    }

    /// Finds the numbers of all nodes in order, so that two hubs do not wait for each other.
    pub(crate) fn number_nodes<'n>(
        &mut self,
        names: impl Iterator<Item = &'n Name>,
    ) -> Result<(), HubError> {
        let names: BTreeSet<&Name> = names.collect();
        let names: Vec<Name> = names.into_iter().cloned().collect();
        let nodes = self.transaction.add_nodes(&names)?;
        self.names.extend(names.into_iter().zip(nodes));
        Ok(())
    }

    fn node(&mut self, name: &Name) -> Result<NodeId, HubError> {
        if let Some(node) = self.names.get(name) {
            return Ok(*node);
        }
        let added = self.transaction.add_nodes(std::slice::from_ref(name))?;
        let node = added[0];
        self.names.insert(name.clone(), node);
        Ok(node)
    }

    fn state(&mut self, source: Source) -> Result<&mut IncarnationState, HubError> {
        use std::collections::btree_map::Entry;
        match self.states.entry(source) {
            Entry::Occupied(state) => Ok(state.into_mut()),
            Entry::Vacant(place) => {
                let mut read = self.transaction.incarnations(&[source])?;
                Ok(place.insert(read.pop().unwrap_or_default()))
            }
        }
    }

    /// Whether the hub gives a receipt for another record of this incarnation.
    fn has_room_for(
        &mut self,
        source: Source,
        sequence: u64,
        arrival_ns: i64,
    ) -> Result<bool, HubError> {
        let state = self.state(source)?;
        if state.is_known() {
            return Ok(state.has_room_for(sequence));
        }
        let day = arrival_ns.div_euclid(DAY_NS);
        self.transaction.admit_incarnation(source.node, day, MAX_INCARNATIONS_PER_DAY)
    }

    fn keep_bad(
        &mut self,
        node: NodeId,
        name: &Name,
        arrival_ns: i64,
        bad: BadRecord<'_>,
    ) -> Result<(), HubError> {
        // An identified record that is committed came again; its first copy is stored or kept.
        if let Some(identity) = &bad.identity {
            let source = Source { node, incarnation: identity.incarnation };
            if self.state(source)?.receipts.contains(identity.sequence) {
                self.counts(name).duplicates += 1;
                return Ok(());
            }
        }
        self.counts(name).bad += 1;
        self.committed.bad.push((name.clone(), bad.reason.clone()));
        let stored = StoredBadRecord {
            id: 0,
            node,
            arrival_ns,
            arrivals: 1,
            version: bad.version,
            reason: bad.reason,
            raw: bad.raw.to_vec(),
        };
        let is_kept = self.transaction.keep_bad(&stored, MAX_BAD_BYTES)?;
        // The node may free it only if the hub has it.
        if let Some(identity) = bad.identity.filter(|_| is_kept) {
            let source = Source { node, incarnation: identity.incarnation };
            if self.has_room_for(source, identity.sequence, arrival_ns)? {
                self.state(source)?.receipts.insert(identity.sequence);
            }
        }
        Ok(())
    }

    fn counts(&mut self, name: &Name) -> &mut Counts {
        self.committed.counts.entry(name.clone()).or_default()
    }

    /// Stores everything, and returns the result.
    pub(crate) fn finish(mut self) -> Result<Committed, HubError> {
        self.number_streams()?;
        self.load_states()?;
        let identities = self.identities();
        for ArrivedBad { node, name, arrival_ns, raw, reason, version, identity } in
            std::mem::take(&mut self.bad)
        {
            let bad = BadRecord { raw: &raw, reason, version, identity };
            self.keep_bad(node, &name, arrival_ns, bad)?;
        }
        for arrived in std::mem::take(&mut self.arrived) {
            self.take(arrived)?;
        }
        self.transaction.set_undated(&self.undated)?;
        self.date_records()?;
        let mut last: BTreeMap<StreamId, i64> = BTreeMap::new();
        for (partition, rows) in &self.rows {
            self.transaction.add_rows(*partition, rows)?;
            for row in rows {
                let last_ns = last.entry(row.stream).or_insert(row.start_ns);
                *last_ns = row.start_ns.max(*last_ns);
            }
        }
        self.transaction.note_streams(&last.into_iter().collect::<Vec<_>>())?;
        self.transaction.add_statuses(&self.statuses)?;
        self.recompute()?;
        window_update::recompute(self.transaction, &self.changed_rows)?;
        let states = std::mem::take(&mut self.states).into_iter();
        let states: Vec<_> = states.filter(|(_, state)| state.is_known()).collect();
        self.transaction.set_incarnations(&states)?;
        for (name, node) in &self.names {
            let counts = self.committed.counts.get(name).copied().unwrap_or_default();
            if let Some(arrival_ns) = self.last_arrivals.get(name) {
                self.transaction.count(*node, &counts, *arrival_ns)?;
            }
        }
        let names: BTreeMap<NodeId, &Name> =
            self.names.iter().map(|(name, node)| (*node, name)).collect();
        for (source, state) in states {
            let Some(name) = names.get(&source.node) else { continue };
            let key = ((*name).clone(), source.incarnation);
            let of_batch = identities.get(&source).into_iter().flatten().copied();
            let receipted: RangeSet =
                of_batch.filter(|number| state.receipts.contains(*number)).collect();
            if !receipted.is_empty() {
                self.committed.receipted.insert(key.clone(), receipted);
            }
            self.committed.receipts.insert(key, state.receipts);
        }
        Ok(self.committed)
    }

    /// Sequence numbers of all records of the batch.
    fn identities(&self) -> BTreeMap<Source, Vec<u64>> {
        let records = self.arrived.iter().map(|of| (of.node, &of.record.identity));
        let bad = self.bad.iter().filter_map(|of| Some((of.node, of.identity.as_ref()?)));
        let mut numbers: BTreeMap<Source, Vec<u64>> = BTreeMap::new();
        for (node, Identity { incarnation, sequence, .. }) in records.chain(bad) {
            let source = Source { node, incarnation: *incarnation };
            numbers.entry(source).or_default().push(*sequence);
        }
        numbers
    }

    /// Finds the numbers of all streams of the batch.
    fn number_streams(&mut self) -> Result<(), HubError> {
        let mut wanted: BTreeSet<(NodeId, Stream)> = BTreeSet::new();
        for arrived in &self.arrived {
            if let Body::Rollup(rollup) = &arrived.record.body {
                wanted.insert((arrived.node, rollup.stream.clone()));
            }
        }
        self.number_streams_of(wanted.into_iter().collect())
    }

    fn number_streams_of(&mut self, streams: Vec<(NodeId, Stream)>) -> Result<(), HubError> {
        let numbers = self.transaction.add_streams(&streams, MAX_STREAMS)?;
        self.streams.extend(streams.into_iter().zip(numbers));
        Ok(())
    }

    fn stream_id(&self, node: NodeId, stream: &Stream) -> Option<StreamId> {
        self.streams.get(&(node, stream.clone())).copied().flatten()
    }

    /// Reads the states of all incarnations of the batch at once.
    fn load_states(&mut self) -> Result<(), HubError> {
        let mut sources = BTreeSet::new();
        for Arrived { node, record, .. } in &self.arrived {
            let incarnation = record.identity.incarnation;
            sources.insert(Source { node: *node, incarnation });
            if let Body::Status(status) = &record.body {
                let named = status.dropped_since.iter().map(|dropped| dropped.incarnation);
                sources.extend(named.map(|incarnation| Source { node: *node, incarnation }));
            }
        }
        for ArrivedBad { node, identity, .. } in &self.bad {
            let incarnation = identity.as_ref().map(|identity| identity.incarnation);
            sources.extend(incarnation.map(|incarnation| Source { node: *node, incarnation }));
        }
        let sources: Vec<Source> = sources.into_iter().collect();
        let states = self.transaction.incarnations(&sources)?;
        self.states.extend(sources.into_iter().zip(states));
        Ok(())
    }

    fn take(&mut self, arrived: Arrived) -> Result<(), HubError> {
        let Arrived { node, name, arrival_ns, record, raw, held } = arrived;
        let incarnation = record.identity.incarnation;
        let key = RecordKey { incarnation, sequence: record.identity.sequence };
        let source = Source { node, incarnation };
        if matches!(record.body, Body::Samples(_)) {
            self.counts(&name).unrequested += 1;
            return self.release(held);
        }
        let is_duplicate = self.state(source)?.receipts.contains(key.sequence);
        if is_duplicate && held.is_none() {
            self.counts(&name).duplicates += 1;
            return Ok(());
        }
        if let Body::Rollup(rollup) = &record.body
            && self.stream_id(node, &rollup.stream).is_none()
        {
            // Held bytes stay where they are.
            if held.is_some() {
                return Ok(());
            }
            let reason = format!("node {name} has more than {MAX_STREAMS} streams");
            let identity = Some(record.identity.clone());
            let bad = BadRecord { raw: &raw, reason, version: None, identity };
            return self.keep_bad(node, &name, arrival_ns, bad);
        }
        if held.is_none() && !self.has_room_for(source, key.sequence, arrival_ns)? {
            self.counts(&name).deferred += 1;
            return Ok(());
        }
        let Some(is_undated) = self.is_undated(node, &record, arrival_ns, raw.len())? else {
            self.counts(&name).deferred += 1;
            return Ok(());
        };
        self.release(held)?;
        let state = self.state(source)?;
        state.receipts.insert(key.sequence);
        state.note(&record, arrival_ns);
        if let Body::Status(status) = &record.body {
            self.note_dropped(node, status, arrival_ns)?;
        }
        if has_plausible_time(&record, arrival_ns)
            && let Body::Status(status) = &record.body
        {
            self.add_pairing(node, &record, status.clock_synchronised, arrival_ns)?;
        }
        if !is_undated {
            let (wall_ns, _) = record.body.measured_at(&record);
            return self.place(node, &name, key, arrival_ns, record.body, wall_ns);
        }
        self.counts(&name).stored += 1;
        let (wall_ns, measured_boot_ns) = record.body.measured_at(&record);
        let own_ns = is_plausible(wall_ns, arrival_ns).then_some(wall_ns);
        let boot_id = record.boot_id;
        self.undated.push(UndatedRecord {
            node,
            key,
            boot_id,
            arrival_ns,
            measured_boot_ns,
            own_ns,
            dated_ns: None,
            raw,
        });
        if boot_id.is_known() {
            self.boots.entry((node, boot_id)).or_default().measured_ns.push(measured_boot_ns);
        }
        Ok(())
    }

    /// Removes held bytes whose record has its place.
    fn release(&mut self, held: Option<i64>) -> Result<(), HubError> {
        held.map_or(Ok(()), |id| self.transaction.remove_bad(id))
    }

    /// Whether a record waits for a time, or may get another one; `None` if there is no room for one
    /// that waits.
    fn is_undated(
        &mut self,
        node: NodeId,
        record: &Record,
        arrival_ns: i64,
        len: usize,
    ) -> Result<Option<bool>, HubError> {
        let limit = if has_plausible_time(record, arrival_ns) {
            if is_synchronised(&record.body) || !record.boot_id.is_known() {
                return Ok(Some(false));
            }
            MAX_CORRECTABLE_BYTES
        } else {
            MAX_UNDATED_BYTES
        };
        let is_admitted = self.transaction.admit_undated(node, len as u64, limit)?;
        Ok(if is_admitted {
            Some(true)
        } else {
            has_plausible_time(record, arrival_ns).then_some(false)
        })
    }

    /// Notes records that the node dropped: they will not arrive. What is beyond a limit stays missing.
    fn note_dropped(
        &mut self,
        node: NodeId,
        status: &Status,
        arrival_ns: i64,
    ) -> Result<(), HubError> {
        for dropped in &status.dropped_since {
            let source = Source { node, incarnation: dropped.incarnation };
            let first = dropped.sequences.ranges().next().map(|range| *range.start());
            let Some(first) = first else { continue };
            if !self.state(source)?.is_known() && !self.has_room_for(source, first, arrival_ns)? {
                continue;
            }
            let state = self.state(source)?;
            // Samples stay on the node, so their numbers would be gaps forever.
            let noted = if dropped.level == Level::Samples.name() {
                &mut state.receipts
            } else {
                &mut state.dropped
            };
            if noted.range_count() + dropped.sequences.range_count() <= MAX_RANGES {
                noted.merge(&dropped.sequences);
            }
        }
        Ok(())
    }

    fn add_pairing(
        &mut self,
        node: NodeId,
        record: &Record,
        is_synchronised: bool,
        arrival_ns: i64,
    ) -> Result<(), HubError> {
        if record.boot_id.is_known() {
            let (boot_ns, wall_ns) = (record.boot_ns, record.wall_ns);
            let pairing = ClockPairing { boot_ns, wall_ns, is_synchronised };
            self.transaction.add_pairings(&[(node, record.boot_id, pairing)], arrival_ns)?;
            self.boots.entry((node, record.boot_id)).or_default().pairings.push(pairing);
        }
        Ok(())
    }

    /// Adds a record with a known time.
    fn place(
        &mut self,
        node: NodeId,
        name: &Name,
        key: RecordKey,
        arrival_ns: i64,
        body: Body,
        measured_ns: i64,
    ) -> Result<(), HubError> {
        let is_stored = match body {
            Body::Rollup(rollup) => self.place_rollup(node, key, arrival_ns, rollup, measured_ns),
            Body::Status(status) => {
                let horizons = self.horizons(arrival_ns);
                let is_kept = !horizons.is_expired(Resolution::FiveMinutes.partition(measured_ns));
                if is_kept {
                    let (wall_ns, status) = (measured_ns, *status);
                    self.statuses.push(StoredStatus { node, key, wall_ns, arrival_ns, status });
                }
                is_kept
            }
            Body::Samples(_) => false,
        };
        let counts = self.counts(name);
        if is_stored {
            counts.stored += 1;
        } else {
            counts.expired += 1;
        }
        Ok(())
    }

    fn horizons(&self, arrival_ns: i64) -> Horizons {
        let mut horizons = self.stored_horizons;
        horizons.raise_all(&self.rules.retention, arrival_ns);
        horizons
    }

    /// Adds a row. Returns false if its partition has expired.
    fn place_rollup(
        &mut self,
        node: NodeId,
        key: RecordKey,
        arrival_ns: i64,
        rollup: Rollup,
        measured_ns: i64,
    ) -> bool {
        let Some(resolution) = Resolution::of(rollup.level) else { return false };
        let partition = resolution.partition_of_row(measured_ns);
        if self.horizons(arrival_ns).is_expired(partition) {
            return false;
        }
        let Some(stream) = self.stream_id(node, &rollup.stream) else { return false };
        if resolution == Resolution::FiveMinutes {
            self.changed_hours.insert((stream, hour_of(measured_ns)));
            ChangedRows::note(&mut self.changed_rows, stream, measured_ns, false);
        }
        let row = Row::of(rollup, stream, measured_ns, key);
        self.rows.entry(partition).or_default().push(row);
        true
    }

    /// Dates the undated records of this batch, and those that a clock pairing of this batch may date.
    fn date_records(&mut self) -> Result<(), HubError> {
        for ((node, boot), changes) in std::mem::take(&mut self.boots) {
            let clock = BootClock::new(self.transaction.pairings(node, boot)?);
            let instants = changes.measured_ns.iter().map(|at| (*at, at.saturating_add(1)));
            let reached = changes.pairings.iter().map(|pairing| clock.reach(pairing));
            for span in join(instants.chain(reached).collect()) {
                self.date_span((node, boot), span, &clock)?;
            }
        }
        Ok(())
    }

    /// Dates the undated records that were measured in a span of CLOCK_BOOTTIME.
    fn date_span(
        &mut self,
        of: (NodeId, BootId),
        (from_ns, to_ns): TimeSpan,
        clock: &BootClock,
    ) -> Result<(), HubError> {
        let mut after = None;
        loop {
            let limit = UNDATED_BATCH as u64;
            let page = self.transaction.undated(of, from_ns, to_ns, after, limit)?;
            let is_last = page.len() < UNDATED_BATCH;
            let mut changed = Vec::new();
            for undated in page {
                after = Some((undated.measured_boot_ns, undated.key));
                let UndatedRecord { measured_boot_ns, own_ns, arrival_ns, .. } = undated;
                let dated_ns = clock.date(measured_boot_ns, own_ns, arrival_ns);
                if dated_ns == undated.dated_ns {
                    continue;
                }
                // The bytes were decoded at their arrival.
                let Ok(record) = (self.rules.decode)(&undated.raw) else { continue };
                self.move_record(&undated, record, dated_ns)?;
                changed.push(UndatedRecord { dated_ns, ..undated });
            }
            self.transaction.set_undated(&changed)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Moves a record from its earlier time, if it was dated, to another one.
    fn move_record(
        &mut self,
        undated: &UndatedRecord,
        record: Record,
        to_ns: Option<i64>,
    ) -> Result<(), HubError> {
        let UndatedRecord { node, key, arrival_ns, dated_ns, .. } = *undated;
        match record.body {
            Body::Rollup(rollup) => {
                if self.stream_id(node, &rollup.stream).is_none() {
                    self.number_streams_of(vec![(node, rollup.stream.clone())])?;
                }
                let stream = self.stream_id(node, &rollup.stream);
                let resolution = Resolution::of(rollup.level);
                if let (Some(from_ns), Some(stream), Some(resolution)) =
                    (dated_ns, stream, resolution)
                {
                    let partition = resolution.partition_of_row(from_ns);
                    self.transaction.remove_rows(partition, &[(stream, from_ns, key)])?;
                    // Without its rows of 5 min, an hour cannot be computed again.
                    if resolution == Resolution::FiveMinutes
                        && !self.horizons(arrival_ns).is_expired(partition)
                    {
                        self.changed_hours.insert((stream, hour_of(from_ns)));
                        ChangedRows::note(&mut self.changed_rows, stream, from_ns, true);
                    }
                }
                if let Some(to_ns) = to_ns {
                    self.place_rollup(node, key, arrival_ns, rollup, to_ns);
                }
            }
            Body::Status(status) => {
                if let Some(from_ns) = dated_ns {
                    self.transaction.remove_statuses(&[(node, from_ns, key)])?;
                }
                if let Some(wall_ns) = to_ns {
                    let status = *status;
                    self.statuses.push(StoredStatus { node, key, wall_ns, arrival_ns, status });
                }
            }
            Body::Samples(_) => {}
        }
        Ok(())
    }

    /// Computes the rows of the changed hours, and of their days, from all their rows.
    fn recompute(&mut self) -> Result<(), HubError> {
        let days = self.changed_hours.iter();
        let days: BTreeSet<_> =
            days.map(|(stream, hour)| (*stream, Resolution::Day.floor(*hour))).collect();
        let hours = std::mem::take(&mut self.changed_hours);
        self.recompute_from(Resolution::FiveMinutes, Resolution::Hour, hours)?;
        self.recompute_from(Resolution::Hour, Resolution::Day, days)
    }

    fn recompute_from(
        &mut self,
        finer: Resolution,
        coarser: Resolution,
        changed: BTreeSet<(StreamId, i64)>,
    ) -> Result<(), HubError> {
        let spans = changed.iter().map(|(stream, from_ns)| Span {
            stream: *stream,
            from_ns: *from_ns,
            to_ns: from_ns + coarser.length_ns(),
        });
        let spans: Vec<Span> = spans.collect();
        let rows = self.transaction.rows(finer, &spans)?;
        let computed = spans
            .iter()
            .zip(&rows)
            .map(|(span, rows)| (span.stream, span.from_ns, Row::merge(rows, span.from_ns)));
        self.transaction.set_computed(coarser, &computed.collect::<Vec<_>>())
    }
}
