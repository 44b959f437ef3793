//! `dwell run`: runs a plan, or prints its trials and cost.

mod binding;
mod events;
mod progress;

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as StdInstant};

use anyhow::Context;
use dwell_fleet::{Device, FleetError, FleetHandle};
use dwell_node_cli::{Exit, Failure, say, terminal};
use dwell_plan::{Estimate, Expansion, Plan, PlanError, Source, Topology, expand};
use dwell_report::model::Axis;
use dwell_results::amounts;
use dwell_runner::{Clock, RunEnd, Runner, RunnerError, new_trials};
use dwell_store::{DeviceRow, NewRun, RunKind, RunRow, RunState, RunnerLock, Store, StoreError};
use dwell_units::{Instant, Monotonic, Nanos};
use serde_json::json;

use super::data::{DataArgs, find};
use super::device::catalogue;
use super::fleet;
use events::{Both, Events};
use progress::Progress;

/// Number of trials beyond which the user must confirm.
const MAX_UNCONFIRMED_TRIALS: usize = 10_000;

/// A run that was killed while it waited keeps its place until the kernel has ended it.
const KILLED_WAITER_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval at which a run that waits looks whether it is the next one.
const QUEUE_INTERVAL: Duration = Duration::from_millis(50);

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A plan is a TOML file, described in docs/plans.md. ^C or closing the terminal discards the current \
trial and ends the run; --resume continues it, also after a power failure.\n\
On a terminal, the progress redraws in place: trials, the current cell with its delays and losses, and \
the median of each finished trial. Otherwise, and with TERM=dumb, a line is printed every 10 s. \
NO_COLOR disables colours.\n\
Exit codes: 0 all trials were tried and some were measured; 1 runtime failure or stop rule; 2 usage \
error or mistake in the plan; 4 not supported or not permitted here; 130 interrupted.")]
pub(crate) struct Args {
    /// Plan file
    plan: PathBuf,

    /// Set a field of the plan, such as topology.link.rate=10Mbit/s; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,

    /// Bind the roles of the plan to devices, such as sender=pi4,receiver=pi3; may be repeated
    #[arg(long, value_name = "ROLE=DEVICE", value_delimiter = ',')]
    pub(super) on: Vec<String>,

    /// Create the lab with this program and run it in the nodes: a dwell-node of this version that was
    /// built with other options [default: this program]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["on", "resume"])]
    pub(super) lab_program: Option<PathBuf>,

    /// Fail instead of waiting while another run uses a device
    #[arg(long)]
    no_wait: bool,

    /// Wait while another run is active in the data directory; plans with devices always do
    #[arg(long, conflicts_with_all = ["no_wait", "dry_run"])]
    wait: bool,

    /// Append what happens to this file, as JSON lines (docs/formats.md)
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    events: Option<PathBuf>,

    /// Print the trials and the expected time, packets and bytes without running anything
    #[arg(long)]
    dry_run: bool,

    /// Resume a run of this plan: its name, or last for the newest unfinished one
    #[arg(long, value_name = "RUN|last", conflicts_with_all = ["set", "on", "dry_run", "seed"])]
    resume: Option<String>,

    /// Seed for the order of trials, unless the plan has one [default: random, printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Do not ask for confirmation of a very large plan
    #[arg(long)]
    yes: bool,

    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,

    /// Print no progress, only the result
    #[arg(short = 'q', long)]
    pub(super) quiet: bool,

