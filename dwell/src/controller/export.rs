//! `dwell export`: exports the samples, the host activity or the spikes of a run.

mod host;
mod spikes;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use dwell_node_cli::{Exit, Failure, say};
use dwell_record::{Batch, Column};
use dwell_results::{axes, chain, main_column};
use dwell_sample::State;
use dwell_store::{RunRow, Store, StoreError, TrialRow};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use serde_json::json;

use super::data::{DataArgs, fail_if_damaged, find, say_problem};

/// Arguments of `export`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run name, or last for the newest run
    run: String,

    /// Output format
    #[arg(long, value_enum)]
    format: Format,

    /// Data to export
    #[arg(long, value_enum, default_value = "samples")]
    what: What,

    /// Output file, `-` for standard output; for parquet, a directory [default: standard output;
    /// for parquet, RUN-samples, RUN-host or RUN-spikes]
    #[arg(short = 'o', long, value_name = "PATH")]
    output: Option<PathBuf>,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Data to export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Samples of the trials
    Samples,
    /// Host activity during the trials, one row per value
    Host,
    /// Causes of long delays (ping.explain), one row per part of a delay
    Spikes,
}

impl What {
    const fn name(self) -> &'static str {
        match self {
            Self::Samples => "samples",
            Self::Host => "host",
            Self::Spikes => "spikes",
        }
    }
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One row per sample, with its trial and axis values
    Csv,
    /// One JSON object per sample, one per line
    Jsonl,
    /// The stored files, one per trial, and a table of trials
    Parquet,
    /// HdrHistogram log with one histogram per trial of the run's main delay: the round trip, or
    /// the node delay of a flow
    Hdr,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let store = args.data.open_to_read()?;
    let run = find(&store, &args.run)?;
    if args.format == Format::Parquet {
        let dir = args.output.clone();
        let dir = dir.unwrap_or_else(|| format!("{}-{}", run.run, args.what.name()).into());
        let (trials, left_out) = match args.what {
            What::Samples => readable_trials(&store, &run)?,
            What::Host => trials_with_rows(&store, &run, Store::host_path, &|trial| {
                let mut any = false;
                store.host(&run, trial, &mut |_| any = true).map(|()| any)
            })?,
            What::Spikes => trials_with_rows(&store, &run, Store::spikes_path, &|trial| {
                let mut any = false;
                store.spikes(&run, trial, &mut |_| any = true).map(|()| any)
            })?,
        };
        copy_files(&run, &dir, &trials)?;
        super::print(&dir.display().to_string())?;
        return fail_if_damaged(left_out).map(|()| Exit::Measured);
    }
    if args.what != What::Samples && args.format == Format::Hdr {
        return Err(Failure::usage(format!(
            "--format hdr is for delays only; --what {} supports csv, jsonl and parquet",
            args.what.name()
        )));
    }
    let file = args.output.as_deref().filter(|path| *path != Path::new("-"));
    let mut out: Box<dyn Write> = match file {
        Some(path) => {
            let file = File::create(path);
            let file = file.with_context(|| format!("cannot write {}", path.display()))?;
            Box::new(BufWriter::with_capacity(1 << 20, file))
        }
        None => Box::new(BufWriter::with_capacity(1 << 20, io::stdout().lock())),
    };
    let style = if args.format == Format::Csv { Style::Csv } else { Style::JsonLines };
    let left_out = match args.what {
        What::Host => host::rows(&store, &run, &mut out, style)?,
        What::Spikes => spikes::rows(&store, &run, &mut out, style)?,
        What::Samples => {
            let (files, left_out) = readable_trials(&store, &run)?;
            let trials: Vec<TrialRow> = files.into_iter().map(|(trial, _)| trial).collect();
            match args.format {
                Format::Hdr => hdr(&store, &run, &trials, &mut out)?,
                _ => rows(&store, &run, &trials, &mut out, style)?,
            }
            left_out
        }
    };
    out.flush()?;
    fail_if_damaged(left_out).map(|()| Exit::Measured)
}

/// A trial and its file, if it has data.
type TrialFile = (TrialRow, Option<PathBuf>);

/// Returns the trials with readable samples and the number of others, which are reported and left
/// out.
fn readable_trials(store: &Store, run: &RunRow) -> Result<(Vec<TrialFile>, usize), Failure> {
    let mut trials = store.trials(run)?;
    let all = trials.len();
    trials.retain(|trial| {
        let has_samples = has_samples(trial);
        let verified = if has_samples { store.verified(run, trial).map(drop) } else { Ok(()) };
        !is_damaged(trial, &verified)
    });
    let left_out = all - trials.len();
    let file = |trial: TrialRow| {
        let file = has_samples(&trial).then(|| store.samples_path(&run.run, trial.number));
        (trial, file)
    };
    Ok((trials.into_iter().map(file).collect(), left_out))
}

