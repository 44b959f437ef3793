//! `--explain`: attributes the time of spikes to causes. Runs on the recording thread; the timing
//! thread only registers itself as the watched thread.
//!
//! The limit is final only at the end. Until then, each reply above the current limit is attributed
//! while its events exist; the end keeps those above the final limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dwell_host::{Cause, CauseKind, DelayParts, DelayWindow, KernelEvent, UsualDelay};
use dwell_io::activity;
use dwell_io::bpf::{BpfError, FlightRecorder, ThreadWatch};
use dwell_io::process;
use dwell_record::{Spike, SpikePart, Spikes, Warning};
use dwell_sample::{Sample, State};
use dwell_stats::{Distribution, spike_limit};
use dwell_units::{Instant, Monotonic, Nanos, Pairing, Realtime};

/// Distance of the limit from the median, in median absolute deviations.
const DEVIATIONS: i64 = 10;

/// Maximum number of replies kept as candidates for spikes.
const MAX_CANDIDATES: usize = 4_096;

/// Number of ordinary replies attributed per turn, from which the usual time of each cause follows.
const ORDINARY_PER_TURN: usize = 8;

/// Number of replies before and after one that may overlap with it in the thread.
const SHARED_RANGE: usize = 64;

/// Maximum age of events that a later reply can need.
const MAX_EVENT_AGE: Nanos = Nanos::from_secs(2);

/// Maximum number of events kept.
const MAX_EVENTS: usize = 1 << 18;

/// The limit is computed again when the number of replies has grown by one eighth.
const LIMIT_GROWTH: u64 = 8;

/// Makes a thread the watched one.
#[derive(Debug)]
pub(super) struct Watch {
    events: Option<ThreadWatch>,
    thread: Arc<AtomicU32>,
}

impl Watch {
    /// Watches the calling thread.
    pub(super) fn follow_current_thread(&self) {
        self.thread.store(process::thread_id(), Ordering::Relaxed);
        if let Some(events) = &self.events {
            events.follow_current_thread();
        }
    }
}

/// A reply above the limit so far.
struct Candidate {
    id: u64,
    at: Instant<Realtime>,
    rtt: Nanos,
    parts: DelayParts,
    /// The hypervisor has reported stolen time in this turn.
    stolen: bool,
    /// The thread handled another probe within the window.
    is_shared: bool,
    complete: bool,
}

/// Divides spikes. See the module documentation.
pub(super) struct Explainer {
    recorder: Option<FlightRecorder>,
    /// Tracepoints that the kernel lacks.
    missing: Vec<String>,
    /// Reason for a missing recorder, and missing tracepoints.
    pub(super) notes: Vec<Warning>,
    thread: Arc<AtomicU32>,
    /// Limit from the command line.
    above: Option<Nanos>,
    /// Limit so far, and the number of replies that it is computed from.
    limit: (Option<Nanos>, u64),
    /// Recent events in order of time.
    events: Vec<KernelEvent>,
    /// Events before this instant are incomplete.
    complete_from: Option<Instant<Monotonic>>,
    candidates: Vec<Candidate>,
    usual: UsualDelay,
    /// Run-queue wait of the thread and stolen time of all processors at the last turn.
    before: Counters,
    pub(super) events_lost: u64,
}

/// Counters of /proc.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    /// Run-queue wait of the watched thread in nanoseconds.
    waited: Option<u64>,
    /// Ticks that the hypervisor took.
    stolen: u64,
}

impl Explainer {
    /// Starts recording, or uses /proc if that is not possible here.
    pub(super) fn start(above: Option<Nanos>) -> Self {
        let (mut notes, mut missing) = (Vec::new(), Vec::new());
        let recorder = match FlightRecorder::start() {
            Ok(recorder) => {
                missing = recorder.missing().to_vec();
                if !missing.is_empty() {
                    notes.push(Warning::MissingTracepoints(missing.join(", ")));
                }
                Some(recorder)
            }
            Err(error) => {
                notes.push(Warning::NoKernelEvents(error.to_string()));
                if let BpfError::NoTracepoints(names) = error {
                    missing = names;
                }
                None
            }
        };
        Self {
            recorder,
            missing,
            notes,
            thread: Arc::default(),
            above,
            limit: (above, 0),
            events: Vec::new(),
            complete_from: None,
            candidates: Vec::new(),
            usual: UsualDelay::default(),
            before: Counters::default(),
            events_lost: 0,
        }
    }

