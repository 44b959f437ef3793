//! The timing loop: joins the pinger to a socket and the clocks. Runs on a thread of its own;
//! allocates nothing, takes no lock, writes to no file. What it learns leaves through two bounded
//! rings, and a full ring is counted, never waited for.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dwell_engine::pinger::{Counts, Pinger};
use dwell_engine::protocol::Protocol;
use dwell_engine::stamps::{Sample, TxPoint};
use dwell_io::clock::{monotonic, realtime};
use dwell_io::port::{Notice, Port, SendError, Wait};
use dwell_units::{Instant, Monotonic, Nanos};
use rtrb::Producer;

/// Sleep until this long before a departure, then spin: a sleeping thread is woken 50 to 100 us
/// late (see "Timers" in the doctor's output for this machine).
const SPIN: Nanos = Nanos::from_micros(150);

/// Never asleep for longer than this, so that a stop is obeyed.
const NAP: Nanos = Nanos::from_millis(100);

/// After a stop, replies that are under way still count for this long.
const STOP_GRACE: Nanos = Nanos::from_millis(200);

/// Receive calls between two looks at the clock while spinning.
const SPINS: usize = 8;

/// Entries of the error queue taken at once.
const NOTICES: usize = 32;

/// What the timing thread shares with the main thread.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Set to end the run early.
    pub(super) stop: AtomicBool,
    /// Samples that found the ring full.
    pub(super) dropped: AtomicU64,
    /// The id after the highest that was sent; warm-up ids are the upper half.
    pub(super) next_id: AtomicU64,
}

/// Something the user should hear of while it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// ICMP or the kernel says that a probe did not get there.
    Unreachable(Notice),
    /// A probe could not be sent.
    SendFailed(SendError),
    /// Warm-up is over; the stamps that came during it.
    Counting {
        /// The deepest TX stamp point that delivered.
        tx: Option<TxPoint>,
    },
}

/// How the loop waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Never sleep.
    pub(super) busy_poll: bool,
    /// In closed loop one receive call does all the waiting.
    pub(super) closed_loop: bool,
    /// Kernel TX stamps were asked for.
    pub(super) tx_stamps: bool,
    /// End after warm-up if no kernel TX stamp came in it.
    pub(super) stamps_required: bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) counts: Counts,
    /// Probes without a fate when the run was stopped.
    pub(super) abandoned: u64,
    /// ICMP errors heard.
    pub(super) icmp_errors: u64,
    /// Kernel stamps were required and none came.
    pub(super) unstamped: bool,
    /// The socket failed for good, by errno.
    pub(super) broken: Option<i32>,
}

/// The loop's own state.
pub(super) struct Driver<'a, P, Q> {
    pub(super) port: &'a mut P,
    pub(super) pinger: &'a mut Pinger<Q>,
    pub(super) manner: Manner,
    pub(super) samples: Producer<Sample>,
    pub(super) news: Producer<News>,
    pub(super) shared: &'a Shared,
}

impl<P: Port, Q: Protocol> Driver<'_, P, Q> {
    /// Runs until every probe has its fate, or a stop.
    pub(super) fn run(mut self, buffer: &mut [u8]) -> Ended {
        let mut heard = Heard::default();
        let mut stopping: Option<Instant<Monotonic>> = None;
        let mut drained = monotonic();
        let mut warm = self.pinger.is_warming_up();
        let mut ended = Ended {
            counts: Counts::default(),
            abandoned: 0,
            icmp_errors: 0,
            unstamped: false,
            broken: None,
        };
        loop {
            let now = monotonic();
            self.with_pinger(|pinger, out| pinger.expire(now, out));
            if warm && !self.pinger.is_warming_up() && self.pinger.departure() <= Some(now) {
                warm = false;
                self.take_notices(&mut heard);
                self.pinger.await_stamp(heard.deepest);
                let _ = self.news.push(News::Counting { tx: heard.deepest });
                ended.unstamped = self.manner.stamps_required && heard.deepest.is_none();
            }
            let Some(wake) = self.pinger.wake().filter(|_| !ended.unstamped) else { break };
            if stopping.is_none() && self.shared.stop.load(Ordering::Relaxed) {
                self.pinger.stop();
                stopping = Some(now + STOP_GRACE);
            }
            if stopping.is_some_and(|until| until <= now) {
                break;
            }
            self.send_due(now, &mut heard);
            match self.wait(now, wake, buffer) {
                Ok(true) => {
                    self.take_replies(buffer, &mut ended);
                    if self.manner.tx_stamps {
                        self.take_notices(&mut heard);
                        drained = now;
                    }
                }
                Ok(false) if now - drained > Nanos::from_millis(1) => {
                    self.take_notices(&mut heard);
                    drained = now;
                }
                Ok(false) => {}
                Err(error) => ended.broken = Some(error.raw_os_error().unwrap_or(libc_eio())),
            }
            if ended.broken.is_some() {
                break;
            }
        }
        self.take_notices(&mut heard);
        ended.abandoned = self.with_pinger(|pinger, out| pinger.abandon(out));
        ended.counts = self.pinger.counts();
        ended.icmp_errors = heard.errors;
        ended
    }
}
