//! `dwell ping`: sends probes and measures their round-trip delay.
//!
//! `setup` checks the job and fills in defaults. `first_contact` chooses the protocol of a bare
//! host, `reach` the address. `session` opens the socket and runs `timing_loop` on its own thread.
//! `recorder` turns samples into metrics, rows and a segment, and reports to an
//! `observer`. `report` builds the summary and prints the long table; `brief` prints the short one.
//! `explain` divides spikes by cause, and `spike_table` prints them. `no_idle` holds the processors
//! out of idle states. `driver_stamps` adds the timestamps of replies in the
//! driver, and `layer_table` prints them.
//! `measure` does all of this without a command line. `stream` runs the timing loop without an end,
//! for an agent.

mod brief;
mod driver_stamps;
mod explain;
mod first_contact;
mod floor;
mod framing;
mod icmp_error;
mod layer_table;
mod no_idle;
mod observer;
mod reach;
mod recorder;
mod replies;
mod report;
mod session;
mod setup;
mod spike_table;
pub(crate) mod stream;
mod timing_loop;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ArgAction;
use dwell_io::activity::Own;
use dwell_protocol::{PingJob, PingParameters, ProbeStamps};
use dwell_record::Summary;
use dwell_stats::{Metric, PathDelays, RoundTrip};
use dwell_units::Nanos;

use crate::host::CpuWatch;
use crate::{Exit, Failure, Scheme, Target, protocols};

/// Minimum probe interval for a line per reply on a terminal.
const SLOW_INTERVAL: Nanos = Nanos::from_millis(100);

/// Arguments of `ping`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Bare numbers are as in ping: seconds for -i, -w and -W, bytes for -s. All other values need a \
unit: 10ms, 250us, 1400B, 1%.\n\
Exit codes: 0 measured, 1 no reply or a runtime failure, 2 usage, 3 a --fail-if condition holds, \
4 not supported or not permitted here, 5 a --fail-if condition cannot be decided (3 takes precedence), \
130 interrupted (results so far are printed).\n\
--fail-if accepts min, mean, median, p50, p90, p95, p99, p99.9, max and stddev of rtt or of \
another metric (rtt_kernel.p99), jitter, loss (lost or late), lost and late. Late and lost probes \
exceed every limit. Each verdict has 95 % confidence: p99 needs 299 probes, all within the limit.")]
#[command(
    mut_arg("target", |target| target.help(protocols::target_help())),
    mut_arg("interval", |interval| interval.help(protocols::interval_help())),
    mut_arg("size", |size| size.help(protocols::size_help())),
    mut_arg("pause", |pause| pause.help(protocols::pause_help())),
    mut_arg("warm_up", |warm_up| warm_up.help(protocols::warm_up_help()))
)]
pub struct Args {
    /// The job.
    #[command(flatten)]
    pub job: PingJob,

    /// Write one row per probe to this CSV file; `-` is standard output, without the summary
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write all timestamps of all probes to this file, for `dwell import`
    #[arg(long, value_name = "FILE")]
    pub samples: Option<PathBuf>,

    /// Print one JSON line per reply as it arrives
    #[arg(long, conflicts_with = "json")]
    pub jsonl: bool,

    /// Print the summary as one JSON object
    #[arg(long)]
    pub json: bool,

    /// Exit with code 3 if the condition holds, or 5 if it cannot be decided, like 'p99 > 10ms' or
    /// 'loss > 1%'. Repeatable
    #[arg(long, value_name = "CONDITION", action = ArgAction::Append)]
    pub fail_if: Vec<String>,

    /// Print only the result: no progress, no line per reply
    #[arg(short = 'q', long)]
    pub quiet: bool,

    /// Print every reply at any rate, and the full table of metrics
    #[arg(short = 'v', long)]
    pub verbose: bool,
}

pub use observer::Observer;
pub(crate) use recorder::{Outputs, SampleFile};
pub(crate) use replies::Replies;
pub(crate) use report::{cells, unit};

