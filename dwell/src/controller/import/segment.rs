//! Imports segments of dwell: the samples of a ping, or the passages recorded by one machine.
//! Segments of paced packets are imported by [`departures`].

use std::collections::{BTreeMap, HashMap};
use std::io::{Cursor, Read};

use dwell_engine::observation::{PacketObservation, PacketOutcome, Point};
use dwell_engine::stamps::{Rung, State};
use dwell_node_cli::{Exit, Failure};
use dwell_record::segment::{self, Header, Record, SegmentEnd, SegmentError};
use dwell_record::{Batch, CUT_SHORT, Column, Environment, Kind, Scalar, Stamps, Summary, Trust};
use dwell_stats::{DelayComponent, RoundTrip};
use dwell_store::{HostWriter, Ingest, RunRow, Store, StoreError, TrialRow};
use serde_json::{Value, json};

use super::{Args, add_trial, begin, departures, end, file_name, finish, whole};

/// Maximum number of flows of passages; each becomes a trial.
const MAX_FLOWS: usize = 64;

/// Rows per batch.
const BATCH_ROWS: usize = 1 << 14;

/// Imports a segment that begins with `head`.
pub(super) fn import(
    args: &Args,
    store: &mut Store,
    head: &[u8],
    rest: impl Read,
) -> Result<Exit, Failure> {
    let mut kind = None;
    // An unreadable segment is reported below.
    let _ = segment::read(&mut &head[..], &mut |record| {
        if let Record::Header(header) = record {
            kind.get_or_insert_with(|| header.kind.clone());
        }
    });
    let mut input = Cursor::new(head).chain(rest);
    let name = file_name(&args.file);
    let kind = kind.as_deref().unwrap_or("ping");
    let title = match kind {
        "ping" => "samples of dwell",
        "pace" => "departures of dwell",
        _ => "passages of dwell",
    };
    let (run, _lock) = begin(store, &name, title)?;
    let taken = match kind {
        "ping" => samples(args, store, &run, &mut input),
        "pace" => departures::import(args, store, &run, &mut input),
        _ => passages(args, store, &run, &mut input),
    };
    whole(store, &run, taken)
}

fn samples(
    args: &Args,
    store: &mut Store,
    run: &RunRow,
    input: &mut dyn Read,
) -> Result<Exit, Failure> {
    let name = file_name(&args.file);
    let trial = add_trial(store, run, 1, &name)?;
    let mut ingest = store.ingest(run, &trial)?;
    let mut host = store.host_writer(run, &trial)?;
    let (mut target, mut dwell) = (String::new(), String::new());
    // Computed like the measuring command does, so that the figures are the same.
    let mut measured = RoundTrip::new(Rung::User, 0);
    let end_of_it = ingest.push_segment_with(input, &mut |record| match record {
        Record::Header(header) => {
            target.clone_from(&header.target);
            dwell.clone_from(&header.dwell);
        }
        Record::Sample(sample, bridge, near) => {
            measured.set_near(*near);
            measured.record(sample, *bridge);
        }
        Record::Host(sample) => host.push(&name, sample),
        Record::Flow(_) | Record::PacketObservation(_) => {}
    })?;
    let end_of_it = match end_of_it {
        Ok(end) => end,
        Err(error) => return Err(foreign(args, &error)),
    };
    let cut_short = cut_short(&end_of_it);
    if end_of_it.samples == 0 {
        let why = cut_short.unwrap_or_else(|| "the file has none".into());
        return Err(nothing(args, "sample", &why));
    }
    let taken = ingest.finish()?;
    host.finish()?;
    let mut warnings = Vec::new();
    let ring_dropped = end_of_it.totals.map_or(0, |totals| totals.ring_dropped);
    warnings.extend(cut_short);
    warnings.extend(damaged(&end_of_it));
    let said = warnings.clone();
    let mut values = dwell_record::values(&measured);
    // The reflector's counts include the warm-up, which is not in the segment.
    values.retain(|name, _| !matches!(name.as_str(), "loss_forward_ratio" | "loss_backward_ratio"));
    let summary = Summary {
        kind: Kind::Import,
        target,
        parameters: parameters(&end_of_it, []),
        packets: Some(measured.packets().into()),
        metrics: dwell_record::metrics(&measured),
        values,
        stamps: Stamps::default(),
        engine: "segment".into(),
        trains: Vec::new(),
        trust: Trust { warnings, ring_dropped, ..Trust::of(&measured) },
        environment: Environment { dwell, ..Environment::default() },
    };
    end(store, &trial, &name, summary, Some(&taken))?;
    finish(args, store, run, "segment", taken.samples, &said, 0)
}

