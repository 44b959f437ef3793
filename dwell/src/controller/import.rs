//! `dwell import`: imports measurements of dwell or another program as a run.

mod departures;
mod segment;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use dwell_import::{Format, HEAD_LEN, ImportError, Imported, ImportedFlow, recognise};
use dwell_node_cli::{Exit, Failure, say};
use dwell_record::{BatchStatistics, Kind, Summary, Trust};
use dwell_report::model::Axis;
use dwell_results::chain;
use dwell_store::{
    ImportLock, Ingest, Ingested, NewRun, NewTrial, Role, RunKind, RunRow, RunState, Store,
    TrialRow,
};
use serde_json::{Value, json};

use super::data::{DataArgs, find};

/// First bytes of files written by dwell's --samples.
const SEGMENT_MAGIC: &[u8] = &dwell_record::segment::MAGIC;

/// Arguments of `import`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The format is detected: dwell segments (--samples) and CSV, the Roedlach/Vock round-trip CSV, output \
of ping (iputils and BusyBox), JSON of irtt, mtr and iperf3, sockperf logs, iperf2 -e text, D-ITG \
logs, pcap and pcapng. \
docs/import.md lists what is read from each.")]
pub(crate) struct Args {
    /// File to import
    file: PathBuf,

    /// Compare a capture with this run (or last): match packets to probes by id, and show how far
    /// timestamps and gaps agree
    #[arg(long, value_name = "RUN")]
    witness: Option<String>,

    /// Print a summary as one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let path = &args.file;
    let shown = path.display();
    let file = File::open(path).map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
    let mut input = BufReader::with_capacity(HEAD_LEN, file);
    let head = head(&mut input).with_context(|| format!("cannot read {shown}"))?;
    if head.starts_with(SEGMENT_MAGIC) {
        let mut store = args.data.open()?;
        return segment::import(args, &mut store, &head, input);
    }
    let format = recognise(&head).map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
    let mut input = BufReader::with_capacity(HEAD_LEN, std::io::Cursor::new(head).chain(input));
    if let Some(of) = &args.witness {
        let mut store = args.data.open_existing()?;
        let run = find(&store, of)?;
        let name = file_name(path);
        return super::witness::witness(&mut store, &run, &name, format, &mut input, args.json);
    }
    let mut store = args.data.open()?;
    import(args, &mut store, format, &mut input)
}