impl Args {
    /// Which replies are printed: on a terminal, all of them at rates that a person can follow.
    fn replies(&self) -> Replies {
        let target = self.job.target.parse();
        let scheme = target.map_or(Scheme::Stamp, |target: Target| target.scheme);
        let defaults = scheme.spec().defaults;
        let PingParameters { closed_loop, interval, pause, .. } = self.job.parameters;
        let spacing = if closed_loop || defaults.closed_loop {
            pause.max(interval).unwrap_or(defaults.pause)
        } else {
            interval.unwrap_or(Nanos::from_secs(1))
        };
        let is_slow = spacing >= SLOW_INTERVAL;
        let is_data_elsewhere = self.json || self.jsonl;
        let watched = is_slow && !is_data_elsewhere && std::io::stderr().is_terminal();
        match (self.quiet || self.jsonl, self.verbose || watched, is_slow) {
            (false, true, true) => Replies::WithTtl,
            (false, true, false) => Replies::Lines,
            _ => Replies::Silent,
        }
    }
}

/// The outcome of a measurement.
pub(crate) struct Measured {
    pub(crate) summary: Summary,
    /// Round-trip statistics.
    pub(crate) round_trip: RoundTrip,
    /// Delays reported by relays on the path.
    pub(crate) path: PathDelays,
    /// Number of probes sent.
    pub(crate) sent: u64,
    /// Number of replies, including late ones.
    pub(crate) answered: u64,
    /// Advice on a target that did not reply.
    pub(crate) advice: String,
    /// A failed output or socket. Results until then are valid.
    pub(crate) failure: Option<Failure>,
    /// The reader of standard output has closed it.
    pub(crate) output_closed: bool,
}

/// Runs a job to completion or until stopped, against the first address of its target. A bare host
/// is probed with STAMP. CPU time of `own` does not count as other programs'.
pub(crate) fn measure(
    job: &PingJob,
    outputs: Outputs,
    own: Own,
    stop: &Arc<AtomicBool>,
) -> Result<Measured, Failure> {
    let setup = setup::PingSetup::new(job)?;
    let reached = reach::Addresses::resolve(job, &setup)?.untried();
    measure_at(job, &setup, reached, outputs, own, stop)
}

/// Runs a job against the chosen address.
fn measure_at(
    job: &PingJob,
    setup: &setup::PingSetup,
    reached: reach::Reached,
    outputs: Outputs,
    own: Own,
    stop: &Arc<AtomicBool>,
) -> Result<Measured, Failure> {
    let watch = CpuWatch::start(own);
    let shared =
        Arc::new(timing_loop::Shared { stop: Arc::clone(stop), ..timing_loop::Shared::default() });
    let mut recorder = recorder::Recorder::new(outputs, &setup.target)?;
    if job.parameters.is_explained() {
        recorder.explain(job.parameters.explain_above);
    }
    let no_idle = no_idle::NoIdle::hold(job.parameters.no_idle);
    let outcome = session::run(job, setup, reached, &shared, &mut recorder)?;
    let unstamped = recorder.sources.is_unstamped() && job.parameters.stamps == ProbeStamps::Kernel;
    if outcome.ended.unstamped || unstamped {
        return Err(Failure::unsupported(
            "--stamps kernel: this socket delivers no kernel timestamps; --stamps auto measures \
             with the program's own",
        ));
    }
    let counts = outcome.ended.counts;
    recorder.settle(counts, outcome.ended.warm_up);
    let dropped = shared.dropped.load(Ordering::Relaxed);
    recorder.end_spikes();
    recorder.end_samples(dropped);
    let mut summary = report::summary(job, setup, &mut recorder, &outcome, dropped);
    summary.trust.note_host(watch.end(outcome.wait));
    no_idle.end(&mut summary);
    let broken = outcome.ended.broken.map(|errno| match errno {
        0 => anyhow::anyhow!("{} closed the connection", setup.target),
        errno => {
            let error = std::io::Error::from_raw_os_error(errno);
            anyhow::Error::new(error).context("the socket failed")
        }
    });
    Ok(Measured {
        summary,
        round_trip: recorder.measured,
        path: recorder.path,
        sent: counts.sent,
        answered: counts.received + counts.late,
        advice: advice(setup, job.parameters.ttl, &outcome.ended),
        failure: recorder.failure.or(broken).map(Failure::from),
        output_closed: recorder.output_closed,
    })
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let replies = args.replies();
    execute(args, replies, Box::new(observer::Progress::new(args, replies)))
}

