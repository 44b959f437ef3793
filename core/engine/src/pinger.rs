//! The pinger: decides when probes leave, recognises their replies, and tells the fate of each.
//!
//! The caller owns the socket and the clocks. It asks [`Pinger::wake`] how long it may wait, calls
//! [`Pinger::transmit`] when a probe is due, hands in replies, kernel stamps and the passing of
//! time, and receives a [`Sample`] for every fate as soon as it is known. Spurious calls are
//! harmless. Nothing allocates after construction.
//!
//! Probes are matched by id, never by order: a late or duplicate reply changes the fate of its own
//! probe and of no other. (S4's master matches by order, and one late reply spoils every later
//! cycle.)

mod config;
mod far_clock;
mod slot;

pub use config::{Config, Counts, Departures, Rejected};

use std::collections::VecDeque;

use dwell_units::{Instant, Monotonic, Nanos, Realtime};

use crate::protocol::{Protocol, Reject, Reply, WireId, is_warm_up};
use crate::stamps::{Remote, RxStamps, Sample, State, TxPoint, TxStamp};
use far_clock::FarClock;
use slot::{Fate, Slot};

/// How long a reply may wait for the kernel's stamp of its probe before it is told without.
const STAMP_GRACE: Nanos = Nanos::from_millis(20);

/// Replies that may wait for a stamp at the same time; the oldest is told without when full.
const STAMP_QUEUE: usize = 1_024;

/// After the last reply, duplicates are waited for as long as this many of the longest round trips
/// so far, but within these bounds and the time-out.
const LINGER_ROUND_TRIPS: i64 = 4;
const LINGER_LEAST: Nanos = Nanos::from_millis(1);
const LINGER_MOST: Nanos = Nanos::from_millis(50);

/// How much a clock that was written into a message may change on its way there and back.
const ROUNDING: Nanos = Nanos(1);

/// The right to report what became of one send action. Made by [`Pinger::transmit`], used up by
/// [`Pinger::sent`] or [`Pinger::send_failed`]; it cannot be copied, so one probe has one stamp.
#[derive(Debug)]
#[must_use = "report what became of the send: Pinger::sent or Pinger::send_failed"]
pub struct TxToken {
    id: u64,
}

impl TxToken {
    /// The probe's id.
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
    /// Length of the message of the last send action.
    message_len: usize,
    slots: Box<[Slot]>,
    /// Ids by the kernel's stamp key.
    keys: Box<[u64]>,
    /// Replies waiting for a stamp, with the time at which they are told without.
    stamping: VecDeque<(u64, Instant<Monotonic>)>,
    /// The deepest stamp point that a reply waits for.
    awaited: Option<TxPoint>,
    /// The id of the next probe. Warm-up ids lie just below 0, wrapping.
    next_id: u64,
    /// Everything before this id has a fate.
    oldest: u64,
    next_departure: Option<Instant<Monotonic>>,
    last_departure: Option<Instant<Monotonic>>,
    end: Option<Instant<Monotonic>>,
    stopped: bool,
    /// The longest round trip of a reply in time.
    longest: Nanos,
    /// All probes have their fate; until then duplicates of the last replies may still come.
    linger: Option<Instant<Monotonic>>,
    highest_received: Option<u64>,
    /// Judges the timestamps of the far end.
    far_clock: FarClock,
    counts: Counts,
}

impl<P: Protocol> Pinger<P> {
    /// A pinger whose first (warm-up) probe is due at `start`.
    pub fn new(protocol: P, config: Config, start: Instant<Monotonic>) -> Self {
        let window = config.window();
        let first = 0_u64.wrapping_sub(u64::from(config.warm_up));
        let message = vec![0; protocol.capacity()].into_boxed_slice();
        Self {
            protocol,
            config,
            message,
            message_len: 0,
            slots: vec![Slot::FREE; window].into_boxed_slice(),
            keys: vec![u64::MAX / 2; window].into_boxed_slice(),
            stamping: VecDeque::with_capacity(STAMP_QUEUE),
            awaited: None,
            next_id: first,
            oldest: first,
            next_departure: Some(start),
            last_departure: None,
            end: None,
            stopped: false,
            longest: Nanos::ZERO,
            linger: None,
            highest_received: None,
            far_clock: FarClock::new(),
            counts: Counts::default(),
        }
    }

