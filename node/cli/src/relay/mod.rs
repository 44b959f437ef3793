//! `dwell relay`: sends on what comes, as it is or enciphered, and says how long it stayed and
//! where.
//!
//! `args` is the command line; `plan` judges the job; `udp`, `batch` and `tcp` are the loops that join
//! the engine to sockets, and `counts` is what they count; `stamps` keeps packets until their stamps
//! of leaving have come, and `record` hands them to the thread that keeps them; `telemetry` tells of
//! them in the packets; `report` makes the summary. `xdp` is the relay without a loop.

mod args;
mod batch;
mod counts;
mod plan;
mod record;
mod report;
mod sockets;
mod stamps;
mod tcp;
mod telemetry;
mod udp;
mod xdp;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use dwell_io::cpu::{self, Placement};
use dwell_io::datagram::{await_stamps, has_stamps};
use dwell_io::port::StampRequest;
use dwell_io::{clock, process};
use dwell_plan::{Cipher, RelayEngine, RelayJob, Stamps};
use dwell_record::Summary;
use dwell_stats::Parts;
use dwell_units::Nanos;
use rtrb::RingBuffer;

use crate::nic::NicWatch;
use crate::passages::PassageLog;
use crate::ping::SampleFile;
use crate::{Exit, Failure, PlaceArgs, Scheme};
pub use args::{Args, CipherChoice, EngineChoice, ModeChoice};
use counts::Ended;
use plan::Plan;
use record::{News, Teller};
use report::Outcome;
use udp::Relay;

/// Stamps that were asked for come within this time, or later than a relay may take to start.
const STAMPS_COME: Nanos = Nanos::from_millis(200);

/// Said at the start of a relay outside a lab that encrypts without authentication.
const UNAUTHENTICATED: &str = "dwell: warning: aes-128-ctr keeps payloads secret but not intact: packets with \
                               flipped bits and replayed packets are accepted; --cipher aes-128-gcm \
                               refuses them";

/// Descriptors that are not a flow's.
const SPARE_DESCRIPTORS: u64 = 64;

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
    let plan = Plan::new(&job)?;
    if plan.cipher() == Some(Cipher::Aes128Ctr) && !args.quiet && dwell_lab::here().is_none() {
        crate::say(UNAUTHENTICATED);
    }
    let stop = Arc::new(AtomicBool::new(false));
    crate::stop::on_signal(&stop)?;
    let samples = args.samples.as_deref().map(SampleFile::create).transpose()?;
    let relayed = perform(&job, samples, &stop, &mut |line| {
        if !args.quiet {
            crate::say(line);
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
    if job.engine == RelayEngine::Xdp {
        return xdp::perform(job, &plan, samples, stop, talk);
    }
    let mut log = PassageLog::begin("relay", &format!("{} {}", job.listen, job.to), samples)?;
    let mut warnings = Vec::new();
    let wanted = plan.sockets() + SPARE_DESCRIPTORS;
    let allowed = process::allow_descriptors(wanted);
    if allowed < wanted {
        warnings.push(format!(
            "this process may have {allowed} descriptors: fewer clients than --flows {} fit \
             (ulimit -n)",
            plan.flows
        ));
    }
    let dropped = AtomicU64::new(0);
    let mut run = Run { job, plan: &plan, log: &mut log, dropped: &dropped, stop };
    let (start, nics) = (clock::pair(), NicWatch::start());
    let moved = match plan.scheme {
        Scheme::Tcp => run.streams(talk)?,
        _ => run.datagrams(talk)?,
    };
    let ring_dropped = dropped.load(Ordering::Relaxed);
    let clocks = (start, clock::pair());
    let nics = nics.towards(log.senders().iter().copied().chain([plan.to]));
    let (parts, unwritten) = log.finish(ring_dropped);
    let (Ended { counts, failure }, placement) = moved;
    let failure =
        failure.map(|error| anyhow::Error::new(error).context("a socket of the relay failed"));
    let outcome = Outcome { counts, parts, placement, clocks, ring_dropped, nics, warnings };
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

/// What came of it, and where the relaying thread ran.
type Moved = (Ended, Placement);

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
            tcp::run(&listener, plan, job, sender, dropped, stop)
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
        relay: impl FnOnce(&AtomicBool) -> Ended + Send,
    ) -> Moved {
        let (place, stop) = (PlaceArgs::from(self.job.place), self.stop);
        thread::scope(|scope| {
            let recorder = thread::current();
            let relaying = scope.spawn(move || {
                let moved = match cpu::settle(place.cpu, place.real_time(false)) {
                    Ok(placement) => {
                        let _ = process::own_descriptors();
                        (relay(stop), placement)
                    }
                    Err(error) => {
                        (Ended { failure: Some(error), ..Ended::default() }, Placement::default())
                    }
                };
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
        Stamps::Auto if job.merges() => Ok(StampRequest::User),
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