/// Imports the passages recorded by one machine: for each packet the parts between timestamps of
/// that machine, and the gap to the previous packet of its flow. Losses elsewhere are unknown.
fn passages(
    args: &Args,
    store: &mut Store,
    run: &RunRow,
    input: &mut dyn Read,
) -> Result<Exit, Failure> {
    let name = file_name(&args.file);
    let mut coming =
        PassageImport { flows: HashMap::new(), sets: Vec::new(), host: None, left_out: 0 };
    let mut header = None;
    let mut failure = None;
    let read = segment::read(input, &mut |record| {
        let taken = match record {
            Record::Header(first) => {
                header.get_or_insert_with(|| first.clone());
                Ok(())
            }
            Record::Flow(entry) => {
                let (from, to) = (entry.from, entry.to);
                let name = format!("{} {from} to {to}", entry.protocol);
                if coming.flows.len() < MAX_FLOWS {
                    coming.flows.insert(entry.flow, KnownFlow { name, set: None });
                }
                Ok(())
            }
            Record::PacketObservation(passage) if failure.is_none() => {
                coming.take(store, run, passage)
            }
            Record::Host(sample) => {
                // Host activity is stored with the first trial; earlier samples are dropped.
                if let Some(host) = &mut coming.host {
                    host.push(&name, sample);
                }
                Ok(())
            }
            Record::PacketObservation(_) | Record::Sample(..) => Ok(()),
        };
        failure = failure.take().or(taken.err());
    });
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    let end_of_it = read.map_err(|error| foreign(args, &error))?;
    let cut_short = cut_short(&end_of_it);
    if coming.sets.is_empty() {
        let why = cut_short.unwrap_or_else(|| "no packet passed the machine".into());
        return Err(nothing(args, "passage", &why));
    }
    if !coming.sets.iter().any(|set| set.told) {
        let why = "a single packet with one timestamp has neither a delay nor a gap";
        return Err(nothing(args, "delay", why));
    }
    let mut warnings: Vec<String> = cut_short.into_iter().chain(damaged(&end_of_it)).collect();
    if coming.left_out > 0 {
        let left_out = coming.left_out;
        warnings.push(format!("passages of flows beyond {MAX_FLOWS} left out: {left_out}"));
    }
    warnings.push("passages of one machine: losses elsewhere are unknown".to_owned());
    coming.host.map(HostWriter::finish).transpose()?;
    let mut rows = 0;
    for mut set in coming.sets {
        set.ingest.push(std::mem::take(&mut set.batch))?;
        let taken = set.ingest.finish()?;
        rows += taken.samples;
        let (metrics, mut values, _) = taken.columns.figures();
        // Rows exist only for packets that passed, so losses are unknown.
        values.insert("loss_ratio".into(), None);
        values.insert("late_ratio".into(), None);
        values.insert("passages".into(), Some(Scalar::Count(taken.samples)));
        values.insert("dropped".into(), Some(Scalar::Count(set.dropped)));
        let header = header.as_ref();
        let of = |text: fn(&Header) -> &String| header.map(text).cloned().unwrap_or_default();
        let told = [("command", json!(of(|header| &header.kind))), ("flow", json!(set.name))];
        let summary = Summary {
            kind: Kind::Import,
            target: of(|header| &header.target),
            parameters: parameters(&end_of_it, told),
            packets: None,
            metrics,
            values,
            stamps: Stamps::default(),
            engine: "segment".into(),
            trains: Vec::new(),
            trust: Trust {
                warnings: warnings.clone(),
                ring_dropped: end_of_it.totals.map_or(0, |totals| totals.ring_dropped),
                ..Trust::default()
            },
            environment: Environment {
                dwell: of(|header| &header.dwell),
                ..Environment::default()
            },
        };
        end(store, &set.trial, &name, summary, Some(&taken))?;
    }
    finish(args, store, run, "segment", rows, &warnings, 0)
}