/// Reads the beginning of the file, by which its format is detected.
fn head(input: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD_LEN);
    input.take(HEAD_LEN as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// A data set being imported.
struct ImportedSet {
    trial: TrialRow,
    ingest: Ingest,
}

fn import(
    args: &Args,
    store: &mut Store,
    format: Format,
    input: &mut dyn BufRead,
) -> Result<Exit, Failure> {
    let name = file_name(&args.file);
    // The number of flows is known only at the end, so trials are added as flows appear.
    let (run, _lock) = begin(store, &name, format.describe())?;
    let result = import_flows(args, store, &run, format, input);
    delete_if_incomplete(store, &run, result)
}

/// Deletes an incomplete import after an error.
fn delete_if_incomplete(
    store: &mut Store,
    run: &RunRow,
    result: Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let is_incomplete = || store.run(&run.run).is_ok_and(|run| run.state == RunState::Running);
    if result.is_err()
        && is_incomplete()
        && let Err(error) = store.delete(run)
    {
        say(&format!("dwell: run {} remains incompletely imported: {}", run.run, chain(&error)));
    }
    result
}

fn import_flows(
    args: &Args,
    store: &mut Store,
    run: &RunRow,
    format: Format,
    input: &mut dyn BufRead,
) -> Result<Exit, Failure> {
    let name = file_name(&args.file);
    let mut sets: BTreeMap<String, ImportedSet> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    let outcome = dwell_import::read::<anyhow::Error>(format, input, &mut |flow, batch| {
        if !sets.contains_key(flow) {
            let trial = add_trial(store, run, order.len() as u32 + 1, flow)?;
            let ingest = store.ingest(run, &trial)?.with_figures();
            order.push(flow.to_owned());
            sets.insert(flow.to_owned(), ImportedSet { trial, ingest });
        }
        let set = sets.get_mut(flow).context("the flow was just added")?;
        set.ingest.push(batch)?;
        Ok(())
    });
    let imported = match outcome {
        Ok(imported) => imported,
        Err(error @ ImportError::NoSamples { .. }) => {
            return Err(Failure::usage(format!("{}: {error}", args.file.display())));
        }
        Err(error) => {
            let shown = args.file.display();
            return Err(anyhow::Error::new(error).context(format!("cannot import {shown}")).into());
        }
    };
    let mut samples = 0;
    for flow in &imported.flows {
        let (trial, ingested) = match sets.remove(&flow.name) {
            Some(set) => (set.trial, Some(set.ingest.finish()?)),
            // A flow with figures but without rows.
            None => {
                let number = order.len() as u32 + 1;
                order.push(flow.name.clone());
                (add_trial(store, run, number, &flow.name)?, None)
            }
        };
        samples += ingested.as_ref().map_or(0, |ingested| ingested.samples);
        let summary = summary(&imported, flow, ingested.as_ref().map(|ingested| &ingested.columns));
        end_trial(store, &trial, &name, summary, ingested.as_ref())?;
    }
    finish(
        args,
        store,
        run,
        format.name(),
        samples,
        &imported.all_warnings(),
        imported.skipped_lines,
    )
}

fn summary(imported: &Imported, flow: &ImportedFlow, columns: Option<&BatchStatistics>) -> Summary {
    let warnings =
        imported.warnings.iter().chain(&flow.warnings).cloned().map(Into::into).collect();
    let (mut metrics, mut values, packets) =
        columns.map(BatchStatistics::figures).unwrap_or_default();
    // Stated figures take precedence over computed ones: the program knew more than its rows show.
    metrics.extend(flow.metrics.clone());
    values.extend(flow.values.clone());
    let mut parameters: BTreeMap<String, Value> = imported.parameters.clone();
    parameters.insert("format".into(), json!(imported.format.name()));
    parameters.insert("flow".into(), json!(flow.name));
    if !flow.intervals.is_empty() {
        parameters.insert("intervals".into(), json!(flow.intervals.len()));
    }
    let target = if flow.target.is_empty() { &imported.target } else { &flow.target };
    Summary {
        parameters,
        packets: if flow.outcomes_unknown { None } else { flow.packets.or(packets) },
        metrics,
        values,
        trust: Trust {
            warnings,
            percentile_resolution: columns.and_then(BatchStatistics::resolution),
            ..Trust::default()
        },
        ..Summary::new(Kind::Import, target, imported.format.name())
    }
}

/// Returns the file name on one line.
fn file_name(path: &Path) -> String {
    let name = path.file_name().map_or("import".into(), |name| name.to_string_lossy());
    name.replace('\n', "\\n")
}

fn begin(store: &mut Store, name: &str, title: &str) -> Result<(RunRow, ImportLock), Failure> {
    let new = NewRun {
        kind: RunKind::Import,
        name: name.to_owned(),
        title: Some(format!("imported: {title}")),
        plan: None,
        lab_files: None,
        settings: Vec::new(),
        seed: 0,
        axes: json!([]),
        fleet: None,
        dwell: dwell_node_cli::build().to_owned(),
        owner: dwell_results::owner(),
        trials: Vec::new(),
    };
    Ok(store.begin_import(&new)?)
}

fn add_trial(
    store: &mut Store,
    run: &RunRow,
    number: u32,
    flow: &str,
) -> Result<TrialRow, dwell_store::StoreError> {
    // The only flow of a file needs no name.
    let named = Some(flow).filter(|flow| !flow.is_empty());
    let parameters = named.map(|flow| ("flow".to_owned(), flow.to_owned())).into_iter().collect();
    let trial = NewTrial { number, cell: number - 1, repetition: 1, parameters };
    let trial = store.add_trial(run, &trial)?;
    store.begin_trial(&trial)?;
    Ok(trial)
}

fn end_trial(
    store: &mut Store,
    trial: &TrialRow,
    source: &str,
    summary: Summary,
    ingested: Option<&Ingested>,
) -> Result<(), Failure> {
    let summaries = [(Role::Measurement, source.to_owned(), summary)];
    Ok(store.end_trial(trial, Ok(()), &summaries, ingested)?)
}

fn finish(
    args: &Args,
    store: &mut Store,
    run: &RunRow,
    format: &str,
    samples: u64,
    warnings: &[String],
    skipped: u64,
) -> Result<Exit, Failure> {
    if store.trials(run)?.is_empty() {
        return Err(Failure::usage(format!(
            "{}: this {format} file contains no measurement",
            args.file.display()
        )));
    }
    let values: Vec<_> =
        store.trials(run)?.into_iter().filter_map(|mut t| t.parameters.remove("flow")).collect();
    if values.len() > 1 {
        let axis = Axis { name: "flow".into(), values, numbers: None, unit: None };
        store.set_axes(run, &json!([axis]))?;
    }
    store.set_run_state(run, RunState::Finished)?;
    if args.json {
        let object = json!({
            "schema": "dwell.import/1",
            "run": run.run,
            "format": format,
            "samples": samples,
            "skipped_rows": skipped,
            "warnings": warnings,
        });
        super::print(&format!("{object:#}"))?;
        return Ok(Exit::Measured);
    }
    let mut lines = vec![format!("run {}: {samples} samples of {format}", run.run)];
    lines.extend(warnings.iter().map(|warning| format!("note: {warning}")));
    if skipped > 0 {
        lines.push(format!("note: unreadable rows: {skipped}"));
    }
    lines.push(format!("dwell show {0}, dwell report {0}", run.run));
    super::print(&lines.join("\n"))?;
    Ok(Exit::Measured)
}
