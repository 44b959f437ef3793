//! Reads the requested samples of one node, and stores them as Parquet files. A block of samples has a
//! receipt only after its file is on the medium, so a node frees none that the hub does not have.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use dwell_rollup::{
    Body, Incarnation, Level, Name, RangeSet, Record, SampleBlock, SpoolCursor, StatusFile, Stream,
};
use dwell_store::{FleetSamples, StoreError, fleet_samples, is_whole_segment};

use super::request::{SampleRequest, SampleRequestState, requests};
use crate::batch::Rules;
use crate::clock::check_clock;
use crate::collect::{CollectError, NodeSpool, Round};
use crate::error::HubError;
use crate::incarnation::{MAX_RANGES, Source};
use crate::ingest::ingest;
use crate::period::DAY_NS;
use crate::store::HubStore;
use crate::verify::{Delivery, Verified, verify};

/// Bytes of blocks that are stored together.
const MAX_WAITING_BYTES: usize = 4 << 20;

/// The collection of samples over one connection.
#[derive(Debug)]
pub(crate) struct SampleCollector {
    node: Name,
    rules: Rules,
    /// The data directory.
    dir: PathBuf,
    /// Everything before it was read for the requests of `numbers`.
    cursor: Option<SpoolCursor>,
    numbers: BTreeSet<u64>,
    /// Blocks that are not stored yet, by file.
    waiting: BTreeMap<FileKey, Vec<(u64, SampleBlock)>>,
    waiting_bytes: usize,
    /// Blocks in files, by start of an agent, as far as they were looked up.
    stored: BTreeMap<Incarnation, RangeSet>,
}

/// What the blocks of a file have in common: start of the agent, day and stream.
type FileKey = (Incarnation, i64, Stream);

impl SampleCollector {
    pub(crate) fn new(node: Name, rules: Rules, dir: PathBuf) -> Self {
        Self {
            node,
            rules,
            dir,
            cursor: None,
            numbers: BTreeSet::new(),
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            stored: BTreeMap::new(),
        }
    }

