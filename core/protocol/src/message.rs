//! Requests of a controller and events of a node.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use dwell_host::ClockState;
use dwell_record::Summary;
use dwell_rollup::{Incarnation, RangeSet, SpoolCursor, StatusFile};
use serde::{Deserialize, Serialize};

use crate::job::Job;

/// Protocol version. A node sends its own; a controller refuses any other.
pub const VERSION: u32 = 6;

/// Maximum length of a part of a segment in bytes.
pub const MAX_PULL_LEN: u64 = 8 << 20;

/// Maximum length of a segment in bytes.
pub const MAX_SEGMENT_LEN: u64 = 4 << 30;

/// Number of a job, assigned by the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u32);

/// Request of a controller to a node. The end of the pipe requests the end of all jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// Start a job. Answered by [`Event::Ready`] or [`Event::Failed`].
    Start {
        /// A number not used before on this pipe.
        job: JobId,
        /// The work to do.
        what: Job,
        /// Keep the samples until they are pulled.
        #[serde(default)]
        samples: bool,
    },
    /// End a job. Answered by [`Event::Finished`] or [`Event::Failed`].
    Stop {
        /// The job.
        job: JobId,
    },
    /// Transfer a part of the samples of a finished job, of at most [`MAX_PULL_LEN`] bytes. Answered
    /// by pieces of its segment and [`Event::Pulled`]. The samples are kept until another job starts
    /// after their last part was transferred.
    Pull {
        /// The job.
        job: JobId,
        /// Offset of the part in the segment in bytes.
        from: u64,
    },
    /// Answer at once with [`Event::Alive`]. A node that does not is hung or stopped.
    Hail {
        /// The job concerned; repeated in the answer.
        job: JobId,
    },
    /// Answer at once with [`Event::Clock`], also while jobs run. Also keeps a connection alive.
    Clock {
        /// Number of the exchange; repeated in the answer.
        id: u32,
    },
    /// Report the state of the clock and of its synchronisation daemons, answered by
    /// [`Event::ClockState`] within two seconds. The first of a connection runs other programs: not
    /// during a measurement.
    ClockState {
        /// Number of the request; repeated in the answer.
        id: u32,
    },
    /// Access the spool of the agent on this node. Answered by [`Event::Spool`], or
    /// [`Event::SpoolFailed`].
    Spool {
        /// Number of the request; repeated in the answer. Pieces of records carry it as their job.
        id: u32,
        /// Directory of the spool; `None` is that of the node's environment variable
        /// `DWELL_AGENT_SPOOL`, otherwise the default.
        #[serde(default)]
        dir: Option<PathBuf>,
        /// What to do.
        what: SpoolRequest,
    },
}

/// Access to the spool of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "spool", rename_all = "kebab-case")]
pub enum SpoolRequest {
    /// Report the last status of the agent.
    Status,
    /// Transfer the next records of a level, at most 512 KiB, without those that have receipts. Pieces
    /// precede the answer.
    Read {
        /// Name of the level: `samples`, `10s` or `5m`.
        level: String,
        /// Position from an earlier answer; `None` is the oldest record.
        #[serde(default)]
        from: Option<SpoolCursor>,
        /// Only records written in this span: first and last CLOCK_REALTIME in nanoseconds. `None` is
        /// all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        written: Option<(i64, i64)>,
    },
    /// Leave receipts: all sequence numbers that the hub has committed, by incarnation. The agent deletes
    /// the records.
    Receipts {
        /// The whole sets, which replace earlier ones.
        receipts: BTreeMap<Incarnation, RangeSet>,
    },
    /// Leave the schedule, which takes effect within a second.
    Schedule {
        /// JSON of a [`NodeSchedule`](dwell_rollup::NodeSchedule).
        schedule: String,
    },
    /// Pause the agent until this is withdrawn.
    Pause {
        /// Why; `None` ends the pause.
        #[serde(default)]
        reason: Option<String>,
    },
}

