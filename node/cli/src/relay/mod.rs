//! `dwell relay`: forwards packets, unchanged or encrypted, and measures the time they spend at
//! this node.
//!
//! `args` is the command line and `setup` validates the job. `udp`, `batch` and `tcp` are the I/O
//! loops; `counts` holds their counters. `departures` keeps packets until their transmit timestamps
//! arrive, `record` passes them to the recording thread, `telemetry` writes into the packets,
//! `report` builds the summary. `xdp` relays in the driver, without a loop here.

mod args;
mod batch;
mod counts;
mod departures;
mod record;
mod report;
mod setup;
mod sockets;
mod tcp;
mod telemetry;
mod udp;
mod xdp;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use dwell_engine::protocol::RelayTransport;
use dwell_io::cpu::{self, Placement};
use dwell_io::datagram::{await_stamps, has_stamps};
use dwell_io::port::StampRequest;
use dwell_io::{clock, process};
use dwell_protocol::{Cipher, RelayEngine, RelayJob, Stamps};
use dwell_record::{Summary, Warning};
use dwell_stats::ComponentFigures;
use dwell_units::Nanos;
use rtrb::RingBuffer;

use crate::nic::NicWatch;
use crate::observation_writer::ObservationWriter;
use crate::ping::SampleFile;
use crate::{Exit, Failure, placement};
pub use args::Args;
use counts::FinalState;
use record::{EventSender, RelayEvent};
use report::Outcome;
use setup::RelaySetup;
use udp::Relay;

/// Maximum time to wait at start for the kernel's timestamping to take effect.
const TIMESTAMPING_TIMEOUT: Nanos = Nanos::from_millis(200);

/// Warning for encryption without authentication outside a lab.
const UNAUTHENTICATED_WARNING: &str = "dwell: warning: aes-128-ctr does not authenticate: modified and \
                               replayed packets are accepted; use --cipher aes-128-gcm to drop \
                               them";

/// File descriptors for purposes other than flows.
const SPARE_DESCRIPTORS: u64 = 64;

/// Result of a relay.
pub(crate) struct Relayed {
    /// The result.
    pub(crate) summary: Summary,
    /// Error that ended the relay early or prevented its samples from being written.
    pub(crate) failure: Option<Failure>,
    components: ComponentFigures,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let job = args.job();
    // Validate the job before creating any file.
    let setup = RelaySetup::new(&job)?;
    if setup.cipher() == Some(Cipher::Aes128Ctr) && !args.quiet && dwell_lab::here().is_none() {
        crate::say(UNAUTHENTICATED_WARNING);
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
        report::print(&relayed.summary, &relayed.components)?;
    }
    relayed.failure.map_or(Ok(Exit::Measured), Err)
}

/// Relays until stopped. Calls `announce` when the sockets are open.
pub(crate) fn perform(
    job: &RelayJob,
    samples: Option<SampleFile>,
    stop: &AtomicBool,
    announce: &mut dyn FnMut(&str),
) -> Result<Relayed, Failure> {
    let setup = RelaySetup::new(job)?;
    let packet_loop: PacketLoop = match job.parameters.engine {
        RelayEngine::Socket => |relay, stop| relay.run(stop),
        RelayEngine::Batch => batch::run,
        RelayEngine::Xdp => return xdp::perform(job, &setup, samples, stop, announce),
    };
    let mut log =
        ObservationWriter::begin("relay", &format!("{} {}", job.listen, job.to), samples)?;
    let wanted = setup.sockets() + SPARE_DESCRIPTORS;
    let allowed = process::allow_descriptors(wanted);
    let limit = (allowed < wanted).then_some(Warning::DescriptorLimit(allowed, setup.flows));
    let dropped = AtomicU64::new(0);
    let mut run = Run { job, setup: &setup, log: &mut log, dropped: &dropped, stop };
    let (start, nics) = (clock::pair(), NicWatch::start());
    let ended = match setup.transport {
        RelayTransport::Datagrams => run.datagrams(packet_loop, announce)?,
        RelayTransport::Streams => run.streams(announce)?,
    };
    let ring_dropped = dropped.load(Ordering::Relaxed);
    let clocks = (start, clock::pair());
    let nics = nics.towards(log.senders().iter().copied().chain([setup.to]));
    let (components, unwritten) = log.finish(ring_dropped);
    let (FinalState { counts, failure }, placement) = ended;
    let failure = failure.map(|error| anyhow::Error::new(error).context("a relay socket failed"));
    let outcome = Outcome { counts, components, placement, clocks, ring_dropped, nics, limit };
    let summary = report::summary(job, &setup, &outcome);
    let failure = failure.or(unwritten).map(Failure::from);
    Ok(Relayed { summary, failure, components: outcome.components })
}

