//! `dwell audit`: checks published tables, descriptions of tables, and runs.

use std::io::Write;
use std::path::Path;

use dwell_audit::{
    AuditError, Column, Content, Mapping, Report, Role, Table, TableBuilder, Unit,
    audit_description, audit_tables, read, read_file,
};
use dwell_node_cli::{Exit, Failure, terminal};
use dwell_record::{Batch, Column as SampleColumn};
use dwell_results::main_column;
use dwell_sample::State;
use dwell_store::{RunRow, Store, TrialRow};

use super::data::{DataArgs, find, say_problem};

/// Arguments of `audit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An input is a CSV file with a header, a TABLE.toml that describes tables and the results printed \
about them, a run (or last), or - for a CSV on standard input. Of several CSV files the numbers of \
values are compared. Exits with code 3 if a printed number contradicts its rows or a cell is \
malformed. docs/audit.md describes TABLE.toml and lists the findings.")]
pub(crate) struct Args {
    /// CSV file, TABLE.toml, run name or last; several CSV files are compared
    #[arg(required = true, value_name = "FILE|RUN|TABLE.toml")]
    inputs: Vec<String>,

    /// Meaning and unit of columns of a CSV: ROLE=NAME, ROLE=NAME:UNIT or NAME:UNIT, separated by
    /// commas. Roles: id, sent, received, latency, value, other. Units: ns, us, ms, s, min, h. #2 is
    /// the second column
    #[arg(long, value_name = "COLUMNS")]
    columns: Vec<String>,

    /// Print the findings as one JSON object (dwell.audit/1)
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let report = report(args)?;
    let mut out = terminal::buffered_stdout();
    if args.json {
        let object = serde_json::to_string_pretty(&report).map_err(anyhow::Error::new)?;
        writeln!(out, "{object}")?;
    } else {
        writeln!(out, "{}", report.text())?;
    }
    out.flush()?;
    Ok(if report.is_serious() { Exit::Threshold } else { Exit::Measured })
}

fn report(args: &Args) -> Result<Report, Failure> {
    let mappings = mappings(&args.columns)?;
    if let [input] = args.inputs.as_slice() {
        let path = Path::new(input);
        if is_description(path) {
            if !mappings.is_empty() {
                return Err(Failure::usage(format!(
                    "--columns is for CSV files; describe the columns in {input}"
                )));
            }
            return audit_description(path).map_err(failure);
        }
        if names_run(input) {
            return of_run(args, input);
        }
    }
    let mut tables = Vec::new();
    for input in &args.inputs {
        let path = Path::new(input);
        if is_description(path) || names_run(input) {
            return Err(Failure::usage(format!(
                "'{input}' is no CSV file; audit a TABLE.toml or a run by itself"
            )));
        }
        let mut table = if input == "-" {
            read(std::io::stdin().lock(), "standard input", &mappings).map_err(failure)?
        } else {
            read_file(path, &mappings).map_err(failure)?
        };
        let stem =
            path.file_stem().map_or(input.clone(), |stem| stem.to_string_lossy().into_owned());
        let is_taken = tables.iter().any(|other: &Table| other.name == stem);
        table.name = if is_taken { input.clone() } else { stem };
        tables.push(table);
    }
    Ok(audit_tables(&args.inputs.join(", "), &tables, true))
}

fn mappings(columns: &[String]) -> Result<Vec<Mapping>, Failure> {
    let mut all = Vec::new();
    for text in columns {
        let parsed = Mapping::parse_list(text)
            .map_err(|error| Failure::usage(format!("--columns: {error}")))?;
        all.extend(parsed);
    }
    Ok(all)
}

fn failure(error: AuditError) -> Failure {
    if error.is_usage() {
        Failure::usage(error.to_string())
    } else {
        anyhow::Error::new(error).into()
    }
}

fn is_description(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"))
}

