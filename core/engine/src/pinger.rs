//! The pinger decides when probes leave, matches replies to probes, and reports the outcome of each
//! probe.
//!
//! The caller owns the socket and the clocks. It asks [`Pinger::wake`] how long to wait, calls
//! [`Pinger::transmit`] when a probe is due, passes in replies, kernel timestamps and the current
//! time, and receives a [`Sample`] as soon as the outcome of a probe is known. Spurious calls are
//! harmless. Nothing allocates after construction.
//!
//! Probes are matched by id, never by order: a late or duplicate reply affects only its own probe.
//! (The master of Roedlach/Vock matches by order, so one late reply shifts all later cycles.)

mod config;
mod remote_clock;
mod slot;

pub use config::{Config, Counts, ProbeSchedule, Rejected};

use std::collections::VecDeque;

use dwell_sample::{Remote, RxStamps, Sample, State, TxPoint, TxStamp};
use dwell_units::{Instant, Monotonic, Nanos, Realtime};

use crate::protocol::{Protocol, Reject, Reply, WireId, is_warm_up};
use remote_clock::RemoteClock;
use slot::{ProbeState, Slot};

/// Maximum time a reply waits for the kernel timestamp of its probe. After that it is reported
/// without.
const STAMP_TIMEOUT: Nanos = Nanos::from_millis(20);

/// Maximum number of replies that wait for a timestamp. When full, the oldest is reported without.
const MAX_AWAITING_STAMP: usize = 1_024;

/// Wait for duplicates after the last reply, in multiples of the longest round-trip delay so far.
/// It is limited by the bounds below and by the time-out.
const LINGER_ROUND_TRIPS: i64 = 4;
const MIN_LINGER: Nanos = Nanos::from_millis(1);
const MAX_LINGER: Nanos = Nanos::from_millis(50);

/// Maximum rounding error of a timestamp that was written into a probe and returned in its reply.
const MAX_ROUNDING_ERROR: Nanos = Nanos(1);

/// Token of one send action, created by [`Pinger::transmit`] and consumed by [`Pinger::sent`] or
/// [`Pinger::send_failed`]. It cannot be copied, so each probe gets exactly one send timestamp.
#[derive(Debug)]
#[must_use = "pass it to Pinger::sent or Pinger::send_failed"]
pub struct TxToken {
    id: u64,
}