    /// Moves the first departure, before anything was sent.
    pub fn start_at(&mut self, start: Instant<Monotonic>) {
        debug_assert!(self.last_departure.is_none(), "nothing was sent yet");
        self.next_departure = Some(start);
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The protocol, for what it learned.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Probes whose fate is still open.
    pub fn outstanding(&self) -> u64 {
        self.counts.sent - self.counts.received - self.counts.lost - self.counts.late
    }

    /// The id after the highest that was sent.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Whether the warm-up is still going on.
    pub fn is_warming_up(&self) -> bool {
        is_warm_up(self.next_id)
    }

    /// From now on a reply is told only when the stamp at `point` of its probe has come, or has
    /// not come for 20 ms. `None` (the start) waits for nothing.
    pub fn await_stamp(&mut self, point: Option<TxPoint>) {
        self.awaited = point;
    }

    /// When the next probe is due; `None` when none will leave without further news.
    pub fn departure(&self) -> Option<Instant<Monotonic>> {
        self.next_departure
    }

    /// When the caller must come back at the latest if nothing arrives: a departure, a time-out, or
    /// the end of waiting for a stamp or, after the last reply, for duplicates. `None` when all is
    /// done.
    pub fn wake(&self) -> Option<Instant<Monotonic>> {
        let timeout = (self.oldest != self.next_id).then(|| self.slot(self.oldest).deadline);
        let stamp = self.stamping.front().map(|(_, until)| *until);
        [self.next_departure, timeout, stamp, self.linger].into_iter().flatten().min()
    }

    /// Starts a probe if one is due: writes its message and returns the token of the send action.
    /// The message is read with [`Pinger::message`]. Its time-out counts from `now`. All that can be
    /// done before the probe leaves is done here, so that nothing keeps it from being answered.
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
            fate: Fate::InFlight,
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

    /// The probe left: `app` is the clock just before the send call, `key` the name under which
    /// the kernel will report its stamps.
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

    /// The socket refused the probe for good.
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
        slot.fate = Fate::Free;
        let sample = slot.sample(State::SendFailed);
        if is_warm_up(id) {
            self.counts.warm_up_sent -= 1;
        } else {
            self.counts.sent -= 1;
            self.counts.send_failed += 1;
            out(sample);
        }
        if let Departures::Closed { pause, spacing } = self.config.departures {
            // No reply will come for this one; a socket that refuses is not asked in a tight loop.
            self.depart_after(now, pause.max(spacing).max(Nanos::from_millis(10)));
        }
        self.skip_resolved();
    }

