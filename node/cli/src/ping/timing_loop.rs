//! The timing loop: connects the pinger to a socket and the clocks. Runs on its own thread without
//! allocation, locks or file output. Results leave through bounded rings; a full ring is counted
//! and never blocks.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use dwell_engine::pinger::{Counts, Pinger};
use dwell_engine::protocol::{MAX_HANDSHAKE_LEN, Protocol, is_warm_up};
use dwell_engine::remote_drops::RemoteDrops;
use dwell_io::clock::{monotonic, realtime};
use dwell_io::pacer::{MAX_SLEEP, SPIN_LEAD, WaitMode, WaitStep};
use dwell_io::port::{Arrival, Connection, Notice, Port, SendError, Sent, Wait};
use dwell_sample::{Hop, RxStamps, Sample, TimestampSource, TxPoint, WarmUpSession};
use dwell_units::{Instant, Monotonic, Nanos};
use dwell_wire::icmp::Family;
use dwell_wire::telemetry::MAX_SLOTS;
use rtrb::Producer;

use super::icmp_error::NetworkError;

/// Default of [`LoopOptions::stop_grace`].
pub(super) const STOP_GRACE: Nanos = Nanos::from_millis(200);

/// Receive calls between two clock reads while spinning.
const SPIN_BATCH: usize = 8;

/// Maximum number of messages received before a probe is declared lost, so that a flood of other
/// messages cannot stall the loop.
const MAX_RECEIVES_BEFORE_LOSS: usize = 65_536;

/// Interval between reads of the error queue without replies.
const DRAIN_INTERVAL: Nanos = Nanos::from_millis(1);

/// Maximum number of error-queue entries per read.
const NOTICE_BATCH: usize = 32;

/// Maximum number of distinct network errors to report; others are only counted.
const MAX_ERROR_KINDS: usize = 8;

/// State shared between the timing thread and the main thread.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Set to end the run early.
    pub(super) stop: Arc<AtomicBool>,
    /// Samples dropped because the ring was full.
    pub(super) dropped: AtomicU64,
}

/// How far the timing loop of one client is, for the thread that empties its ring.
#[derive(Debug)]
pub(super) struct ClientProgress {
    /// The next id to be sent; warm-up ids are the upper half.
    pub(super) next_id: AtomicU64,
    /// A time on CLOCK_MONOTONIC in nanoseconds before which no undecided probe was intended. Stored
    /// with release ordering after the samples of all others entered the ring.
    pub(super) settled: AtomicI64,
}

impl Default for ClientProgress {
    fn default() -> Self {
        Self { next_id: AtomicU64::new(0), settled: AtomicI64::new(i64::MIN) }
    }
}

/// An event to report during the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunEvent {
    /// ICMP or the kernel reports an undelivered probe. Sent once per kind of error.
    Unreachable(NetworkError),
    /// A probe could not be sent.
    SendFailed(SendError),
    /// TTL or hop limit of a reply, if requested.
    Ttl {
        /// Id of the probe.
        id: u64,
        /// TTL on arrival.
        ttl: u8,
    },
    /// Warm-up is over. Carries the deepest timestamp sources seen in it, if known.
    Counting {
        /// For transmission; `None` if nothing was sent.
        tx: Option<TimestampSource>,
        /// For reception; `None` without a reply.
        rx: Option<TimestampSource>,
        /// Number of warm-up probes sent.
        warm_up_sent: u64,
    },
}

/// Relay delays of one probe and its reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct HopDelays {
    hops: [Hop; MAX_SLOTS],
    used: usize,
}

impl HopDelays {
    fn of(hops: &[Hop]) -> Self {
        let mut path = Self { hops: [Hop::default(); MAX_SLOTS], used: hops.len() };
        path.hops[..hops.len()].copy_from_slice(hops);
        path
    }

    pub(super) fn hops(&self) -> &[Hop] {
        &self.hops[..self.used]
    }
}

/// Options of the loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoopOptions {
    /// Never sleep.
    pub(super) busy_poll: bool,
    /// Kernel transmit timestamps were requested.
    pub(super) tx_stamps: bool,
    /// End after the warm-up if it had no kernel timestamp.
    pub(super) stamps_required: bool,
    /// How probes wait for their departure.
    pub(super) wait_mode: WaitMode,
    /// A run without an end: skip probes that are overdue by more than this time, and report which
    /// probes are decided. `None` sends all probes.
    pub(super) max_overdue: Option<Nanos>,
    /// After a stop, replies in flight still count for this time. Probes without one are discarded, or
    /// lost if their time-out is shorter.
    pub(super) stop_grace: Nanos,
}

/// Limits that the probes of a stream respect.
pub(crate) trait SendLimits: Send + Sync {
    /// Whether probes may be sent to an address.
    fn allows(&self, address: IpAddr) -> bool;

