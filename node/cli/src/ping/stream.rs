//! A stream of probes without an end, on a thread of its own: opens the target, runs the timing loop,
//! and opens the target again after a failure. What is measured leaves through bounded rings, a new
//! pair for each run.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dwell_engine::pinger::Pinger;
use dwell_engine::protocol::Reflection;
use dwell_io::clock::monotonic;
use dwell_io::cpu::{self, RealTime};
use dwell_io::pacer::WaitMode;
use dwell_protocol::PingJob;
use dwell_sample::{Sample, TimestampSource};
use dwell_units::{Instant as ClockInstant, Monotonic, Nanos};
use rtrb::Consumer;

use super::reach::Addresses;
use super::recorder::TimestampSources;
use super::session::{self, Ends};
use super::setup::PingSetup;
pub(crate) use super::timing_loop::SendLimits;
use super::timing_loop::{
    ClientProgress, Driver, Feedback, LoopOptions, LoopResult, RunEvent, Shared,
};
use crate::Failure;

/// Probes that are overdue by more than this time, after a stall, are skipped.
const MAX_OVERDUE: Nanos = Nanos::from_millis(100);

/// Time that the ring of samples lasts if it is not emptied.
const RING_TIME: Nanos = Nanos::from_millis(800);

/// Wait after the first failure; each further one doubles it.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Maximum wait after a failure.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Interval between checks of the stop flag while waiting.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Stack of the thread in bytes.
const STACK_LEN: usize = 256 << 10;

/// Longest wait before the first connection, so that the streams of many nodes do not begin at once.
const MAX_FIRST_WAIT: Nanos = Nanos::from_secs(10);

/// Time after the last time-out at which a stopped stream ends in any case.
const STOP_RESERVE: Nanos = Nanos::from_secs(1);

/// Packets that a connection or session costs besides its probes.
const SESSION_PACKETS: u32 = 4;

/// A running stream. Dropping it stops the stream without waiting.
pub(crate) struct ProbeStream {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    news: Receiver<News>,
    /// Runs whose samples are not all taken, oldest first.
    runs: Vec<Run>,
    fault: Option<String>,
}

/// What the thread reports.
enum News {
    /// A run begins.
    Started(Run),
    /// A run has failed, or could not begin.
    Failed(String),
}

/// The receiving ends of one run.
struct Run {
    samples: Consumer<Sample>,
    events: Consumer<RunEvent>,
    progress: Arc<ClientProgress>,
    sources: TimestampSources,
    is_counting: bool,
    /// Probes below this id were in flight when a clock was stepped.
    void_below: u64,
}

/// A sample of a stream.
pub(crate) struct StreamSample {
    pub(crate) sample: Sample,
    /// Whether no clock was stepped while the probe was in flight.
    pub(crate) is_valid: bool,
    /// Local timestamps to compare with those of the far end.
    pub(crate) near: TimestampSource,
}

impl ProbeStream {
    /// Starts the stream of a job, which has no count and no duration. A probe is due `phase` after the
    /// start, and at all multiples of the interval from then on, also after a failure.
    ///
    /// # Errors
    /// The job is invalid, or no thread can be started.
    pub(crate) fn start(
        job: PingJob,
        phase: Nanos,
        limits: Box<dyn SendLimits>,
    ) -> Result<Self, Failure> {
        let setup = PingSetup::new(&job)?;
        let shared = Arc::new(Shared::default());
        let (sender, news) = mpsc::channel();
        let due = monotonic() + phase;
        let shared_too = Arc::clone(&shared);
        let looping = Looping { job, setup, limits, due, shared: shared_too, news: sender };
        let thread = thread::Builder::new()
            .name("probes".into())
            .stack_size(STACK_LEN)
            .spawn(move || looping.run(Nanos(phase.0 % MAX_FIRST_WAIT.0).to_std()))?;
        Ok(Self { shared, thread, news, runs: Vec::new(), fault: None })
    }

    /// Passes all samples that are available to `each`. Returns a time before which all probes were
    /// passed.
    pub(crate) fn drain(&mut self, each: &mut dyn FnMut(StreamSample)) -> ClockInstant<Monotonic> {
        // A run that is not in the channel yet sends its first probe later than this.
        let mut settled = monotonic();
        self.receive();
        self.runs.retain_mut(|run| {
            let until = run.progress.settled.load(Ordering::Acquire);
            run.drain(each);
            settled = settled.min(ClockInstant::from_nanos(until));
            until != i64::MAX
        });
        settled
    }

    /// Voids the probes in flight and the samples in the rings, after a clock was stepped.
    pub(crate) fn void(&mut self) {
        self.receive();
        for run in &mut self.runs {
            // Warm-up ids, the upper half, precede all counted ones.
            let next = run.progress.next_id.load(Ordering::Relaxed);
            run.void_below = if next > u64::MAX / 2 { 0 } else { next };
        }
    }