/// Runs the command and reports its progress to `observer`, without a line per reply. Messages from
/// before the first probe and the result are printed as by [`run`].
pub fn run_observed(args: &Args, observer: Box<dyn Observer>) -> Result<Exit, Failure> {
    execute(args, Replies::Silent, observer)
}

fn execute(args: &Args, replies: Replies, observer: Box<dyn Observer>) -> Result<Exit, Failure> {
    let known = Metric::ALL.map(|metric| metric.name().trim_end_matches("_ns"));
    let thresholds = crate::threshold::read(&args.fail_if, &known)?;
    let rows_on_stdout = args.csv.as_deref() == Some(Path::new("-"));
    if rows_on_stdout && (args.json || args.jsonl) {
        let other = if args.json { "--json" } else { "--jsonl" };
        return Err(Failure::usage(format!(
            "--csv - and {other} both write to standard output; use a file for --csv"
        )));
    }
    // Checked before any file is created.
    first_contact::check(&args.job)?;
    let timeout = args.job.parameters.timeout();
    let stop = Arc::new(AtomicBool::new(false));
    crate::stop::on_signal(&stop)?;
    let outputs = Outputs {
        csv: args.csv.clone(),
        lines: args.jsonl,
        samples: args.samples.as_deref().map(SampleFile::create).transpose()?,
        replies,
        observer,
    };
    let mut say = |text: String| {
        if !args.quiet {
            crate::say(&text);
        }
    };
    let measured = first_contact::choose(args.job.clone(), &stop, &mut say).and_then(|choice| {
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::interrupted());
        }
        let first_contact::Choice { job, setup, reached } = choice;
        measure_at(&job, &setup, reached, outputs, Own::Process, &stop)
    });
    let measured =
        measured.map_err(|failure| failure.or_interrupted(stop.load(Ordering::Relaxed)))?;
    if measured.output_closed && measured.failure.is_none() {
        // The closed output set the stop flag; this is not an interruption.
        return Ok(match thresholds.is_empty() {
            true => Exit::Measured,
            false => report::verdict(&thresholds, &measured, timeout, false),
        });
    }
    let interrupted = stop.load(Ordering::Relaxed);
    if args.json {
        use std::io::Write;
        std::io::stdout().lock().write_all(measured.summary.to_json().as_bytes())?;
    } else if args.jsonl || rows_on_stdout {
        // The rows are on standard output.
    } else if args.verbose {
        report::print(&measured.summary, &measured.round_trip, &measured.path)?;
    } else {
        brief::print(&measured.summary, &measured.round_trip, &measured.path)?;
    }
    if let Some(failure) = measured.failure {
        return Err(failure);
    }
    if !interrupted && measured.answered == 0 {
        crate::say(&format!(
            "dwell: no reply from {} within {timeout}, probes sent: {}; {}",
            measured.summary.target, measured.sent, measured.advice
        ));
    }
    Ok(report::verdict(&thresholds, &measured, timeout, interrupted))
}

/// Advice on a target that did not reply.
fn advice(setup: &setup::PingSetup, ttl: Option<u8>, ended: &timing_loop::LoopResult) -> String {
    if ended.counts.rejected.unauthentic > 0 {
        return "replies had a wrong HMAC: do both ends use the same key?".into();
    }
    let reported = ended.first_error.and_then(|error| error.advice(&setup.target));
    reported.unwrap_or_else(|| icmp_error::silent_advice(&setup.target, ttl))
}
