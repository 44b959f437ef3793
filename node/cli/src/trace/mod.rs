//! `dwell trace`: stamps packets that pass, by eBPF programs at the kernel's hooks.
//!
//! `flows` gives every packet its flow and id (`id` reads it), `core/engine`'s join puts its stamps
//! together, and the passages go where those of a relay go; `live` shows them meanwhile, `report`
//! makes the summary.

mod flows;
mod id;
mod live;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dwell_engine::join::{Join, Joined};
use dwell_engine::passage::{Passage, Point};
use dwell_io::bpf::{BpfError, Event, Hooks, Protocol, TraceSpec, Tracer};
use dwell_io::clock::{monotonic, pair, realtime};
use dwell_io::interface;
use dwell_plan::{FlowFilter, FlowProtocol, TraceHook, TraceJob};
use dwell_record::Summary;
use dwell_stats::{Part, Parts};
use dwell_units::{Nanos, Pairing};

use crate::passages::PassageLog;
use crate::ping::SampleFile;
use crate::{Exit, Failure, IdChoice};
use flows::Flows;

/// The ring, which wakes nobody, is emptied this often.
const NAP: Duration = Duration::from_millis(5);

/// A packet that is not seen at a further hook after this has gone another way.
const PATIENCE: Nanos = Nanos::from_secs(1);

/// Packets that may be between hooks at a time; beyond it the oldest goes.
const OPEN: usize = 65_536;

/// Samples are written out, and a terminal is shown news, at most this often.
const FLUSH: Nanos = Nanos::from_millis(100);
const SHOW: Nanos = Nanos::from_millis(500);

/// Of hooks that are not at both ends of anything.
const NO_DELAY: &str = "these hooks give stamps but no delay: a node delay needs netfilter \
                        (pre_routing to post_routing), or xdp and tcx (rx_driver to tx_tcx)";

/// Arguments of `trace`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Stamps are of CLOCK_REALTIME, as those of sockets. Packets are joined over the hooks by flow and id; \
one that changes addresses on its way, in a relay, is a packet of two flows.\n\
Exit codes: 0 measured, 1 runtime failure, 2 usage, 4 no root or a kernel without these programs, \
130 interrupted before --duration (what was measured is printed).")]
pub struct Args {
    /// Which packets: udp, tcp or icmp, then 'host ADDRESS', 'port NUMBER' or both, of either side
    #[arg(long, value_name = "EXPRESSION")]
    pub flow: String,

    /// Where packets of UDP carry their id; TCP and ICMP have theirs
    #[arg(long, value_enum, default_value_t = IdChoice::Auto)]
    pub id: IdChoice,

    /// Where to stamp [default: everywhere]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "HOOK,...")]
    pub hooks: Vec<HookChoice>,

    /// Interface for tcx and xdp; may be given again [default: all but loopback]
    #[arg(long, value_name = "INTERFACE")]
    pub interface: Vec<String>,

    /// Stop after this time [default: until stopped]
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,

    /// Write every stamp of every packet to this file
    #[arg(long, value_name = "FILE")]
    pub samples: Option<PathBuf>,

    /// Print the summary as one JSON object
    #[arg(long)]
    pub json: bool,

    /// No live table, only the result
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

/// Where to stamp packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum HookChoice {
    /// pre_routing and post_routing
    Netfilter,
    /// rx_tcx and tx_tcx
    Tcx,
    /// rx_driver
    Xdp,
}

