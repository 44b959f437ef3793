//! Running jobs, each on its own thread.

use std::collections::BTreeMap;
use std::io::{self, Stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dwell_protocol::{
    Event, Job, JobId, MAX_PAYLOAD_LEN, MAX_PULL_LEN, Progress, Request, write_data, write_message,
};
use dwell_record::{Scalar, Summary, Warning};
use dwell_stats::{Metric, RoundTrip};

use super::agent_spool;
use super::clock::{self, ClockDaemons};
use super::silence::LastRequest;
use super::spool::Spool;
use crate::host::{CpuWatch, own_of_run};
use crate::ping::{Observer, Outputs, Replies, SampleFile};
use crate::{Exit, Failure};

/// Maximum time for all jobs to end after standard input is closed.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(900);

/// Minimum interval between progress events of a job.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Standard output, shared by the job threads, with a byte count. Not used by timing threads.
#[derive(Clone)]
pub(super) struct EventWriter(Arc<Mutex<CountedOutput>>);

struct CountedOutput {
    to: Stdout,
    bytes: u64,
}

impl io::Write for CountedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl EventWriter {
    pub(super) fn new(to: Stdout) -> Self {
        Self(Arc::new(Mutex::new(CountedOutput { to, bytes: 0 })))
    }

    /// Number of bytes written so far.
    fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Sends an event to the controller. Ignores write errors: a closed connection shows at the end
    /// of standard input.
    pub(super) fn say(&self, event: &Event) {
        let _ = write_message(&mut *self.lock(), event);
    }

    /// Passes the output to `write`, which writes whole frames.
    pub(super) fn send(
        &self,
        write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> io::Result<()> {
        write(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CountedOutput> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// The jobs that have not ended. Clones share them.
#[derive(Clone, Default)]
pub(super) struct RunningJobs(Arc<Mutex<BTreeMap<JobId, Running>>>);

impl RunningJobs {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<JobId, Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops all jobs. A job that does not end in time ends with the process.
    pub(super) fn end(&self) {
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        loop {
            let mut jobs = self.lock();
            jobs.values().for_each(|running| running.stop.store(true, Ordering::Relaxed));
            jobs.retain(|_, running| !running.thread.is_finished());
            if jobs.is_empty() || Instant::now() >= deadline {
                return;
            }
            drop(jobs);
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// See the module documentation.
pub(super) struct Jobs {
    events: EventWriter,
    running: RunningJobs,
    /// Samples of ended and running jobs. Those that were transferred completely are kept until the next
    /// job starts, so that a damaged part can be requested again.
    spools: BTreeMap<JobId, Spool>,
    transferred: Vec<JobId>,
    last_request: LastRequest,
    clock_daemons: ClockDaemons,
}

impl Jobs {
    pub(super) fn new(events: EventWriter, last_request: LastRequest) -> Self {
        let (running, spools) = (RunningJobs::default(), BTreeMap::new());
        let (transferred, clock_daemons) = (Vec::new(), ClockDaemons::default());
        Self { events, running, spools, transferred, last_request, clock_daemons }
    }

    pub(super) fn running(&self) -> RunningJobs {
        self.running.clone()
    }

    /// Handles a request without waiting for a job.
    pub(super) fn take(&mut self, request: Request) {
        self.running.lock().retain(|_, running| !running.thread.is_finished());
        match request {
            Request::Start { job, what, samples } => self.start(job, what, samples),
            Request::Stop { job } => {
                // A job that has ended has already sent its event.
                if let Some(running) = self.running.lock().get(&job) {
                    running.stop.store(true, Ordering::Relaxed);
                }
            }
            Request::Pull { job, from } => self.pull(job, from),
            Request::Hail { job } => self.events.say(&Event::Alive { job }),
            Request::Clock { id } => self.events.say(&clock::reading(id)),
            Request::Spool { id, dir, what } => {
                agent_spool::answer(id, dir.as_deref(), what, &self.events, &self.last_request);
            }
            Request::ClockState { id } => {
                let (events, daemons) = (self.events.clone(), self.clock_daemons.clone());
                thread::spawn(move || {
                    events.say(&Event::ClockState { id, state: daemons.clock_state() });
                });
            }
        }
    }

    fn start(&mut self, job: JobId, what: Job, samples: bool) {
        let fail = |reason: String| self.events.say(&failed(job, reason));
        for job in self.transferred.drain(..) {
            self.spools.remove(&job);
        }
        if self.running.lock().contains_key(&job) || self.spools.contains_key(&job) {
            return fail(format!("job {} already exists", job.0));
        }
        let spool = match samples.then(Spool::new).transpose() {
            Ok(spool) => spool,
            Err(error) => return fail(format!("cannot create a file for samples: {error}")),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (events, flag) = (self.events.clone(), Arc::clone(&stop));
        let kept = spool.clone();
        let thread = thread::spawn(move || {
            let outcome = perform(job, &what, spool.as_ref(), &flag, &events);
            let segment_bytes = spool.map(|spool| spool.len());
            let event = match outcome {
                Ok(summary) => Event::Finished { job, summary: Box::new(summary), segment_bytes },
                Err(failure) => Event::Failed {
                    job,
                    reason: format!("{:#}", failure.error),
                    unsupported: failure.exit == Exit::Unsupported,
                },
            };
            events.say(&event);
        });
        self.running.lock().insert(job, Running { stop, thread });
        self.spools.extend(kept.map(|spool| (job, spool)));
    }

    /// Transfers a part of the samples.
    fn pull(&mut self, job: JobId, from: u64) {
        let Some(spool) = self.spools.get(&job) else {
            let reason = format!("job {} has no samples", job.0);
            return self.events.say(&failed(job, reason));
        };
        let mut hasher = crc32fast::Hasher::new();
        let mut bytes = 0;
        let read = spool.read(from, MAX_PULL_LEN, MAX_PAYLOAD_LEN / 4, &mut |piece| {
            hasher.update(piece);
            bytes += piece.len() as u64;
            let written = write_data(&mut *self.events.lock(), job, piece);
            self.last_request.renew();
            written
        });
        let left = spool.len().saturating_sub(from.saturating_add(bytes));
        let event = match read {
            Ok(()) => Event::Pulled { job, from, bytes, crc32: hasher.finalize(), left },
            Err(error) => failed(job, format!("cannot read samples: {error}")),
        };
        if left == 0 {
            self.transferred.push(job);
        }
        self.events.say(&event);
    }
}

/// The event for a job that this node could not run.
fn failed(job: JobId, reason: String) -> Event {
    Event::Failed { job, reason, unsupported: false }
}

/// Runs a job until it is done or stopped.
fn perform(
    job: JobId,
    what: &Job,
    spool: Option<&Spool>,
    stop: &Arc<AtomicBool>,
    events: &EventWriter,
) -> Result<Summary, Failure> {
    let ready = || events.say(&Event::Ready { job });
    match what {
        Job::Ping(ping) => {
            ready();
            let outputs = Outputs {
                csv: None,
                lines: false,
                samples: spool.map(Spool::file),
                replies: Replies::Silent,
                observer: Box::new(ProgressReporter { job, events: events.clone(), last: None }),
            };
            let before = events.bytes();
            let measured = crate::ping::measure(ping, outputs, own_of_run(), stop)?;
            let mut summary = measured.summary;
            // Events sent during the run may have disturbed the probes.
            let event_bytes = Scalar::Count(events.bytes() - before);
            summary.values.insert("event_bytes".to_owned(), Some(event_bytes));
            match measured.failure {
                Some(failure) if measured.answered == 0 => return Err(failure),
                // Results until the failure are valid.
                Some(failure) => summary.trust.warn(incomplete(&failure)),
                None => {}
            }
            Ok(summary)
        }
        Job::Reflect(reflect) => {
            let answered = crate::reflect::perform(reflect, stop, &mut |_, _| ready())?;
            answered.failure.map_or(Ok(answered.summary), Err)
        }
        Job::NodeSim(node) => crate::node_sim::perform(node, stop, &mut |_| ready()),
        Job::Cpu(cpu) => crate::load::burn(cpu, stop, &mut |_| ready()),
        Job::Traffic(traffic) => {
            let samples = spool.map(Spool::file);
            // With samples the traffic is a measured flow, otherwise a load.
            let watch = samples.is_some().then(|| CpuWatch::start(own_of_run()));
            let mut sent = crate::load::send(traffic, samples, stop, &mut |_| ready())?;
            sent.summary.trust.note_host(watch.and_then(|watch| watch.end(None)));
            Ok(with_warning(sent.summary, sent.failure))
        }
        Job::Bulk(bulk) => {
            let sent = crate::load::send_bulk(bulk, stop, &mut |_| ready())?;
            sent.failure.map_or(Ok(sent.summary), Err)
        }
        Job::Sink(sink) => {
            let samples = spool.map(Spool::file);
            let received = crate::load::sink(sink, samples, stop, &mut |_| ready())?;
            Ok(with_warning(received.summary, received.failure))
        }
        Job::Pace(pace) => {
            let samples = spool.map(Spool::file);
            let progress = &mut |_, _, _| {};
            let paced = crate::pace::perform(
                pace,
                samples,
                own_of_run(),
                stop,
                &mut |_| ready(),
                progress,
            )?;
            Ok(with_warning(paced.summary, paced.failure))
        }
        Job::PaceSink(sink) => crate::pace::sink(sink, stop, &mut |_| ready()),
        Job::Itg(itg) => crate::load::send_by_itg(itg, stop, &mut |_| ready()),
        Job::ItgSink(_) => crate::load::receive_by_itg(stop, &mut |_| ready()),
        Job::Trace(trace) => {
            let outputs = crate::trace::Outputs { samples: spool.map(Spool::file), live: false };
            let traced = crate::trace::perform(trace, outputs, stop, &mut |_| ready())?;
            Ok(with_warning(traced.summary, traced.failure))
        }
        Job::Relay(relay) => {
            let relayed =
                crate::relay::perform(relay, spool.map(Spool::file), stop, &mut |_| ready())?;
            // A relay that ended without being stopped has failed; otherwise only its samples have.
            match relayed.failure {
                Some(failure) if !stop.load(Ordering::Relaxed) => Err(failure),
                failure => Ok(with_warning(relayed.summary, failure)),
            }
        }
    }
}

/// Adds the failure to the warnings: the result is valid although its samples are not.
fn with_warning(mut summary: Summary, failure: Option<Failure>) -> Summary {
    summary.trust.warnings.extend(failure.map(|failure| incomplete(&failure).into()));
    summary
}

fn incomplete(failure: &Failure) -> Warning {
    Warning::OutputFailed(format!("{:#}", failure.error))
}

/// Sends the progress of a measurement to the controller.
struct ProgressReporter {
    job: JobId,
    events: EventWriter,
    last: Option<Instant>,
}

impl Observer for ProgressReporter {
    fn show(&mut self, measured: &RoundTrip) {
        if self.last.is_some_and(|last| last.elapsed() < PROGRESS_INTERVAL) {
            return;
        }
        self.last = Some(Instant::now());
        let figures = measured.figures(Metric::Rtt);
        let packets = measured.packets();
        let progress = Progress {
            sent: packets.sent(),
            lost: packets.lost,
            p50_ns: figures.p50.map(|ns| ns.0),
            p99_ns: figures.p99.map(|ns| ns.0),
        };
        self.events.say(&Event::Progress { job: self.job, progress });
    }

    /// Does nothing: the message is also a warning in the summary.
    fn say(&mut self, _: &str) {}

    fn end(&mut self) {}
}

impl Spool {
    /// The destination of a job's samples.
    fn file(&self) -> SampleFile {
        SampleFile { to: Box::new(self.clone()), name: "the spool of samples".into() }
    }
}

impl io::Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
