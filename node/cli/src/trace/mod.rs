//! `dwell trace`: timestamps passing packets with eBPF programs at the kernel's hooks.
//!
//! `flows` assigns flow and id (read by `id`), `dwell_engine::join` combines the timestamps of a
//! packet, and observations are recorded like those of a relay. `live` shows them on a terminal,
//! `report` builds the summary.

mod flows;
mod id;
mod live;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dwell_engine::join::{JoinCounters, StampJoiner};
use dwell_io::bpf::{BpfError, Event, Hooks, Protocol, TraceSpec, Tracer, TracerNote};
use dwell_io::clock::{monotonic, pair, realtime};
use dwell_io::interface;
use dwell_protocol::{FlowFilter, FlowProtocol, TraceHook, TraceJob};
use dwell_record::{Summary, Warning};
use dwell_sample::{PacketObservation, Point};
use dwell_stats::{ComponentFigures, DelayComponent};
use dwell_units::{Nanos, Pairing};

use crate::observation_writer::ObservationWriter;
use crate::ping::SampleFile;
use crate::{Exit, Failure};
use flows::Flows;

/// Interval for emptying the ring, which sends no wake-ups.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Time after which a packet is not expected at further hooks.
const JOIN_TIMEOUT: Nanos = Nanos::from_secs(1);

/// Maximum number of packets between hooks; beyond it the oldest is dropped.
const MAX_OPEN_PACKETS: usize = 65_536;

/// Intervals for writing samples and for updating the live table.
const FLUSH_INTERVAL: Nanos = Nanos::from_millis(100);
const DISPLAY_INTERVAL: Nanos = Nanos::from_millis(500);

/// Arguments of `trace`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Timestamps are of CLOCK_REALTIME, like those of sockets. Packets are matched across hooks by flow and id; \
a packet whose addresses change, as in a relay, belongs to two flows.\n\
Exit codes: 0 measured, 1 runtime failure, 2 usage, 4 not supported or not permitted here, \
130 interrupted before --duration (partial results are printed).")]
pub struct Args {
    /// The trace.
    #[command(flatten)]
    pub job: TraceJob,

    /// Write all timestamps of every packet to this file
    #[arg(long, value_name = "FILE")]
    pub samples: Option<PathBuf>,

    /// Print the summary as one JSON object
    #[arg(long)]
    pub json: bool,

    /// Print only the result, no live table
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let job = &args.job;
    // Validate the job before creating any file.
    spec(job)?;
    let stop = Arc::new(AtomicBool::new(false));
    crate::stop::on_signal(&stop)?;
    let outputs = Outputs {
        samples: args.samples.as_deref().map(SampleFile::create).transpose()?,
        live: !args.quiet,
    };
    let traced = perform(job, outputs, &stop, &mut |line| crate::say(line))?;
    report::print(&traced.summary, args.json)?;
    if let Some(failure) = traced.failure {
        return Err(failure);
    }
    let cut_short = job.duration.is_some() && stop.load(Ordering::Relaxed);
    Ok(if cut_short { Exit::Interrupted } else { Exit::Measured })
}

/// Outputs of a trace besides its summary.
pub(crate) struct Outputs {
    /// Segment of samples.
    pub(crate) samples: Option<SampleFile>,
    /// Live table on standard error, if that is a terminal.
    pub(crate) live: bool,
}

/// Result of a trace.
pub(crate) struct Traced {
    pub(crate) summary: Summary,
    /// Samples could not be written; the summary is valid.
    pub(crate) failure: Option<Failure>,
}

/// Everything a trace collected.
struct Seen {
    flows: Flows,
    components: ComponentFigures,
    joined: JoinCounters,
    events: u64,
    dropped: u64,
    clock_moved: bool,
    start: Pairing,
    end: Pairing,
    notes: Vec<Warning>,
}

/// Traces until stopped or until the duration is over. Calls `announce` when all programs are
/// attached.
pub(crate) fn perform(
    job: &TraceJob,
    outputs: Outputs,
    stop: &AtomicBool,
    announce: &mut dyn FnMut(&str),
) -> Result<Traced, Failure> {
    let (filter, spec) = spec(job)?;
    let mut log = ObservationWriter::begin("trace", &filter.to_string(), outputs.samples)?;
    let start = pair();
    let mut tracer = Tracer::start(&spec).map_err(refusal)?;
    let notes: Vec<_> = tracer.notes().iter().map(warning).collect();
    require(job, &notes)?;
    let points = points(tracer.hooks());
    announce(&format!("tracing '{filter}' at {}", names(&points)));
    notes.iter().for_each(|note| announce(&note.to_string()));
    if !gives_delay(&points) {
        announce(&Warning::HooksWithoutDelay.to_string());
    }
    let live = live::Live::new(outputs.live);
    let mut flows = Flows::new(job.id);
    let mut join = StampJoiner::new(&points, JOIN_TIMEOUT, MAX_OPEN_PACKETS);
    let mut events = 0;
    let end = monotonic().saturating_add(job.duration.unwrap_or(Nanos::MAX));
    let (mut next_flush, mut next_show) =
        (monotonic() + FLUSH_INTERVAL, monotonic() + DISPLAY_INTERVAL);
    while !stop.load(Ordering::Relaxed) && monotonic() < end {
        thread::sleep(POLL_INTERVAL);
        events += tracer.read(&mut |event| take(event, &mut flows, &mut join, &mut log))?;
        let now = monotonic();
        if now >= next_flush {
            next_flush = now + FLUSH_INTERVAL;
            join.expire(realtime(), &mut |observation| pass(observation, &mut flows, &mut log));
            log.flush();
        }
        if live.is_shown() && now >= next_show {
            next_show = now + DISPLAY_INTERVAL;
            live.show(&flows, log.components(), tracer.dropped()?);
        }
    }
    events += tracer.read(&mut |event| take(event, &mut flows, &mut join, &mut log))?;
    join.finish(&mut |observation| pass(observation, &mut flows, &mut log));
    live.end();
    let (dropped, clock_moved) = (tracer.dropped()?, tracer.clock_moved());
    let (components, failure) = log.finish(dropped);
    let joined = join.joined();
    let end = pair();
    let seen = Seen { flows, components, joined, events, dropped, clock_moved, start, end, notes };
    Ok(Traced {
        summary: report::summary(job, &filter, &points, seen),
        failure: failure.map(Failure::from),
    })
}