    /// Takes room for packets. Returns false if they may not be sent now.
    fn take(&self, now: Instant<Monotonic>, packets: u32) -> bool;
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoopResult {
    pub(super) counts: Counts,
    /// Probes still in flight when the run was stopped.
    pub(super) abandoned: u64,
    /// Number of network errors about probes.
    pub(super) icmp_errors: u64,
    /// The first network error.
    pub(super) first_error: Option<NetworkError>,
    /// Packets that the reflector's socket dropped during the measurement, if replies report it.
    pub(super) far_drops: Option<u64>,
    /// Required kernel timestamps are missing.
    pub(super) unstamped: bool,
    /// Errno of a permanent socket failure; 0 is the end of a stream.
    pub(super) broken: Option<i32>,
    /// Stream bytes that belonged to no message.
    pub(super) stray_bytes: Option<u64>,
    /// Far-end sequence numbers during the warm-up.
    pub(super) warm_up: WarmUpSession,
    /// Connection at the end.
    pub(super) connection: Option<Connection>,
}

impl LoopResult {
    /// Adds the result of another client. The sequence numbers and the connection stay those of the
    /// first; `broken` stays only if both clients failed.
    pub(super) fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.abandoned += other.abandoned;
        self.icmp_errors += other.icmp_errors;
        self.first_error = self.first_error.or(other.first_error);
        self.far_drops = self.far_drops.max(other.far_drops);
        self.unstamped &= other.unstamped;
        self.broken = self.broken.and(other.broken);
        self.stray_bytes = self.stray_bytes.zip(other.stray_bytes).map(|(a, b)| a + b);
    }
}

/// A pinger connected to a socket.
pub(super) struct Driver<'a, P, Q> {
    pub(super) port: P,
    pub(super) pinger: Pinger<Q>,
    pub(super) options: LoopOptions,
    pub(super) samples: Producer<Sample>,
    pub(super) events: Producer<RunEvent>,
    /// Destination of relay delays, if requested.
    pub(super) paths: Option<Producer<HopDelays>>,
    pub(super) shared: &'a Shared,
    pub(super) progress: &'a ClientProgress,
    pub(super) feedback: Feedback,
    /// Address family of the target, for the names of ICMP errors.
    pub(super) family: Family,
    /// `None`: unlimited.
    pub(super) limits: Option<&'a dyn SendLimits>,
}

/// State learned from the error queue and from replies.
#[derive(Debug, Default)]
pub(super) struct Feedback {
    tx: Option<TxPoint>,
    rx: Option<TimestampSource>,
    icmp_errors: u64,
    /// The first error of each kind.
    errors: [Option<NetworkError>; MAX_ERROR_KINDS],
    send_failures: u64,
    far_drops: RemoteDrops,
}

impl Feedback {
    /// Counts an error. Returns whether it is the first of its kind.
    fn note_error(&mut self, error: NetworkError) -> bool {
        self.icmp_errors += 1;
        for slot in &mut self.errors {
            match slot {
                Some(known) if known.is_like(&error) => return false,
                Some(_) => {}
                None => {
                    *slot = Some(error);
                    return true;
                }
            }
        }
        false
    }
}

