//! `dwell ping`: sends probes and measures how long their replies take.
//!
//! `plan` turns the command line into what will be done and judges all that can be judged from
//! it; `first_contact` chooses the protocol of a bare host and `reach` the address that answers;
//! `session` opens the socket and runs `drive`, the timing loop, on a thread of its own; `recorder`
//! turns its samples into metrics, rows and a segment, and informs an `observer`; `report` makes the
//! summary, which it or `brief` prints. `measure` is all of it without a command line.

mod brief;
mod drive;
mod first_contact;
mod floor;
mod framing;
mod icmp_error;
mod observer;
mod plan;
mod reach;
mod recorder;
mod replies;
mod report;
mod session;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ArgAction;
use dwell_io::host::Own;
use dwell_plan::{IcmpSocket, PingJob, Stamps};
use dwell_record::Summary;
use dwell_stats::{Metric, PathDelays, RoundTrip};
use dwell_units::Nanos;

use crate::host::CpuWatch;
use crate::{Exit, Failure, PlaceArgs};

/// From this interval on, replies have a line each on a terminal.
const SLOW_INTERVAL: Nanos = Nanos::from_millis(100);

/// Arguments of `ping`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Bare numbers mean what they mean to ping: -i, -w and -W in seconds, -s in bytes. Everything else \
takes a unit: 10ms, 250us, 1400B, 1%.\n\
Exit codes: 0 measured, 1 no reply or a runtime failure, 2 usage, 3 a --fail-if condition holds, \
4 not supported or no privilege here, 5 a --fail-if condition cannot be decided (3 wins), 130 \
interrupted (what was measured is printed).\n\
--fail-if knows min, mean, median, p50, p90, p95, p99, p99.9, max and stddev of rtt or of another \
metric (rtt_kernel.p99), jitter, loss (lost or late), lost and late. Late and lost probes are beyond \
every limit. Each verdict has 95 % confidence: p99 needs 299 probes without one beyond the limit.")]
pub struct Args {
    /// Whom to probe: stamp://HOST:PORT (862 if left out), icmp://HOST, udp://HOST:PORT,
    /// tcp://HOST:PORT, roundtrip://HOST:PORT, text+udp://HOST:PORT or text+tcp://HOST:PORT; HOST
    /// alone is STAMP if a reflector answers within 1 s (2 s if it has many addresses), else ICMP
    pub target: String,

    /// Stop after this many probes
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Time between probes [default: 1s; text+udp and text+tcp see --pause]
    #[arg(short = 'i', long, value_name = "TIME", value_parser = seconds)]
    pub interval: Option<Nanos>,

    /// Bytes of payload [default: 56 for icmp, 64 for udp and tcp, 76 for stamp (164 with a key);
    /// the others are fixed]
    #[arg(short = 's', long, value_name = "BYTES", value_parser = bytes)]
    pub size: Option<u64>,

    /// Send no probe later than this after the first
    #[arg(short = 'w', long, value_name = "TIME", value_parser = seconds)]
    pub deadline: Option<Nanos>,

    /// A reply after this is late
    #[arg(short = 'W', long, value_name = "TIME", default_value = "1s", value_parser = seconds)]
    pub timeout: Nanos,

    /// Send the next probe after the reply of the last, or its time-out
    #[arg(long)]
    pub closed_loop: bool,

    /// In closed loop, wait this long after each reply [default: 0s; text+udp and text+tcp: 1s]
    #[arg(long, value_name = "TIME")]
    pub pause: Option<Nanos>,

    /// Probes to send first, not counted; the last three at the pace of those that count [default:
    /// 8; text+udp and text+tcp: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub warm_up: Option<u32>,

    /// Which stamps to use: the program's own, or the kernel's beside them where delivered
    #[arg(long, value_enum, default_value_t = StampChoice::Auto)]
    pub stamps: StampChoice,

