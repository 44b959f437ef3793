//! The timing loop: joins the pinger to a socket and the clocks. Runs on a thread of its own;
//! allocates nothing, takes no lock, writes to no file. What it learns leaves through two bounded
//! rings, and a full ring is counted, never waited for.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dwell_engine::far_drops::FarDrops;
use dwell_engine::pinger::{Counts, Pinger};
use dwell_engine::protocol::{Protocol, WarmUpSession, is_warm_up};
use dwell_engine::stamps::{Hop, Rung, RxStamps, Sample, TxPoint};
use dwell_io::clock::{monotonic, realtime};
use dwell_io::pacer::{self, NAP, Rest, SPIN};
use dwell_io::port::{Arrival, Notice, Port, SendError, Sent, Wait};
use dwell_units::{Instant, Monotonic, Nanos};
use dwell_wire::icmp::Family;
use dwell_wire::telemetry::MOST_SLOTS;
use rtrb::Producer;

use super::icmp_error::NetworkError;

/// After a stop, replies that are under way still count for this long.
const STOP_GRACE: Nanos = Nanos::from_millis(200);

/// Receive calls between two looks at the clock while spinning.
const SPINS: usize = 8;

/// Messages that are taken at most before a probe is lost: a flood of others' must not hold up everything.
const BEFORE_LOSS: usize = 65_536;

/// Without replies, the error queue is looked at this often.
const DRAIN: Nanos = Nanos::from_millis(1);

/// Entries of the error queue taken at once.
const NOTICES: usize = 32;

/// Kinds of network errors that are reported; others are only counted.
const MAX_ERROR_KINDS: usize = 8;

/// What the timing thread shares with the main thread.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Set to end the run early.
    pub(super) stop: Arc<AtomicBool>,
    /// Samples that found the ring full.
    pub(super) dropped: AtomicU64,
    /// The id after the highest that was sent; warm-up ids are the upper half.
    pub(super) next_id: AtomicU64,
}

/// Something the user should hear of while it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// ICMP or the kernel reports that a probe did not arrive. Sent once for each kind of error.
    Unreachable(NetworkError),
    /// A probe could not be sent.
    SendFailed(SendError),
    /// TTL or hop limit of the reply to a probe; only where it was asked for.
    Ttl {
        /// The probe.
        id: u64,
        /// As the reply arrived.
        ttl: u8,
    },
    /// Warm-up is over; the deepest rungs at which stamps came during it, if it could tell.
    Counting {
        /// Of sending; unknown when nothing was sent.
        tx: Option<Rung>,
        /// Of receiving; unknown when no reply came.
        rx: Option<Rung>,
        /// Warm-up probes that left.
        warm_up_sent: u64,
    },
}

/// What the relays on the way said of one probe and its reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    hops: [Hop; MOST_SLOTS],
    used: usize,
}

impl Path {
    fn of(hops: &[Hop]) -> Self {
        let mut path = Self { hops: [Hop::default(); MOST_SLOTS], used: hops.len() };
        path.hops[..hops.len()].copy_from_slice(hops);
        path
    }

    pub(super) fn hops(&self) -> &[Hop] {
        &self.hops[..self.used]
    }
}

/// How the loop waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Never sleep.
    pub(super) busy_poll: bool,
    /// Kernel TX stamps were asked for.
    pub(super) tx_stamps: bool,
    /// End after warm-up if no kernel stamp came in it.
    pub(super) stamps_required: bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ended {
    pub(super) counts: Counts,
    /// Probes without a fate when the run was stopped.
    pub(super) abandoned: u64,
    /// Network errors reported about probes.
    pub(super) icmp_errors: u64,
    /// The first of them.
    pub(super) first_error: Option<NetworkError>,
    /// Packets that the reflector's socket dropped during the measurement, if replies say it.
    pub(super) far_drops: Option<u64>,
    /// Kernel stamps were required and none came.
    pub(super) unstamped: bool,
    /// The socket failed for good, by errno; 0 is the end of a stream.
    pub(super) broken: Option<i32>,
    /// Bytes of a stream that belonged to no message.
    pub(super) stray_bytes: Option<u64>,
    /// What the warm-up showed of the far end's sequence numbers.
    pub(super) warm_up: WarmUpSession,
}

/// A pinger joined to a socket.
pub(super) struct Driver<'a, P, Q> {
    pub(super) port: P,
    pub(super) pinger: Pinger<Q>,
    pub(super) manner: Manner,
    pub(super) samples: Producer<Sample>,
    pub(super) news: Producer<News>,
    /// Where to tell what relays said, if they were asked.
    pub(super) paths: Option<Producer<Path>>,
    pub(super) shared: &'a Shared,
    pub(super) heard: Heard,
    /// The family of the target, for the names of ICMP errors.
    pub(super) family: Family,
}