/// Answer to a [`SpoolRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "spool", rename_all = "kebab-case")]
pub enum SpoolAnswer {
    /// To [`SpoolRequest::Status`].
    Status {
        /// The status; `None` if no agent ever ran on this spool.
        status: Option<Box<StatusFile>>,
    },
    /// To [`SpoolRequest::Read`]: the pieces before this are complete.
    Read {
        /// Length of the records in bytes.
        bytes: u64,
        /// CRC-32 of the records.
        crc32: u32,
        /// Position after them, for the next request; `None` if there is no record yet.
        next: Option<SpoolCursor>,
        /// Whether more can be read now.
        has_more: bool,
    },
    /// To the others: done.
    Done,
}

/// Exclusive use of a device by a run. The default is that of an unknown run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// User and host of the controller, like `user@host`.
    pub owner: String,
    /// Name of the run in the owner's data directory.
    pub run: String,
    /// Time of its start in UTC (RFC 3339).
    pub since: String,
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, run, since } = self;
        if run.is_empty() {
            return f.write_str("another run");
        }
        write!(f, "run {run} of {owner} since {since}")
    }
}

/// Event of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// Sent first, without a request.
    Hello {
        /// [`VERSION`] of the node.
        version: u32,
        /// Build of dwell on the node, like `0.1.0+4f2a9c01b2d3`.
        dwell: String,
        /// Host name.
        node: String,
        /// Supported jobs, by the names of [`Job::name`].
        jobs: Vec<String>,
        /// Id of the running kernel (`/proc/sys/kernel/random/boot_id`): nodes of one kernel share
        /// CLOCK_REALTIME. The copy of a running virtual machine keeps the id. `None` if unreadable.
        #[serde(default)]
        boot_id: Option<String>,
    },
    /// Sent instead of [`Event::Hello`]: another run uses the device. The node ends.
    Leased {
        /// The other run.
        #[serde(flatten)]
        lease: Lease,
    },
    /// The job has begun: a server is listening, a load is active, or a measurement is running.
    Ready {
        /// The job.
        job: JobId,
    },
    /// Progress of a measurement; at most two per second.
    Progress {
        /// The job.
        job: JobId,
        /// The progress.
        progress: Progress,
    },
    /// The job has ended.
    Finished {
        /// The job.
        job: JobId,
        /// Results.
        summary: Box<Summary>,
        /// Length of its segment in bytes, if samples are kept.
        segment_bytes: Option<u64>,
    },
    /// The job failed.
    Failed {
        /// The job.
        job: JobId,
        /// Human-readable reason.
        reason: String,
        /// The job is unavailable on this node: not supported, or privilege missing.
        #[serde(default)]
        unsupported: bool,
    },
    /// The answer to [`Request::Hail`].
    Alive {
        /// The job of the request.
        job: JobId,
    },
    /// The answer to [`Request::Clock`]: the node's clocks, read together.
    Clock {
        /// Number of the request.
        id: u32,
        /// CLOCK_REALTIME in nanoseconds.
        realtime_ns: i64,
        /// CLOCK_MONOTONIC in nanoseconds.
        monotonic_ns: i64,
        /// CLOCK_MONOTONIC_RAW in nanoseconds, which no daemon steers.
        raw_ns: i64,
        /// Width of the interval in which all were read, in nanoseconds.
        width_ns: i64,
    },
    /// The answer to [`Request::ClockState`].
    ClockState {
        /// Number of the request.
        id: u32,
        /// State of the clock.
        state: ClockState,
    },
    /// The answer to [`Request::Spool`].
    Spool {
        /// Number of the request.
        id: u32,
        /// The answer.
        answer: SpoolAnswer,
    },
    /// [`Request::Spool`] failed.
    SpoolFailed {
        /// Number of the request.
        id: u32,
        /// Human-readable reason.
        reason: String,
    },
    /// A part of a segment has been transferred.
    Pulled {
        /// The job.
        job: JobId,
        /// Offset of the part in bytes.
        from: u64,
        /// Length of the part in bytes.
        bytes: u64,
        /// CRC-32 of the part.
        crc32: u32,
        /// Length of the segment after the part in bytes.
        left: u64,
    },
}

/// Progress of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Probes sent.
    pub sent: u64,
    /// Probes lost.
    pub lost: u64,
    /// Median round-trip delay so far.
    pub p50_ns: Option<i64>,
    /// 99th percentile of the round-trip delay so far.
    pub p99_ns: Option<i64>,
}
