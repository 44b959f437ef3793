//! `dwell relay`: sends on what comes, as it is or enciphered, and says how long it stayed and
//! where.
//!
//! `plan` judges the job; `udp`, `batch` and `tcp` are the loops that join the engine to sockets;
//! `stamps` keeps packets until their stamps of leaving have come, and `record` hands them to the
//! thread that keeps them; `telemetry` tells of them in the packets; `report` makes the summary.

mod batch;
mod plan;
mod record;
mod report;
mod stamps;
mod tcp;
mod telemetry;
mod udp;

use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use dwell_io::cpu::{self, Placement};
use dwell_io::datagram::{await_stamps, has_stamps};
use dwell_io::port::StampRequest;
use dwell_io::{clock, process};
use dwell_plan::{
    Clear, Hold, HoldAt, IdFormat, KeySource, RelayEngine, RelayJob, RelayMode, Stamps,
};
use dwell_record::Summary;
use dwell_stats::Parts;
use dwell_units::Nanos;
use rtrb::RingBuffer;

use crate::passages::PassageLog;
use crate::ping::{SampleFile, StampChoice};
use crate::{Exit, Failure, PlaceArgs, Scheme};
use plan::Plan;
use record::{News, Teller};
use report::Outcome;
use udp::{Counts, Relay};

/// Stamps that were asked for come within this time, or later than a relay may take to start.
const STAMPS_COME: Nanos = Nanos::from_millis(200);

/// Descriptors that are not a flow's.
const SPARE_DESCRIPTORS: u64 = 64;

/// Arguments of `relay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 stopped by SIGINT or SIGTERM, 1 a socket cannot be opened or failed, 2 usage, \
4 not supported or no privilege here.")]
pub struct Args {
    /// Where clients send to: udp://ADDRESS:PORT or tcp://ADDRESS:PORT
    #[arg(long, value_name = "URL")]
    pub listen: String,

    /// Where it goes: the same protocol
    #[arg(long, value_name = "URL")]
    pub to: String,

    /// What happens to payloads. translate: nothing, only addresses and ports change; encrypt:
    /// enciphered on the way there, deciphered on the way back; decrypt: its mirror
    #[arg(long, value_enum, default_value_t = ModeChoice::Translate)]
    pub mode: ModeChoice,

    /// Bytes at the start of every payload that are not enciphered; auto: iperf2's header
    #[arg(long, value_name = "BYTES|auto", default_value = "12", value_parser = clear)]
    pub clear: Clear,

    /// Key for AES-128: 32 hexadecimal digits in this file, which others must not be able to read.
    /// The environment variable DWELL_KEY does the same
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// What moves the packets. socket: one receive and one send call for each; batch: many by each
    /// call; xdp: in the driver (translate only)
    #[arg(long, value_enum, default_value_t = EngineChoice::Socket)]
    pub engine: EngineChoice,

    /// Which stamps to use
    #[arg(long, value_enum, default_value_t = StampChoice::Auto)]
    pub stamps: StampChoice,

    /// Where packets carry their id; none: they are numbered as they come
    #[arg(long, value_enum, default_value_t = IdChoice::Auto)]
    pub id: IdChoice,

    /// Most clients at a time; beyond, the one that was idle for longest goes
    #[arg(long, value_name = "N", default_value_t = 4_096)]
    pub flows: u32,

    /// Forget a client that was idle for this long
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub idle: Nanos,

    /// Hold every packet on purpose, in the program or unread in the socket, like program:200us
    #[arg(long, value_name = "program|socket:TIME", value_parser = hold)]
    pub hold: Option<Hold>,

    /// Fill the empty telemetry slots of STAMP packets that pass
    #[arg(long)]
    pub telemetry: bool,

    /// This node in telemetry
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub node_id: u32,

    /// Write every stamp of every packet to this file, for `dwell import`
    #[arg(long, value_name = "FILE")]
    pub samples: Option<PathBuf>,

    /// Where and how the relaying thread runs.
    #[command(flatten)]
    pub place: PlaceArgs,

    /// Print the summary as one JSON object at the end
    #[arg(long)]
    pub json: bool,

    /// Print nothing but errors and the summary
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

/// What happens to payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ModeChoice {
    /// Nothing
    Translate,
    /// Enciphered on the way there
    Encrypt,
    /// Deciphered on the way there
    Decrypt,
}

/// What moves the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum EngineChoice {
    /// One receive and one send call for each
    Socket,
    /// Many by each call
    Batch,
    /// In the driver
    Xdp,
}

/// Where packets carry their id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IdChoice {
    /// As the first packet of a flow tells
    Auto,
    /// iperf2's header
    Iperf,
    /// STAMP's sequence number
    Stamp,
    /// S4's round-trip message
    Roundtrip,
    /// The mark of `dwell load traffic`
    Dwell,
    /// Nowhere
    None,
}