/// What the error queue and the replies told so far.
#[derive(Debug, Default)]
pub(super) struct Heard {
    tx: Option<TxPoint>,
    rx: Option<Rung>,
    icmp_errors: u64,
    /// One error of each kind, as many as fit.
    errors: [Option<NetworkError>; MAX_ERROR_KINDS],
    send_failures: u64,
    far_drops: FarDrops,
}

impl Heard {
    /// Counts an error; returns whether it is the first of its kind.
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
    /// Runs until every probe has its fate, or a stop.
    pub(super) fn run(mut self, buffer: &mut [u8]) -> Ended {
        let mut ended = Ended::default();
        let mut drained = monotonic();
        let mut warm = true;
        let mut give_up = None;
        loop {
            let mut now = monotonic();
            let came = match self.take_what_came(now, buffer) {
                Ok(came) => came,
                Err(error) => {
                    ended.broken = Some(error.raw_os_error().unwrap_or(0));
                    break;
                }
            };
            self.pinger.expire(now, &mut deliver(&mut self.samples, self.shared));
            if came {
                // It may have been much, and what is sent next has all of its time.
                now = monotonic();
            }
            // Just before the first counted probe is due, so that it leaves as punctually as all.
            let soon = Some(now + SPIN);
            if warm && !self.pinger.is_warming_up() && self.pinger.departure() <= soon {
                warm = false;
                ended.unstamped = self.begin_counting() && self.manner.stamps_required;
            }
            if self.pinger.wake().is_none() {
                break;
            }
            if give_up.is_none() && self.shared.stop.load(Ordering::Relaxed) {
                self.pinger.stop();
                give_up = Some(now + STOP_GRACE);
            }
            if ended.unstamped || give_up.is_some_and(|until| until <= now) {
                break;
            }
            self.send_due(now);
            match self.take_reply(now, buffer) {
                Ok(true) if self.manner.tx_stamps => {
                    self.take_notices();
                    drained = now;
                }
                Ok(true) => {}
                Ok(false) if now - drained > DRAIN => {
                    self.take_notices();
                    drained = now;
                }
                Ok(false) => {}
                Err(error) => {
                    ended.broken = Some(error.raw_os_error().unwrap_or(0));
                    break;
                }
            }
        }
        self.take_notices();
        let out = &mut deliver(&mut self.samples, self.shared);
        if ended.broken.is_some() {
            self.pinger.lose_open(monotonic(), out);
        }
        ended.abandoned = self.pinger.abandon(out);
        ended.counts = self.pinger.counts();
        ended.icmp_errors = self.heard.icmp_errors;
        ended.first_error = self.heard.errors[0];
        ended.stray_bytes = self.port.stray_bytes();
        ended.warm_up = self.pinger.protocol().warm_up_session();
        ended.far_drops = self.heard.far_drops.total();
        ended
    }

    /// Warm-up is over: what it showed decides which stamp a reply waits for. Returns whether it
    /// showed that there is none.
    fn begin_counting(&mut self) -> bool {
        self.take_notices();
        let counts = self.pinger.counts();
        let untried = counts.warm_up_sent == 0 && self.manner.tx_stamps;
        // Untried, a stamp is hoped for: one that does not come is counted.
        self.pinger.await_stamp(self.heard.tx.or(untried.then_some(TxPoint::Kernel)));
        let tx = match self.heard.tx {
            Some(TxPoint::Hw) => Some(Rung::Hw),
            Some(_) => Some(Rung::KernelSw),
            None => (!untried).then_some(Rung::User),
        };
        let unanswered = counts.warm_up_received == 0 && self.manner.tx_stamps;
        let rx = self.heard.rx.or((!unanswered).then_some(Rung::User));
        let _ = self.news.push(News::Counting { tx, rx, warm_up_sent: counts.warm_up_sent });
        (tx, rx) == (Some(Rung::User), Some(Rung::User))
    }