/// Processes an event.
fn take(event: &Event, flows: &mut Flows, join: &mut StampJoiner, log: &mut ObservationWriter) {
    let Some((stamp, new)) = flows.stamp(event) else { return };
    if let Some(flow) = new {
        log.flow(&flow.entry);
    }
    join.take(&stamp, &mut |observation| pass(observation, flows, log));
}

/// Processes a packet.
fn pass(observation: &PacketObservation, flows: &mut Flows, log: &mut ObservationWriter) {
    flows.count(observation.flow);
    log.take(observation);
}

/// Fails if kinds of hooks were requested by name and one is missing.
fn require(job: &TraceJob, notes: &[Warning]) -> Result<(), Failure> {
    let missing = notes.iter().find(|note| matches!(note, Warning::OldKernel(..)));
    match missing.filter(|_| !job.hooks.is_empty()) {
        Some(note) => Err(Failure::unsupported(format!("{note}; name fewer --hooks"))),
        None => Ok(()),
    }
}

/// Returns the warning about a difference from the requested hooks.
fn warning(note: &TracerNote) -> Warning {
    match note {
        TracerNote::HooksUnavailable { hooks, reason } => {
            Warning::OldKernel(hooks.name(), reason.clone())
        }
        TracerNote::XdpTaken { interface } => {
            let reason = "another XDP program is attached".to_owned();
            Warning::HookUnavailable(interface.clone(), reason)
        }
        TracerNote::XdpGeneric { interface } => Warning::HookAfterDriver(interface.clone()),
        TracerNote::XdpUnavailable { interface, error } => {
            Warning::HookUnavailable(interface.clone(), format!("cannot attach XDP: {error}"))
        }
    }
}

/// Validates a job; needs no privilege.
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

/// Returns the indices of the named interfaces, by default of all that are up except loopback.
fn interfaces(names: &[String]) -> Result<Vec<u32>, Failure> {
    let available = interface::all()?;
    if names.is_empty() {
        let others = available.iter().filter(|found| found.up && found.name != "lo");
        return Ok(others.map(|found| found.index).collect());
    }
    let number = |name: &String| {
        let found = available.iter().find(|found| found.name == *name);
        found.map(|found| found.index).ok_or_else(|| {
            let all: Vec<_> = available.iter().map(|found| found.name.as_str()).collect();
            Failure::usage(format!(
                "invalid value for --interface: there is no '{name}' here; choose from: {}",
                all.join(" ")
            ))
        })
    };
    names.iter().map(number).collect()
}

/// Returns the points at which a forwarded packet is seen.
fn points(hooks: Hooks) -> Vec<Point> {
    let is_seen = |point: &Point| match point {
        Point::PreRouting | Point::PostRouting => hooks.netfilter,
        Point::RxTcx | Point::TxTcx => hooks.tcx,
        Point::RxDriver => hooks.xdp,
        _ => false,
    };
    Point::ALL.into_iter().filter(is_seen).collect()
}

/// Whether two of these points bound a node delay.
fn gives_delay(points: &[Point]) -> bool {
    DelayComponent::ALL
        .map(DelayComponent::ends)
        .iter()
        .any(|(from, to)| points.contains(from) && points.contains(to))
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
    use dwell_io::bpf::HookKind;
    use dwell_protocol::IdFormat;

    use super::*;

    #[test]
    fn missing_hooks_are_an_error_only_if_requested() {
        let mut job = TraceJob {
            flow: "udp port 5001".into(),
            id: IdFormat::Auto,
            hooks: Vec::new(),
            interfaces: vec!["lo".into()],
            duration: None,
        };
        let reason = "tcx needs Linux 6.6".to_owned();
        let taken = TracerNote::XdpTaken { interface: "eth0".to_owned() };
        let without_tcx = TracerNote::HooksUnavailable { hooks: HookKind::Tcx, reason };
        let notes = [taken, without_tcx].map(|note| warning(&note));
        assert!(require(&job, &notes).is_ok());
        job.hooks = vec![TraceHook::Netfilter, TraceHook::Tcx];
        assert!(require(&job, &notes[..1]).is_ok());
        let refused = require(&job, &notes).unwrap_err();
        assert_eq!(refused.exit, Exit::Unsupported);
        assert!(refused.error.to_string().contains("6.6"), "{}", refused.error);
    }

    #[test]
    fn node_delay_needs_hooks_at_both_ends() {
        let gives = |netfilter, tcx, xdp| gives_delay(&points(Hooks { netfilter, tcx, xdp }));
        assert!(gives(true, false, false) && gives(false, true, true) && gives(true, true, true));
        assert!(!gives(false, true, false) && !gives(false, false, true));
    }
}