/// Passages being imported.
struct PassageImport {
    flows: HashMap<u32, KnownFlow>,
    sets: Vec<FlowPassages>,
    host: Option<HostWriter>,
    /// Number of passages of flows beyond the maximum.
    left_out: u64,
}

/// A flow of the segment's table.
struct KnownFlow {
    name: String,
    /// Index of its set, once it has a passage.
    set: Option<usize>,
}

/// The passages of one flow.
struct FlowPassages {
    name: String,
    trial: TrialRow,
    ingest: Ingest,
    batch: Batch,
    before: Option<PacketObservation>,
    dropped: u64,
    /// Whether any row has a delay or a gap.
    told: bool,
}

impl PassageImport {
    fn take(
        &mut self,
        store: &mut Store,
        run: &RunRow,
        passage: &PacketObservation,
    ) -> Result<(), StoreError> {
        let Some(known) = self.flows.get_mut(&passage.flow) else {
            self.left_out += 1;
            return Ok(());
        };
        let at = match known.set {
            Some(at) => at,
            None => {
                let at = self.sets.len();
                let trial = add_trial(store, run, at as u32 + 1, &known.name)?;
                if self.host.is_none() {
                    self.host = Some(store.host_writer(run, &trial)?);
                }
                let ingest = store.ingest(run, &trial)?.with_figures();
                let name = known.name.clone();
                let batch = Batch::default();
                let set = FlowPassages {
                    name,
                    trial,
                    ingest,
                    batch,
                    before: None,
                    dropped: 0,
                    told: false,
                };
                self.sets.push(set);
                known.set = Some(at);
                at
            }
        };
        self.sets[at].take(passage)
    }
}

impl FlowPassages {
    fn take(&mut self, passage: &PacketObservation) -> Result<(), StoreError> {
        let is_dropped = passage.fate == PacketOutcome::Dropped;
        self.dropped += u64::from(is_dropped);
        self.batch.push(passage.id, if is_dropped { State::Lost } else { State::Received });
        let mut set = |column, value: i64| {
            // No clock produces this value, which marks an absent one.
            if value != Batch::ABSENT {
                self.batch.set(column, value);
            }
        };
        set(Column::SizeBytes, passage.size.into());
        for (point, at) in passage.stamps.iter() {
            set(Column::of_node(point), at.as_nanos());
        }
        let parts = DelayComponent::ALL
            .into_iter()
            .filter_map(|part| Some((Column::named(part.name())?, part.of(&passage.stamps)?.0)));
        let since = |before: &PacketObservation| {
            let at = |of: &PacketObservation, point| Some(of.stamps.get(point)?.as_nanos());
            Point::ALL
                .into_iter()
                .find_map(|point| at(passage, point)?.checked_sub(at(before, point)?))
        };
        let gap = self.before.as_ref().and_then(since).map(|gap| (Column::Gap, gap));
        for (column, delay) in parts.chain(gap) {
            self.told = true;
            set(column, delay);
        }
        self.before = Some(*passage);
        if self.batch.len() < BATCH_ROWS {
            return Ok(());
        }
        self.ingest.push(std::mem::take(&mut self.batch))
    }
}

/// Returns the parameters of a segment, including its format and whether it was cut short.
pub(super) fn parameters<const N: usize>(
    end: &SegmentEnd,
    told: [(&str, Value); N],
) -> BTreeMap<String, Value> {
    let cut_short = end.totals.is_none().then_some((CUT_SHORT, json!(true)));
    let all = told.into_iter().chain([("format", json!("segment"))]).chain(cut_short);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(super) fn foreign(args: &Args, error: &SegmentError) -> Failure {
    Failure::usage(format!("{}: {error}", args.file.display()))
}

pub(super) fn nothing(args: &Args, what: &str, why: &str) -> Failure {
    Failure::usage(format!("{}: no complete {what}; {why}", args.file.display()))
}

pub(super) fn damaged(end: &SegmentEnd) -> Option<String> {
    (end.damaged > 0).then(|| format!("damaged frames left out: {}", end.damaged))
}

pub(super) fn cut_short(end: &SegmentEnd) -> Option<String> {
    end.totals.is_none().then(|| match end.tail {
        0 => "the file was cut short: its last frame is missing".to_owned(),
        tail => format!("the file was cut short: its last {tail} bytes are an incomplete frame"),
    })
}
