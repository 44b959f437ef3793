//! `dwell import CAPTURE --witness RUN`: compares a capture by an external witness with the run's
//! own timestamps.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};

use dwell_import::{Format, ProbeSignature, RunProbe, Witness, WitnessMatch};
use dwell_node_cli::{Exit, Failure, terminal};
use dwell_record::{Batch, Column, Figures, Kind, Summary, by_name};
use dwell_sample::State;
use dwell_store::{Role, RunRow, Store, StoreError, TrialRow};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A trial and its packets seen by the witness.
type Seen = (TrialRow, WitnessMatch);

/// Matches the capture to all trials of the run.
pub(super) fn witness(
    store: &mut Store,
    run: &RunRow,
    name: &str,
    format: Format,
    input: &mut dyn BufRead,
    as_json: bool,
) -> Result<Exit, Failure> {
    if !matches!(format, Format::Pcap | Format::Pcapng) {
        return Err(Failure::usage(format!(
            "{name}: a witness must be a capture (pcap or pcapng), not {}",
            format.describe()
        )));
    }
    let mut witness = Witness::default();
    let mut input = Hashed { input, hash: Sha256::new() };
    dwell_import::read::<StoreError>(format, &mut input, &mut |flow, batch| {
        witness.take(flow, &batch);
        Ok(())
    })
    .map_err(anyhow::Error::new)?;
    let hash = input.finish()?;
    let mut seen: Vec<Seen> = Vec::new();
    for trial in store.trials(run)? {
        let signature = signature(store, &trial)?;
        if let Some(joined) = witness.join(&run_probes(store, run, &trial)?, &signature) {
            seen.push((trial, joined));
        }
    }
    if seen.is_empty() {
        return Err(Failure::usage(format!(
            "{name}: no packet is a probe of run {}; was it captured while the run was in \
             progress?",
            run.run
        )));
    }
    for (trial, joined) in &seen {
        let summary = summary(name, &hash, format, joined);
        store
            .add_summary(trial, Role::Witness, name, &summary, |old| is_same_capture(old, &hash))?;
    }
    let mut out = terminal::stdout();
    if as_json {
        let trials: Vec<_> = seen
            .iter()
            .map(|(trial, joined)| {
                json!({
                    "trial": trial.number,
                    "flow": joined.flow,
                    "matched": joined.matched,
                    "unseen": joined.unseen,
                    "others": joined.others,
                    "same_clock": joined.same_clock,
                    "metrics": joined.metrics,
                })
            })
            .collect();
        let object = json!({
            "schema": "dwell.witness/1",
            "run": run.run,
            "witness": name,
            "trials": trials,
        });
        writeln!(out, "{object:#}")?;
    } else {
        seen.iter().try_for_each(|(trial, joined)| print(&mut out, trial, joined))?;
    }
    Ok(Exit::Measured)
}

/// Parameter that distinguishes captures of the same name.
const HASH_PARAMETER: &str = "sha256";

/// Whether an earlier witness of the same name is this capture. Older versions stored no hash;
/// their witnesses count as the same.
fn is_same_capture(old: &Summary, hash: &str) -> bool {
    old.parameters.get(HASH_PARAMETER).and_then(Value::as_str).is_none_or(|known| known == hash)
}

/// A reader that computes the hash of its input.
struct Hashed<'a> {
    input: &'a mut dyn BufRead,
    hash: Sha256,
}

impl Hashed<'_> {
    /// Reads the rest of the input and returns the hash of all of it.
    fn finish(mut self) -> io::Result<String> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl Read for Hashed<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(out)?;
        self.hash.update(&out[..count]);
        Ok(count)
    }
}

impl BufRead for Hashed<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        // The buffer is still filled, so this call reads nothing.
        if let Ok(filled) = self.input.fill_buf() {
            self.hash.update(&filled[..count.min(filled.len())]);
        }
        self.input.consume(count);
    }
}

/// Returns the visible properties of a trial's probes.
fn signature(store: &Store, trial: &TrialRow) -> Result<ProbeSignature, StoreError> {
    let summaries = store.summaries(trial)?.into_iter();
    let mut measured = summaries.filter(|(role, ..)| *role == Role::Measurement);
    Ok(measured.next().map_or_else(ProbeSignature::default, |(_, _, summary)| {
        ProbeSignature::of_target(&summary.target)
    }))
}

/// Returns the probes of a trial, by id.
fn run_probes(store: &Store, run: &RunRow, trial: &TrialRow) -> Result<Vec<RunProbe>, StoreError> {
    let mut probes: BTreeMap<u64, RunProbe> = BTreeMap::new();
    let columns = [Column::TxApp, Column::TxKernel, Column::Rtt, Column::RttKernel];
    store.samples(run, trial, Some(&columns), &mut |batch: &Batch| {
        for row in 0..batch.len() {
            if matches!(batch.state[row], State::Duplicate | State::SendFailed) {
                continue;
            }
            let deepest =
                |deep, shallow| batch.number(row, deep).or_else(|| batch.number(row, shallow));
            let Some(left) = deepest(Column::TxKernel, Column::TxApp) else { continue };
            let rtt = deepest(Column::RttKernel, Column::Rtt);
            probes.insert(batch.id[row], RunProbe { id: batch.id[row], left, rtt });
        }
        Ok(())
    })?;
    Ok(probes.into_values().collect())
}

fn summary(name: &str, hash: &str, format: Format, joined: &WitnessMatch) -> Summary {
    let parameters = [
        ("format", json!(format.name())),
        (HASH_PARAMETER, json!(hash)),
        ("flow", json!(joined.flow)),
        ("matched", json!(joined.matched)),
        ("unseen", json!(joined.unseen)),
        ("others", json!(joined.others)),
        ("same_clock", json!(joined.same_clock)),
    ];
    Summary {
        parameters: by_name(parameters),
        metrics: joined.metrics.clone(),
        ..Summary::new(Kind::Import, name, "witness")
    }
}

fn print(out: &mut impl Write, trial: &TrialRow, joined: &WitnessMatch) -> io::Result<()> {
    writeln!(
        out,
        "trial {}: {} probes seen in {}, {} not seen; {}",
        trial.number,
        joined.matched,
        joined.flow,
        joined.unseen,
        if joined.same_clock { "same clock" } else { "different clocks: only differences" }
    )?;
    print_metrics(out, &joined.metrics)
}

/// Prints figures by name, one per line.
pub(super) fn print_metrics(
    out: &mut impl Write,
    metrics: &BTreeMap<String, Figures>,
) -> io::Result<()> {
    let us = |ns: Option<i64>| ns.map_or("-".to_owned(), |ns| format!("{:.3}", ns as f64 / 1e3));
    for (name, figures) in metrics {
        writeln!(
            out,
            "  {:24} n {:>8}  min {:>10}  median {:>10}  p99 {:>10}  max {:>10} us",
            name.trim_end_matches("_ns"),
            figures.count,
            us(figures.min),
            us(figures.p50),
            us(figures.p99),
            us(figures.max)
        )?;
    }
    Ok(())
}
