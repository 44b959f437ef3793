//! `dwell pace`: sends pairs and trains of packets on schedule and measures how accurately they
//! leave (Mok 2015).
//!
//! `args` is the command line and `setup` validates the job. `engines` opens the senders, `choose`
//! finds the best one by measuring, `drive` is the timing loop on its own thread. `recorder` turns
//! trains into statistics and a segment, `report` builds and prints the summary, `verdict` its last
//! line. `sink` is the far end, `far_end` the protocol with it.

mod args;
mod choose;
mod clock_steps;
mod drive;
mod engines;
mod far_end;
mod recorder;
mod report;
mod setup;
mod sink;
mod verdict;

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use dwell_io::activity::Own;
use dwell_io::cpu::{self, Placement};
use dwell_io::interface::SegmentationOff;
use dwell_io::train::TrainSender;
use dwell_protocol::{PaceEngine, PaceJob, SinkTimestamps, Stamps};
use dwell_record::{NicDropped, Summary};
use dwell_sample::{DepartureStamps, TimestampSource};
use dwell_stats::departures::{Pairs, Trains};
use dwell_stats::{Evidence, Values};
use dwell_units::Nanos;

use crate::host::{CpuWatch, RunQueueWait};
use crate::nic::NicWatch;
use crate::ping::SampleFile;
use crate::progress::Progress;
use crate::{Exit, Failure, placement, threshold};
use args::FarCommand;
use choose::Opened;
use drive::{Driver, FIRST_UNCOUNTED_ID};
use far_end::FarEnd;
use recorder::{Recorder, Source};
use setup::{PaceSetup, train_time};

pub use args::Args;
pub(crate) use sink::perform as sink;

/// Maximum length of a train sent with real-time priority: the kernel stops a real-time thread for
/// 50 ms of every second.
const MAX_REALTIME_TRAIN_TIME: Nanos = Nanos::from_millis(300);

/// Interval between writes of the recorder.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);

/// Result of pacing.
pub(crate) struct Paced {
    pub(crate) summary: Summary,
    /// Verdict on the rate, in one line; `None` without a constant rate.
    pub(crate) verdict: Option<String>,
    /// An output could not be written; the measurement is valid.
    pub(crate) failure: Option<Failure>,
    departed: ThresholdValues,
}

/// Statistics that thresholds are evaluated on.
struct ThresholdValues {
    pairs: Option<Pairs>,
    trains: Trains,
    /// Packet counts; `None` without a sink.
    packets: Option<dwell_stats::Packets>,
    /// Whether departures are arrivals at the sink, which lost packets do not have.
    are_arrivals: bool,
    /// Why no threshold can be decided; `None` if they can.
    unusable: Option<&'static str>,
}

impl ThresholdValues {
    /// Returns the values of a metric, by default of the gap error, which pairs do not have.
    fn evidence(&self, metric: Option<&str>) -> Evidence<'_> {
        let metric = metric.unwrap_or("gap_error");
        let (distribution, unknown) = match &self.pairs {
            Some(pairs) => (pairs.distribution(metric), pairs.unknown(metric)),
            None => (self.trains.distribution(metric), self.trains.unknown(metric)),
        };
        // Lost packets also have timestamps of this machine.
        let missing = if self.are_arrivals { unknown } else { 0 };
        let values =
            distribution.map(|distribution| Values { distribution, base: Nanos::ZERO, missing });
        let values = values.filter(|values| values.distribution.count() + missing > 0);
        let unusable = self.unusable;
        Evidence { packets: self.packets, values, unusable, ..Evidence::default() }
    }
}

/// Stage of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Measuring engines in turns.
    Choosing,
    /// Sending trains.
    Sending,
}

impl Stage {
    /// Returns the label of the progress bar.
    const fn name(self) -> &'static str {
        match self {
            Self::Choosing => "measuring engines",
            Self::Sending => "trains",
        }
    }
}

