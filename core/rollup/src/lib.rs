//! Records of continuous measurement: what an agent writes to its spool, a carrier ships, and a hub
//! stores. Roll-ups of probes per interval with mergeable histograms, the status of a node, and
//! samples; the encoding of records; the sets of sequence numbers that receipts consist of; the
//! schedule that a node executes and its local limits; the names of files in a spool, and the records in
//! them that are next; the messages of a bus.
//!
//! `docs/formats.md` describes the formats. This crate reads no clock and no file.

#![forbid(unsafe_code)]

mod bus;
mod bytes;
mod codec;
mod delay_rollup;
mod histogram;
mod interval;
mod name;
mod ranges;
mod record;
mod rollup;
mod schedule;
mod send_budget;
mod spool_layout;
mod spool_selection;
mod status;

pub use bus::{
    Answer, BusError, CONSUMER, MAX_ANSWER_LEN, MAX_ASKED_INCARNATIONS, MAX_QUESTION_LEN, Question,
    STREAM, Subject, inbox_prefix, permitted_subjects,
};
pub use codec::{
    CodecError, HEAD_LEN, Identity, MAX_MESSAGE_LEN, Piece, Pieces, VERSION, pieces, written_at,
};
pub use delay_rollup::DelayRollup;
pub use histogram::{Bin, Histogram, MAX_DELAY};
pub use interval::{ClockStep, Collector, NodeClocks, StepWatch};
pub use name::{MAX_NAME_LEN, Name, NameError};
pub use ranges::{RangeSet, RangeSetError};
pub use record::{Body, BootId, Incarnation, InvalidIncarnation, Record, SampleBlock};
pub use rollup::{ClockQuality, Level, ProbeCounts, Rollup, RollupMetric, Stream};
pub use schedule::{
    ASSUMED_PAYLOAD, DailyWindow, HEADERS_LEN, LocalLimits, MAX_SCHEDULE_LEN, NodeSchedule, Prefix,
    Refusal, ScheduleEntry, ScheduleError,
};
pub use send_budget::SendBudget;
pub use spool_layout::{
    DEFAULT_SPOOL_DIR, InvalidRecordFile, MAX_RECEIPTS_LEN, PAUSE_FILE, PAUSE_LOCK_FILE,
    RECEIPTS_DIR, RecordFile, SCHEDULE_FILE, SPOOL_LEVELS, STATE_FILE, STATUS_FILE, SpoolCursor,
    SpoolState, StatusFile, UPLINK_LOCK_FILE, find_spool_dir, level_dir,
};
pub use spool_selection::{Selection, select_records};
pub use status::{DroppedCounts, DroppedRecords, Pause, PauseInterval, Status, StreamFault};