/// Whether an input is the name of a run: no file, and neither a path nor a file name.
fn names_run(input: &str) -> bool {
    input != "-" && !Path::new(input).exists() && !input.contains(['/', '.'])
}

/// Audits every trial of a run as a table.
fn of_run(args: &Args, name: &str) -> Result<Report, Failure> {
    if !args.columns.is_empty() {
        return Err(Failure::usage(format!("--columns is for CSV files, and '{name}' is a run")));
    }
    let store = args.data.open_to_read()?;
    let run = find(&store, name)?;
    let column = main_column(&store, std::slice::from_ref(&run), &say_problem)?;
    let mut tables = Vec::new();
    for trial in store.trials(&run)?.iter().filter(|trial| trial.samples.is_some_and(|n| n > 0)) {
        tables.push(trial_table(&store, &run, trial, column)?);
    }
    if tables.is_empty() {
        return Err(anyhow::anyhow!("run {} has no samples to audit", run.run).into());
    }
    Ok(audit_tables(&run.run, &tables, false))
}

/// The samples of a trial: probe ids, timestamps of the program, and the main delay of received
/// probes.
fn trial_table(
    store: &Store,
    run: &RunRow,
    trial: &TrialRow,
    main: SampleColumn,
) -> Result<Table, Failure> {
    // Only the round trip is the difference of these two timestamps.
    let is_round_trip = main == SampleColumn::Rtt;
    let received_role = if is_round_trip { Role::Received } else { Role::Other };
    let column = |name: &str, role: Role, content: Content| {
        let unit = Some(Unit::Nanos).filter(|_| role != Role::Id);
        Column::new(name, role, content, unit)
    };
    let wanted = [main, SampleColumn::TxApp, SampleColumn::RxApp];
    let mut builder: Option<TableBuilder> = None;
    let mut origin = 0;
    store.samples(run, trial, Some(&wanted), &mut |batch| {
        let builder = builder.get_or_insert_with(|| {
            origin = first_stamp(batch);
            let mut columns = vec![
                column("id", Role::Id, Content::Number),
                column("tx_app_ns", Role::Sent, Content::Time),
                column("rx_app_ns", received_role, Content::Time),
                column(main.name(), Role::Latency, Content::Number),
            ];
            columns.iter_mut().for_each(|column| column.origin = origin);
            TableBuilder::of_columns(&run.run, columns)
        });
        builder.add_whole_numbers(rows(batch, main, origin));
        Ok(())
    })?;
    let columns = vec![column(main.name(), Role::Latency, Content::Number)];
    let builder = builder.unwrap_or_else(|| TableBuilder::of_columns(&run.run, columns));
    let mut table = builder.finish();
    table.name = format!("trial {}", trial.number);
    Ok(table)
}

fn first_stamp(batch: &Batch) -> i64 {
    let stamps = batch.column(SampleColumn::TxApp).unwrap_or_default();
    stamps.iter().copied().find(|stamp| *stamp != Batch::ABSENT).unwrap_or(0)
}

/// Values of a batch. Probes without a reply within the time-out have no values: their rows come
/// later than their send times.
fn rows(batch: &Batch, main: SampleColumn, origin: i64) -> Vec<Vec<f64>> {
    let is_used = |row: usize| {
        batch.state[row] == State::Received && !batch.reordered[row] && !batch.void[row]
    };
    let values = |column: SampleColumn, origin: i64| -> Vec<f64> {
        let values = batch.column(column);
        let value = |row: usize| {
            let value = values.map(|values| values[row]).filter(|value| *value != Batch::ABSENT);
            value.filter(|_| is_used(row)).map_or(f64::NAN, |value| (value - origin) as f64)
        };
        (0..batch.len()).map(value).collect()
    };
    vec![
        batch.id.iter().map(|id| *id as f64).collect(),
        values(SampleColumn::TxApp, origin),
        values(SampleColumn::RxApp, origin),
        values(main, 0),
    ]
}