/// Result of sending.
struct Outcome {
    engine: PaceEngine,
    /// Reason for an automatic choice.
    why: Option<String>,
    placement: Placement,
    nics: Option<Vec<NicDropped>>,
    /// Queueing discipline that limits the rate of the outgoing interface, if known.
    limiter: Option<String>,
    refused: u64,
    /// Error of the last packet that could not be sent.
    unsent: Option<io::Error>,
    /// Whether the far end uses this machine's clock; `None` without one.
    same_clock: Option<bool>,
    /// Origin of the far end's timestamps.
    far_source: Option<TimestampSource>,
}

/// Carries out a job until it is done or stopped. CPU time of `own` does not count as other load.
/// `ready` gets a description before sending, `progress` the stage, the count done and the total.
pub(crate) fn perform(
    job: &PaceJob,
    samples: Option<SampleFile>,
    own: Own,
    stop: &AtomicBool,
    ready: &mut dyn FnMut(&str),
    progress: &mut dyn FnMut(Stage, usize, usize),
) -> Result<Paced, Failure> {
    let setup = PaceSetup::new(job)?;
    // The number only needs to differ between runs; it is not secret.
    let flow = RandomState::new().build_hasher().finish() as u32;
    let ask_far_end = || far_end(job, &setup, flow);
    let ahead = match job.sink {
        SinkTimestamps::Never => false,
        // Engines without timestamps take part in the choice.
        SinkTimestamps::Needed => {
            let departure_stamps = job.parameters.engine.capabilities().departure_stamps;
            departure_stamps == DepartureStamps::Nowhere || job.parameters.stamps == Stamps::User
        }
        SinkTimestamps::Always => true,
    };
    let mut far = ahead.then(ask_far_end).transpose()?;
    let _offload_guard =
        job.switch_offloads.then(|| switch_offloads(&setup)).transpose()?.flatten();
    let Opened { engine, why, departure_stamps, sender } = match job.parameters.engine {
        PaceEngine::Auto => {
            let turns = &mut |done, of| progress(Stage::Choosing, done, of);
            choose::best(job, &setup, flow, far.as_mut(), stop, turns)?
        }
        engine => {
            let sender =
                engines::open(engine, job, &setup, flow, setup.longest()).map_err(|why| {
                    let name = engine.name();
                    Failure::unsupported(format!("--engine {name} is unavailable here: {why}"))
                })?;
            let departure_stamps = engine.capabilities().departure_stamps;
            Opened { engine, why: None, departure_stamps, sender }
        }
    };
    if job.sink == SinkTimestamps::Needed {
        far = match far {
            // Closing the connection ends the sink's recording.
            _ if has_stamps(job, departure_stamps) => None,
            Some(far) => Some(far),
            None => Some(ask_far_end()?),
        };
    }
    let same_clock = far.as_ref().map(|far| far.same_clock);
    let far_source = far.as_ref().map(|far| far.source);
    let source = source(job, departure_stamps, far_source)?;
    let mut recorder = Recorder::begin(&setup, &job.target, source, same_clock, samples)?;
    if !engine.is_automatic() {
        ready(&report::opening(job, &setup, engine, source));
    }
    let nics = NicWatch::start();
    let watch = CpuWatch::start(own);
    let SendResult { mut sender, placement, wait } =
        send(job, &setup, sender, &mut recorder, far.as_mut(), stop, progress)?;
    recorder.finish();
    let used = watch.end(wait);
    let outcome = Outcome {
        engine,
        why,
        placement,
        nics: nics.of(setup.interface.as_ref()),
        // A kernel without queueing disciplines cannot report a limit.
        limiter: setup.interface.as_ref().and_then(|found| found.limiter().ok().flatten()),
        refused: sender.refused(),
        unsent: sender.failure(),
        same_clock,
        far_source,
    };
    let mut summary = report::summary(job, &setup, &recorder, &outcome);
    summary.trust.note_host(used);
    let verdict = report::verdict(job, &setup, &recorder, &outcome);
    let failure = recorder.failure.take().map(Failure::from);
    let failure = failure.or_else(|| no_stamps_failure(job, &recorder));
    let packets = summary.packets.map(|packets| dwell_stats::Packets {
        received: packets.received,
        lost: packets.lost,
        ..dwell_stats::Packets::default()
    });
    let unusable = report::unusable(job, &setup, recorder.source, &outcome);
    let Recorder { pairs, trains, source, .. } = recorder;
    let are_arrivals = matches!(source, Source::Sink(_));
    let departed = ThresholdValues { pairs, trains, packets, are_arrivals, unusable };
    Ok(Paced { summary, verdict, failure, departed })
}