    /// Part of another command, which prints the result.
    #[arg(skip)]
    is_part: bool,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

impl Args {
    /// Arguments of a command that runs a plan without questions, and prints the result itself.
    pub(super) fn of(plan: &str, data: DataArgs) -> Self {
        Self {
            plan: plan.into(),
            set: Vec::new(),
            on: Vec::new(),
            lab_program: None,
            no_wait: false,
            wait: false,
            events: None,
            dry_run: false,
            resume: None,
            seed: None,
            yes: true,
            json: false,
            quiet: false,
            is_part: true,
            data,
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let text = read_text(&args.plan)
        .map_err(|error| Failure::usage(format!("{}: {error}", args.plan.display())))?;
    run_text(args, &text).map(|(exit, _)| exit)
}

/// Runs a plan whose text is known; `args.plan` only names it in messages. Returns also the name of the
/// run; `None` without one.
pub(super) fn run_text(args: &Args, text: &str) -> Result<(Exit, Option<String>), Failure> {
    let mut events = Events::open(args.events.as_deref()).map_err(|error| {
        let path = args.events.as_deref().unwrap_or(Path::new("")).display();
        Failure::usage(format!("cannot write {path}, the file of --events: {error}"))
    })?;
    let result = run_plan(args, text, &mut events);
    match &result {
        Ok((Exit::Interrupted, _)) => events.end("interrupted", None),
        // Every other end of a run is written where its reason is known.
        Ok(_) => {}
        Err(failure) => events.end("failed", Some(&format!("{:#}", failure.error))),
    }
    result
}

fn run_plan(
    args: &Args,
    text: &str,
    events: &mut Events,
) -> Result<(Exit, Option<String>), Failure> {
    let wrong = |error: PlanError| Failure::usage(format!("{}: {error}", args.plan.display()));
    let mut source = Source::parse(text).map_err(wrong)?;
    for assignment in &args.set {
        source
            .set(assignment)
            .map_err(|error| Failure::usage(format!("invalid value for --set: {error}")))?;
    }
    load_lab_files(&mut source).map_err(wrong)?;
    let seed = args.seed.unwrap_or_else(random_seed);
    // A plan with a mistake must not create a directory.
    let expansion = expand(&source, seed).map_err(wrong)?;
    check_claims(&source, expansion.plan()).map_err(wrong)?;
    if args.dry_run {
        let exit = dry_run(args, &expansion).map_err(dry_run_failure(wrong))?;
        return Ok((exit, None));
    }
    if args.resume.is_none() {
        confirm(args, &expansion)?;
        // Check all cells, not only the values of each axis, before the run is created.
        Estimate::of_all(&expansion).map_err(wrong)?;
        handle(args, &expansion)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    dwell_node_cli::on_signal(&stop)?;
    // Closing the terminal ends the run, which can be resumed.
    dwell_node_cli::on_hangup(&stop)?;
    let mut store = args.data.open()?;
    // Locked before the run is created, so that a second runner leaves no trace.
    let waits = args.wait || (!args.no_wait && uses_devices(args, &store, &source, &expansion)?);
    let Some(_lock) = lock(args, &store, waits, &stop, events)? else {
        return Ok((Exit::Interrupted, None));
    };
    let (run, expansion) = if let Some(resume) = &args.resume {
        match resumed(&store, resume, &source)? {
            Resumption::Continue(run) => {
                let source = source_of_run(&source, &run).map_err(wrong)?;
                let expansion = expand(&source, run.seed).map_err(wrong)?;
                (run, expansion)
            }
            Resumption::Finished(run) => {
                // Nothing was left to measure, so nothing can have failed.
                begin_events(events, &run);
                events.end("finished", None);
                conclude(args, &store, &run, Ok(RunEnd::Complete))?;
                return Ok((Exit::Measured, Some(run.run)));
            }
            Resumption::None => {
                confirm(args, &expansion)?;
                (begin(&mut store, args, &source, &expansion)?, expansion)
            }
        }
    } else {
        (begin(&mut store, args, &source, &expansion)?, expansion)
    };
    begin_events(events, &run);
    let outcome = execute(args, &mut store, &run, &expansion, &stop, events)?;
    let run = store.run(&run.run)?;
    match &outcome {
        Ok(RunEnd::Complete) => events.end("finished", None),
        Ok(RunEnd::Stopped(why)) => events.end("stopped", Some(why)),
        // `run` writes the end of the others.
        Ok(RunEnd::Interrupted) | Err(_) => {}
    }
    Ok((conclude(args, &store, &run, outcome)?, Some(run.run)))
}

fn begin_events(events: &mut Events, run: &RunRow) {
    let done = run.trials_finished + run.trials_failed + run.trials_not_run;
    events.run(&run.run, &run.name, run.trials, done, run.seed);
}

/// Whether the run uses devices: that of `--resume`, whose settings may have changed the topology of its
/// plan, or a new one.
fn uses_devices(
    args: &Args,
    store: &Store,
    source: &Source,
    expansion: &Expansion,
) -> Result<bool, Failure> {
    if let Some(resume) = &args.resume
        && let Resumption::Continue(run) = resumed(store, resume, source)?
    {
        return Ok(fleet::devices(&run)?.is_some());
    }
    Ok(matches!(expansion.plan().topology, Topology::Devices(_)))
}

/// Returns the nodes of a new run.
fn handle(args: &Args, expansion: &Expansion) -> Result<FleetHandle, Failure> {
    let topology = &expansion.plan().topology;
    let owner = dwell_results::owner();
    // A mistake in `--on` must not create a directory.
    let store = if args.on.is_empty() { None } else { args.data.open_if_exists()? };
    let mut find = |name: &str| match &store {
        Some(store) => catalogue::find(store, name).map(|known| known.device),
        None => Err(Failure::usage(catalogue::how_to_add(&args.data))),
    };
    let devices = binding::bind(topology, &args.on, owner, &mut find)?;
    // The matrix cannot vary the transport, so one handle serves all cells.
    let handle = FleetHandle::new(topology, random(), devices).map_err(fleet_failure)?;
    match &args.lab_program {
        None => Ok(handle),
        Some(program) => {
            let found = program.canonicalize().map_err(|error| {
                Failure::usage(format!("--lab-program {}: {error}", program.display()))
            });
            handle.with_program(found?).map_err(fleet_failure)
        }
    }
}

/// Locks the data directory. If `waits`, waits until other runs end, and until those have run that were
/// started before and wait, too; `None` if it was interrupted. Otherwise fails while there is another run,
/// be it one that waits.
fn lock(
    args: &Args,
    store: &Store,
    waits: bool,
    stop: &AtomicBool,
    events: &mut Events,
) -> Result<Option<RunnerLock>, Failure> {
    let place = store.queue()?;
    let since = StdInstant::now();
    let mut is_announced = false;
    loop {
        let is_next = place.is_first()?;
        let locked =
            if is_next { store.lock() } else { Err(StoreError::Busy(store.dir().to_owned())) };
        match locked {
            Err(StoreError::Busy(dir)) if waits => {
                if !std::mem::replace(&mut is_announced, true) {
                    let reason = format!("another run is active in {}", dir.display());
                    events.waiting(&reason);
                    if !args.quiet {
                        say(&format!("{reason}; waiting until it ends"));
                    }
                }
                if !is_next {
                    std::thread::sleep(QUEUE_INTERVAL);
                }
            }
            Err(StoreError::Busy(_)) if !is_next && since.elapsed() < KILLED_WAITER_TIMEOUT => {
                std::thread::sleep(QUEUE_INTERVAL);
            }
            locked => return Ok(Some(locked?)),
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
    }
}

/// Returns a random seed, short enough to type.
fn random_seed() -> u64 {
    random().into()
}

fn random() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

/// Converts an error of a dry run.
fn dry_run_failure(wrong: impl Fn(PlanError) -> Failure) -> impl Fn(DryRunError) -> Failure {
    move |error| match error {
        DryRunError::Plan(error) => wrong(error),
        DryRunError::Io(error) => error.into(),
    }
}

/// A run to resume.
enum Resumption {
    Continue(RunRow),
    Finished(RunRow),
    None,
}

fn resumed(store: &Store, wanted: &str, source: &Source) -> Result<Resumption, Failure> {
    let unfinished = |run: &RunRow| {
        run.state != RunState::Finished
            || run.trials_finished + run.trials_failed + run.trials_not_run < run.trials
    };
    if wanted == "last" {
        let mut runs = store.runs_of_plan(source.text())?;
        runs.retain(|run| has_labs_of(source, run));
        let newest = runs.first().cloned();
        return Ok(match (runs.into_iter().find(unfinished), newest) {
            (Some(run), _) => Resumption::Continue(run),
            (None, Some(newest)) => Resumption::Finished(newest),
            (None, None) => Resumption::None,
        });
    }
    let run = find(store, wanted)?;
    let changed = if run.plan.as_deref() != Some(source.text()) {
        "another plan, or the plan was changed since"
    } else if !has_labs_of(source, &run) {
        "another lab: the lab file of the plan was changed since"
    } else {
        return Ok(if unfinished(&run) {
            Resumption::Continue(run)
        } else {
            Resumption::Finished(run)
        });
    };
    Err(Failure::usage(format!(
        "run {wanted} belongs to {changed}; `dwell run PLAN` starts a new run"
    )))
}

/// Returns the plan with the settings of a run and the current contents of its lab files.
fn source_of_run(source: &Source, run: &RunRow) -> Result<Source, PlanError> {
    let mut source = source.clone();
    for assignment in &run.settings {
        source.set(assignment)?;
    }
    load_lab_files(&mut source)?;
    Ok(source)
}

/// Whether the lab files are unchanged since the run began. Runs of older versions stored none.
fn has_labs_of(source: &Source, run: &RunRow) -> bool {
    let Some(kept) = &run.lab_files else { return true };
    source_of_run(source, run).is_ok_and(|now| {
        now.lab_files().iter().all(|path| kept.get(path) == now.lab_texts().get(path))
    })
}

/// Checks that the document whose claims are judged is known.
fn check_claims(source: &Source, plan: &Plan) -> Result<(), PlanError> {
    match plan.claims.as_deref() {
        Some(name) if dwell_documents::find(name).is_none() => {
            let known: Vec<&str> =
                dwell_documents::with_claims().map(|document| document.name).collect();
            let message = format!("unknown document '{name}'; known: {}", known.join(", "));
            Err(source.error("claims", message))
        }
        _ => Ok(()),
    }
}

/// Reads the lab files that the plan names.
fn load_lab_files(source: &mut Source) -> Result<(), PlanError> {
    for path in source.lab_files() {
        let text = read_text(Path::new(&path)).map_err(|error| error.to_string());
        source.add_lab_file(&path, text)?;
    }
    Ok(())
}

/// Reads a text file of limited length.
fn read_text(path: &Path) -> io::Result<String> {
    const MAX_FILE_LEN: u64 = 4 << 20;
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(MAX_FILE_LEN + 1).read_to_end(&mut bytes)?;
    if read as u64 > MAX_FILE_LEN {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 4 MiB"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let whole = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + whole.iter().filter(|byte| **byte == b'\n').count();
        let start = whole.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let column = 1 + String::from_utf8_lossy(&whole[start..]).chars().count();
        let text = format!("line {line}, column {column}: not UTF-8");
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

fn begin(
    store: &mut Store,
    args: &Args,
    source: &Source,
    expansion: &Expansion,
) -> Result<RunRow, Failure> {
    let plan = expansion.plan();
    let handle = handle(args, expansion)?;
    let new = NewRun {
        kind: RunKind::Run,
        name: plan.name.clone(),
        title: plan.title.clone(),
        plan: Some(source.text().to_owned()),
        lab_files: Some(source.lab_texts().clone()),
        settings: source.settings().collect(),
        seed: expansion.seed(),
        axes: json!(axes(expansion)),
        fleet: Some(json!(handle).to_string()),
        dwell: dwell_node_cli::build().to_owned(),
        owner: dwell_results::owner(),
        trials: new_trials(expansion),
    };
    let name = store.begin_run(&new)?;
    let run = store.run(&name)?;
    if !args.quiet {
        say(&format!(
            "run {name}: {} trials of plan {}, order by seed {}",
            run.trials,
            run.name,
            expansion.seed()
        ));
    }
    Ok(run)
}

/// Returns the axes in the form that reports use.
fn axes(expansion: &Expansion) -> Vec<Axis> {
    let axes = expansion.axes().into_iter().map(|axis| {
        let numbers = axis.numbers();
        Axis {
            name: axis.name.clone(),
            values: axis.labels(),
            unit: numbers.as_ref().map(|(_, unit)| (*unit).to_owned()),
            numbers: numbers.map(|(numbers, _)| numbers),
        }
    });
    axes.collect()
}

/// Asks for confirmation of a very large plan, which may be a mistake.
fn confirm(args: &Args, expansion: &Expansion) -> Result<(), Failure> {
    let count = expansion.trials().len();
    if count <= MAX_UNCONFIRMED_TRIALS || args.yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(format!(
            "the plan has {count} trials; check their cost with --dry-run, run them with --yes"
        )));
    }
    write!(io::stderr(), "the plan has {count} trials. Run them? [y/N] ")?;
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    if answer.trim().eq_ignore_ascii_case("y") {
        return Ok(());
    }
    Err(Failure::usage("nothing was run; --dry-run shows the cost of the plan"))
}

fn execute(
    args: &Args,
    store: &mut Store,
    run: &RunRow,
    expansion: &Expansion,
    stop: &Arc<AtomicBool>,
    events: &mut Events,
) -> Result<Result<RunEnd, RunnerError>, Failure> {
    clear_orphaned_fleets(store, run)?;
    let fleet = fleet::open(run, !args.no_wait, Arc::clone(stop))?;
    let mut fleet = fleet.with_context(|| format!("run {} has no nodes", run.run))?;
    // Remove what a dead runner left.
    fleet.clear()?;
    let devices = fleet::devices(run)?;
    for device in devices.iter().flat_map(|devices| devices.roles.values()) {
        check_unchanged(store, run, device)?;
        store.lease(&device.name, run, &dwell_results::owner())?;
    }
    let mut progress = Progress::new(args.quiet, expansion);
    let clock = WallClock::default();
    let runner = Runner {
        fleet: fleet.as_mut(),
        store,
        expansion,
        run: run.clone(),
        clock: &clock,
        reporter: &mut Both(&mut progress, events),
        stop,
    };
    let outcome = runner.run();
    progress.end();
    if devices.is_some() {
        store.release(run)?;
    }
    Ok(outcome)
}

/// Checks that a device of a run, which may be resumed days later, is still the one of its name.
fn check_unchanged(store: &Store, run: &RunRow, device: &Device) -> Result<(), Failure> {
    let now = store.device(&device.name)?;
    let destination = |row: DeviceRow| {
        serde_json::from_str(&row.description).ok().map(|now: Device| now.destination)
    };
    if now.and_then(destination).as_ref() == Some(&device.destination) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "run {} is bound to device {} at {}, which was renamed, changed or removed; restore it with \
         `dwell device edit` or `dwell device add`, or start a new run",
        run.run, device.name, device.destination
    )))
}

/// Removes the nodes of other runs whose runner was killed. A data directory has at most one runner,
/// so the runners of other runs in state running are dead.
fn clear_orphaned_fleets(store: &mut Store, run: &RunRow) -> Result<(), Failure> {
    let others = store.runs()?.into_iter().filter(|other| other.run != run.run);
    for dead in others.filter(|other| other.state == RunState::Running) {
        let cleared = match fleet::of_run(&dead) {
            Ok(None) => continue,
            Ok(Some(mut fleet)) => fleet.clear().map_err(|error| error.to_string()),
            Err(failure) => Err(format!("{:#}", failure.error)),
        };
        match cleared {
            Ok(()) => {
                store.release(&dead)?;
                store.set_run_state(&dead, RunState::Stopped)?;
            }
            Err(error) => {
                say(&format!("dwell: cannot remove the nodes of run {}: {error}", dead.run));
            }
        }
    }
    Ok(())
}

/// Converts a failure to make nodes available.
fn fleet_failure(error: FleetError) -> Failure {
    if error.is_unsupported() { Failure::unsupported(error.to_string()) } else { error.into() }
}

/// Clock that counts from the start of the run.
struct WallClock(StdInstant);

impl Default for WallClock {
    fn default() -> Self {
        Self(StdInstant::now())
    }
}

impl Clock for WallClock {
    fn now(&self) -> Instant<Monotonic> {
        let elapsed = i64::try_from(self.0.elapsed().as_nanos()).unwrap_or(i64::MAX);
        Instant::from_nanos(0) + Nanos(elapsed)
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// Reports how the run ended.
fn conclude(
    args: &Args,
    store: &Store,
    run: &RunRow,
    outcome: Result<RunEnd, RunnerError>,
) -> Result<Exit, Failure> {
    let end = match &outcome {
        Ok(RunEnd::Complete) => "complete".to_owned(),
        Ok(RunEnd::Interrupted) => "interrupted".to_owned(),
        Ok(RunEnd::Stopped(why)) => format!("stopped: {why}"),
        Err(error) => format!("failed: {error}"),
    };
    if args.json {
        let object = json!({
            "schema": "dwell.run-end/1",
            "run": run.run,
            "plan": run.name,
            "state": run.state,
            "end": end,
            "trials": run.trials,
            "finished": run.trials_finished,
            "failed": run.trials_failed,
            "not_run": run.trials_not_run,
            "data": store.dir(),
        });
        super::print(&format!("{object:#}"))?;
    } else if !args.is_part {
        // The reason of a failure is printed on standard error only.
        let end = if outcome.is_err() { "failed" } else { &end };
        super::print(&format!(
            "run {}: {end}; {} of {} trials measured, {} failed{}",
            run.run,
            run.trials_finished,
            run.trials,
            run.trials_failed,
            match run.trials_not_run {
                0 => String::new(),
                n => format!(", {n} not run"),
            }
        ))?;
        if run.trials_finished > 0 {
            super::print(&format!("dwell show {0}, dwell report {0}", run.run))?;
        }
    }
    match outcome {
        Ok(RunEnd::Complete) if run.trials_finished > 0 => Ok(Exit::Measured),
        Ok(RunEnd::Complete | RunEnd::Stopped(_)) => Ok(Exit::Failed),
        Ok(RunEnd::Interrupted) => {
            say(&format!("dwell: continue it with --resume {}", run.run));
            Ok(Exit::Interrupted)
        }
        Err(RunnerError::Fleet(error)) => Err(fleet_failure(error)),
        Err(error) => Err(error.into()),
    }
}

/// Why a dry run failed.
enum DryRunError {
    Plan(PlanError),
    Io(io::Error),
}

impl From<io::Error> for DryRunError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Prints the trials of the plan and their cost.
fn dry_run(args: &Args, expansion: &Expansion) -> Result<Exit, DryRunError> {
    let estimate = Estimate::of_all(expansion).map_err(DryRunError::Plan)?;
    let trials = expansion.trials();
    // Buffered, to avoid a system call per line of a million trials.
    let mut out = terminal::buffered_stdout();
    if args.json {
        let trials: Vec<_> = (1..)
            .zip(trials)
            .map(|(order, trial)| {
                json!({
                    "trial": trial.number,
                    "order": order,
                    "repetition": trial.repetition,
                    "parameters": expansion.parameters(trial.cell),
                })
            })
            .collect();
        let object = json!({
            "schema": "dwell.dry-run/1",
            "plan": expansion.plan().name,
            "seed": expansion.seed(),
            "axes": axes(expansion),
            "cells": expansion.cells().len(),
            "time_ns": estimate.time.0,
            "time_is_at_least": estimate.at_least,
            "sending_ns": estimate.sending.0,
            "probes": estimate.probes,
            "probes_are_at_most": estimate.at_most,
            "bytes": estimate.bytes,
            "load_packets": estimate.load_packets,
            "load_bytes": estimate.load_bytes,
            "trials": trials,
        });
        writeln!(out, "{object:#}")?;
        out.flush()?;
        return Ok(Exit::Measured);
    }
    writeln!(out, "plan {}", expansion.plan().name)?;
    for axis in expansion.axes() {
        writeln!(out, "  {axis}")?;
    }
    let most = if estimate.at_most { "at most " } else { "" };
    let count = |count: Option<u64>| count.map_or("as many as fit".into(), |n| n.to_string());
    writeln!(
        out,
        "{} cells x {} repetitions = {} trials, order by seed {}",
        expansion.cells().len(),
        expansion.plan().trials.repetitions,
        trials.len(),
        expansion.seed()
    )?;
    if estimate.at_least {
        writeln!(out, "time: unknown: a closed loop takes as long as its replies")?;
    } else {
        let (time, sending) = (amounts::time(estimate.time), amounts::time(estimate.sending));
        writeln!(out, "time: {time}, of which {sending} sending")?;
    }
    writeln!(out, "probes: {most}{}", count(estimate.probes))?;
    let bytes = estimate.bytes.map_or("as many as fit".into(), amounts::bytes);
    writeln!(out, "bytes of IP packets, both ways: {bytes}")?;
    if estimate.load_packets > 0 && estimate.at_least {
        writeln!(out, "load traffic: for the duration of the trials")?;
    } else if estimate.load_packets > 0 {
        let bytes = amounts::bytes(estimate.load_bytes);
        writeln!(out, "load traffic: {} packets, {bytes}", estimate.load_packets)?;
    }
    writeln!(out)?;
    for (order, trial) in (1..).zip(trials) {
        let parameters = expansion.parameters(trial.cell);
        let cell: Vec<_> =
            parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
        writeln!(
            out,
            "{order:>6}  trial {:<6} repetition {:<4} {}",
            trial.number,
            trial.repetition,
            cell.join(", ")
        )?;
    }
    out.flush()?;
    Ok(Exit::Measured)
}
