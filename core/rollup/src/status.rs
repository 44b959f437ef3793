//! State of a node and of its agent, written at the start of the agent and every five minutes. The
//! times of its record pair CLOCK_REALTIME and CLOCK_BOOTTIME; if the clock was synchronised, that
//! dates earlier records of the same boot whose CLOCK_REALTIME was wrong.

use serde::{Deserialize, Serialize};

use crate::name::Name;
use crate::ranges::RangeSet;
use crate::record::Incarnation;
use crate::rollup::{ClockQuality, Level};
use crate::schedule::Refusal;

/// State of a node. Fields that a newer agent adds are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Build of dwell, like `0.2.0+4f2a9c01b2d3`.
    pub dwell: String,
    /// Incarnation of the agent's sample records. They have sequence numbers of their own, so that those
    /// of roll-ups have no gaps while samples stay on the node.
    pub samples_incarnation: Option<Incarnation>,
    /// Version of the schedule in effect; 0 without one.
    pub schedule_version: u64,
    /// Number of streams that send probes.
    pub streams: u64,
    /// Entries that the local limits refuse.
    pub refused: Vec<Refusal>,
    /// Streams that cannot run.
    pub faults: Vec<StreamFault>,
    /// Why the node does not answer probes.
    pub reflector_error: Option<String>,
    /// Why the last schedule that arrived is not in effect.
    pub schedule_error: Option<String>,
    /// Bytes in the spool.
    pub spool_bytes: u64,
    /// Maximum size of the spool in bytes.
    pub spool_limit_bytes: u64,
    /// First error of writing to the spool since the last status.
    pub spool_error: Option<String>,
    /// Records dropped from a full or damaged spool since it was created, without the ones named in
    /// receipts.
    pub dropped: DroppedCounts,
    /// The same records, by sequence number, since the last status.
    pub dropped_since: Vec<DroppedRecords>,
    /// Bytes of records in the spool that were damaged or incomplete, since it was created.
    pub damaged_bytes: u64,
    /// Samples that no roll-up contains, since the start of the agent: a ring was full.
    pub samples_lost: u64,
    /// Blocks of samples lost because the medium of the spool stalled, since the start of the agent.
    pub sample_blocks_lost: u64,
    /// Replies that arrived after their interval was written, since the start of the agent. Their
    /// probes are counted as lost or as already answered.
    pub replies_after_record: u64,
    /// The pause in effect.
    pub pause: Option<Pause>,
    /// Pauses that ended since the last status.
    pub pauses: Vec<PauseInterval>,
    /// Whether CLOCK_REALTIME is synchronised.
    pub clock_synchronised: bool,
    /// Maximum error of CLOCK_REALTIME against UTC in nanoseconds; `None` unless synchronised.
    pub clock_bound_ns: Option<u64>,
    /// Number of steps of CLOCK_REALTIME since the start of the agent.
    pub clock_steps: u64,
}

/// Number of records dropped, by level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DroppedCounts {
    /// Of samples.
    pub samples: u64,
    /// Of 10 s.
    #[serde(rename = "10s")]
    pub ten_seconds: u64,
    /// Of 5 min, and status records.
    #[serde(rename = "5m")]
    pub five_minutes: u64,
}

impl DroppedCounts {
    /// The count of a level that nodes write.
    pub const fn of_mut(&mut self, level: Level) -> &mut u64 {
        match level {
            Level::Samples => &mut self.samples,
            Level::TenSeconds => &mut self.ten_seconds,
            Level::FiveMinutes | Level::Hour | Level::Day => &mut self.five_minutes,
        }
    }
}

/// Records of one level that no hub will receive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedRecords {
    /// Start of the agent that wrote them.
    pub incarnation: Incarnation,
    /// Name of the level.
    pub level: String,
    /// Sequence numbers.
    pub sequences: RangeSet,
}

/// A stream that cannot run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamFault {
    /// Schedule entry.
    pub entry: Name,
    /// Reason, for a person.
    pub reason: String,
}

/// A request to send no probes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pause {
    /// Reason, such as the run that uses the device.
    pub reason: String,
    /// CLOCK_REALTIME of its start in nanoseconds.
    pub since_wall_ns: i64,
}

/// A pause that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PauseInterval {
    /// Reason.
    pub reason: String,
    /// CLOCK_REALTIME of its start in nanoseconds.
    pub from_wall_ns: i64,
    /// CLOCK_REALTIME of its end in nanoseconds.
    pub to_wall_ns: i64,
}

impl Status {
    /// The clock, as in roll-ups.
    pub const fn clock(&self) -> ClockQuality {
        ClockQuality {
            is_synchronised: self.clock_synchronised,
            was_stepped: false,
            is_one_clock: false,
            bound_ns: self.clock_bound_ns,
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a status has no map with other keys than text")
    }

    pub(crate) fn from_json(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }
}