    /// Begins with the oldest samples again.
    pub(crate) fn restart(&mut self) {
        self.cursor = None;
        self.numbers.clear();
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// Collects requested samples, and ends requests.
    pub(crate) fn round<S: NodeSpool>(
        &mut self,
        spool: &mut S,
        store: &Mutex<dyn HubStore + Send>,
        status: &StatusFile,
        now: &impl Fn() -> i64,
        round: &mut Round,
    ) -> Result<(), CollectError<S::Error>> {
        let outcome = self.collect(spool, store, status, now, round);
        if outcome.is_err() {
            // What was read and not stored is read again.
            self.restart();
        }
        outcome
    }

    fn collect<S: NodeSpool>(
        &mut self,
        spool: &mut S,
        store: &Mutex<dyn HubStore + Send>,
        status: &StatusFile,
        now: &impl Fn() -> i64,
        round: &mut Round,
    ) -> Result<(), CollectError<S::Error>> {
        let mut pending = self.pending(store).map_err(CollectError::Hub)?;
        if pending.is_empty() {
            return Ok(());
        }
        let before = pending.clone();
        if pending.iter().any(|request| !self.numbers.contains(&request.number)) {
            self.restart();
            if status.status.dropped.samples > 0 {
                self.note_gone(spool, &mut pending)?;
            }
            self.numbers = pending.iter().map(|request| request.number).collect();
        }
        let spans = pending.iter().map(SampleRequest::written_ns);
        let written = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or_default();
        let mut is_read = false;
        while !is_read && !round.is_cut {
            let read = spool.read_samples(self.cursor, written);
            let (message, next, has_more) = read.map_err(CollectError::Carrier)?;
            round.bytes += message.len();
            self.take(store, &message, &pending, now(), round).map_err(CollectError::Hub)?;
            self.cursor = next.or(self.cursor);
            is_read = !has_more;
            round.is_cut = has_more && round.is_over(now());
            if is_read || self.waiting_bytes >= MAX_WAITING_BYTES {
                self.flush(spool, store, now())?;
            }
        }
        self.flush(spool, store, now())?;
        end_requests(store, &before, pending, now(), is_read).map_err(CollectError::Hub)
    }

    /// The pending requests for samples of this node.
    fn pending(&self, store: &Mutex<dyn HubStore + Send>) -> Result<Vec<SampleRequest>, HubError> {
        let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = requests(&mut *store.begin_to_read()?)?;
        all.retain(|it| it.sender == self.node && it.state == SampleRequestState::Pending);
        Ok(all)
    }

    /// Notes in requests which samples their node has dropped: all that are older than the oldest in its
    /// spool and in files.
    fn note_gone<S: NodeSpool>(
        &self,
        spool: &mut S,
        pending: &mut [SampleRequest],
    ) -> Result<(), CollectError<S::Error>> {
        let (message, ..) = spool.read(Level::Samples, None).map_err(CollectError::Carrier)?;
        let delivery = Delivery { node: &self.node, arrival_ns: 0, message: &message };
        let oldest = verify(&delivery, self.rules.decode).into_iter().find_map(|part| match part {
            Verified::Record { record, .. } => Some(record.body.measured_at(&record).0),
            Verified::Bad(_) => None,
        });
        let (files, _) = fleet_samples(&self.dir, &self.names()).map_err(cannot_store)?;
        for request in pending.iter_mut().filter(|it| it.gone_before_ns.is_none()) {
            let of_request = files.iter().filter(|file| request.is_answered_by(&file.about));
            let stored = of_request.map(|file| file.about.from_ns);
            let oldest = stored.chain(oldest).min();
            request.gone_before_ns =
                oldest.map(|at| at.min(request.to_ns)).filter(|at| *at > request.from_ns);
        }
        Ok(())
    }

    /// Selects names of files of this node.
    fn names(&self) -> impl Fn(&str) -> bool + use<> {
        let prefix = format!("{}-", self.node);
        move |name| name.starts_with(&prefix)
    }

    /// Takes the requested blocks of a message. Bad parts are kept as those of other levels.
    fn take(
        &mut self,
        store: &Mutex<dyn HubStore + Send>,
        message: &[u8],
        pending: &[SampleRequest],
        arrival_ns: i64,
        round: &mut Round,
    ) -> Result<(), HubError> {
        let delivery = Delivery { node: &self.node, arrival_ns, message };
        let mut bad = Vec::new();
        for part in verify(&delivery, self.rules.decode) {
            let record = match part {
                Verified::Record { record, .. } => *record,
                Verified::Bad(part) => {
                    bad.extend_from_slice(part.raw);
                    continue;
                }
            };
            let Record { identity, body: Body::Samples(block), .. } = record else { continue };
            let last_ns = block.start_wall_ns.saturating_add_unsigned(block.duration_ns);
            let is_wanted = pending.iter().any(|request| {
                request.reflector == block.stream.reflector
                    && request.overlaps(block.start_wall_ns, last_ns)
            });
            if is_wanted && !is_whole_segment(&block.segment) {
                round.bad.push(format!("record {identity}: its block of samples is damaged"));
            } else if is_wanted {
                let day = block.start_wall_ns.div_euclid(DAY_NS);
                let key = (identity.incarnation, day, block.stream.clone());
                self.waiting_bytes += block.segment.len();
                self.waiting.entry(key).or_default().push((identity.sequence, block));
            }
        }
        if !bad.is_empty() {
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            let delivery = Delivery { message: &bad, ..delivery };
            let committed = ingest(&mut *store, &[delivery], &self.rules)?;
            committed.counts.values().for_each(|counts| round.counts.add(counts));
            round.bad.extend(committed.bad.into_iter().map(|(_, reason)| reason));
        }
        Ok(())
    }

    /// Stores the waiting blocks in files, then their receipts, and leaves these on the node.
    fn flush<S: NodeSpool>(
        &mut self,
        spool: &mut S,
        store: &Mutex<dyn HubStore + Send>,
        now_ns: i64,
    ) -> Result<(), CollectError<S::Error>> {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let mut stored: BTreeMap<Incarnation, RangeSet> = BTreeMap::new();
        for ((incarnation, _, stream), blocks) in waiting {
            self.store_blocks(incarnation, &stream, &blocks).map_err(CollectError::Hub)?;
            let sequences = blocks.iter().map(|(sequence, _)| *sequence).collect();
            stored.entry(incarnation).or_default().merge(&sequences);
        }
        if stored.is_empty() {
            return Ok(());
        }
        let receipts = {
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            add_receipts(&mut *store, &self.node, stored, now_ns).map_err(CollectError::Hub)?
        };
        spool.put_receipts(receipts).map_err(CollectError::Carrier)
    }

    /// Stores those blocks that are in no file. A file never changes: after an interruption, blocks of it
    /// may come again.
    fn store_blocks(
        &mut self,
        incarnation: Incarnation,
        stream: &Stream,
        blocks: &[(u64, SampleBlock)],
    ) -> Result<(), HubError> {
        if !self.stored.contains_key(&incarnation) {
            let prefix = format!("{}-{incarnation}-", self.node);
            let (files, _) = fleet_samples(&self.dir, &|name| name.starts_with(&prefix))
                .map_err(HubError::Samples)?;
            let mut known = RangeSet::new();
            let sets =
                files.iter().filter_map(|file| file.about.sequences.parse::<RangeSet>().ok());
            sets.for_each(|set| known.merge(&set));
            self.stored.insert(incarnation, known);
        }
        let known = self.stored.entry(incarnation).or_default();
        let new: Vec<_> =
            blocks.iter().filter(|(sequence, _)| !known.contains(*sequence)).collect();
        let Some((first, _)) = new.first() else { return Ok(()) };
        let sequences: RangeSet = new.iter().map(|(sequence, _)| *sequence).collect();
        let starts = new.iter().map(|(_, block)| block.start_wall_ns);
        let ends = new
            .iter()
            .map(|(_, block)| block.start_wall_ns.saturating_add_unsigned(block.duration_ns));
        let about = FleetSamples {
            sender: self.node.to_string(),
            reflector: stream.reflector.to_string(),
            protocol: stream.protocol.to_string(),
            entry: stream.entry.to_string(),
            incarnation: incarnation.to_string(),
            first_sequence: *first,
            sequences: sequences.to_string(),
            from_ns: starts.min().unwrap_or_default(),
            to_ns: ends.max().unwrap_or_default(),
            samples: new.iter().map(|(_, block)| block.samples).sum(),
        };
        let segments: Vec<&[u8]> = new.iter().map(|(_, block)| &block.segment[..]).collect();
        about.store(&self.dir, &segments).map_err(HubError::Samples)?;
        known.merge(&sequences);
        Ok(())
    }
}

/// Ends requests, and stores those that changed since `before`.
fn end_requests(
    store: &Mutex<dyn HubStore + Send>,
    before: &[SampleRequest],
    mut pending: Vec<SampleRequest>,
    now_ns: i64,
    is_read: bool,
) -> Result<(), HubError> {
    pending.iter_mut().for_each(|request| request.end(now_ns, is_read));
    if pending == before {
        return Ok(());
    }
    let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
    let mut transaction = store.begin()?;
    check_clock(&mut *transaction, now_ns)?;
    for request in pending.iter().filter(|request| !before.contains(request)) {
        request.store(&mut *transaction)?;
    }
    transaction.commit()
}

/// Adds receipts for samples of a node. Returns all receipts of their agents' starts.
fn add_receipts(
    store: &mut dyn HubStore,
    node: &Name,
    stored: BTreeMap<Incarnation, RangeSet>,
    now_ns: i64,
) -> Result<BTreeMap<Incarnation, RangeSet>, HubError> {
    let mut transaction = store.begin()?;
    check_clock(&mut *transaction, now_ns)?;
    let node = transaction.add_nodes(std::slice::from_ref(node))?[0];
    let sources: Vec<Source> =
        stored.keys().map(|incarnation| Source { node, incarnation: *incarnation }).collect();
    let mut states = transaction.incarnations(&sources)?;
    for (state, sequences) in states.iter_mut().zip(stored.values()) {
        // Without a receipt, the node keeps the blocks although they are stored.
        if state.receipts.range_count() + sequences.range_count() <= MAX_RANGES {
            state.receipts.merge(sequences);
        }
    }
    let states: Vec<_> = sources.into_iter().zip(states).collect();
    transaction.set_incarnations(&states)?;
    transaction.commit()?;
    Ok(states.into_iter().map(|(source, state)| (source.incarnation, state.receipts)).collect())
}

fn cannot_store<E>(error: StoreError) -> CollectError<E> {
    CollectError::Hub(HubError::Samples(error))
}
