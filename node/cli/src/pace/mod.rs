//! `dwell pace`: sends pairs and trains of packets on time, and says how punctual they were (S2).
//!
//! `args` is the command line; `plan` judges what is asked; `engines` opens what sends, and `choose`
//! finds the best by measuring; `drive` is the timing loop, on a thread of its own; `recorder` turns its
//! trains into figures and a segment; `report` makes the summary and prints it, and
//! `verdict` its last line. `sink` is the far end, and
//! `far_end` what both say to each other.

mod args;
mod choose;
mod drive;
mod engines;
mod far_end;
mod plan;
mod recorder;
mod report;
mod sink;
mod steps;
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

use dwell_engine::stamps::Rung;
use dwell_io::cpu::{self, Placement};
use dwell_io::host::Own;
use dwell_io::interface::Uncut;
use dwell_io::train::{Stamping, TrainSender};
use dwell_plan::{FarStamps, PaceEngine, PaceJob, Stamps};
use dwell_record::{NicDropped, Summary};
use dwell_stats::departures::{Pairs, Trains};
use dwell_stats::{Evidence, Values};
use dwell_units::Nanos;

use crate::host::{CpuWatch, RunQueueWait};
use crate::nic::NicWatch;
use crate::ping::SampleFile;
use crate::progress::Progress;
use crate::{Exit, Failure, threshold};
use args::Far;
use choose::Opened;
use drive::{Driver, WARM_UP};
use far_end::FarEnd;
use plan::{Plan, train_time};
use recorder::{Recorder, Source};

pub use args::Args;
pub(crate) use sink::perform as sink;

/// A train that takes longer keeps a CPU for too long to run before all others: the kernel stops such
/// a thread for 50 ms of every second.
const LONGEST_FIRST: Nanos = Nanos::from_millis(300);

/// Between two looks at what was recorded.
const TICK: Duration = Duration::from_millis(100);

/// What came of pacing.
pub(crate) struct Paced {
    pub(crate) summary: Summary,
    /// Whether the rate was kept, in one line; `None` where no constant rate was asked for.
    pub(crate) verdict: Option<String>,
    /// An output could not be written; what was measured stands.
    pub(crate) failure: Option<Failure>,
    departed: Departed,
}

/// Distributions and counts that thresholds are judged by.
struct Departed {
    pairs: Option<Pairs>,
    trains: Trains,
    /// What became of the packets; `None` without a sink.
    packets: Option<dwell_stats::Packets>,
    /// Departures are arrivals at the sink, which a lost packet does not have.
    are_arrivals: bool,
    /// Why they decide no threshold; `None` where they do.
    unusable: Option<&'static str>,
}

impl Departed {
    /// What is known of a metric, by default of the gap error, which pairs do not have.
    fn evidence(&self, metric: Option<&str>) -> Evidence<'_> {
        let metric = metric.unwrap_or("gap_error");
        let (distribution, unknown) = match &self.pairs {
            Some(pairs) => (pairs.distribution(metric), pairs.unknown(metric)),
            None => (self.trains.distribution(metric), self.trains.unknown(metric)),
        };
        // Stamps of this machine exist for lost packets too.
        let missing = if self.are_arrivals { unknown } else { 0 };
        let values =
            distribution.map(|distribution| Values { distribution, base: Nanos::ZERO, missing });
        let values = values.filter(|values| values.distribution.count() + missing > 0);
        let unusable = self.unusable;
        Evidence { packets: self.packets, values, unusable, ..Evidence::default() }
    }
}

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Engines are measured, in turns.
    Choosing,
    /// Trains are sent.
    Sending,
}

impl Stage {
    /// What is counted.
    const fn name(self) -> &'static str {
        match self {
            Self::Choosing => "measuring engines",
            Self::Sending => "trains",
        }
    }
}

/// What came of the sending, before anything is made of it.
struct Outcome {
    engine: PaceEngine,
    /// Why that engine, where the program chose.
    why: Option<String>,
    placement: Placement,
    nics: Option<Vec<NicDropped>>,
    /// A queueing discipline that limits the rate on the way out, if one is known.
    limiter: Option<String>,
    refused: u64,
    /// Why the last packet that could not be sent was not.
    unsent: Option<io::Error>,
    /// Whether the far end is on this machine's clock; `None` without one.
    same_clock: Option<bool>,
    /// How deep its stamps are.
    far_rung: Option<Rung>,
}