impl Args {
    /// The trace that these arguments ask for.
    fn job(&self) -> TraceJob {
        let hook = |choice: &HookChoice| match choice {
            HookChoice::Netfilter => TraceHook::Netfilter,
            HookChoice::Tcx => TraceHook::Tcx,
            HookChoice::Xdp => TraceHook::Xdp,
        };
        TraceJob {
            flow: self.flow.clone(),
            id: self.id.into(),
            hooks: self.hooks.iter().map(hook).collect(),
            interfaces: self.interface.clone(),
            duration: self.duration,
        }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let job = args.job();
    // Judged before any file is made.
    spec(&job)?;
    let stop = Arc::new(AtomicBool::new(false));
    crate::stop::on_signal(&stop)?;
    let outputs = Outputs {
        samples: args.samples.as_deref().map(SampleFile::create).transpose()?,
        live: !args.quiet,
    };
    let traced = perform(&job, outputs, &stop, &mut |line| crate::say(line))?;
    report::print(&traced.summary, args.json)?;
    if let Some(failure) = traced.failure {
        return Err(failure);
    }
    let cut_short = job.duration.is_some() && stop.load(Ordering::Relaxed);
    Ok(if cut_short { Exit::Interrupted } else { Exit::Measured })
}

/// Where the passages of a trace go beside its summary.
pub(crate) struct Outputs {
    /// To a segment.
    pub(crate) samples: Option<SampleFile>,
    /// To standard error, if that is a terminal.
    pub(crate) live: bool,
}

/// What came of a trace.
pub(crate) struct Traced {
    pub(crate) summary: Summary,
    /// Samples could not be written; the summary stands.
    pub(crate) failure: Option<Failure>,
}

/// All that was seen.
struct Seen {
    flows: Flows,
    parts: Parts,
    joined: Joined,
    events: u64,
    dropped: u64,
    clock_moved: bool,
    start: Pairing,
    end: Pairing,
    notes: Vec<String>,
}

/// Traces until stopped, or for as long as the job says. `talk` hears when all programs are in
/// place.
pub(crate) fn perform(
    job: &TraceJob,
    outputs: Outputs,
    stop: &AtomicBool,
    talk: &mut dyn FnMut(&str),
) -> Result<Traced, Failure> {
    let (filter, spec) = spec(job)?;
    let mut log = PassageLog::begin("trace", &filter.to_string(), outputs.samples)?;
    let start = pair();
    let (mut tracer, hooks, without) = attach(job, spec, &mut Tracer::start)?;
    let points = points(hooks);
    talk(&format!("tracing '{filter}' at {}", names(&points)));
    let notes: Vec<_> = without.into_iter().chain(tracer.notes().iter().cloned()).collect();
    notes.iter().for_each(|note| talk(note));
    if !gives_delay(&points) {
        talk(NO_DELAY);
    }
    let live = live::Live::new(outputs.live);
    let mut flows = Flows::new(job.id);
    let mut join = Join::new(&points, PATIENCE, OPEN);
    let mut events = 0;
    let end = monotonic().saturating_add(job.duration.unwrap_or(Nanos::MAX));
    let (mut next_flush, mut next_show) = (monotonic() + FLUSH, monotonic() + SHOW);
    while !stop.load(Ordering::Relaxed) && monotonic() < end {
        thread::sleep(NAP);
        events += tracer.read(&mut |event| take(event, &mut flows, &mut join, &mut log))?;
        let now = monotonic();
        if now >= next_flush {
            next_flush = now + FLUSH;
            join.expire(realtime(), &mut |passage| pass(passage, &mut flows, &mut log));
            log.flush();
        }
        if live.is_shown() && now >= next_show {
            next_show = now + SHOW;
            live.show(&flows, log.parts(), tracer.dropped()?);
        }
    }
    events += tracer.read(&mut |event| take(event, &mut flows, &mut join, &mut log))?;
    join.finish(&mut |passage| pass(passage, &mut flows, &mut log));
    live.end();
    let (dropped, clock_moved) = (tracer.dropped()?, tracer.clock_moved());
    let (parts, failure) = log.finish(dropped);
    let joined = join.joined();
    let end = pair();
    let seen = Seen { flows, parts, joined, events, dropped, clock_moved, start, end, notes };
    Ok(Traced {
        summary: report::summary(job, &filter, &points, seen),
        failure: failure.map(Failure::from),
    })
}

/// Takes an event in.
fn take(event: &Event, flows: &mut Flows, join: &mut Join, log: &mut PassageLog) {
    let Some((stamp, new)) = flows.stamp(event) else { return };
    if let Some(flow) = new {
        log.flow(&flow.entry);
    }
    join.take(&stamp, &mut |passage| pass(passage, flows, log));
}

/// Takes a packet in.
fn pass(passage: &Passage, flows: &mut Flows, log: &mut PassageLog) {
    flows.count(passage.flow);
    log.take(passage);
}

/// Attaches the programs; at netfilter only where the kernel is too old for the others and nobody
/// named them. Returns the hooks that there are, and what there is not.
fn attach<T>(
    job: &TraceJob,
    mut spec: TraceSpec,
    start: &mut dyn FnMut(&TraceSpec) -> Result<T, BpfError>,
) -> Result<(T, Hooks, Option<String>), Failure> {
    match start(&spec) {
        Err(error @ BpfError::TooOld { .. }) if job.hooks.is_empty() => {
            spec.hooks = Hooks { netfilter: true, tcx: false, xdp: false };
            let note = format!("{error}: stamps are netfilter's only");
            Ok((start(&spec).map_err(refusal)?, spec.hooks, Some(note)))
        }
        tracer => Ok((tracer.map_err(refusal)?, spec.hooks, None)),
    }
}

/// What a job asks for; all that can be judged without privilege.
fn spec(job: &TraceJob) -> Result<(FlowFilter, TraceSpec), Failure> {
    let filter: FlowFilter = job
        .flow
        .parse()
        .map_err(|error| Failure::usage(format!("invalid value for --flow: {error}")))?;
    let has = |hook| job.hooks.is_empty() || job.hooks.contains(&hook);
    let hooks = Hooks {
        netfilter: has(TraceHook::Netfilter),
        tcx: has(TraceHook::Tcx),
        xdp: has(TraceHook::Xdp),
    };
    let spec = TraceSpec {
        protocol: match filter.protocol {
            FlowProtocol::Udp => Protocol::Udp,
            FlowProtocol::Tcp => Protocol::Tcp,
            FlowProtocol::Icmp => Protocol::Echo,
        },
        host: filter.host,
        port: filter.port,
        hooks,
        interfaces: interfaces(&job.interfaces)?,
    };
    Ok((filter, spec))
}

/// Numbers of interfaces; of all that are up but loopback, if none is named.
fn interfaces(names: &[String]) -> Result<Vec<u32>, Failure> {
    let there = interface::all()?;
    if names.is_empty() {
        let others = there.iter().filter(|found| found.up && found.name != "lo");
        return Ok(others.map(|found| found.index).collect());
    }
    let number = |name: &String| {
        let found = there.iter().find(|found| found.name == *name);
        found.map(|found| found.index).ok_or_else(|| {
            let all: Vec<_> = there.iter().map(|found| found.name.as_str()).collect();
            Failure::usage(format!(
                "invalid value for --interface: there is no '{name}' here; there are: {}",
                all.join(" ")
            ))
        })
    };
    names.iter().map(number).collect()
}

/// The points at which a packet that is forwarded is seen.
fn points(hooks: Hooks) -> Vec<Point> {
    let is_seen = |point: &Point| match point {
        Point::PreRouting | Point::PostRouting => hooks.netfilter,
        Point::RxTcx | Point::TxTcx => hooks.tcx,
        Point::RxDriver => hooks.xdp,
        _ => false,
    };
    Point::ALL.into_iter().filter(is_seen).collect()
}

/// Whether a node delay lies between two of these.
fn gives_delay(points: &[Point]) -> bool {
    Part::ALL.map(Part::ends).iter().any(|(from, to)| points.contains(from) && points.contains(to))
}

fn names(points: &[Point]) -> String {
    points.iter().map(|point| point.name()).collect::<Vec<_>>().join(" ")
}

fn refusal(error: BpfError) -> Failure {
    let exit = if error.is_unsupported() { Exit::Unsupported } else { Exit::Failed };
    Failure { exit, error: error.into() }
}

#[cfg(test)]
mod tests {
    use dwell_plan::IdFormat;

