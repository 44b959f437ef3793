//! What a relay counts, and what ended it.

use std::io;

use dwell_engine::relay::flows::FlowCounts;
use dwell_engine::relay::seal::SealError;

/// What was counted of one way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    /// Packets that came.
    pub(super) received: u64,
    /// Packets that were sent on.
    pub(super) relayed: u64,
    /// Bytes of payload in those, as they came.
    pub(super) bytes: u64,
    /// Of those, the ones with nothing beyond their clear bytes.
    pub(super) short: u64,
    /// Packets too short to be encrypted.
    pub(super) unsealed: u64,
    /// Packets whose tag does not hold, and connections ended for that.
    pub(super) unauthentic: u64,
    /// Packets that were accepted before, and connections that carried a stream again.
    pub(super) replayed: u64,
    /// Packets older than the replay window.
    pub(super) too_old: u64,
    /// Packets whose salt did not fit the table of salts.
    pub(super) too_many_salts: u64,
    /// Connections that ended before the end of their stream.
    pub(super) truncated: u64,
    /// Packets too long for the path.
    pub(super) too_long: u64,
    /// Packets that could not be sent for another reason.
    pub(super) send_failed: u64,
    /// Packets that had an empty slot of telemetry, which was filled.
    pub(super) telemetry_filled: u64,
}

impl Traffic {
    /// Counts a packet that the cipher refused.
    pub(super) fn refuse(&mut self, error: SealError) {
        *match error {
            SealError::Unauthentic => &mut self.unauthentic,
            SealError::Replayed => &mut self.replayed,
            SealError::TooOld => &mut self.too_old,
            SealError::TooManySalts => &mut self.too_many_salts,
            SealError::TooLong => &mut self.too_long,
            SealError::Unsealed | SealError::Short | SealError::NoSalt => &mut self.unsealed,
        } += 1;
    }
}

/// What was counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// There and back.
    pub(super) ways: [Traffic; 2],
    pub(super) flows: FlowCounts,
    pub(super) unserved: Unserved,
    pub(super) icmp_errors: u64,
    /// Packets that found no room in a receive buffer.
    pub(super) overflowed: u64,
}

/// Times that a client could not be served, by reason. Of datagrams, each that comes is a try.
#[derive(Debug, Default)]
pub(super) struct Unserved {
    /// The far end refused, or there was no way to it.
    pub(super) refused: Failures,
    /// This machine had no socket, thread or memory for it.
    pub(super) here: Failures,
    /// All seats were taken.
    pub(super) no_seat: u64,
}

impl Unserved {
    /// For any reason.
    pub(super) fn all(&self) -> u64 {
        self.refused.times + self.here.times + self.no_seat
    }
}

/// How often something failed, and how it did the first time.
#[derive(Debug, Default)]
pub(super) struct Failures {
    pub(super) times: u64,
    pub(super) first: Option<io::Error>,
}

impl Failures {
    pub(super) fn note(&mut self, error: io::Error) {
        self.times += 1;
        self.first.get_or_insert(error);
    }
}

/// A relay that ended: what it had counted, and what ended it before it was stopped.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) counts: Counts,
    pub(super) failure: Option<io::Error>,
}