impl TxToken {
    /// Id of the probe.
    pub fn id(&self) -> u64 {
        self.id
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Pinger<P> {
    protocol: P,
    config: Config,
    message: Box<[u8]>,
    /// Length of the last message written.
    message_len: usize,
    slots: Box<[Slot]>,
    /// Probe ids by kernel timestamp key.
    keys: Box<[u64]>,
    /// Replies that wait for a timestamp, and when each is reported without.
    awaiting_stamp: VecDeque<(u64, Instant<Monotonic>)>,
    /// Timestamp point that a reply waits for.
    awaited: Option<TxPoint>,
    /// Id of the next probe. Warm-up ids end just below 0 (wrapping).
    next_id: u64,
    /// All probes before this id are resolved.
    oldest: u64,
    next_departure: Option<Instant<Monotonic>>,
    last_departure: Option<Instant<Monotonic>>,
    end: Option<Instant<Monotonic>>,
    /// A time at which a counted probe of the open loop would be due.
    phase: Option<Instant<Monotonic>>,
    stopped: bool,
    /// Longest round-trip delay of a reply within the time-out.
    longest: Nanos,
    /// Set once all probes are resolved: end of the wait for duplicates.
    linger: Option<Instant<Monotonic>>,
    highest_received: Option<u64>,
    /// Checks the timestamps of the reflector.
    remote_clock: RemoteClock,
    counts: Counts,
}

impl<P: Protocol> Pinger<P> {
    /// Creates a pinger whose first probe (of the warm-up, if any) is due at `start`.
    pub fn new(protocol: P, config: Config, start: Instant<Monotonic>) -> Self {
        Self::with_window(protocol, config, start, config.window())
    }

    /// Like [`Self::new`], but remembers at most `window` probes, in flight or recently resolved,
    /// rounded up to a power of two. A probe that does not fit is declared lost early.
    pub fn with_window(
        protocol: P,
        config: Config,
        start: Instant<Monotonic>,
        window: usize,
    ) -> Self {
        let window = window.clamp(1, Config::MAX_WINDOW).next_power_of_two();
        let first = 0_u64.wrapping_sub(u64::from(config.warm_up));
        let message = vec![0; protocol.capacity()].into_boxed_slice();
        Self {
            protocol,
            config,
            message,
            message_len: 0,
            slots: vec![Slot::FREE; window].into_boxed_slice(),
            keys: vec![u64::MAX / 2; window].into_boxed_slice(),
            // A reply waits in its slot.
            awaiting_stamp: VecDeque::with_capacity(MAX_AWAITING_STAMP.min(window)),
            awaited: None,
            next_id: first,
            oldest: first,
            next_departure: Some(start),
            last_departure: None,
            end: None,
            phase: None,
            stopped: false,
            longest: Nanos::ZERO,
            linger: None,
            highest_received: None,
            remote_clock: RemoteClock::new(),
            counts: Counts::default(),
        }
    }

    /// Moves the first departure. Must be called before the first probe is sent.
    pub fn start_at(&mut self, start: Instant<Monotonic>) {
        debug_assert!(self.last_departure.is_none(), "start_at is called before the first probe");
        self.next_departure = Some(start);
    }

    /// Moves the first counted departure to the next one of a schedule in which a probe is due at
    /// `phase`: a run that replaces another one continues its schedule. Open loop with a warm-up only.
    pub fn keep_phase(&mut self, phase: Instant<Monotonic>) {
        self.phase = Some(phase);
    }

    /// Postpones the probe that is due, which is never sent; one of the warm-up by at most a second.
    pub fn skip_departure(&mut self) {
        let wait = self.config.skipped_time(self.is_warming_up());
        self.next_departure = self.next_departure.map(|due| due.saturating_add(wait));
    }

    /// Counters so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The protocol and its state.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Writes the request that closes the session, as [`Protocol::write_close`].
    pub fn write_close(&mut self, message: &mut [u8]) -> usize {
        self.protocol.write_close(message)
    }

    /// Number of probes that are not resolved yet.
    pub fn outstanding(&self) -> u64 {
        self.counts.sent - self.counts.received - self.counts.lost - self.counts.late
    }

    /// One more than the highest id sent.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Whether the next probe belongs to the warm-up.
    pub fn is_warming_up(&self) -> bool {
        is_warm_up(self.next_id)
    }

    /// Delays the report of each reply until its probe's timestamp at `point` has arrived, for at
    /// most 20 ms. `None` (the default) does not wait.
    pub fn await_stamp(&mut self, point: Option<TxPoint>) {
        self.awaited = point;
    }

    /// A time before which no undecided probe was intended: all samples of earlier probes have been
    /// returned, except those of replies later than the time-out.
    pub fn settled(&self) -> Instant<Monotonic> {
        let in_flight = (self.oldest != self.next_id).then(|| self.slot(self.oldest).intended);
        let stamped = self.awaiting_stamp.iter().map(|(id, _)| self.slot(*id).intended).min();
        let times = [in_flight, stamped, self.next_departure].into_iter().flatten();
        times.min().unwrap_or(Instant::from_nanos(i64::MAX))
    }

    /// Skips the departures that are more than `max_delay` overdue, after a stall of the caller. They
    /// are never sent, so that a stall causes no burst. Open loop only. Returns their number.
    pub fn skip_overdue(&mut self, now: Instant<Monotonic>, max_delay: Nanos) -> u64 {
        let ProbeSchedule::Open { interval } = self.config.departures else { return 0 };
        let Some(due) = self.next_departure.filter(|due| now - *due > max_delay) else { return 0 };
        let skipped = (now - due).0 / interval.0.max(1);
        self.next_departure = Some(due.saturating_add(interval.saturating_mul(skipped)));
        skipped as u64
    }

    /// Time at which the next probe is due; `None` if none is scheduled until a reply or time-out.
    pub fn departure(&self) -> Option<Instant<Monotonic>> {
        self.next_departure
    }

    /// Latest time for the next call if nothing arrives: the next departure, time-out, end of the
    /// wait for a timestamp, or end of the wait for duplicates after the last reply. `None` when
    /// the run is over.
    pub fn wake(&self) -> Option<Instant<Monotonic>> {
        let timeout = (self.oldest != self.next_id).then(|| self.slot(self.oldest).deadline);
        let stamp = self.awaiting_stamp.front().map(|(_, until)| *until);
        [self.next_departure, timeout, stamp, self.linger].into_iter().flatten().min()
    }

    /// Writes the message of the next probe if one is due, and returns the token of the send
    /// action. The message is available from [`Pinger::message`]. The time-out starts at `now`. All
    /// state is updated here, before the probe leaves, so that its reply can be handled at any
    /// time.
    pub fn transmit(
        &mut self,
        now: Instant<Monotonic>,
        stamp: Instant<Realtime>,
        out: &mut impl FnMut(Sample),
    ) -> Option<TxToken> {
        let intended = self.next_departure.filter(|due| *due <= now)?;
        if self.ends_before(intended) {
            self.next_departure = None;
            return None;
        }
        let id = self.next_id;
        self.make_room(id, out);
        self.message_len = self.protocol.write(id, stamp, &mut self.message);
        *self.slot_mut(id) = Slot {
            id,
            status: ProbeState::InFlight,
            deadline: now.saturating_add(self.config.timeout),
            intended,
            written: stamp,
            ..Slot::FREE
        };
        if is_warm_up(id) {
            self.counts.warm_up_sent += 1;
        } else {
            self.counts.sent += 1;
        }
        self.advance(id, intended, now);
        Some(TxToken { id })
    }

    /// The message of the last [`Pinger::transmit`].
    pub fn message(&self) -> &[u8] {
        &self.message[..self.message_len]
    }

    /// Reports that the probe was sent. `app` is the time directly before the send call, `key` the
    /// key of its kernel timestamps.
    pub fn sent(&mut self, token: TxToken, app: Instant<Realtime>, key: Option<u32>) {
        let TxToken { id } = token;
        let slot = self.slot_mut(id);
        slot.tx.app = app;
        slot.key = key;
        if let Some(key) = key {
            let index = key as usize & (self.keys.len() - 1);
            self.keys[index] = id;
        }
    }

    /// Reports that the send call failed permanently.
    pub fn send_failed(
        &mut self,
        token: TxToken,
        app: Instant<Realtime>,
        now: Instant<Monotonic>,
        out: &mut impl FnMut(Sample),
    ) {
        let TxToken { id } = token;
        self.protocol.unsent(id);
        let slot = self.slot_mut(id);
        slot.tx.app = app;
        slot.status = ProbeState::Free;
        let sample = slot.sample(State::SendFailed);
        if is_warm_up(id) {
            self.counts.warm_up_sent -= 1;
        } else {
            self.counts.sent -= 1;
            self.counts.send_failed += 1;
            out(sample);
        }
        if let ProbeSchedule::Closed { pause, spacing } = self.config.departures {
            // No reply will arrive for this probe. The minimum gap avoids a tight loop on a failing
            // socket.
            self.depart_after(now, pause.max(spacing).max(Nanos::from_millis(10)));
        }
        self.skip_resolved();
    }

    /// Handles a received message. Returns the id of the probe that it answers, or the reason why
    /// it is no reply. The kernel's receive timestamp, or else `now`, decides whether the reply is
    /// within the time-out.
    pub fn receive(
        &mut self,
        message: &[u8],
        channel: u64,
        rx: RxStamps,
        now: Instant<Monotonic>,
        out: &mut impl FnMut(Sample),
    ) -> Result<u64, Reject> {
        let reply = self.protocol.read(message, channel).inspect_err(|reject| {
            *match reject {
                Reject::Malformed => &mut self.counts.rejected.malformed,
                Reject::Unknown => &mut self.counts.rejected.unknown,
                Reject::Unauthentic => &mut self.counts.rejected.unauthentic,
            } += 1;
        })?;
        let Some(id) = self.known(reply.id).filter(|id| self.is_answer_to(*id, &reply)) else {
            self.counts.rejected.unknown += 1;
            return Err(Reject::Unknown);
        };
        let remote = reply.remote.filter(|remote| self.is_plausible(id, remote, &rx));
        if is_warm_up(id) {
            if let Some(remote) = &reply.remote {
                self.protocol.warm_up_answered(id, remote);
            }
            self.warm_up_reply(id, rx, remote);
            self.run_up(id, now);
            return Ok(id);
        }
        self.counts.remote_void += u64::from(remote.is_none() && reply.remote.is_some());
        // A stalled program reads a reply late; the kernel's timestamp is its arrival time.
        let waited = rx.kernel.map_or(Nanos::ZERO, |kernel| rx.app - kernel);
        let arrived = now - waited.max(Nanos::ZERO);
        let in_time = arrived <= self.slot(id).deadline;
        match self.slot(id).status {
            ProbeState::InFlight if in_time => {
                self.reply_in_time(id, rx, remote, (arrived, now), out);
                self.skip_resolved();
                if self.next_departure.is_none() && self.oldest == self.next_id && !self.stopped {
                    self.linger = Some(now.saturating_add(self.linger_time()));
                }
            }
            ProbeState::InFlight => {
                // Its time-out has passed, but `expire` has not been called since.
                self.lose(id, now, out);
                self.reply_late(id, rx, remote, out);
            }
            ProbeState::Lost => self.reply_late(id, rx, remote, out),
            ProbeState::AwaitingStamp | ProbeState::Received | ProbeState::Late => {
                self.counts.duplicate += 1;
                let slot = *self.slot(id);
                let duplicate = Slot { rx: Some(rx), remote, ..slot };
                out(duplicate.sample(State::Duplicate));
            }
            ProbeState::Free => {
                // A reply to a probe whose send call failed.
                self.counts.rejected.unknown += 1;
                return Err(Reject::Unknown);
            }
        }
        self.skip_resolved();
        Ok(id)
    }

    /// Handles a kernel timestamp of the probe with this `key`.
    pub fn tx_stamp(&mut self, key: u32, stamp: TxStamp, out: &mut impl FnMut(Sample)) {
        let id = self.keys[key as usize & (self.keys.len() - 1)];
        let awaited = self.awaited;
        let slot = self.slot_mut(id);
        if slot.id != id || slot.key != Some(key) {
            return;
        }
        // A stream may retransmit a message; the first transmission counts.
        match stamp {
            TxStamp::Sched(at) => drop(slot.tx.sched.get_or_insert(at)),
            TxStamp::Kernel(at) => drop(slot.tx.kernel.get_or_insert(at)),
            TxStamp::Hw(at) => drop(slot.tx.hw.get_or_insert(at)),
        }
        if slot.status == ProbeState::AwaitingStamp
            && awaited.is_none_or(|point| point == stamp.point())
        {
            self.report_received(id, out);
        }
    }

    /// Returns the number of replies that wait for the timestamp of their probe.
    pub fn awaiting_stamps(&self) -> usize {
        self.awaiting_stamp.len()
    }

    /// Whether [`Pinger::expire`] would declare a probe lost. Pass in pending replies before
    /// calling it.
    pub fn is_timing_out(&self, now: Instant<Monotonic>) -> bool {
        self.oldest != self.next_id && self.slot(self.oldest).deadline <= now
    }

    /// Handles time-outs and missing timestamps.
    pub fn expire(&mut self, now: Instant<Monotonic>, out: &mut impl FnMut(Sample)) {
        self.linger = self.linger.filter(|until| now < *until);
        while let Some((id, _)) =
            self.awaiting_stamp.front().copied().filter(|(_, until)| *until <= now)
        {
            self.awaiting_stamp.pop_front();
            self.report_without_stamp(id, out);
        }
        while self.oldest != self.next_id {
            let slot = self.slot(self.oldest);
            if slot.status == ProbeState::InFlight {
                if slot.deadline > now {
                    break;
                }
                self.lose(self.oldest, now, out);
            }
            self.oldest = self.oldest.wrapping_add(1);
        }
        // Do not keep the caller waiting for a probe that will never be sent.
        if self.next_departure.is_some_and(|due| self.ends_before(due)) {
            self.next_departure = None;
        }
    }

    /// Stops sending probes. Replies still count.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.next_departure = None;
        self.linger = None;
    }

    /// Declares all outstanding probes lost, because the connection is broken and cannot deliver
    /// replies.
    pub fn lose_outstanding(&mut self, now: Instant<Monotonic>, out: &mut impl FnMut(Sample)) {
        self.stop();
        while self.oldest != self.next_id {
            if self.slot(self.oldest).status == ProbeState::InFlight {
                self.lose(self.oldest, now, out);
            }
            self.oldest = self.oldest.wrapping_add(1);
        }
    }

    /// Reports replies that wait for a timestamp and discards unresolved probes: after an interrupt
    /// they count neither as sent nor as lost. Returns the number of discarded probes.
    pub fn abandon(&mut self, out: &mut impl FnMut(Sample)) -> u64 {
        self.stop();
        while let Some((id, _)) = self.awaiting_stamp.pop_front() {
            self.report_without_stamp(id, out);
        }
        let open = self.outstanding();
        self.counts.sent -= open;
        self.oldest = self.next_id;
        open
    }

    fn slot(&self, id: u64) -> &Slot {
        &self.slots[id as usize & (self.slots.len() - 1)]
    }

    fn slot_mut(&mut self, id: u64) -> &mut Slot {
        let mask = self.slots.len() - 1;
        &mut self.slots[id as usize & mask]
    }

    /// Whether the run ends before a counted probe that is due at `due`.
    fn ends_before(&self, due: Instant<Monotonic>) -> bool {
        let complete = self.config.count.is_some_and(|count| self.next_id >= count);
        let over = self.end.is_some_and(|end| due >= end);
        self.stopped || !self.is_warming_up() && (complete || over)
    }

    /// Frees the slot of a new probe. It may hold an unresolved one if the caller stalled or
    /// requested more probes in flight than fit.
    fn make_room(&mut self, id: u64, out: &mut impl FnMut(Sample)) {
        let old = *self.slot(id);
        match old.status {
            ProbeState::InFlight => {
                self.counts.window_overrun += 1;
                self.lose(old.id, old.deadline, out);
            }
            ProbeState::AwaitingStamp => self.report_without_stamp(old.id, out),
            _ => {}
        }
        self.skip_resolved();
    }

    /// Computes the next id and its departure after a send action.
    fn advance(&mut self, id: u64, intended: Instant<Monotonic>, now: Instant<Monotonic>) {
        self.next_id = id.wrapping_add(1);
        self.last_departure = Some(now);
        if self.next_id == 0 {
            // The first counted probe follows the last one of the warm-up at the measured rate.
            self.begin_counting(now + self.warm_up_gap(0));
            return;
        }
        if is_warm_up(id) {
            self.next_departure = Some(intended + self.warm_up_gap(self.next_id));
            return;
        }
        if id == 0 && self.config.warm_up == 0 {
            self.end = self.config.duration.map(|d| intended.saturating_add(d));
        }
        self.next_departure = match self.config.departures {
            ProbeSchedule::Open { interval } => Some(intended.saturating_add(interval)),
            ProbeSchedule::Closed { .. } => None,
        };
        if self.next_departure.is_some_and(|due| self.ends_before(due)) {
            self.next_departure = None;
        }
    }

    fn begin_counting(&mut self, earliest: Instant<Monotonic>) {
        let start = self.config.in_phase(self.phase, earliest);
        self.next_departure = Some(start);
        self.end = self.config.duration.map(|d| start.saturating_add(d));
    }

    /// Gap between probe `id` and the one before it, for warm-up probes and the first counted one.
    /// The run-up at the end uses the measured rate, so that caches are as warm for the first
    /// counted probes as for the others.
    fn warm_up_gap(&self, id: u64) -> Nanos {
        let slow = self.config.warm_up_interval;
        match self.config.departures {
            ProbeSchedule::Open { interval } if self.is_run_up(id) => interval.min(slow),
            // The maximum; in a closed loop a reply starts the next probe earlier.
            _ => slow,
        }
    }

    /// Whether probe `id` is sent at the measured rate and follows a warm-up probe.
    fn is_run_up(&self, id: u64) -> bool {
        let first = 0_u64.wrapping_sub(u64::from(self.config.run_up()));
        id == 0 && self.config.warm_up > 0 || is_warm_up(id) && id >= first
    }

    /// Closed loop: schedules the next probe of the run-up after a reply.
    fn run_up(&mut self, id: u64, now: Instant<Monotonic>) {
        let ProbeSchedule::Closed { pause, spacing } = self.config.departures else { return };
        let next = id.wrapping_add(1);
        if next != self.next_id || !self.is_run_up(next) {
            return;
        }
        let pause = pause.min(self.config.warm_up_interval);
        let spacing = spacing.min(self.config.warm_up_interval);
        let due = now.saturating_add(pause);
        let due = self.last_departure.map_or(due, |last| due.max(last.saturating_add(spacing)));
        if self.next_departure.is_some_and(|latest| latest <= due) {
            return;
        }
        if next == 0 { self.begin_counting(due) } else { self.next_departure = Some(due) }
    }

    /// Closed loop: schedules the next probe `pause` after `now`, but keeps the minimum spacing.
    fn depart_after(&mut self, now: Instant<Monotonic>, pause: Nanos) {
        let ProbeSchedule::Closed { spacing, .. } = self.config.departures else { return };
        let due = now.saturating_add(pause);
        let spaced = self.last_departure.map_or(due, |last| last.saturating_add(spacing));
        let due = due.max(spaced);
        self.next_departure = (!self.ends_before(due)).then_some(due);
    }

    /// Closed loop: whether the next departure waits for the reply to `id`.
    fn is_current(&self, id: u64) -> bool {
        self.next_id.wrapping_sub(1) == id && self.next_departure.is_none()
    }

    /// Expands a wire id to the full id of the most recent probe with these low bits.
    fn known(&self, id: WireId) -> Option<u64> {
        let latest = self.next_id.wrapping_sub(1);
        let age = latest.wrapping_sub(id.value) & id.mask();
        let full = latest.wrapping_sub(age);
        // The slot holds this id only if the probe was sent.
        (self.slot(full).id == full).then_some(full)
    }

    /// Time to wait for duplicates after the last reply.
    fn linger_time(&self) -> Nanos {
        let round_trips = self.longest.saturating_mul(LINGER_ROUND_TRIPS);
        round_trips.clamp(MIN_LINGER, MAX_LINGER).min(self.config.timeout)
    }

    /// Whether the reply returns the timestamp of its probe. Without this check, an echoed request,
    /// whose reflector fields are 0, would answer probe 0.
    fn is_answer_to(&self, id: u64, reply: &Reply) -> bool {
        let written = self.slot(id).written;
        reply.written.is_none_or(|returned| (returned - written).abs() <= MAX_ROUNDING_ERROR)
    }

    /// Whether the reflector's timestamps are plausible.
    fn is_plausible(&mut self, id: u64, remote: &Remote, rx: &RxStamps) -> bool {
        let sent = self.slot(id).tx.app;
        self.remote_clock.accepts(id, sent, remote, rx)
    }

    fn warm_up_reply(&mut self, id: u64, rx: RxStamps, remote: Option<Remote>) {
        let slot = self.slot_mut(id);
        if slot.status == ProbeState::InFlight {
            *slot = Slot { status: ProbeState::Received, rx: Some(rx), remote, ..*slot };
            self.counts.warm_up_received += 1;
        }
    }

    fn reply_in_time(
        &mut self,
        id: u64,
        rx: RxStamps,
        remote: Option<Remote>,
        (arrived, now): (Instant<Monotonic>, Instant<Monotonic>),
        out: &mut impl FnMut(Sample),
    ) {
        self.counts.received += 1;
        let left = self.slot(id).deadline - arrived;
        self.longest = self.longest.max(self.config.timeout - left);
        let reordered = self.highest_received.is_some_and(|highest| id < highest);
        self.counts.reordered += u64::from(reordered);
        self.highest_received = self.highest_received.max(Some(id));
        let awaited = self.awaited;
        let slot = self.slot_mut(id);
        *slot = Slot { reordered, rx: Some(rx), remote, ..*slot };
        let stamped = match awaited {
            Some(TxPoint::Sched) => slot.tx.sched.is_some(),
            Some(TxPoint::Kernel) => slot.tx.kernel.is_some(),
            Some(TxPoint::Hw) => slot.tx.hw.is_some(),
            None => true,
        };
        if stamped || slot.key.is_none() {
            slot.status = ProbeState::Received;
            out(slot.sample(State::Received));
        } else {
            slot.status = ProbeState::AwaitingStamp;
            if self.awaiting_stamp.len() == MAX_AWAITING_STAMP
                && let Some((oldest, _)) = self.awaiting_stamp.pop_front()
            {
                self.report_without_stamp(oldest, out);
            }
            self.awaiting_stamp.push_back((id, now.saturating_add(STAMP_TIMEOUT)));
        }
        if let ProbeSchedule::Closed { pause, .. } = self.config.departures
            && self.is_current(id)
        {
            self.depart_after(now, pause);
        }
    }

    fn reply_late(
        &mut self,
        id: u64,
        rx: RxStamps,
        remote: Option<Remote>,
        out: &mut impl FnMut(Sample),
    ) {
        self.counts.lost -= 1;
        self.counts.late += 1;
        let slot = self.slot_mut(id);
        *slot = Slot { status: ProbeState::Late, rx: Some(rx), remote, ..*slot };
        out(slot.sample(State::Late));
    }

    fn lose(&mut self, id: u64, now: Instant<Monotonic>, out: &mut impl FnMut(Sample)) {
        let slot = self.slot_mut(id);
        slot.status = ProbeState::Lost;
        let sample = slot.sample(State::Lost);
        if is_warm_up(id) {
            return;
        }
        self.counts.lost += 1;
        out(sample);
        if let ProbeSchedule::Closed { pause, .. } = self.config.departures
            && self.is_current(id)
        {
            self.depart_after(now, pause);
        }
    }

    /// Reports a reply whose awaited timestamp has arrived.
    fn report_received(&mut self, id: u64, out: &mut impl FnMut(Sample)) {
        self.awaiting_stamp.retain(|(waiting, _)| *waiting != id);
        let slot = self.slot_mut(id);
        slot.status = ProbeState::Received;
        out(slot.sample(State::Received));
    }

    fn report_without_stamp(&mut self, id: u64, out: &mut impl FnMut(Sample)) {
        if self.slot(id).status == ProbeState::AwaitingStamp {
            self.counts.tx_stamp_missing += 1;
            self.report_received(id, out);
        }
    }

    fn skip_resolved(&mut self) {
        while self.oldest != self.next_id && self.slot(self.oldest).status != ProbeState::InFlight {
            self.oldest = self.oldest.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests;