    use super::*;

    #[test]
    fn a_kernel_too_old_for_tcx_traces_at_netfilter_unless_tcx_was_asked_for() {
        let mut job = TraceJob {
            flow: "udp port 5001".into(),
            id: IdFormat::Auto,
            hooks: Vec::new(),
            interfaces: vec!["lo".into()],
            duration: None,
        };
        let mut start = |spec: &TraceSpec| match spec.hooks.tcx {
            true => Err(BpfError::TooOld { hooks: "tcx", since: "6.6" }),
            false => Ok(()),
        };
        let ((), hooks, note) = attach(&job, spec(&job).unwrap().1, &mut start).unwrap();
        assert_eq!(hooks, Hooks { netfilter: true, tcx: false, xdp: false });
        assert!(note.unwrap().contains("6.6"));
        job.hooks = vec![TraceHook::Netfilter, TraceHook::Tcx];
        let refused = attach(&job, spec(&job).unwrap().1, &mut start).unwrap_err();
        assert_eq!(refused.exit, Exit::Unsupported);
    }

    #[test]
    fn a_delay_needs_hooks_at_both_of_its_ends() {
        let gives = |netfilter, tcx, xdp| gives_delay(&points(Hooks { netfilter, tcx, xdp }));
        assert!(gives(true, false, false) && gives(false, true, true) && gives(true, true, true));
        assert!(!gives(false, true, false) && !gives(false, false, true));
    }
}
