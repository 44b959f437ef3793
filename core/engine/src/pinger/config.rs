//! What a pinger is asked to do, and what it counts.

use dwell_units::Nanos;

/// When probes leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departures {
    /// Open loop: on an absolute schedule, one every `interval`, whatever comes back.
    Open {
        /// Time between intended departures; positive.
        interval: Nanos,
    },
    /// Closed loop: after the reply of the last probe or its time-out.
    Closed {
        /// Wait this long after the reply (S3.3).
        pause: Nanos,
        /// Never closer than this to the last departure.
        spacing: Nanos,
    },
}

/// What to send and how long to wait for it.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// When probes leave.
    pub departures: Departures,
    /// Number of counted probes; `None` is until stopped.
    pub count: Option<u64>,
    /// No probe leaves later than this after the first counted one.
    pub duration: Option<Nanos>,
    /// A reply after this is late.
    pub timeout: Nanos,
    /// Probes before the first counted one. They carry the ids just below 0 and leave no sample.
    /// The last few of them, the run-up, leave at the pace of those that count.
    pub warm_up: u32,
    /// Time between the other warm-up probes.
    pub warm_up_interval: Nanos,
}

impl Config {
    /// How many of the warm-up's probes leave at the pace of those that count: three, or half.
    pub fn run_up(&self) -> u32 {
        (self.warm_up / 2).min(3)
    }

    /// Probes that can be on their way or recently resolved at the same time: room for twice what
    /// the time-out allows, so that late replies are recognised for one more time-out.
    pub(super) fn window(&self) -> usize {
        let in_flight = match self.departures {
            Departures::Open { interval } => self.timeout.0 / interval.0.max(1),
            Departures::Closed { .. } => 1,
        };
        let wanted = usize::try_from(in_flight).unwrap_or(0).saturating_mul(2).saturating_add(64);
        wanted.clamp(Self::MIN_WINDOW, Self::MAX_WINDOW).next_power_of_two()
    }

    /// Whether all probes that the time-out allows fit the window. If not, probes are declared
    /// lost before their time-out.
    pub fn fits_window(&self) -> bool {
        match self.departures {
            Departures::Open { interval } => {
                self.timeout.0 / interval.0.max(1) < Self::MAX_WINDOW as i64
            }
            Departures::Closed { .. } => true,
        }
    }

    /// Fewest probes remembered.
    pub const MIN_WINDOW: usize = 4_096;
    /// Most probes remembered; about 60 MB.
    pub const MAX_WINDOW: usize = 1 << 18;
}

/// Probes and replies counted so far; warm-up excluded. `sent = received + lost + late +
/// outstanding`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Probes that left.
    pub sent: u64,
    /// Answered within the time-out.
    pub received: u64,
    /// Not answered within the time-out, nor later.
    pub lost: u64,
    /// Answered after the time-out.
    pub late: u64,
    /// Extra replies.
    pub duplicate: u64,
    /// Received ones that a later probe's reply had overtaken (RFC 4737).
    pub reordered: u64,
    /// Probes that the socket refused for good.
    pub send_failed: u64,
    /// Messages that are no reply to any probe of this run, by reason.
    pub rejected: Rejected,
    /// Replies told without the kernel TX stamp that was expected.
    pub tx_stamp_missing: u64,
    /// Replies whose T2 and T3 cannot be true. Their samples are without what the far end says.
    pub remote_void: u64,
    /// Probes declared lost early because the window was full.
    pub window_overrun: u64,
    /// Warm-up probes that left.
    pub warm_up_sent: u64,
    /// Warm-up probes that were answered.
    pub warm_up_received: u64,
}

/// Messages that were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rejected {
    /// Not of the protocol's form.
    pub malformed: u64,
    /// Another session's, or an id that was never sent or is long forgotten.
    pub unknown: u64,
    /// The HMAC does not match.
    pub unauthentic: u64,
}