/// Returns a failure if packets were sent and none has a timestamp.
fn no_stamps_failure(job: &PaceJob, recorder: &Recorder<'_>) -> Option<Failure> {
    let counts = recorder.counts;
    let is_known = !matches!(recorder.source, Source::Kernel(_)) || counts.stamped > 0;
    if is_known || counts.sent == 0 {
        return None;
    }
    let why = format!(
        "no departure was timestamped: the host of {} or a next hop does not resolve, or the driver \
         does not support timestamps (use --stamps user)",
        job.target
    );
    Some(match job.parameters.stamps {
        Stamps::Kernel => Failure::unsupported(why),
        _ => Failure::from(anyhow::Error::msg(why)),
    })
}

/// State after the last train.
struct SendResult {
    sender: TrainSender,
    placement: Placement,
    /// Time that the timing thread waited for a CPU.
    wait: Option<RunQueueWait>,
}

/// Sends all trains on a separate thread and records them on this one.
fn send(
    job: &PaceJob,
    setup: &PaceSetup,
    sender: TrainSender,
    recorder: &mut Recorder<'_>,
    far: Option<&mut FarEnd>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Stage, usize, usize),
) -> Result<SendResult, Failure> {
    let sleeps = train_time(&setup.departures) <= MAX_REALTIME_TRAIN_TIME;
    let real_time = placement::real_time(&setup.place, sleeps);
    let (sent_trains, received) = mpsc::channel();
    // With a far end, all trains wait for its timestamps, which arrive last.
    let mut waiting = Vec::new();
    let all = setup.departures.trains().len();
    let sent = thread::scope(|scope| {
        let driver = Driver {
            sender,
            departures: &setup.departures,
            lead_in: setup.pattern.lead_in_len(),
            first: 0,
            warm_up: job.parameters.warm_up,
            stop,
            sent_trains,
        };
        let timing = scope.spawn(move || -> io::Result<_> {
            let placement = cpu::place_thread(job.place.cpu, real_time)?;
            let (sender, wait) = RunQueueWait::of(|| driver.run());
            Ok(SendResult { sender, placement, wait })
        });
        let mut done = 0;
        loop {
            match received.recv_timeout(FLUSH_INTERVAL) {
                Ok(train) => {
                    done += usize::from(train.number.is_some());
                    match &far {
                        Some(_) => waiting.push(train),
                        None => recorder.take(&train, None),
                    }
                }
                Err(RecvTimeoutError::Timeout) => recorder.flush(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            progress(Stage::Sending, done, all);
        }
        timing.join().expect("the timing loop does not panic")
    })?;
    if let Some(far) = far {
        let counted = waiting.iter().filter(|train| train.number.is_some());
        let expected = counted.flat_map(|train| &train.left);
        let expected = expected.filter(|left| left.app.is_some()).count();
        // Departures are valid even if the far end failed.
        let arrivals = far.arrivals(0..FIRST_UNCOUNTED_ID, expected);
        waiting.iter().for_each(|train| recorder.take(train, arrivals.as_ref().ok()));
        if let Err(error) = arrivals {
            let gone = anyhow::Error::new(error).context("--sink: the far end is gone");
            recorder.failure.get_or_insert(gone);
        }
    }
    Ok(sent)
}

/// Switches off offloads that give several packets one timestamp, until the returned value is
/// dropped.
fn switch_offloads(setup: &PaceSetup) -> Result<Option<SegmentationOff>, Failure> {
    let Some(interface) = &setup.interface else { return Ok(None) };
    interface.disable_segmentation().map_err(|error| {
        Failure::unsupported(format!(
            "--switch-offloads: cannot switch off segmentation offload of {} ({error}); this needs root and \
             a driver that supports it",
            interface.name
        ))
    })
}

fn far_end(job: &PaceJob, setup: &PaceSetup, flow: u32) -> Result<FarEnd, Failure> {
    setup::fits_a_sink(&setup.departures)?;
    FarEnd::connect(setup.peer, flow).map_err(|error| {
        if far_end::is_refusal(&error) {
            return Failure::unsupported(format!("--sink: {error}"));
        }
        Failure::from(anyhow::anyhow!(
            "--sink: cannot connect to {} over TCP ({error}); start the sink there: dwell pace sink \
             udp://{}",
            job.target,
            setup.peer
        ))
    })
}

/// Whether this machine's kernel timestamps departures and the job allows it.
fn has_stamps(job: &PaceJob, departure_stamps: DepartureStamps) -> bool {
    departure_stamps != DepartureStamps::Nowhere && job.parameters.stamps != Stamps::User
}

/// Selects the timestamps of departures: those nearest to the wire.
fn source(
    job: &PaceJob,
    departure_stamps: DepartureStamps,
    far: Option<TimestampSource>,
) -> Result<Source, Failure> {
    match far {
        _ if has_stamps(job, departure_stamps) => Ok(Source::Kernel(departure_stamps)),
        Some(timestamp_source) => Ok(Source::Sink(timestamp_source)),
        _ if job.parameters.stamps == Stamps::Kernel => Err(Failure::unsupported(
            "--stamps kernel: packets of this engine have no kernel timestamps here; use --sink for \
             timestamps of the far end",
        )),
        _ => Ok(Source::User),
    }
}

/// Opens a loopback socket that drops every packet it receives.
fn loopback(ipv6: bool) -> io::Result<UdpSocket> {
    if ipv6 {
        UdpSocket::bind((Ipv6Addr::LOCALHOST, 0))
    } else {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    if let Some(FarCommand::Sink(sink)) = &args.far {
        crate::stop::on_signal(&stop)?;
        let summary = sink::perform(&sink.job, &stop, &mut crate::say)?;
        report::print_sink(&summary, sink.json)?;
        return Ok(Exit::Measured);
    }
    let thresholds = threshold::read(&args.fail_if, &Trains::METRICS)?;
    let mut job = args.job()?;
    // Kept open until the end: an open port drops packets, a closed one answers with ICMP errors.
    let loopback = args.url.is_none().then(|| loopback(args.ipv6)).transpose()?;
    if let Some(socket) = &loopback {
        job.target = format!("udp://{}", socket.local_addr()?);
    }
    // Validate the job before creating any file.
    PaceSetup::new(&job)?;
    if job.switch_offloads {
        // Restore the interface's offloads in any case.
        crate::stop::on_signal_only(&stop)?;
    } else {
        crate::stop::on_signal(&stop)?;
    }
    crate::stop::on_hangup(&stop)?;
    let samples = args.samples.as_deref().map(SampleFile::create).transpose()?;
    let shown: RefCell<Option<(Stage, Progress)>> = RefCell::default();
    let mut ready = |text: &str| {
        shown.take();
        crate::say(text);
    };
    let mut progress = |stage: Stage, done, of| {
        let mut shown = shown.borrow_mut();
        if args.quiet {
            return;
        }
        match &*shown {
            Some((of_stage, bar)) if *of_stage == stage => bar.show(done, of, ""),
            // Clear the previous bar before drawing the next.
            _ => {
                *shown = None;
                *shown = Some((stage, Progress::new(stage.name())));
            }
        }
    };
    let paced = perform(&job, samples, Own::Process, &stop, &mut ready, &mut progress)?;
    drop(shown);
    if args.json {
        io::stdout().lock().write_all(paced.summary.to_json().as_bytes())?;
    } else {
        report::print(&paced.summary, args.verbose)?;
        if loopback.is_some() {
            writeln!(
                io::stdout(),
                "note: without a target, packets go to this machine's loopback: the figures cover program \
                 and kernel, not a network card; to include it, give udp://HOST:PORT"
            )?;
        }
        if let Some(verdict) = &paced.verdict {
            writeln!(io::stdout(), "{verdict}")?;
        }
    }
    if let Some(failure) = paced.failure {
        return Err(failure);
    }
    let judged = threshold::judge(&thresholds, |metric| paced.departed.evidence(metric));
    Ok(if stop.load(Ordering::Relaxed) { Exit::Interrupted } else { judged })
}