/// Like [`readable_trials`], but only trials for which `has_rows` returns true.
fn trials_with_rows(
    store: &Store,
    run: &RunRow,
    path: fn(&Store, &str, u32) -> PathBuf,
    has_rows: &dyn Fn(&TrialRow) -> Result<bool, StoreError>,
) -> Result<(Vec<TrialFile>, usize), Failure> {
    let (mut trials, mut left_out) = (Vec::new(), 0);
    for trial in store.trials(run)? {
        let read = has_rows(&trial);
        let file = read.as_ref().is_ok_and(|any| *any).then(|| path(store, &run.run, trial.number));
        match is_damaged(&trial, &read.map(drop)) {
            true => left_out += 1,
            false => trials.push((trial, file)),
        }
    }
    Ok((trials, left_out))
}

fn has_samples(trial: &TrialRow) -> bool {
    trial.samples.is_some_and(|samples| samples > 0)
}

/// Whether the data of a trial could not be read; reports it.
fn is_damaged(trial: &TrialRow, read: &Result<(), StoreError>) -> bool {
    if let Err(error) = read {
        say(&format!("dwell: trial {} is left out: {}", trial.number, chain(error)));
    }
    read.is_err()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Csv,
    JsonLines,
}

/// Returns the columns that any trial of the run has.
fn columns(store: &Store, run: &RunRow, trials: &[TrialRow]) -> Result<Vec<Column>, Failure> {
    let mut has = vec![false; Column::ALL.len()];
    for trial in trials {
        store.samples(run, trial, None, &mut |batch| {
            for column in Column::ALL {
                has[column as usize] |= batch.column(column).is_some();
            }
            Ok(())
        })?;
    }
    Ok(Column::ALL.into_iter().filter(|column| has[*column as usize]).collect())
}

fn rows(
    store: &Store,
    run: &RunRow,
    trials: &[TrialRow],
    out: &mut dyn Write,
    style: Style,
) -> Result<(), Failure> {
    let columns = columns(store, run, trials)?;
    let names = columns.iter().map(|column| column.name());
    let names = ["id", "state", "reordered", "void"].into_iter().chain(names);
    let axes = begin(run, out, style, names)?;
    for trial in trials {
        let start = row_start(trial, &axes, style);
        let mut failure = None;
        store.samples(run, trial, Some(&columns), &mut |batch| {
            if failure.is_none() {
                failure = write_rows(out, batch, &start, &columns, style).err();
            }
            Ok(())
        })?;
        if let Some(failure) = failure {
            return Err(failure.into());
        }
    }
    Ok(())
}

/// Writes the header of a CSV file, with `names` after those of every row. Returns the axes.
fn begin<'n>(
    run: &RunRow,
    out: &mut dyn Write,
    style: Style,
    names: impl Iterator<Item = &'n str>,
) -> io::Result<Vec<String>> {
    let axes: Vec<String> = axes(run).into_iter().map(|axis| axis.name).collect();
    if style == Style::Csv {
        let mut all = vec!["trial".to_owned(), "repetition".to_owned()];
        all.extend(axes.iter().map(|axis| quoted(axis)));
        all.extend(names.map(str::to_owned));
        writeln!(out, "{}", all.join(","))?;
    }
    Ok(axes)
}