/// Carries out a job until it is done or stopped. `own` says whose CPU time is not that of others,
/// `ready` hears what will be sent, and `progress` how much of how much of a stage has been.
pub(crate) fn perform(
    job: &PaceJob,
    samples: Option<SampleFile>,
    own: Own,
    stop: &AtomicBool,
    ready: &mut dyn FnMut(&str),
    progress: &mut dyn FnMut(Stage, usize, usize),
) -> Result<Paced, Failure> {
    let plan = Plan::new(job)?;
    // Distinct per run is enough; nothing here is secret.
    let flow = RandomState::new().build_hasher().finish() as u32;
    let ask_far_end = || far_end(job, &plan, flow);
    let ahead = match job.sink {
        FarStamps::Never => false,
        // Who chooses among engines compares some that have no stamps.
        FarStamps::Needed => {
            matches!(job.engine, PaceEngine::Auto | PaceEngine::Xsk) || job.stamps == Stamps::User
        }
        FarStamps::Always => true,
    };
    let mut far = ahead.then(ask_far_end).transpose()?;
    let _uncut = job.switch_offloads.then(|| switch_offloads(&plan)).transpose()?.flatten();
    let Opened { engine, why, sender } = match job.engine {
        PaceEngine::Auto => {
            let turns = &mut |done, of| progress(Stage::Choosing, done, of);
            choose::best(job, &plan, flow, far.as_mut(), stop, turns)?
        }
        engine => {
            let sender =
                engines::open(engine, job, &plan, flow, plan.longest()).map_err(|why| {
                    let name = engine.name();
                    Failure::unsupported(format!("--engine {name} is not to be had here: {why}"))
                })?;
            Opened { engine, why: None, sender }
        }
    };
    if job.sink == FarStamps::Needed {
        far = match far {
            // It keeps packets no longer.
            _ if has_stamps(job, sender.stamping()) => None,
            Some(far) => Some(far),
            None => Some(ask_far_end()?),
        };
    }
    let same_clock = far.as_ref().map(|far| far.same_clock);
    let far_rung = far.as_ref().map(|far| far.rung);
    let source = source(job, sender.stamping(), far_rung)?;
    let mut recorder = Recorder::begin(&plan, &job.target, source, same_clock, samples)?;
    if engine != PaceEngine::Auto {
        ready(&report::opening(job, &plan, engine, source));
    }
    let nics = NicWatch::start();
    let watch = CpuWatch::start(own);
    let Ended { sender, placement, wait } =
        send(job, &plan, sender, &mut recorder, far.as_mut(), stop, progress)?;
    recorder.finish();
    let used = watch.end(wait);
    let outcome = Outcome {
        engine,
        why,
        placement,
        nics: nics.of(plan.interface.as_ref()),
        // A kernel without queueing disciplines cannot tell of them.
        limiter: plan.interface.as_ref().and_then(|way| way.limiter().ok().flatten()),
        refused: sender.refused(),
        unsent: sender.failure(),
        same_clock,
        far_rung,
    };
    let mut summary = report::summary(job, &plan, &recorder, &outcome);
    summary.trust.note_host(used);
    let verdict = report::verdict(job, &plan, &recorder, &outcome);
    let failure = recorder.failure.take().map(Failure::from);
    let failure = failure.or_else(|| nothing_known(job, &recorder));
    let packets = summary.packets.map(|packets| dwell_stats::Packets {
        received: packets.received,
        lost: packets.lost,
        ..dwell_stats::Packets::default()
    });
    let unusable = report::unusable(job, &plan, recorder.source, &outcome);
    let Recorder { pairs, trains, source, .. } = recorder;
    let are_arrivals = matches!(source, Source::Sink(_));
    let departed = Departed { pairs, trains, packets, are_arrivals, unusable };
    Ok(Paced { summary, verdict, failure, departed })
}

/// What was sent, and not one stamp came.
fn nothing_known(job: &PaceJob, recorder: &Recorder<'_>) -> Option<Failure> {
    let counts = recorder.counts;
    let is_known = !matches!(recorder.source, Source::Kernel(_)) || counts.stamped > 0;
    if is_known || counts.sent == 0 {
        return None;
    }
    let why = format!(
        "no packet is known to have left, for no stamp came of any: nobody on the way answers for the \
         host of {}, or the driver does not stamp (--stamps user does without)",
        job.target
    );
    Some(match job.stamps {
        Stamps::Kernel => Failure::unsupported(why),
        _ => Failure::from(anyhow::Error::msg(why)),
    })
}

/// The sender after its last train.
struct Ended {
    sender: Box<dyn TrainSender>,
    placement: Placement,
    /// How long the timing thread waited for a CPU.
    wait: Option<RunQueueWait>,
}