    /// Ask for the kernel's stamp before the queueing discipline as well (tx_sched)
    #[arg(long)]
    pub sched_stamps: bool,

    /// Where and how the timing loop runs.
    #[command(flatten)]
    pub place: PlaceArgs,

    /// ICMP: which kind of socket
    #[arg(long, value_enum, default_value_t = IcmpChoice::Auto)]
    pub icmp_socket: IcmpChoice,

    /// STAMP authenticated mode: file with the key in hexadecimal digits; others must not be able
    /// to read it. The environment variable DWELL_KEY does the same
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// Tell how long each relay on the way kept the probes and their replies: STAMP probes carry
    /// this many empty slots, and a relay started with --telemetry fills one each way. Needs no
    /// synchronised clocks
    #[arg(
        long,
        value_name = "SLOTS",
        num_args = 0..=1,
        default_missing_value = "4",
        value_parser = clap::value_parser!(u8).range(1..=8)
    )]
    pub path: Option<u8>,

    /// What fills the payload
    #[arg(long, value_enum, default_value_t = Pattern::Random)]
    pub pattern: Pattern,

    /// Use IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6")]
    pub ipv4: bool,

    /// Use IPv6 only
    #[arg(short = '6')]
    pub ipv6: bool,

    /// Local address or interface to send from
    #[arg(short = 'I', long = "from", value_name = "ADDRESS|INTERFACE")]
    pub from: Option<String>,

    /// Time to live, or hop limit. A udp:// reply carries the arriving TTL - 1, so with udp:// this
    /// must be at least twice the number of routers + 2
    #[arg(short = 't', long, value_name = "TTL", value_parser = clap::value_parser!(u8).range(1..))]
    pub ttl: Option<u8>,

    /// Differentiated services code point, 0 to 63
    #[arg(long, value_name = "DSCP", value_parser = clap::value_parser!(u8).range(0..=63))]
    pub dscp: Option<u8>,

    /// Write a row per probe to this file; `-` is standard output, without the summary
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write every stamp of every probe to this file, for `dwell import`
    #[arg(long, value_name = "FILE")]
    pub samples: Option<PathBuf>,

    /// Print a JSON line per reply as it comes
    #[arg(long, conflicts_with = "json")]
    pub jsonl: bool,

    /// Print the summary as one JSON object
    #[arg(long)]
    pub json: bool,

    /// Exit with 3 if this holds, with 5 if it cannot be decided, like 'p99 > 10ms' or 'loss > 1%';
    /// may be given again
    #[arg(long, value_name = "CONDITION", action = ArgAction::Append)]
    pub fail_if: Vec<String>,

    /// No progress and no line per reply, only the result
    #[arg(short = 'q', long)]
    pub quiet: bool,

    /// Print every reply, at any rate, and the long table of all metrics
    #[arg(short = 'v', long)]
    pub verbose: bool,
}

/// Which stamps to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StampChoice {
    /// The kernel's where it delivers them, else the program's
    Auto,
    /// The program's own clock reads only
    User,
    /// The kernel's; exit 4 if it delivers none
    Kernel,
}

/// Which kind of ICMP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IcmpChoice {
    /// A ping socket where allowed, else a raw one
    Auto,
    /// A ping socket (net.ipv4.ping_group_range)
    Ping,
    /// A raw socket (CAP_NET_RAW)
    Raw,
}

/// What fills a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Pattern {
    /// One random series, the same in every probe
    Random,
    /// Zeros
    Zero,
}

pub(crate) use observer::Observer;
pub(crate) use recorder::{Outputs, SampleFile};
pub(crate) use replies::Replies;
pub(crate) use report::{cells, unit};
pub(crate) use session::key;

impl From<StampChoice> for Stamps {
    fn from(choice: StampChoice) -> Self {
        match choice {
            StampChoice::Auto => Self::Auto,
            StampChoice::User => Self::User,
            StampChoice::Kernel => Self::Kernel,
        }
    }
}

