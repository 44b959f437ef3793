//! Imports segments of dwell: the samples of a ping, or the packet observations of one machine.
//! Segments of paced packets are imported by [`departures`].

use std::collections::{BTreeMap, HashMap};
use std::io::{Cursor, Read};

use dwell_host::HostSample;
use dwell_import::ImportWarning;
use dwell_node_cli::{Exit, Failure};
use dwell_record::segment::{self, Header, Record, SegmentEnd, SegmentError};
use dwell_record::{
    Batch, CUT_SHORT, Column, Environment, Kind, SEGMENT, Scalar, Summary, Trust, TrustWarning,
    Warning, by_name,
};
use dwell_sample::{PacketObservation, PacketOutcome, Point, State, TimestampSource};
use dwell_stats::{DelayComponent, RoundTrip};
use dwell_store::{HostWriter, Ingest, RunRow, Store, StoreError, TrialRow};
use serde_json::{Value, json};

use super::{
    Args, add_trial, begin, delete_if_incomplete, departures, end_trial, file_name, finish,
};

/// Maximum number of observed flows; each becomes a trial.
const MAX_FLOWS: usize = 64;

/// Maximum number of host samples kept until the first observation.
const MAX_EARLY_HOST_SAMPLES: usize = 10_000;

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
        _ => "packet observations of dwell",
    };
    let (run, _lock) = begin(store, &name, title)?;
    let result = match kind {
        "ping" => samples(args, store, &run, &mut input),
        "pace" => departures::import(args, store, &run, &mut input),
        _ => observations(args, store, &run, &mut input),
    };
    delete_if_incomplete(store, &run, result)
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
    let mut spikes = store.spike_writer(run, &trial);
    let (mut target, mut dwell) = (String::new(), String::new());
    // Computed like the measuring command does, so that the figures are the same.
    let mut measured = RoundTrip::new(TimestampSource::User, 0);
    let end = ingest.push_segment_with(input, &mut |record| match record {
        Record::Header(header) => {
            target.clone_from(&header.target);
            dwell.clone_from(&header.dwell);
        }
        Record::Sample(sample, bridge, near) => {
            measured.set_near(*near);
            measured.record(sample, *bridge);
        }
        Record::Host(sample) => host.push(&name, sample),
        Record::Spike(spike) => spikes.push(spike),
        Record::Flow(_) | Record::PacketObservation(_) => {}
    })?;
    let end = match end {
        Ok(end) => end,
        Err(error) => return Err(segment_error(args, &error)),
    };
    let cut_short = cut_short(&end);
    if end.samples == 0 {
        let why = cut_short.map_or("the file has none".into(), |warning| warning.to_string());
        return Err(no_data_error(args, "sample", &why));
    }
    let ingested = ingest.finish()?;
    host.finish()?;
    spikes.finish()?;
    let of_file = cut_short.into_iter().chain(damaged(&end));
    let warnings: Vec<_> = of_file.map(TrustWarning::from).collect();
    let ring_dropped = end.totals.map_or(0, |totals| totals.ring_dropped);
    let texts = texts(&warnings);
    let mut values = dwell_record::values(&measured);
    // The reflector's counts include the warm-up, which is not in the segment.
    values.retain(|name, _| !matches!(name.as_str(), "loss_forward_ratio" | "loss_backward_ratio"));
    let summary = Summary {
        parameters: parameters(&end, []),
        packets: Some(measured.packets().into()),
        metrics: dwell_record::metrics(&measured),
        values,
        trust: Trust { warnings, ring_dropped, ..Trust::of(&measured) },
        environment: Environment { dwell, ..Environment::default() },
        ..Summary::new(Kind::Import, target, SEGMENT)
    };
    end_trial(store, &trial, &name, summary, Some(&ingested))?;
    finish(args, store, run, SEGMENT, ingested.samples, &texts, 0)
}