    /// A message arrived. Returns the id of the probe it answers, or why it answers none. Whether it came
    /// in time is decided by the kernel's stamp, if it has one, and else by `now`.
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
        let remote = reply.remote.filter(|remote| self.is_true(id, remote, &rx));
        if is_warm_up(id) {
            if let Some(remote) = &reply.remote {
                self.protocol.warm_up_answered(id, remote);
            }
            self.warm_up_reply(id, rx, remote);
            self.run_up(id, now);
            return Ok(id);
        }
        self.counts.remote_void += u64::from(remote.is_none() && reply.remote.is_some());
        // Whoever is held up sees late what came in time: the kernel's stamp tells.
        let waited = rx.kernel.map_or(Nanos::ZERO, |kernel| rx.app - kernel);
        let arrived = now - waited.max(Nanos::ZERO);
        let in_time = arrived <= self.slot(id).deadline;
        match self.slot(id).fate {
            Fate::InFlight if in_time => {
                self.reply_in_time(id, rx, remote, (arrived, now), out);
                self.skip_resolved();
                if self.next_departure.is_none() && self.oldest == self.next_id && !self.stopped {
                    self.linger = Some(now.saturating_add(self.lingering()));
                }
            }
            Fate::InFlight => {
                // Its time-out has passed, but nobody has looked at the clock since.
                self.lose(id, now, out);
                self.reply_late(id, rx, remote, out);
            }
            Fate::Lost => self.reply_late(id, rx, remote, out),
            Fate::Stamping | Fate::Received | Fate::Late => {
                self.counts.duplicate += 1;
                let slot = *self.slot(id);
                let duplicate = Slot { rx: Some(rx), remote, ..slot };
                out(duplicate.sample(State::Duplicate));
            }
            Fate::Free => {
                // The socket said that this probe did not leave, yet somebody answers its id.
                self.counts.rejected.unknown += 1;
                return Err(Reject::Unknown);
            }
        }
        self.skip_resolved();
        Ok(id)
    }

    /// The kernel stamped the probe that it knows by `key` on its way out.
    pub fn tx_stamp(&mut self, key: u32, stamp: TxStamp, out: &mut impl FnMut(Sample)) {
        let id = self.keys[key as usize & (self.keys.len() - 1)];
        let awaited = self.awaited;
        let slot = self.slot_mut(id);
        if slot.id != id || slot.key != Some(key) {
            return;
        }
        // A stream may send a message again: its first departure counts.
        match stamp {
            TxStamp::Sched(at) => drop(slot.tx.sched.get_or_insert(at)),
            TxStamp::Kernel(at) => drop(slot.tx.kernel.get_or_insert(at)),
            TxStamp::Hw(at) => drop(slot.tx.hw.get_or_insert(at)),
        }
        if slot.fate == Fate::Stamping && awaited.is_none_or(|point| point == stamp.point()) {
            self.told(id, out);
        }
    }

    /// Whether [`Pinger::expire`] would call a probe lost: what has come already is to be handed in first.
    pub fn is_timing_out(&self, now: Instant<Monotonic>) -> bool {
        self.oldest != self.next_id && self.slot(self.oldest).deadline <= now
    }

    /// Time has passed: time-outs and missing stamps.
    pub fn expire(&mut self, now: Instant<Monotonic>, out: &mut impl FnMut(Sample)) {
        self.linger = self.linger.filter(|until| now < *until);
        while let Some((id, _)) = self.stamping.front().copied().filter(|(_, until)| *until <= now)
        {
            self.stamping.pop_front();
            self.told_without_stamp(id, out);
        }
        while self.oldest != self.next_id {
            let slot = self.slot(self.oldest);
            if slot.fate == Fate::InFlight {
                if slot.deadline > now {
                    break;
                }
                self.lose(self.oldest, now, out);
            }
            self.oldest = self.oldest.wrapping_add(1);
        }
        // A probe that will never leave must not keep the caller waiting for it.
        if self.next_departure.is_some_and(|due| self.ends_before(due)) {
            self.next_departure = None;
        }
    }

    /// No further probe leaves; replies still count.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.next_departure = None;
        self.linger = None;
    }

    /// What carries the probes is gone for good: those under way have left and can never be
    /// answered, so they are lost.
    pub fn lose_open(&mut self, now: Instant<Monotonic>, out: &mut impl FnMut(Sample)) {
        self.stop();
        while self.oldest != self.next_id {
            if self.slot(self.oldest).fate == Fate::InFlight {
                self.lose(self.oldest, now, out);
            }
            self.oldest = self.oldest.wrapping_add(1);
        }
    }

    /// Tells what is only waiting for a stamp, and forgets the probes without a fate: an
    /// interrupted run neither counts them as sent nor invents that they were lost. Returns how
    /// many those are.
    pub fn abandon(&mut self, out: &mut impl FnMut(Sample)) -> u64 {
        self.stop();
        while let Some((id, _)) = self.stamping.pop_front() {
            self.told_without_stamp(id, out);
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

    /// Whether the run is over before a counted probe that is due at `due`.
    fn ends_before(&self, due: Instant<Monotonic>) -> bool {
        let complete = self.config.count.is_some_and(|count| self.next_id >= count);
        let over = self.end.is_some_and(|end| due >= end);
        self.stopped || !self.is_warming_up() && (complete || over)
    }

    /// The slot of a new probe may still hold one without a fate, when the caller stalled or asked
    /// for more probes in flight than fit.
    fn make_room(&mut self, id: u64, out: &mut impl FnMut(Sample)) {
        let old = *self.slot(id);
        match old.fate {
            Fate::InFlight => {
                self.counts.window_overrun += 1;
                self.lose(old.id, old.deadline, out);
            }
            Fate::Stamping => self.told_without_stamp(old.id, out),
            _ => {}
        }
        self.skip_resolved();
    }

    /// After a send action: the next id and its departure.
    fn advance(&mut self, id: u64, intended: Instant<Monotonic>, now: Instant<Monotonic>) {
        self.next_id = id.wrapping_add(1);
        self.last_departure = Some(now);
        if self.next_id == 0 {
            // The first counted probe: as soon after the last of the warm-up as it will be among
            // those that count.
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
            Departures::Open { interval } => Some(intended.saturating_add(interval)),
            Departures::Closed { .. } => None,
        };
        if self.next_departure.is_some_and(|due| self.ends_before(due)) {
            self.next_departure = None;
        }
    }

    fn begin_counting(&mut self, start: Instant<Monotonic>) {
        self.next_departure = Some(start);
        self.end = self.config.duration.map(|d| start.saturating_add(d));
    }

    /// How long before `id` the probe before it leaves, where it is of the warm-up or the first
    /// that counts. The run-up at its end has the pace of what is measured, or the first counted
    /// probes would be as cold as probes far apart are.
    fn warm_up_gap(&self, id: u64) -> Nanos {
        let slow = self.config.warm_up_interval;
        match self.config.departures {
            Departures::Open { interval } if self.is_run_up(id) => interval.min(slow),
            // At the latest; a reply brings it on.
            _ => slow,
        }
    }

    /// Whether `id` leaves at the pace of what is measured although the probe before it does not
    /// count.
    fn is_run_up(&self, id: u64) -> bool {
        let first = 0_u64.wrapping_sub(u64::from(self.config.run_up()));
        id == 0 && self.config.warm_up > 0 || is_warm_up(id) && id >= first
    }

    /// Closed loop: a reply in the run-up brings the next probe on.
    fn run_up(&mut self, id: u64, now: Instant<Monotonic>) {
        let Departures::Closed { pause, spacing } = self.config.departures else { return };
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

    /// Closed loop: the next probe leaves `pause` after `now`, but keeps the spacing.
    fn depart_after(&mut self, now: Instant<Monotonic>, pause: Nanos) {
        let Departures::Closed { spacing, .. } = self.config.departures else { return };
        let due = now.saturating_add(pause);
        let spaced = self.last_departure.map_or(due, |last| last.saturating_add(spacing));
        let due = due.max(spaced);
        self.next_departure = (!self.ends_before(due)).then_some(due);
    }

    /// Closed loop: whether `id` is the probe that the next departure waits for.
    fn is_current(&self, id: u64) -> bool {
        self.next_id.wrapping_sub(1) == id && self.next_departure.is_none()
    }

    /// The full id of a wire id: the youngest sent probe that has these bits.
    fn known(&self, id: WireId) -> Option<u64> {
        let latest = self.next_id.wrapping_sub(1);
        let age = latest.wrapping_sub(id.value) & id.mask();
        let full = latest.wrapping_sub(age);
        // A slot that holds this very id proves that it was sent.
        (self.slot(full).id == full).then_some(full)
    }

    /// How long to wait for duplicates after the last reply.
    fn lingering(&self) -> Nanos {
        let round_trips = self.longest.saturating_mul(LINGER_ROUND_TRIPS);
        round_trips.clamp(LINGER_LEAST, LINGER_MOST).min(self.config.timeout)
    }

    /// Whether the clock that the reply gives back is that of its probe. Without this an echoed
    /// request, whose fields of the far end are 0, would answer probe 0.
    fn is_answer_to(&self, id: u64, reply: &Reply) -> bool {
        let written = self.slot(id).written;
        reply.written.is_none_or(|given_back| (given_back - written).abs() <= ROUNDING)
    }

    /// Whether the far end's timestamps can be true.
    fn is_true(&mut self, id: u64, remote: &Remote, rx: &RxStamps) -> bool {
        let sent = self.slot(id).tx.app;
        self.far_clock.accepts(id, sent, remote, rx)
    }

    fn warm_up_reply(&mut self, id: u64, rx: RxStamps, remote: Option<Remote>) {
        let slot = self.slot_mut(id);
        if slot.fate == Fate::InFlight {
            *slot = Slot { fate: Fate::Received, rx: Some(rx), remote, ..*slot };
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
            slot.fate = Fate::Received;
            out(slot.sample(State::Received));
        } else {
            slot.fate = Fate::Stamping;
            if self.stamping.len() == STAMP_QUEUE
                && let Some((oldest, _)) = self.stamping.pop_front()
            {
                self.told_without_stamp(oldest, out);
            }
            self.stamping.push_back((id, now.saturating_add(STAMP_GRACE)));
        }
        if let Departures::Closed { pause, .. } = self.config.departures
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
        *slot = Slot { fate: Fate::Late, rx: Some(rx), remote, ..*slot };
        out(slot.sample(State::Late));
    }

    fn lose(&mut self, id: u64, now: Instant<Monotonic>, out: &mut impl FnMut(Sample)) {
        let slot = self.slot_mut(id);
        slot.fate = Fate::Lost;
        let sample = slot.sample(State::Lost);
        if is_warm_up(id) {
            return;
        }
        self.counts.lost += 1;
        out(sample);
        if let Departures::Closed { pause, .. } = self.config.departures
            && self.is_current(id)
        {
            self.depart_after(now, pause);
        }
    }

    /// The awaited stamp came.
    fn told(&mut self, id: u64, out: &mut impl FnMut(Sample)) {
        self.stamping.retain(|(waiting, _)| *waiting != id);
        let slot = self.slot_mut(id);
        slot.fate = Fate::Received;
        out(slot.sample(State::Received));
    }

    fn told_without_stamp(&mut self, id: u64, out: &mut impl FnMut(Sample)) {
        if self.slot(id).fate == Fate::Stamping {
            self.counts.tx_stamp_missing += 1;
            self.told(id, out);
        }
    }

    fn skip_resolved(&mut self) {
        while self.oldest != self.next_id && self.slot(self.oldest).fate != Fate::InFlight {
            self.oldest = self.oldest.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests;
