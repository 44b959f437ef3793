//! Segments of packets that were to leave on time (`dwell pace --samples`): of each packet the gap before
//! it and how far that is from what the schedule wanted.

use std::io::Read;

use dwell_engine::stamps::Rung;
use dwell_node_cli::{Exit, Failure};
use dwell_record::segment::{self, Record};
use dwell_record::{Batch, Column, Departing, Environment, Kind, Packets, Stamps, Summary, Trust};
use dwell_store::{RunRow, Store};

use super::segment::{cut_short, damaged, foreign, nothing, parameters};
use super::{Args, add_trial, end, file_name, finish};

/// A segment is read twice, and a pipe only once: so many bytes are kept, of some 50 million packets.
const MOST: u64 = 1 << 30;

/// Rows that are handed on at once.
const BATCH: usize = 1 << 14;

pub(super) fn import(
    args: &Args,
    store: &mut Store,
    run: &RunRow,
    input: &mut dyn Read,
) -> Result<Exit, Failure> {
    let mut bytes = Vec::new();
    input.take(MOST).read_to_end(&mut bytes)?;
    let mut departing = Departing::default();
    let mut told = Told::default();
    // What is wrong with the segment is said when it is read again.
    let _ = segment::read(&mut bytes.as_slice(), &mut |record| match record {
        Record::Header(header) => {
            told.target.clone_from(&header.target);
            told.environment.dwell.clone_from(&header.dwell);
        }
        Record::Sample(sample, bridge, near) => {
            departing.take(sample, bridge.is_none());
            told.rung = near;
            told.stamped |= sample.tx.kernel.is_some();
            told.arrived |= sample.remote.is_some();
        }
        _ => {}
    });
    let mut summary = told.summary();
    let departed = departing.by(&summary);
    let name = file_name(&args.file);
    let trial = add_trial(store, run, 1, &name)?;
    let mut ingest = store.ingest_columns(run, &trial, &Column::PACED)?.with_figures();
    let mut host = store.host_writer(run, &trial)?;
    let mut batch = Batch::default();
    let mut full = Ok(());
    let read = segment::read(&mut bytes.as_slice(), &mut |record| match record {
        Record::Sample(sample, bridge, near) => {
            departed.push(&mut batch, sample, bridge, near);
            if batch.len() == BATCH && full.is_ok() {
                full = ingest.push(std::mem::take(&mut batch));
            }
        }
        Record::Host(sample) => host.push(&name, sample),
        _ => {}
    });
    let end_of_it = read.map_err(|error| foreign(args, &error))?;
    full?;
    let short = cut_short(&end_of_it);
    if end_of_it.samples == 0 {
        return Err(nothing(args, "packet", &short.unwrap_or_else(|| "it holds none".into())));
    }
    ingest.push(batch)?;
    let taken = ingest.finish()?;
    host.finish()?;
    let warnings: Vec<String> = short.into_iter().chain(damaged(&end_of_it)).collect();
    let (metrics, mut values, packets) = taken.columns.figures();
    // Without a sink nobody knows what became of packets.
    summary.packets = packets.filter(|_| told.arrived);
    if summary.packets.is_none() {
        values.insert("loss_ratio".into(), None);
    }
    summary.parameters.extend(parameters(&end_of_it, []));
    summary.trust.warnings.clone_from(&warnings);
    summary.trust.ring_dropped = end_of_it.totals.map_or(0, |totals| totals.ring_dropped);
    summary.metrics = metrics;
    summary.values = values;
    end(store, &trial, &name, summary, Some(&taken))?;
    finish(args, store, run, "segment", taken.samples, &warnings, 0)
}

/// What the first look at a segment tells.
struct Told {
    target: String,
    environment: Environment,
    rung: Rung,
    stamped: bool,
    arrived: bool,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            target: String::new(),
            environment: Environment::default(),
            rung: Rung::User,
            stamped: false,
            arrived: false,
        }
    }
}

impl Told {
    /// Which stamps say when packets left: those that the sender went by, which its rung tells.
    fn departures(&self) -> &'static str {
        match (self.rung, self.stamped, self.arrived) {
            (Rung::User, ..) => "tx_app",
            (_, true, _) => "tx_kernel",
            (_, false, true) => "sink",
            (_, false, false) => "tx_app",
        }
    }

    fn summary(&self) -> Summary {
        Summary {
            kind: Kind::Import,
            target: self.target.clone(),
            parameters: [("departures".to_owned(), self.departures().into())].into(),
            packets: None::<Packets>,
            metrics: [].into(),
            values: [].into(),
            stamps: Stamps { tx: Some(self.rung), ..Stamps::default() },
            engine: "segment".into(),
            trains: Vec::new(),
            trust: Trust::default(),
            environment: self.environment.clone(),
        }
    }
}