    /// The handle for the timing thread.
    pub(super) fn watch(&mut self) -> Watch {
        let events = match self.recorder.as_ref().map(FlightRecorder::watch).transpose() {
            Ok(events) => events,
            Err(error) => {
                self.notes.push(Warning::NoKernelEvents(error.to_string()));
                self.recorder = None;
                None
            }
        };
        Watch { events, thread: Arc::clone(&self.thread) }
    }

    /// Divides the replies of a turn. `samples` have arrived before the call, `bridge` converts
    /// their timestamps, and `delays` includes theirs.
    pub(super) fn turn(&mut self, samples: &[Sample], bridge: &Pairing, delays: &Distribution) {
        let (waited, stolen) = self.read_counters();
        self.read_events(bridge.mono);
        let limit = self.current_limit(delays);
        let mut ordinary = ORDINARY_PER_TURN;
        let first_new = self.candidates.len();
        for (n, sample) in samples.iter().enumerate() {
            let Some(rtt) = round_trip(sample) else { continue };
            let is_spike = limit.is_none_or(|limit| rtt > limit);
            if !is_spike && ordinary == 0 {
                continue;
            }
            let window = window(sample, bridge);
            let parts = self.divide(sample, &window);
            if is_spike {
                let complete = self.complete_from.is_none_or(|from| from <= window.start);
                let is_shared = is_shared(samples, n);
                let (id, at) = (sample.id, sample.tx.app);
                let candidate = Candidate { id, at, rtt, parts, stolen, is_shared, complete };
                self.candidates.push(candidate);
            } else {
                ordinary -= 1;
                self.usual.add(&parts);
            }
        }
        if self.recorder.is_none() {
            charge_wait(&mut self.candidates[first_new..], waited);
        }
        if self.candidates.len() > MAX_CANDIDATES {
            self.candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.rtt));
            self.candidates.truncate(MAX_CANDIDATES / 2);
        }
    }

    /// Returns the spikes above the final limit, after each was passed to `each`, by id.
    pub(super) fn finish(&mut self, delays: &Distribution, each: &mut dyn FnMut(&Spike)) -> Spikes {
        let limit = self.above.or_else(|| spike_limit(delays, DEVIATIONS));
        let mut count = 0;
        delays.for_each(|value, n| {
            if limit.is_some_and(|limit| value > limit) {
                count += n;
            }
        });
        let usual = CauseKind::ALL.map(|kind| (kind, self.usual.mean(kind).0));
        let mut spikes = Spikes {
            above_ns: limit.map(|limit| limit.0),
            rule: match self.above {
                Some(_) => "given".to_owned(),
                None => format!("median + {DEVIATIONS} MAD"),
            },
            source: if self.recorder.is_some() { "tp_btf" } else { "proc" }.to_owned(),
            missing: self.missing.clone(),
            events_lost: self.events_lost,
            count,
            usual_ns: usual.into_iter().filter(|(_, ns)| *ns > 0).collect(),
            ..Spikes::default()
        };
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.sort_by_key(|candidate| candidate.id);
        for mut candidate in candidates {
            if limit.is_none_or(|limit| candidate.rtt <= limit) {
                continue;
            }
            // Otherwise the thread's own work on other probes would count as unexplained.
            if !candidate.is_shared {
                let by = if candidate.stolen { "steal" } else { "steal or firmware" };
                self.usual.mark_unexplained(&mut candidate.parts, by);
            }
            let Some(cause) = self.usual.main_cause(&candidate.parts).cloned() else { continue };
            let spike = Spike {
                id: candidate.id,
                at_ns: candidate.at.as_nanos(),
                rtt_ns: candidate.rtt.0,
                cause,
                parts: SpikePart::of(&candidate.parts),
                page_faults: candidate.parts.page_faults,
                complete: candidate.complete,
            };
            each(&spike);
            spikes.add(spike);
        }
        spikes.finish();
        spikes
    }

    /// The limit so far; `None` while there are too few replies for one.
    fn current_limit(&mut self, delays: &Distribution) -> Option<Nanos> {
        let (limit, count) = self.limit;
        let is_due = delays.count() >= count + (count / LIMIT_GROWTH).max(1);
        if self.above.is_none() && is_due {
            self.limit = (spike_limit(delays, DEVIATIONS), delays.count());
            return self.limit.0;
        }
        limit
    }

    fn divide(&self, sample: &Sample, window: &DelayWindow) -> DelayParts {
        let thread = self.thread.load(Ordering::Relaxed);
        let first = self.events.partition_point(|event| event.at < window.start);
        let end = self.events.partition_point(|event| event.at <= window.end);
        let mut parts = DelayParts::divide(window, thread, &self.events[first..end.max(first)]);
        if let Some(remote) = sample.remote {
            let far_end = Cause::of(CauseKind::FarEnd);
            parts.transfer(CauseKind::InFlight, far_end, remote.tx - remote.rx);
        }
        parts
    }

    /// Takes the events since the last turn, and drops old ones.
    fn read_events(&mut self, now: Instant<Monotonic>) {
        let Some(recorder) = &mut self.recorder else { return };
        let Self { events, complete_from, events_lost, .. } = self;
        let keep_from = now - MAX_EVENT_AGE;
        let old = events.partition_point(|event| event.at < keep_from);
        events.drain(..old.max(events.len().saturating_sub(MAX_EVENTS)));
        let known = events.len();
        recorder.read(&mut |event| events.push(event));
        if recorder.lost() != *events_lost {
            // All overwritten events precede the first event read.
            *complete_from = events[known..].iter().map(|event| event.at).min();
            *events_lost = recorder.lost();
        }
        // Linear: the logs of few processors, each in order.
        events.sort_by_key(|event| event.at);
    }

    /// Returns the run-queue wait since the last turn, and whether the hypervisor has taken time.
    fn read_counters(&mut self) -> (Nanos, bool) {
        let thread = self.thread.load(Ordering::Relaxed);
        let now =
            Counters { waited: activity::run_queue_wait(thread), stolen: activity::stolen_ticks() };
        let waited = now.waited.zip(self.before.waited).and_then(|(now, old)| now.checked_sub(old));
        let stolen = now.stolen > self.before.stolen && self.before.stolen > 0;
        self.before = now;
        (Nanos(i64::try_from(waited.unwrap_or(0)).unwrap_or(i64::MAX)), stolen)
    }
}