/// Imports the packet observations of one machine: for each packet the delays between timestamps of
/// that machine, and the gap to the previous packet of its flow. Losses elsewhere are unknown.
fn observations(
    args: &Args,
    store: &mut Store,
    run: &RunRow,
    input: &mut dyn Read,
) -> Result<Exit, Failure> {
    let name = file_name(&args.file);
    let mut import = ObservationImport {
        file: name.clone(),
        flows: HashMap::new(),
        sets: Vec::new(),
        host: None,
        early_host: Vec::new(),
        left_out: 0,
    };
    let mut header = None;
    let mut failure = None;
    let read = segment::read(input, &mut |record| {
        let result = match record {
            Record::Header(first) => {
                header.get_or_insert_with(|| first.clone());
                Ok(())
            }
            Record::Flow(entry) => {
                let (from, to) = (entry.from, entry.to);
                let name = format!("{} {from} to {to}", entry.protocol);
                if import.flows.len() < MAX_FLOWS {
                    import.flows.insert(entry.flow, KnownFlow { name, set: None });
                }
                Ok(())
            }
            Record::PacketObservation(observation) if failure.is_none() => {
                import.take(store, run, observation)
            }
            Record::Host(sample) => {
                // Host activity is stored with the first trial.
                match &mut import.host {
                    Some(host) => host.push(&name, sample),
                    None if import.early_host.len() < MAX_EARLY_HOST_SAMPLES => {
                        import.early_host.push(sample.clone());
                    }
                    None => {}
                }
                Ok(())
            }
            Record::PacketObservation(_) | Record::Sample(..) | Record::Spike(_) => Ok(()),
        };
        failure = failure.take().or(result.err());
    });
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    let end = read.map_err(|error| segment_error(args, &error))?;
    let cut_short = cut_short(&end);
    if import.sets.is_empty() {
        let why =
            cut_short.map_or("no packet passed the machine".into(), |warning| warning.to_string());
        return Err(no_data_error(args, "observation", &why));
    }
    if !import.sets.iter().any(|set| set.has_delay) {
        let why = "a single packet with one timestamp has neither a delay nor a gap";
        return Err(no_data_error(args, "delay", why));
    }
    let left_out =
        (import.left_out > 0).then_some(ImportWarning::FlowsLeftOut(MAX_FLOWS, import.left_out));
    let of_file = cut_short.into_iter().chain(damaged(&end)).chain(left_out);
    let mut warnings: Vec<TrustWarning> = of_file.map(TrustWarning::from).collect();
    warnings.push(Warning::OneMachine.into());
    import.host.map(HostWriter::finish).transpose()?;
    let mut rows = 0;
    for mut set in import.sets {
        set.ingest.push(std::mem::take(&mut set.batch))?;
        let ingested = set.ingest.finish()?;
        rows += ingested.samples;
        let (metrics, mut values, _) = ingested.columns.figures();
        // Rows exist only for packets that passed, so losses are unknown.
        values.insert("loss_ratio".into(), None);
        values.insert("late_ratio".into(), None);
        values.insert("passages".into(), Some(Scalar::Count(ingested.samples)));
        values.insert("dropped".into(), Some(Scalar::Count(set.dropped)));
        let header = header.as_ref();
        let of = |text: fn(&Header) -> &String| header.map(text).cloned().unwrap_or_default();
        let more = [("command", json!(of(|header| &header.kind))), ("flow", json!(set.name))];
        let summary = Summary {
            parameters: parameters(&end, more),
            metrics,
            values,
            trust: Trust {
                warnings: warnings.clone(),
                ring_dropped: end.totals.map_or(0, |totals| totals.ring_dropped),
                ..Trust::default()
            },
            environment: Environment {
                dwell: of(|header| &header.dwell),
                ..Environment::default()
            },
            ..Summary::new(Kind::Import, of(|header| &header.target), SEGMENT)
        };
        end_trial(store, &set.trial, &name, summary, Some(&ingested))?;
    }
    finish(args, store, run, SEGMENT, rows, &texts(&warnings), 0)
}

/// Observations being imported, by flow.
struct ObservationImport {
    /// Name of the file, under which its host activity is stored.
    file: String,
    flows: HashMap<u32, KnownFlow>,
    sets: Vec<FlowObservations>,
    host: Option<HostWriter>,
    /// Host activity before the first observation.
    early_host: Vec<HostSample>,
    /// Number of observations of flows beyond the maximum.
    left_out: u64,
}

/// A flow of the segment's table.
struct KnownFlow {
    name: String,
    /// Index of its set, once a packet was observed.
    set: Option<usize>,
}