    /// Sends the probe that is due, if one is.
    fn send_due(&mut self, now: Instant<Monotonic>) {
        if self.pinger.departure().is_none_or(|due| now < due) {
            return;
        }
        let mut out = deliver(&mut self.samples, self.shared);
        let Some(token) = self.pinger.transmit(now, realtime(), &mut out) else { return };
        self.shared.next_id.store(self.pinger.next_id(), Ordering::Relaxed);
        match self.port.send(self.pinger.message()) {
            // Little is done between the send call and the wait for the reply: with both ends on
            // one core the far end runs only when we wait.
            Ok(Sent { app, key }) => self.pinger.sent(token, app, key),
            Err(error) => {
                self.pinger.send_failed(token, realtime(), monotonic(), &mut out);
                if self.heard.send_failures == 0 {
                    let _ = self.news.push(News::SendFailed(error));
                }
                self.heard.send_failures += 1;
            }
        }
    }

    /// Takes what has come before a probe is called lost: this program may have been held up, and the reply
    /// may have been in time. Returns whether anything had.
    fn take_what_came(&mut self, now: Instant<Monotonic>, buffer: &mut [u8]) -> io::Result<bool> {
        let mut came = false;
        for _ in 0..BEFORE_LOSS {
            if !self.pinger.is_timing_out(now) {
                break;
            }
            let Some(arrival) = self.port.receive(buffer, Wait::No)? else { break };
            self.hand_in(&arrival, buffer);
            came = true;
        }
        Ok(came)
    }

    /// Waits for a reply, at most until something else is to be done, and takes it. Returns
    /// whether one came.
    fn take_reply(&mut self, now: Instant<Monotonic>, buffer: &mut [u8]) -> io::Result<bool> {
        let Some(wake) = self.pinger.wake() else { return Ok(false) };
        let departure = self.pinger.departure();
        let woken = pacer::Manner::CatchUp.rest(now, wake);
        let leaving = departure.map_or(woken, |due| pacer::Manner::SleepSpin.rest(now, due));
        let asleep_until = match (self.manner.busy_poll, woken, leaving) {
            (false, Rest::Sleep(wake), Rest::Sleep(leave)) => Some(wake.min(leave)),
            // A departure is near, or sleep is not wanted.
            _ => None,
        };
        let Some(asleep_until) = asleep_until else {
            for _ in 0..SPINS {
                if let Some(arrival) = self.port.receive(buffer, Wait::No)? {
                    self.hand_in(&arrival, buffer);
                    return Ok(true);
                }
                if departure.is_some_and(|due| due <= monotonic()) {
                    return Ok(false);
                }
            }
            return Ok(false);
        };
        let arrival = if departure.is_none() && wake - now > NAP {
            // One call does all the waiting: the way with the fewest system calls.
            self.port.receive(buffer, Wait::AtMost(NAP))?
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
            self.hand_in(arrival, buffer);
        }
        Ok(arrival.is_some())
    }

    fn hand_in(&mut self, arrival: &Arrival, buffer: &[u8]) {
        let deepest = match arrival.rx {
            RxStamps { hw: Some(_), .. } => Some(Rung::Hw),
            RxStamps { kernel: Some(_), .. } => Some(Rung::KernelSw),
            _ => None,
        };
        self.heard.rx = self.heard.rx.max(deepest);
        let out = &mut deliver(&mut self.samples, self.shared);
        let message = &buffer[..arrival.len];
        // A message that is no reply of this run is counted by the pinger.
        let answered = self.pinger.receive(message, arrival.channel, arrival.rx, monotonic(), out);
        if let (Ok(id), Some(counter)) = (answered, self.pinger.protocol().socket_drops()) {
            if is_warm_up(id) {
                self.heard.far_drops.start_at(counter);
            } else {
                self.heard.far_drops.note(counter);
            }
        }
        let Some(id) = answered.ok().filter(|id| !is_warm_up(*id)) else { return };
        if let Some(ttl) = arrival.ttl {
            let _ = self.news.push(News::Ttl { id, ttl });
        }
        if let Some(paths) = &mut self.paths
            && paths.push(Path::of(self.pinger.protocol().hops())).is_err()
        {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take_notices(&mut self) {
        let Self { port, pinger, heard, samples, news, shared, family, .. } = self;
        let mut out = deliver(samples, shared);
        port.notices(NOTICES, &mut |notice| match notice {
            Notice::TxStamp { key, stamp } => {
                if stamp.point() != TxPoint::Sched && heard.tx != Some(TxPoint::Hw) {
                    heard.tx = Some(stamp.point());
                }
                pinger.tx_stamp(key, stamp, &mut out);
            }
            error @ Notice::Error { .. } => {
                if let Some(error) = NetworkError::of(&error, *family)
                    && heard.note_error(error)
                {
                    let _ = news.push(News::Unreachable(error));
                }
            }
        });
    }
}

/// Puts samples into the ring; one that finds it full is counted.
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