/// Moves the thread's own time to run-queue wait, starting with the longest reply.
fn charge_wait(candidates: &mut [Candidate], mut waited: Nanos) {
    let mut longest: Vec<_> = candidates.iter_mut().collect();
    longest.sort_by_key(|candidate| std::cmp::Reverse(candidate.rtt));
    for candidate in longest {
        let waiting = Cause::of(CauseKind::Waiting);
        let moved = candidate.parts.transfer(CauseKind::Own, waiting, waited);
        waited -= moved;
    }
}

/// Whether the thread sent or received another probe between the kernel's receipt of reply `n` and
/// its own, or before the probe was sent.
fn is_shared(samples: &[Sample], n: usize) -> bool {
    let Sample { tx, rx: Some(rx), .. } = samples[n] else { return false };
    let is_own = |at: Instant<Realtime>| {
        let is_receiving = rx.kernel.is_some_and(|arrived| arrived < at && at < rx.app);
        is_receiving || tx.kernel.is_some_and(|sent| tx.app < at && at < sent)
    };
    let near = n.saturating_sub(SHARED_RANGE)..(n + SHARED_RANGE).min(samples.len());
    let mut others = near.filter(|other| *other != n).map(|other| &samples[other]);
    others.any(|other| is_own(other.tx.app) || other.rx.is_some_and(|rx| is_own(rx.app)))
}

/// The round-trip delay of a reply in time.
fn round_trip(sample: &Sample) -> Option<Nanos> {
    let rx = sample.rx.filter(|_| sample.state == State::Received)?;
    Some(rx.app - sample.tx.app)
}

/// The window of a reply on CLOCK_MONOTONIC.
fn window(sample: &Sample, bridge: &Pairing) -> DelayWindow {
    let mono = |at: Instant<Realtime>| bridge.mono + (at - bridge.real);
    let end = sample.rx.map_or(sample.tx.app, |rx| rx.app);
    DelayWindow {
        start: mono(sample.tx.app),
        sent: sample.tx.kernel.map(mono),
        arrived: sample.rx.and_then(|rx| rx.kernel).map(mono),
        end: mono(end),
    }
}