impl Args {
    /// What these arguments ask for.
    fn job(&self) -> RelayJob {
        let mut job = RelayJob::translate(&self.listen, &self.to);
        job.mode = match self.mode {
            ModeChoice::Translate => RelayMode::Translate,
            ModeChoice::Encrypt => RelayMode::Encrypt,
            ModeChoice::Decrypt => RelayMode::Decrypt,
        };
        job.clear = self.clear;
        job.key = self.key_file.clone().map_or(KeySource::Environment, KeySource::File);
        job.engine = match self.engine {
            EngineChoice::Socket => RelayEngine::Socket,
            EngineChoice::Batch => RelayEngine::Batch,
            EngineChoice::Xdp => RelayEngine::Xdp,
        };
        job.stamps = self.stamps.into();
        job.id = match self.id {
            IdChoice::Auto => IdFormat::Auto,
            IdChoice::Iperf => IdFormat::Iperf,
            IdChoice::Stamp => IdFormat::Stamp,
            IdChoice::Roundtrip => IdFormat::Roundtrip,
            IdChoice::Dwell => IdFormat::Dwell,
            IdChoice::None => IdFormat::None,
        };
        job.flows = self.flows;
        job.idle = self.idle;
        job.hold = self.hold;
        job.telemetry = self.telemetry;
        job.node_id = self.node_id;
        job.place = self.place.into();
        job
    }
}

/// What was relayed.
pub(crate) struct Relayed {
    /// The result.
    pub(crate) summary: Summary,
    /// What ended it before it was stopped, or kept its samples from being written.
    pub(crate) failure: Option<Failure>,
    parts: Parts,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let job = args.job();
    // Judged before any file is made.
    Plan::new(&job)?;
    let stop = Arc::new(AtomicBool::new(false));
    crate::stop::on_signal(&stop)?;
    let samples = args.samples.as_deref().map(SampleFile::create).transpose()?;
    let relayed = perform(&job, samples, &stop, &mut |line| {
        if !args.quiet {
            eprintln!("{line}");
        }
    })?;
    if args.json {
        use std::io::Write;
        io::stdout().lock().write_all(relayed.summary.to_json().as_bytes())?;
    } else {
        report::print(&relayed.summary, &relayed.parts)?;
    }
    relayed.failure.map_or(Ok(Exit::Measured), Err)
}

/// Relays until stopped. `talk` hears of it when the sockets are open.
pub(crate) fn perform(
    job: &RelayJob,
    samples: Option<SampleFile>,
    stop: &AtomicBool,
    talk: &mut dyn FnMut(&str),
) -> Result<Relayed, Failure> {
    let plan = Plan::new(job)?;
    let mut log = PassageLog::begin("relay", &format!("{} {}", job.listen, job.to), samples)?;
    let mut warnings = Vec::new();
    let wanted = u64::from(job.flows) + SPARE_DESCRIPTORS;
    let allowed = process::allow_descriptors(wanted);
    if allowed < wanted {
        warnings.push(format!(
            "this process may have {allowed} descriptors: fewer clients than --flows {} fit \
             (ulimit -n)",
            job.flows
        ));
    }
    let dropped = AtomicU64::new(0);
    let mut run = Run { job, plan: &plan, log: &mut log, dropped: &dropped, stop };
    let start = clock::pair();
    let moved = match plan.scheme {
        Scheme::Tcp => run.streams(talk)?,
        _ => run.datagrams(talk)?,
    };
    let ring_dropped = dropped.load(Ordering::Relaxed);
    let clocks = (start, clock::pair());
    let (parts, unwritten) = log.finish(ring_dropped);
    let (moved, failure) = match moved {
        Ok(moved) => (moved, None),
        Err(error) => {
            let error = anyhow::Error::new(error).context("a socket of the relay failed");
            (Default::default(), Some(error))
        }
    };
    let (counts, placement) = moved;
    let outcome = Outcome { counts, parts, placement, clocks, ring_dropped, warnings };
    let summary = report::summary(job, &plan, &outcome);
    let failure = failure.or(unwritten).map(Failure::from);
    Ok(Relayed { summary, failure, parts: outcome.parts })
}

/// What a relay needs while it runs.
struct Run<'a> {
    job: &'a RelayJob,
    plan: &'a Plan,
    log: &'a mut PassageLog,
    dropped: &'a AtomicU64,
    stop: &'a AtomicBool,
}

/// What was counted, and where the relaying thread ran; or what ended it.
type Moved = io::Result<(Counts, Placement)>;