    fn receive(&mut self) {
        loop {
            match self.news.try_recv() {
                Ok(News::Started(run)) => {
                    self.runs.push(run);
                    self.fault = None;
                }
                Ok(News::Failed(reason)) => self.fault = Some(reason),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }

    /// Why the stream does not run.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Number of samples dropped because a ring was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Stops sending. The stream ends when each probe is answered or past its time-out; see
    /// [`Self::has_ended`].
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the thread has ended, so that the next [`Self::drain`] is the last one needed.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }
}

impl Drop for ProbeStream {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Run {
    fn drain(&mut self, each: &mut dyn FnMut(StreamSample)) {
        while let Ok(event) = self.events.pop() {
            match event {
                RunEvent::Counting { tx, rx, warm_up_sent } => {
                    self.is_counting = true;
                    self.sources = TimestampSources::of_warm_up(tx, rx, warm_up_sent);
                }
                // The states of probes say the same.
                RunEvent::Unreachable(_) | RunEvent::SendFailed(_) | RunEvent::Ttl { .. } => {}
            }
        }
        while self.is_counting
            && let Ok(sample) = self.samples.pop()
        {
            self.sources.learn(&sample);
            let is_valid = sample.id >= self.void_below;
            each(StreamSample { sample, is_valid, near: self.sources.near() });
        }
    }
}

/// The thread of a stream.
struct Looping {
    job: PingJob,
    setup: PingSetup,
    limits: Box<dyn SendLimits>,
    /// Time at which a probe is due.
    due: ClockInstant<Monotonic>,
    shared: Arc<Shared>,
    news: Sender<News>,
}

impl Looping {
    fn run(&self, first_wait: Duration) {
        // On failure, timers are less precise.
        let _ = cpu::place_thread(None, RealTime::No);
        self.wait(first_wait);
        let mut delay = MIN_RETRY_DELAY;
        while !self.is_stopped() {
            let begun = Instant::now();
            if self.has_session() && !self.limits.take(monotonic(), SESSION_PACKETS) {
                self.wait(MIN_RETRY_DELAY);
                continue;
            }
            let ended = self.measure();
            if self.is_stopped() {
                break;
            }
            let reason = match ended {
                Ok(ended) => match ended.broken {
                    Some(0) | None => "the far end closed the connection".to_owned(),
                    Some(errno) => {
                        let error = std::io::Error::from_raw_os_error(errno);
                        format!("the socket failed: {error}")
                    }
                },
                Err(failure) => format!("{:#}", failure.error),
            };
            let _ = self.news.send(News::Failed(reason));
            if begun.elapsed() > MAX_RETRY_DELAY {
                delay = MIN_RETRY_DELAY;
            }
            self.wait(delay);
            delay = (2 * delay).min(MAX_RETRY_DELAY);
        }
    }

    /// Whether packets precede the probes.
    fn has_session(&self) -> bool {
        let spec = self.setup.target.scheme.spec();
        spec.handshake.is_some() || matches!(spec.reflection, Reflection::Stream(_))
    }

    fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    fn wait(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_stopped() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(STOP_CHECK_INTERVAL));
        }
    }

    /// Opens the target and probes it until stopped or until the socket fails.
    fn measure(&self) -> Result<LoopResult, Failure> {
        let peer = self.peer()?;
        let Ends { port, sender } =
            session::open_stream(&self.job, &self.setup, peer, &self.shared.stop)?;
        let config = self.setup.config;
        let interval = config.departures.interval().0.max(1);
        let ring = (RING_TIME.0 / interval).clamp(32, 1 << 16) as usize;
        // All probes in flight, and those of a quarter of a time-out more, whose late replies are
        // recognised.
        let window = (config.timeout.0 / interval * 5 / 4).clamp(16, 1 << 18) as usize;
        let (samples, taken) = rtrb::RingBuffer::new(ring);
        let (events, feedback) = rtrb::RingBuffer::new(16);
        let progress = Arc::new(ClientProgress::default());
        let mut buffer = vec![0; session::buffer_len(sender.capacity())];
        let mut pinger = Pinger::with_window(sender, config, monotonic(), window);
        pinger.keep_phase(self.due);
        let run = Run {
            samples: taken,
            events: feedback,
            progress: Arc::clone(&progress),
            sources: TimestampSources::default(),
            is_counting: false,
            void_below: 0,
        };
        let _ = self.news.send(News::Started(run));
        // After the message, so that a reader without it is right that no probe was sent yet.
        pinger.start_at(monotonic());
        let driver = Driver {
            port,
            pinger,
            options: LoopOptions {
                busy_poll: false,
                tx_stamps: true,
                stamps_required: false,
                // Many streams that spin would take the CPU from each other, all day.
                wait_mode: WaitMode::CatchUp,
                max_overdue: Some(MAX_OVERDUE),
                stop_grace: config.timeout.saturating_add(STOP_RESERVE),
            },
            samples,
            events,
            paths: None,
            shared: &self.shared,
            progress: &progress,
            feedback: Feedback::default(),
            family: session::family(peer),
            limits: Some(&*self.limits),
        };
        Ok(driver.run(&mut buffer))
    }

    /// The first address of the target that probes may be sent to.
    fn peer(&self) -> Result<SocketAddr, Failure> {
        let addresses = Addresses::resolve(&self.job, &self.setup)?;
        let allowed = addresses.all().find(|address| self.limits.allows(address.ip()));
        allowed.ok_or_else(|| {
            Failure::usage(format!(
                "{} has no address in the networks that the local limits allow",
                self.setup.target
            ))
        })
    }
}