impl<P: Port, Q: Protocol> Driver<'_, P, Q> {
    /// Runs until the state of every probe is final, or until stopped.
    pub(super) fn run(mut self, buffer: &mut [u8]) -> LoopResult {
        let mut ended = LoopResult::default();
        let mut drained = monotonic();
        let mut warm = true;
        let mut give_up = None;
        loop {
            let mut now = monotonic();
            let received = match self.receive_pending(now, buffer) {
                Ok(received) => received,
                Err(error) => {
                    ended.broken = Some(error.raw_os_error().unwrap_or(0));
                    break;
                }
            };
            self.pinger.expire(now, &mut deliver(&mut self.samples, self.shared));
            if received {
                // Receiving may have taken long; a probe sent next must get its full time-out.
                now = monotonic();
            }
            // Just before the first counted probe is due, so that it leaves on time.
            let soon = Some(now + SPIN_LEAD);
            if warm && !self.pinger.is_warming_up() && self.pinger.departure() <= soon {
                warm = false;
                ended.unstamped = self.begin_counting() && self.options.stamps_required;
            }
            if self.pinger.wake().is_none() {
                break;
            }
            if give_up.is_none() && self.shared.stop.load(Ordering::Relaxed) {
                self.pinger.stop();
                give_up = Some(now.saturating_add(self.options.stop_grace));
            }
            if ended.unstamped || give_up.is_some_and(|until| until <= now) {
                break;
            }
            if let Some(max_overdue) = self.options.max_overdue {
                self.pinger.skip_overdue(now, max_overdue);
                self.progress.settled.store(self.pinger.settled().as_nanos(), Ordering::Release);
            }
            self.send_due(now);
            match self.await_reply(now, buffer) {
                Ok(true) if self.options.tx_stamps && !warm && now - drained <= DRAIN_INTERVAL => {
                    self.read_awaited_stamps();
                }
                Ok(true) if self.options.tx_stamps => {
                    self.read_error_queue();
                    drained = now;
                }
                Ok(true) => {}
                Ok(false) if now - drained > DRAIN_INTERVAL => {
                    self.read_error_queue();
                    drained = now;
                }
                Ok(false) => {}
                Err(error) => {
                    ended.broken = Some(error.raw_os_error().unwrap_or(0));
                    break;
                }
            }
        }
        self.close_session();
        self.read_error_queue();
        let out = &mut deliver(&mut self.samples, self.shared);
        if ended.broken.is_some() {
            self.pinger.lose_outstanding(monotonic(), out);
        }
        ended.abandoned = self.pinger.abandon(out);
        self.progress.settled.store(i64::MAX, Ordering::Release);
        ended.counts = self.pinger.counts();
        ended.icmp_errors = self.feedback.icmp_errors;
        ended.first_error = self.feedback.errors[0];
        ended.stray_bytes = self.port.stray_bytes();
        ended.connection = self.port.connection();
        ended.warm_up = self.pinger.protocol().warm_up_session();
        ended.far_drops = self.feedback.far_drops.total();
        ended
    }

    /// Closes the session if the protocol has one. The reflector ends it by itself if the message is
    /// lost.
    fn close_session(&mut self) {
        let mut message = [0; MAX_HANDSHAKE_LEN];
        let len = self.pinger.write_close(&mut message);
        if len > 0 {
            let _ = self.port.send(&message[..len]);
        }
    }

    /// Ends the warm-up, which decides the timestamp that replies wait for. Returns whether no
    /// timestamp is available.
    fn begin_counting(&mut self) -> bool {
        self.read_error_queue();
        let counts = self.pinger.counts();
        let untried = counts.warm_up_sent == 0 && self.options.tx_stamps;
        // Without warm-up probes, expect a timestamp; a missing one is counted.
        self.pinger.await_stamp(self.feedback.tx.or(untried.then_some(TxPoint::Kernel)));
        let tx = match self.feedback.tx {
            Some(TxPoint::Hw) => Some(TimestampSource::Hw),
            Some(_) => Some(TimestampSource::KernelSw),
            None => (!untried).then_some(TimestampSource::User),
        };
        let unanswered = counts.warm_up_received == 0 && self.options.tx_stamps;
        let rx = self.feedback.rx.or((!unanswered).then_some(TimestampSource::User));
        let _ = self.events.push(RunEvent::Counting { tx, rx, warm_up_sent: counts.warm_up_sent });
        (tx, rx) == (Some(TimestampSource::User), Some(TimestampSource::User))
    }

    /// Sends a probe if one is due.
    fn send_due(&mut self, now: Instant<Monotonic>) {
        if self.pinger.departure().is_none_or(|due| now < due) {
            return;
        }
        if self.limits.is_some_and(|limits| !limits.take(now, 1)) {
            self.pinger.skip_departure();
            return;
        }
        let mut out = deliver(&mut self.samples, self.shared);
        let Some(token) = self.pinger.transmit(now, realtime(), &mut out) else { return };
        self.progress.next_id.store(self.pinger.next_id(), Ordering::Relaxed);
        match self.port.send(self.pinger.message()) {
            // Keep work between the send call and the wait short: if both ends share a core, the
            // far end runs only while we wait.
            Ok(Sent { app, key }) => self.pinger.sent(token, app, key),
            Err(error) => {
                self.pinger.send_failed(token, realtime(), monotonic(), &mut out);
                if self.feedback.send_failures == 0 {
                    let _ = self.events.push(RunEvent::SendFailed(error));
                }
                self.feedback.send_failures += 1;
            }
        }
    }

    /// Receives pending messages before a probe is declared lost: this thread may have been
    /// delayed, and the reply may have been on time. Returns whether there were any.
    fn receive_pending(&mut self, now: Instant<Monotonic>, buffer: &mut [u8]) -> io::Result<bool> {
        let mut received = false;
        for _ in 0..MAX_RECEIVES_BEFORE_LOSS {
            if !self.pinger.is_timing_out(now) {
                break;
            }
            let Some(arrival) = self.port.receive(buffer, Wait::No)? else { break };
            self.process_arrival(&arrival, buffer);
            received = true;
        }
        Ok(received)
    }

    /// Waits for a reply until the next event is due. Returns whether one arrived.
    fn await_reply(&mut self, now: Instant<Monotonic>, buffer: &mut [u8]) -> io::Result<bool> {
        let Some(wake) = self.pinger.wake() else { return Ok(false) };
        let departure = self.pinger.departure();
        let woken = WaitMode::CatchUp.rest(now, wake);
        let leaving = departure.map_or(woken, |due| self.options.wait_mode.rest(now, due));
        let asleep_until = match (self.options.busy_poll, woken, leaving) {
            (false, WaitStep::Sleep(wake), WaitStep::Sleep(leave)) => Some(wake.min(leave)),
            // A departure is near, or busy polling.
            _ => None,
        };
        let Some(asleep_until) = asleep_until else {
            for _ in 0..SPIN_BATCH {
                if let Some(arrival) = self.port.receive(buffer, Wait::No)? {
                    self.process_arrival(&arrival, buffer);
                    return Ok(true);
                }
                if departure.is_some_and(|due| due <= monotonic()) {
                    return Ok(false);
                }
            }
            return Ok(false);
        };
        let arrival = if departure.is_none() && wake - now > MAX_SLEEP {
            // A single blocking call: the fewest system calls.
            self.port.receive(buffer, Wait::AtMost(MAX_SLEEP))?
        } else {
            match self.port.receive(buffer, Wait::No)? {
                None => {
                    self.port.sleep_until(asleep_until);
                    self.port.receive(buffer, Wait::No)?
                }
                some => some,
            }
        };
        if let Some(arrival) = &arrival {
            self.process_arrival(arrival, buffer);
        }
        Ok(arrival.is_some())
    }

    fn process_arrival(&mut self, arrival: &Arrival, buffer: &[u8]) {
        let deepest = match arrival.rx {
            RxStamps { hw: Some(_), .. } => Some(TimestampSource::Hw),
            RxStamps { kernel: Some(_), .. } => Some(TimestampSource::KernelSw),
            _ => None,
        };
        self.feedback.rx = self.feedback.rx.max(deepest);
        let out = &mut deliver(&mut self.samples, self.shared);
        let message = &buffer[..arrival.len];
        // The pinger counts messages that are not replies of this run.
        let answered = self.pinger.receive(message, arrival.channel, arrival.rx, monotonic(), out);
        if let (Ok(id), Some(counter)) = (answered, self.pinger.protocol().socket_drops()) {
            if is_warm_up(id) {
                self.feedback.far_drops.start_at(counter);
            } else {
                self.feedback.far_drops.note(counter);
            }
        }
        let Some(id) = answered.ok().filter(|id| !is_warm_up(*id)) else { return };
        if let Some(ttl) = arrival.ttl {
            let _ = self.events.push(RunEvent::Ttl { id, ttl });
        }
        if let Some(paths) = &mut self.paths
            && paths.push(HopDelays::of(self.pinger.protocol().hops())).is_err()
        {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reads the error queue until no reply waits for a timestamp, or the queue is empty. One call
    /// per timestamp: a call to an empty queue costs about as much as one that returns an entry.
    fn read_awaited_stamps(&mut self) {
        for _ in 0..NOTICE_BATCH {
            let awaited = self.pinger.awaiting_stamps().min(NOTICE_BATCH);
            if awaited == 0 || self.read_notices(awaited) < awaited {
                return;
            }
        }
    }

    fn read_error_queue(&mut self) {
        self.read_notices(NOTICE_BATCH);
    }

    /// Reads up to `limit` entries of the error queue. Returns the number of notices.
    fn read_notices(&mut self, limit: usize) -> usize {
        let Self { port, pinger, feedback, samples, events, shared, family, .. } = self;
        let mut out = deliver(samples, shared);
        let mut notices = 0;
        let mut take = |notice| match notice {
            Notice::TxStamp { key, stamp } => {
                if stamp.point() != TxPoint::Sched && feedback.tx != Some(TxPoint::Hw) {
                    feedback.tx = Some(stamp.point());
                    if stamp.point() == TxPoint::Hw {
                        // It follows the software timestamp of its packet. Decides without warm-up,
                        // from the second reply on.
                        pinger.await_stamp(Some(TxPoint::Hw));
                    }
                }
                pinger.tx_stamp(key, stamp, &mut out);
            }
            error @ Notice::Error { .. } => {
                if let Some(error) = NetworkError::of(&error, *family)
                    && feedback.note_error(error)
                {
                    let _ = events.push(RunEvent::Unreachable(error));
                }
            }
        };
        port.notices(limit, &mut |notice| {
            notices += 1;
            take(notice);
        });
        notices
    }
}

/// Pushes samples into the ring; counts those dropped.
fn deliver<'a>(
    samples: &'a mut Producer<Sample>,
    shared: &'a Shared,
) -> impl FnMut(Sample) + use<'a> {
    |sample| {
        if samples.push(sample).is_err() {
            shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