impl Run<'_> {
    fn datagrams(&mut self, talk: &mut dyn FnMut(&str)) -> Result<Moved, Failure> {
        let (ring, mut news) = RingBuffer::new(record::RING);
        let teller = Teller { ring, dropped: self.dropped };
        let (plan, job) = (self.plan, self.job);
        let relay = Relay::open(plan, job, stamps(plan, job)?, teller)
            .map_err(|error| open_failure(error, plan, job))?;
        if relay.is_stamped() {
            // Best effort: packets without stamps are counted.
            await_stamps(STAMPS_COME);
        }
        talk(&self.announcement());
        let engine = job.engine;
        Ok(self.recorded(&mut || news.pop().ok(), move |stop| match engine {
            RelayEngine::Batch => batch::run(relay, stop),
            RelayEngine::Socket | RelayEngine::Xdp => relay.run(stop),
        }))
    }

    fn streams(&mut self, talk: &mut dyn FnMut(&str)) -> Result<Moved, Failure> {
        let (sender, news) = mpsc::sync_channel(record::RING);
        let (plan, job, dropped) = (self.plan, self.job, self.dropped);
        let listener = tcp::listen(plan).map_err(|error| open_failure(error, plan, job))?;
        talk(&self.announcement());
        Ok(self.recorded(&mut || news.try_recv().ok(), move |stop| {
            Ok(tcp::run(&listener, plan, job, sender, dropped, stop))
        }))
    }

    fn announcement(&self) -> String {
        let Plan { scheme, listen, to, .. } = self.plan;
        let scheme = scheme.name();
        format!("relaying {scheme}://{listen} -> {scheme}://{to}")
    }

    /// Relays on a thread of its own, and keeps on this one what it tells.
    fn recorded(
        &mut self,
        next: &mut dyn FnMut() -> Option<News>,
        relay: impl FnOnce(&AtomicBool) -> io::Result<Counts> + Send,
    ) -> Moved {
        let (place, stop) = (PlaceArgs::from(self.job.place), self.stop);
        thread::scope(|scope| {
            let recorder = thread::current();
            let relaying = scope.spawn(move || {
                let moved = cpu::settle(place.cpu, place.real_time(false)).and_then(|placement| {
                    let _ = process::own_descriptors();
                    Ok((relay(stop)?, placement))
                });
                recorder.unpark();
                moved
            });
            let protocol = self.plan.scheme.name();
            record::follow(next, self.log, protocol, &|| relaying.is_finished());
            relaying.join().expect("no relay panics")
        })
    }
}

/// The kernel's stamps where it has them, and they are wanted.
fn stamps(plan: &Plan, job: &RelayJob) -> Result<StampRequest, Failure> {
    match job.stamps {
        Stamps::User => Ok(StampRequest::User),
        _ if has_stamps(plan.listen.ip()) => Ok(StampRequest::Kernel),
        Stamps::Auto => Ok(StampRequest::User),
        Stamps::Kernel => Err(Failure::unsupported(
            "--stamps kernel: sockets deliver no kernel stamps here; --stamps auto measures with \
             the program's own",
        )),
    }
}

fn open_failure(error: io::Error, plan: &Plan, job: &RelayJob) -> Failure {
    let url = &job.listen;
    match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::unsupported(format!(
            "--listen {url}: may not listen on port {}: choose one above 1023, or allow it (setcap \
             cap_net_bind_service+ep on the program)",
            plan.listen.port()
        )),
        io::ErrorKind::AddrInUse => {
            Failure::from(anyhow::anyhow!("--listen {url} is in use: choose another port"))
        }
        io::ErrorKind::AddrNotAvailable => Failure::usage(format!(
            "--listen {url}: {} is no address of this machine",
            plan.listen.ip()
        )),
        _ => Failure::from(anyhow::Error::new(error).context(format!("cannot open {url}"))),
    }
}

/// Reads `--clear`.
fn clear(text: &str) -> Result<Clear, String> {
    const MOST: u16 = 65_507;
    if text == "auto" {
        return Ok(Clear::Auto);
    }
    // A bare number of bytes, as S0 has it, or one with its unit.
    let bytes = text.strip_suffix('B').unwrap_or(text).parse().ok();
    bytes.filter(|bytes| *bytes <= MOST).map(Clear::Bytes).ok_or_else(|| {
        format!("a number of bytes from 0 to {MOST}, like 12, 16, 76 or 108; or auto")
    })
}

/// Reads `--hold`.
fn hold(text: &str) -> Result<Hold, String> {
    let wrong = || "where and for how long, like program:200us or socket:2ms".to_owned();
    let (at, time) = text.split_once(':').ok_or_else(wrong)?;
    let at = match at {
        "program" => HoldAt::Program,
        "socket" => HoldAt::Socket,
        _ => return Err(wrong()),
    };
    let time = Nanos::from_str(time).map_err(|error| error.to_string())?;
    Ok(Hold { at, time })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_says_what_would_be_right() {
        assert_eq!(clear("auto"), Ok(Clear::Auto));
        assert_eq!((clear("108"), clear("12B")), (Ok(Clear::Bytes(108)), Ok(Clear::Bytes(12))));
        assert!(clear("70000").unwrap_err().contains("from 0 to"));
        let held = hold("socket:2ms").unwrap();
        assert_eq!((held.at, held.time), (HoldAt::Socket, Nanos::from_millis(2)));
        assert!(hold("200us").unwrap_err().contains("program:200us"));
        assert!(hold("program:200").is_err(), "a unit is required");
    }
}