/// The observations of one flow.
struct FlowObservations {
    name: String,
    trial: TrialRow,
    ingest: Ingest,
    batch: Batch,
    before: Option<PacketObservation>,
    dropped: u64,
    /// Whether any row has a delay or a gap.
    has_delay: bool,
}

impl ObservationImport {
    fn take(
        &mut self,
        store: &mut Store,
        run: &RunRow,
        observation: &PacketObservation,
    ) -> Result<(), StoreError> {
        let Some(known) = self.flows.get_mut(&observation.flow) else {
            self.left_out += 1;
            return Ok(());
        };
        let at = match known.set {
            Some(at) => at,
            None => {
                let at = self.sets.len();
                let trial = add_trial(store, run, at as u32 + 1, &known.name)?;
                if self.host.is_none() {
                    let mut host = store.host_writer(run, &trial)?;
                    for sample in self.early_host.drain(..) {
                        host.push(&self.file, &sample);
                    }
                    self.host = Some(host);
                }
                let ingest = store.ingest(run, &trial)?.with_figures();
                let name = known.name.clone();
                let batch = Batch::default();
                let set = FlowObservations {
                    name,
                    trial,
                    ingest,
                    batch,
                    before: None,
                    dropped: 0,
                    has_delay: false,
                };
                self.sets.push(set);
                known.set = Some(at);
                at
            }
        };
        self.sets[at].take(observation)
    }
}

impl FlowObservations {
    fn take(&mut self, observation: &PacketObservation) -> Result<(), StoreError> {
        let is_dropped = observation.outcome == PacketOutcome::Dropped;
        self.dropped += u64::from(is_dropped);
        self.batch.push(observation.id, if is_dropped { State::Lost } else { State::Received });
        let mut set = |column, value: i64| {
            // No clock produces this value, which marks an absent one.
            if value != Batch::ABSENT {
                self.batch.set(column, value);
            }
        };
        set(Column::SizeBytes, observation.size.into());
        for (point, at) in observation.stamps.iter() {
            set(Column::of_node(point), at.as_nanos());
        }
        let components = DelayComponent::ALL.into_iter().filter_map(|component| {
            Some((Column::named(component.name())?, component.of(&observation.stamps)?.0))
        });
        let since = |before: &PacketObservation| {
            let at = |of: &PacketObservation, point| Some(of.stamps.get(point)?.as_nanos());
            Point::ALL
                .into_iter()
                .find_map(|point| at(observation, point)?.checked_sub(at(before, point)?))
        };
        let gap = self.before.as_ref().and_then(since).map(|gap| (Column::Gap, gap));
        for (column, delay) in components.chain(gap) {
            self.has_delay = true;
            set(column, delay);
        }
        self.before = Some(*observation);
        if self.batch.len() < BATCH_ROWS {
            return Ok(());
        }
        self.ingest.push(std::mem::take(&mut self.batch))
    }
}

/// Returns the parameters of a segment: `more`, its format, and whether it was cut short.
pub(super) fn parameters<const N: usize>(
    end: &SegmentEnd,
    more: [(&str, Value); N],
) -> BTreeMap<String, Value> {
    let cut_short = end.totals.is_none().then_some((CUT_SHORT, json!(true)));
    by_name(more.into_iter().chain([("format", json!(SEGMENT))]).chain(cut_short))
}

pub(super) fn segment_error(args: &Args, error: &SegmentError) -> Failure {
    Failure::usage(format!("{}: {error}", args.file.display()))
}

pub(super) fn no_data_error(args: &Args, what: &str, why: &str) -> Failure {
    Failure::usage(format!("{}: no complete {what}; {why}", args.file.display()))
}

pub(super) fn damaged(end: &SegmentEnd) -> Option<ImportWarning> {
    (end.damaged > 0).then_some(ImportWarning::DamagedFrames(end.damaged))
}

pub(super) fn cut_short(end: &SegmentEnd) -> Option<ImportWarning> {
    end.totals.is_none().then(|| {
        ImportWarning::Truncated(match end.tail {
            0 => "its last frame is missing".to_owned(),
            tail => format!("its last {tail} bytes are an incomplete frame"),
        })
    })
}

/// Returns the texts of warnings.
pub(super) fn texts(warnings: &[TrustWarning]) -> Vec<String> {
    warnings.iter().map(TrustWarning::to_string).collect()
}