/// Returns the beginning of every row of a trial: its number, repetition and axis values.
fn row_start(trial: &TrialRow, axes: &[String], style: Style) -> String {
    let TrialRow { number, repetition, parameters, .. } = trial;
    let values = axes.iter().map(|axis| (axis, parameters.get(axis)));
    match style {
        Style::Csv => {
            let values = values.map(|(_, value)| value.map_or(String::new(), |text| quoted(text)));
            let values: String = values.map(|value| value + ",").collect();
            format!("{number},{repetition},{values}")
        }
        Style::JsonLines => {
            let values = values.map(|(axis, value)| format!(",{}:{}", json!(axis), json!(value)));
            let values: String = values.collect();
            format!(r#"{{"trial":{number},"repetition":{repetition}{values}"#)
        }
    }
}

/// Quotes a CSV field (RFC 4180).
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn write_rows(
    out: &mut dyn Write,
    batch: &Batch,
    start: &str,
    columns: &[Column],
    style: Style,
) -> io::Result<()> {
    for row in 0..batch.len() {
        let (id, state) = (batch.id[row], batch.state[row].name());
        let (reordered, void) = (batch.reordered[row], batch.void[row]);
        match style {
            Style::Csv => write!(out, "{start}{id},{state},{reordered},{void}")?,
            Style::JsonLines => write!(
                out,
                r#"{start},"id":{id},"state":"{state}","reordered":{reordered},"void":{void}"#
            )?,
        }
        for column in columns {
            let number = batch.number(row, *column);
            match (style, number) {
                (Style::Csv, Some(number)) => write!(out, ",{number}")?,
                (Style::Csv, None) => out.write_all(b",")?,
                (Style::JsonLines, Some(number)) => {
                    write!(out, r#","{}":{number}"#, column.name())?;
                }
                (Style::JsonLines, None) => write!(out, r#","{}":null"#, column.name())?,
            }
        }
        out.write_all(if style == Style::Csv { b"\n" } else { b"}\n" })?;
    }
    Ok(())
}

/// Copies the files and writes a table of the trials.
fn copy_files(run: &RunRow, dir: &Path, trials: &[TrialFile]) -> Result<(), Failure> {
    let cannot = |what: &Path| format!("cannot write {}", what.display());
    fs::create_dir_all(dir).with_context(|| cannot(dir))?;
    let mut table = Vec::new();
    for (trial, file) in trials {
        let name = format!("{}.parquet", trial.number);
        if let Some(file) = file {
            let to = dir.join(&name);
            fs::copy(file, &to).with_context(|| cannot(&to))?;
        }
        table.push(json!({
            "trial": trial.number,
            "repetition": trial.repetition,
            "parameters": trial.parameters,
            "file": file.as_ref().map(|_| name),
        }));
    }
    let path = dir.join("trials.json");
    let object = json!({ "run": run.run, "name": run.name, "trials": table });
    fs::write(&path, format!("{object:#}\n")).with_context(|| cannot(&path))?;
    Ok(())
}

/// Writes an HdrHistogram log: one interval per trial, tagged with its number, from its first
/// timestamp to its last.
fn hdr(
    store: &Store,
    run: &RunRow,
    trials: &[TrialRow],
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let column = main_column(store, std::slice::from_ref(run), &say_problem)?;
    let mut intervals = trials
        .iter()
        .map(|trial| Interval::of(store, run, trial, column))
        .collect::<Result<Vec<_>, _>>()?;
    intervals.retain(|interval| !interval.histogram.is_empty());
    if intervals.is_empty() {
        let text = format!("run {} has no values of {}", run.run, column.name());
        return Err(Failure::from(anyhow::anyhow!(text)));
    }
    // Trials may run in another order than their numbers.
    intervals.sort_by_key(|interval| interval.stamps.map(|(first, _)| first));
    let since_epoch = |ns: i64| Duration::from_nanos(ns.max(0) as u64);
    let mut after = intervals
        .iter()
        .find_map(|interval| interval.stamps)
        .map_or(Duration::ZERO, |(first, _)| since_epoch(first));
    let mut text = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&format!("{}, in nanoseconds, one interval per trial of dwell", column.name()))
        .add_comment(
            "a trial without timestamps starts after the one before and lasts as long as its values",
        )
        .with_start_time(UNIX_EPOCH + after)
        .begin_log_with(&mut text, &mut serializer)
        .context("cannot start the log")?;
    for Interval { trial, histogram, stamps } in &intervals {
        let (start, took) = match *stamps {
            Some((first, last)) => (since_epoch(first), since_epoch(last - first)),
            None => (after, since_epoch((histogram.mean() * histogram.len() as f64) as i64)),
        };
        let tag = format!("trial-{trial}");
        let tag =
            hdrhistogram::serialization::interval_log::Tag::new(&tag).context("invalid tag")?;
        log.write_histogram(histogram, start, took, Some(tag))
            .map_err(|error| anyhow::anyhow!("cannot write the log: {error:?}"))?;
        after = start + took;
    }
    out.write_all(&text)?;
    Ok(())
}

/// The values of a trial.
struct Interval {
    trial: u32,
    histogram: Histogram<u64>,
    /// First and last timestamp of this machine's clock, in nanoseconds since the epoch.
    stamps: Option<(i64, i64)>,
}

impl Interval {
    fn of(store: &Store, run: &RunRow, trial: &TrialRow, column: Column) -> Result<Self, Failure> {
        const STAMPS: [Column; 5] =
            [Column::TxApp, Column::TxKernel, Column::RxKernel, Column::RxApp, Column::Capture];
        let mut histogram: Histogram<u64> =
            Histogram::new(3).context("cannot create a histogram")?;
        let mut stamps: Option<(i64, i64)> = None;
        let mut failure = None;
        let wanted = [&STAMPS[..], &[column]].concat();
        store.samples(run, trial, Some(&wanted), &mut |batch| {
            let all = STAMPS.iter().filter_map(|column| batch.column(*column)).flatten();
            for stamp in all.copied().filter(|stamp| *stamp != Batch::ABSENT) {
                let (first, last) = stamps.unwrap_or((stamp, stamp));
                stamps = Some((first.min(stamp), last.max(stamp)));
            }
            let values = batch.column(column).unwrap_or_default();
            for (value, state) in values.iter().zip(&batch.state) {
                if *state == State::Received && *value != Batch::ABSENT {
                    // The histogram grows with its largest value; saturating recording would not
                    // let it.
                    failure = histogram.record((*value).max(0) as u64).err().or(failure);
                }
            }
            Ok(())
        })?;
        if let Some(failure) = failure {
            return Err(anyhow::Error::new(failure).context("cannot create a histogram").into());
        }
        Ok(Self { trial: trial.number, histogram, stamps })
    }
}
