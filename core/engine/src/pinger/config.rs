//! Configuration and counters of a pinger.

use dwell_units::{Instant, Monotonic, Nanos};

/// Maximum time by which a probe of the warm-up is postponed.
const MAX_WARM_UP_DELAY: Nanos = Nanos::from_secs(1);

/// Departure schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeSchedule {
    /// Open loop: an absolute schedule with one probe per `interval`, independent of replies.
    Open {
        /// Time between intended departures. Must be positive.
        interval: Nanos,
    },
    /// Closed loop: each probe follows the reply to the last one, or its time-out.
    Closed {
        /// Pause after the reply (Chung 2021).
        pause: Nanos,
        /// Minimum time since the last departure.
        spacing: Nanos,
    },
}

impl ProbeSchedule {
    /// Time between intended departures, or for a closed loop the minimum time.
    pub const fn interval(self) -> Nanos {
        match self {
            Self::Open { interval } => interval,
            Self::Closed { spacing, .. } => spacing,
        }
    }
}

/// Configuration of a pinger.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Departure schedule.
    pub departures: ProbeSchedule,
    /// Number of counted probes; `None`: until stopped.
    pub count: Option<u64>,
    /// Maximum time from the first counted probe to the last.
    pub duration: Option<Nanos>,
    /// Time-out. A reply after it is late.
    pub timeout: Nanos,
    /// Number of warm-up probes before the first counted one. Their ids end just below 0 and they
    /// produce no samples. The last few, the run-up, are sent at the measured rate.
    pub warm_up: u32,
    /// Time between warm-up probes before the run-up.
    pub warm_up_interval: Nanos,
}

impl Config {
    /// Number of warm-up probes that are sent at the measured rate: three, or half if there are
    /// fewer than six.
    pub fn run_up(&self) -> u32 {
        (self.warm_up / 2).min(3)
    }

    /// Number of probes remembered, in flight or recently resolved: twice what the time-out allows,
    /// so that late replies are recognised for another time-out.
    pub(super) fn window(&self) -> usize {
        let in_flight = match self.departures {
            ProbeSchedule::Open { interval } => self.timeout.0 / interval.0.max(1),
            ProbeSchedule::Closed { .. } => 1,
        };
        let wanted = usize::try_from(in_flight).unwrap_or(0).saturating_mul(2).saturating_add(64);
        wanted.clamp(Self::MIN_WINDOW, Self::MAX_WINDOW).next_power_of_two()
    }

    /// Whether all probes in flight within the time-out fit the window. If not, probes are declared
    /// lost early.
    pub fn fits_window(&self) -> bool {
        match self.departures {
            ProbeSchedule::Open { interval } => {
                self.timeout.0 / interval.0.max(1) < Self::MAX_WINDOW as i64
            }
            ProbeSchedule::Closed { .. } => true,
        }
    }

    /// Time by which the next probe is postponed if it is skipped. Not generic, as the pinger is.
    #[inline(never)]
    pub(super) fn skipped_time(&self, is_warming_up: bool) -> Nanos {
        let interval = self.departures.interval();
        let wait = if is_warming_up { interval.min(MAX_WARM_UP_DELAY) } else { interval };
        wait.max(self.warm_up_interval)
    }

    /// The first departure at `earliest` or later of a schedule with a departure at `phase`.
    #[inline(never)]
    pub(super) fn in_phase(
        &self,
        phase: Option<Instant<Monotonic>>,
        earliest: Instant<Monotonic>,
    ) -> Instant<Monotonic> {
        match (phase, self.departures) {
            (Some(phase), ProbeSchedule::Open { interval }) => {
                earliest.saturating_add(Nanos((phase - earliest).0.rem_euclid(interval.0.max(1))))
            }
            _ => earliest,
        }
    }

    /// Minimum number of probes remembered.
    pub const MIN_WINDOW: usize = 4_096;
    /// Maximum number of probes remembered; they take about 60 MB.
    pub const MAX_WINDOW: usize = 1 << 18;
}

/// Counters of probes and replies, without the warm-up. `sent = received + lost + late +
/// outstanding`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Probes sent.
    pub sent: u64,
    /// Answered within the time-out.
    pub received: u64,
    /// Not answered, neither within the time-out nor later.
    pub lost: u64,
    /// Answered after the time-out.
    pub late: u64,
    /// Extra replies.
    pub duplicate: u64,
    /// Replies received after the reply to a later probe (RFC 4737).
    pub reordered: u64,
    /// Probes whose send call failed permanently.
    pub send_failed: u64,
    /// Messages that answer no probe of this run, by reason.
    pub rejected: Rejected,
    /// Replies reported without the expected kernel TX timestamp.
    pub tx_stamp_missing: u64,
    /// Replies whose T2 and T3 are impossible. Their samples contain no reflector data.
    pub remote_void: u64,
    /// Probes declared lost early because the window was full.
    pub window_overrun: u64,
    /// Warm-up probes sent.
    pub warm_up_sent: u64,
    /// Warm-up probes answered.
    pub warm_up_received: u64,
}

impl Counts {
    /// Adds the counters of another pinger.
    pub fn add(&mut self, other: &Self) {
        let Self {
            sent,
            received,
            lost,
            late,
            duplicate,
            reordered,
            send_failed,
            rejected,
            tx_stamp_missing,
            remote_void,
            window_overrun,
            warm_up_sent,
            warm_up_received,
        } = other;
        self.sent += sent;
        self.received += received;
        self.lost += lost;
        self.late += late;
        self.duplicate += duplicate;
        self.reordered += reordered;
        self.send_failed += send_failed;
        self.rejected.malformed += rejected.malformed;
        self.rejected.unknown += rejected.unknown;
        self.rejected.unauthentic += rejected.unauthentic;
        self.tx_stamp_missing += tx_stamp_missing;
        self.remote_void += remote_void;
        self.window_overrun += window_overrun;
        self.warm_up_sent += warm_up_sent;
        self.warm_up_received += warm_up_received;
    }
}

/// Rejected messages, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rejected {
    /// Not a message of this protocol.
    pub malformed: u64,
    /// Of another session, or with an id that was never sent or is no longer remembered.
    pub unknown: u64,
    /// The HMAC does not match.
    pub unauthentic: u64,
}
