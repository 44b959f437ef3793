//! Counters of a relay and the reason it ended.

use std::io;

use dwell_engine::relay::datagram_ctr::SealError;
use dwell_engine::relay::flows::FlowCounts;

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    /// Packets received.
    pub(super) received: u64,
    /// Packets sent.
    pub(super) relayed: u64,
    /// Payload bytes of relayed packets, as received.
    pub(super) bytes: u64,
    /// Relayed packets without any byte beyond the clear prefix.
    pub(super) short: u64,
    /// Packets too short to be encrypted.
    pub(super) unsealed: u64,
    /// Packets with an invalid tag, and connections reset for that reason.
    pub(super) unauthentic: u64,
    /// Packets accepted before, and connections that repeated an earlier stream.
    pub(super) replayed: u64,
    /// Packets older than the replay window.
    pub(super) too_old: u64,
    /// Packets whose salt did not fit into the table of salts.
    pub(super) too_many_salts: u64,
    /// Connections that ended before the end of their stream.
    pub(super) truncated: u64,
    /// Packets longer than the path allows.
    pub(super) too_long: u64,
    /// Packets not sent for another reason.
    pub(super) send_failed: u64,
    /// Packets with an empty telemetry slot that this relay filled.
    pub(super) telemetry_filled: u64,
}

impl Traffic {
    /// Counts a packet that the cipher rejected.
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

/// All counters of a relay.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Forward and backward, indexed by `FlowDirection`.
    pub(super) directions: [Traffic; 2],
    pub(super) flows: FlowCounts,
    pub(super) unserved: Unserved,
    pub(super) icmp_errors: u64,
    /// Packets dropped because a receive buffer was full.
    pub(super) overflowed: u64,
}

/// Failures to serve a client, by reason. Every datagram of such a client counts.
#[derive(Debug, Default)]
pub(super) struct Unserved {
    /// The far end refused or was unreachable.
    pub(super) refused: Failures,
    /// This machine had no socket, thread or memory left.
    pub(super) here: Failures,
    /// The maximum number of connections was reached.
    pub(super) limit_reached: u64,
}

impl Unserved {
    /// Returns the sum over all reasons.
    pub(super) fn all(&self) -> u64 {
        self.refused.times + self.here.times + self.limit_reached
    }
}

/// Number of failures, and the first error.
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

/// Final state of a relay: its counters, and the error that ended it early.
#[derive(Debug, Default)]
pub(super) struct FinalState {
    pub(super) counts: Counts,
    pub(super) failure: Option<io::Error>,
}