/// State of a running relay.
struct Run<'a> {
    job: &'a RelayJob,
    setup: &'a RelaySetup,
    log: &'a mut ObservationWriter,
    dropped: &'a AtomicU64,
    stop: &'a AtomicBool,
}

/// Relays datagrams until stopped.
type PacketLoop = fn(Relay<'_>, &AtomicBool) -> FinalState;

/// Final state, and the placement of the relaying thread.
type EndAndPlacement = (FinalState, Placement);

impl Run<'_> {
    fn datagrams(
        &mut self,
        packet_loop: PacketLoop,
        announce: &mut dyn FnMut(&str),
    ) -> Result<EndAndPlacement, Failure> {
        let (ring, mut consumer) = RingBuffer::new(record::RING_CAPACITY);
        let events = EventSender { ring, dropped: self.dropped };
        let (setup, job) = (self.setup, self.job);
        let relay = Relay::open(setup, job, stamps(setup, job)?, events)
            .map_err(|error| open_failure(error, setup, job))?;
        if relay.is_stamped() {
            // Best effort: packets without timestamps are counted.
            await_stamps(TIMESTAMPING_TIMEOUT);
        }
        announce(&self.announcement());
        Ok(self.recorded(&mut || consumer.pop().ok(), move |stop| packet_loop(relay, stop)))
    }

    fn streams(&mut self, announce: &mut dyn FnMut(&str)) -> Result<EndAndPlacement, Failure> {
        let (sender, consumer) = mpsc::sync_channel(record::RING_CAPACITY);
        let (setup, job, dropped) = (self.setup, self.job, self.dropped);
        let listener = tcp::listen(setup).map_err(|error| open_failure(error, setup, job))?;
        announce(&self.announcement());
        Ok(self.recorded(&mut || consumer.try_recv().ok(), move |stop| {
            tcp::run(&listener, setup, job, sender, dropped, stop)
        }))
    }

    fn announcement(&self) -> String {
        let RelaySetup { scheme, listen, to, .. } = self.setup;
        let scheme = scheme.name();
        format!("relaying {scheme}://{listen} -> {scheme}://{to}")
    }

    /// Relays on a separate thread and records its events on this one.
    fn recorded(
        &mut self,
        next: &mut dyn FnMut() -> Option<RelayEvent>,
        relay: impl FnOnce(&AtomicBool) -> FinalState + Send,
    ) -> EndAndPlacement {
        let (place, stop) = (self.job.place, self.stop);
        thread::scope(|scope| {
            let recorder = thread::current();
            let relaying = scope.spawn(move || {
                let ended = match cpu::place_thread(place.cpu, placement::real_time(&place, false))
                {
                    Ok(placement) => {
                        let _ = process::own_descriptors();
                        (relay(stop), placement)
                    }
                    Err(error) => (
                        FinalState { failure: Some(error), ..FinalState::default() },
                        Placement::default(),
                    ),
                };
                recorder.unpark();
                ended
            });
            let protocol = self.setup.scheme.name();
            record::record_events(next, self.log, protocol, &|| relaying.is_finished());
            relaying.join().expect("the relay thread does not panic")
        })
    }
}

/// Selects kernel timestamps if they are supported and wanted.
fn stamps(setup: &RelaySetup, job: &RelayJob) -> Result<StampRequest, Failure> {
    match job.parameters.stamps {
        Stamps::User => Ok(StampRequest::User),
        Stamps::Auto if job.merges() => Ok(StampRequest::User),
        _ if has_stamps(setup.listen.ip()) => Ok(StampRequest::Kernel),
        Stamps::Auto => Ok(StampRequest::User),
        Stamps::Kernel => Err(Failure::unsupported(
            "--stamps kernel: sockets deliver no kernel timestamps here; use --stamps auto to fall \
             back to user timestamps",
        )),
    }
}

fn open_failure(error: io::Error, setup: &RelaySetup, job: &RelayJob) -> Failure {
    let url = &job.listen;
    match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::unsupported(format!(
            "--listen {url}: not permitted to listen on port {}: choose a port above 1023, or run \
             `setcap cap_net_bind_service+ep` on the program",
            setup.listen.port()
        )),
        io::ErrorKind::AddrInUse => {
            Failure::from(anyhow::anyhow!("--listen {url} is in use: choose another port"))
        }
        io::ErrorKind::AddrNotAvailable => Failure::usage(format!(
            "--listen {url}: {} is not an address of this machine",
            setup.listen.ip()
        )),
        _ => Failure::from(anyhow::Error::new(error).context(format!("cannot open {url}"))),
    }
}