impl Args {
    /// Which replies have a line: on a terminal, at a rate that a person can follow.
    fn replies(&self) -> Replies {
        let text = ["text+udp://", "text+tcp://"].iter().any(|s| self.target.starts_with(s));
        let spacing = if self.closed_loop || text {
            let default = if text { Nanos::from_secs(1) } else { Nanos::ZERO };
            self.pause.max(self.interval).unwrap_or(default)
        } else {
            self.interval.unwrap_or(Nanos::from_secs(1))
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

    /// The probes that these arguments ask for.
    fn job(&self) -> PingJob {
        PingJob {
            target: self.target.clone(),
            count: self.count,
            deadline: self.deadline,
            interval: self.interval,
            closed_loop: self.closed_loop,
            pause: self.pause,
            size: self.size,
            timeout: self.timeout,
            warm_up: self.warm_up,
            stamps: self.stamps.into(),
            sched_stamps: self.sched_stamps,
            place: self.place.into(),
            icmp_socket: match self.icmp_socket {
                IcmpChoice::Auto => IcmpSocket::Auto,
                IcmpChoice::Ping => IcmpSocket::Ping,
                IcmpChoice::Raw => IcmpSocket::Raw,
            },
            key_file: self.key_file.clone(),
            path: self.path,
            pattern: match self.pattern {
                Pattern::Random => dwell_plan::Pattern::Random,
                Pattern::Zero => dwell_plan::Pattern::Zero,
            },
            ipv4: self.ipv4,
            ipv6: self.ipv6,
            from: self.from.clone(),
            ttl: self.ttl,
            dscp: self.dscp,
        }
    }
}

/// What came of a measurement.
pub(crate) struct Measured {
    /// The result.
    pub(crate) summary: Summary,
    /// All that is known of the round trips.
    pub(crate) round_trip: RoundTrip,
    /// What relays on the way said.
    pub(crate) path: PathDelays,
    /// Probes sent, and replies that came for them, in time or not.
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    /// What to do about a target that gave no reply.
    pub(crate) advice: String,
    /// An output could not be written, or the socket failed; what was measured until then stands.
    pub(crate) failure: Option<Failure>,
    /// The reader of the rows on standard output is gone.
    pub(crate) reader_gone: bool,
}

/// Carries out a job until it is done or stopped, to the first address of its target. A bare host is
/// probed with STAMP. CPU time of `own` is not counted as that of other programs.
pub(crate) fn measure(
    job: &PingJob,
    outputs: Outputs,
    own: Own,
    stop: &Arc<AtomicBool>,
) -> Result<Measured, Failure> {
    let plan = plan::Plan::new(job)?;
    let reached = reach::Addresses::resolve(job, &plan)?.untried();
    measure_at(job, &plan, reached, outputs, own, stop)
}

/// Carries out a job to an address that was chosen.
fn measure_at(
    job: &PingJob,
    plan: &plan::Plan,
    reached: reach::Reached,
    outputs: Outputs,
    own: Own,
    stop: &Arc<AtomicBool>,
) -> Result<Measured, Failure> {
    let watch = CpuWatch::start(own);
    let shared = Arc::new(drive::Shared { stop: Arc::clone(stop), ..drive::Shared::default() });
    let mut recorder = recorder::Recorder::new(outputs, &plan.target)?;
    let outcome = session::run(job, plan, reached, &shared, &mut recorder)?;
    let unstamped = recorder.rungs.is_unstamped() && job.stamps == Stamps::Kernel;
    if outcome.ended.unstamped || unstamped {
        return Err(Failure::unsupported(
            "--stamps kernel: this socket delivers no kernel stamps here; --stamps auto measures \
             with the program's own",
        ));
    }
    let counts = outcome.ended.counts;
    recorder.settle(counts, outcome.ended.warm_up);
    let dropped = shared.dropped.load(Ordering::Relaxed);
    recorder.end_samples(dropped);
    let mut summary = report::summary(job, plan, &recorder, &outcome, dropped);
    summary.trust.note_host(watch.end(outcome.wait));
    let broken = outcome.ended.broken.map(|errno| match errno {
        0 => anyhow::anyhow!("{} closed the connection", plan.target),
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
        advice: advice(plan, job.ttl, &outcome.ended),
        failure: recorder.failure.or(broken).map(Failure::from),
        reader_gone: recorder.reader_gone,
    })
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let known = Metric::ALL.map(|metric| metric.name().trim_end_matches("_ns"));
    let thresholds = crate::threshold::read(&args.fail_if, &known)?;
    let rows_on_stdout = args.csv.as_deref() == Some(Path::new("-"));
    if rows_on_stdout && (args.json || args.jsonl) {
        let other = if args.json { "--json" } else { "--jsonl" };
        return Err(Failure::usage(format!(
            "--csv - and {other} both write to standard output; give --csv a file"
        )));
    }
    let job = args.job();
    // Judged before any file is made.
    first_contact::check(&job)?;
    let stop = Arc::new(AtomicBool::new(false));
    crate::stop::on_signal(&stop)?;
    let replies = args.replies();
    let outputs = Outputs {
        csv: args.csv.clone(),
        lines: args.jsonl,
        samples: args.samples.as_deref().map(SampleFile::create).transpose()?,
        replies,
        observer: Box::new(observer::Progress::new(args, replies)),
    };
    let mut say = |text: String| {
        if !args.quiet {
            crate::say(&text);
        }
    };
    let measured = first_contact::choose(job, &stop, &mut say).and_then(|choice| {
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::interrupted());
        }
        let first_contact::Choice { job, plan, reached } = choice;
        measure_at(&job, &plan, reached, outputs, Own::Process, &stop)
    });
    let measured =
        measured.map_err(|failure| failure.or_interrupted(stop.load(Ordering::Relaxed)))?;
    if measured.reader_gone && measured.failure.is_none() {
        // The reader's leaving has set the stop flag: it is no interruption.
        return Ok(match thresholds.is_empty() {
            true => Exit::Measured,
            false => report::verdict(&thresholds, &measured, args.timeout, false),
        });
    }
    let interrupted = stop.load(Ordering::Relaxed);
    if args.json {
        use std::io::Write;
        std::io::stdout().lock().write_all(measured.summary.to_json().as_bytes())?;
    } else if args.jsonl || rows_on_stdout {
        // Standard output holds the rows.
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
            "dwell: {} gave no reply within {}, probes sent: {}; {}",
            measured.summary.target, args.timeout, measured.sent, measured.advice
        ));
    }
    Ok(report::verdict(&thresholds, &measured, args.timeout, interrupted))
}

/// What to do about a target that gave no reply.
fn advice(plan: &plan::Plan, ttl: Option<u8>, ended: &drive::Ended) -> String {
    if ended.counts.rejected.unauthentic > 0 {
        return "replies came with a wrong HMAC: do both ends have the same key?".into();
    }
    let reported = ended.first_error.and_then(|error| error.advice(&plan.target));
    reported.unwrap_or_else(|| icmp_error::silent_advice(&plan.target, ttl))
}

/// A time as ping takes it: bare seconds, or with a unit.
fn seconds(text: &str) -> Result<Nanos, String> {
    let time = match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() => Nanos::from_secs_f64(seconds),
        _ => text.parse::<Nanos>().map_err(|error| error.to_string())?,
    };
    if time.0 < 0 { Err(format!("'{text}' is negative; a time is 0 or more")) } else { Ok(time) }
}

/// A size as ping takes it: bare bytes, or with a unit.
fn bytes(text: &str) -> Result<u64, String> {
    text.parse::<u64>()
        .or_else(|_| text.parse::<dwell_units::Bytes>().map(|size| size.0))
        .map_err(|error| error.to_string())
}