/// Sends all trains on a thread of their own, and records them on this one.
fn send(
    job: &PaceJob,
    plan: &Plan,
    sender: Box<dyn TrainSender>,
    recorder: &mut Recorder<'_>,
    far: Option<&mut FarEnd>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Stage, usize, usize),
) -> Result<Ended, Failure> {
    let sleeps = train_time(&plan.departures) <= LONGEST_FIRST;
    let real_time = plan.place.real_time(sleeps);
    let (told, heard) = mpsc::channel();
    // What the far end says comes last, and all trains wait for it.
    let mut waiting = Vec::new();
    let all = plan.departures.trains().len();
    let sent = thread::scope(|scope| {
        let driver = Driver {
            sender,
            departures: &plan.departures,
            leads: plan.pattern.leads(),
            first: 0,
            warm_up: job.warm_up,
            stop,
            told,
        };
        let timing = scope.spawn(move || -> io::Result<_> {
            let placement = cpu::settle(job.place.cpu, real_time)?;
            let (sender, wait) = RunQueueWait::of(|| driver.run());
            Ok(Ended { sender, placement, wait })
        });
        let mut done = 0;
        loop {
            match heard.recv_timeout(TICK) {
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
        // What left has left, whatever became of the far end.
        let arrivals = far.arrivals(0..WARM_UP, expected);
        waiting.iter().for_each(|train| recorder.take(train, arrivals.as_ref().ok()));
        if let Err(error) = arrivals {
            let gone = anyhow::Error::new(error).context("--sink: the far end is gone");
            recorder.failure.get_or_insert(gone);
        }
    }
    Ok(sent)
}

/// Switches off what would let packets leave with one stamp, until the returned value is dropped.
fn switch_offloads(plan: &Plan) -> Result<Option<Uncut>, Failure> {
    let Some(interface) = &plan.interface else { return Ok(None) };
    interface.cut_sent().map_err(|error| {
        Failure::unsupported(format!(
            "--switch-offloads: {} keeps cutting packets itself ({error}); that needs root, and a driver \
             that lets it be switched off",
            interface.name
        ))
    })
}

fn far_end(job: &PaceJob, plan: &Plan, flow: u32) -> Result<FarEnd, Failure> {
    plan::fits_a_sink(&plan.departures)?;
    FarEnd::connect(plan.peer, flow).map_err(|error| {
        if far_end::is_refusal(&error) {
            return Failure::unsupported(format!("--sink: {error}"));
        }
        Failure::from(anyhow::anyhow!(
            "--sink: nobody answers at {} by TCP ({error}); start one there: dwell pace sink \
             udp://{}",
            job.target,
            plan.peer
        ))
    })
}

/// Whether the kernel stamps departures on this machine, and may.
fn has_stamps(job: &PaceJob, stamping: Stamping) -> bool {
    stamping != Stamping::FarEnd && job.stamps != Stamps::User
}

/// Which stamps say when packets left: those nearest to the wire.
fn source(job: &PaceJob, stamping: Stamping, far: Option<Rung>) -> Result<Source, Failure> {
    match far {
        _ if has_stamps(job, stamping) => Ok(Source::Kernel(stamping)),
        Some(rung) => Ok(Source::Sink(rung)),
        _ if job.stamps == Stamps::Kernel => Err(Failure::unsupported(
            "--stamps kernel: this engine's packets are not stamped on this machine; --sink takes \
             the stamps of the far end",
        )),
        _ => Ok(Source::User),
    }
}

/// A socket on the loopback interface that drops every packet it receives.
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
    if let Some(Far::Sink(sink)) = &args.far {
        crate::stop::on_signal(&stop)?;
        let summary = sink::perform(&sink.job(), &stop, &mut crate::say)?;
        report::print_sink(&summary, sink.json)?;
        return Ok(Exit::Measured);
    }
    let thresholds = threshold::read(&args.fail_if, &Trains::METRICS)?;
    let mut job = args.job()?;
    // Held until the end: an open port drops what arrives, a closed one answers with ICMP errors.
    let loopback = args.url.is_none().then(|| loopback(args.ipv6)).transpose()?;
    if let Some(socket) = &loopback {
        job.target = format!("udp://{}", socket.local_addr()?);
    }
    // Judged before any file is made.
    Plan::new(&job)?;
    if job.switch_offloads {
        // Whatever comes, the interface is left as it was.
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
            // The one before is cleared before the next is drawn.
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
                "note: no target was given, so packets went to this machine's loopback: the figures are \
                 those of the program and the kernel, without a network card; udp://HOST:PORT includes it"
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
