//! Requests of a controller and events of a node.

pub use dwell_plan::Job;
use dwell_record::Summary;
use serde::{Deserialize, Serialize};

/// The version of this protocol. A node tells its own; a controller refuses another.
pub const VERSION: u32 = 1;

/// A job, by the number that the controller gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u32);

/// What a controller asks of a node. The end of the pipe asks it to end everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// Do this. Answered by [`Event::Ready`] or [`Event::Failed`].
    Start {
        /// A number not used before on this pipe.
        job: JobId,
        /// What to do.
        what: Job,
        /// Keep its samples until they are pulled.
        #[serde(default)]
        samples: bool,
    },
    /// End it. Answered by [`Event::Finished`] or [`Event::Failed`].
    Stop {
        /// The job.
        job: JobId,
    },
    /// Hand over the samples of a finished job, and forget them. Answered by pieces of its segment,
    /// and [`Event::Pulled`].
    Pull {
        /// The job.
        job: JobId,
    },
    /// Answer at once with [`Event::Alive`]: whoever does not is hung, or stopped.
    Hail {
        /// The job on whose behalf it is asked, in the answer again.
        job: JobId,
    },
}

/// What a node tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// Comes first, unasked.
    Hello {
        /// [`VERSION`] of the node.
        version: u32,
        /// Which build of dwell is there, like `0.1.0+4f2a9c01b2d3`.
        dwell: String,
        /// Its host name.
        node: String,
        /// The jobs it can do, by the names of [`Job::name`].
        jobs: Vec<String>,
    },
    /// The job has begun: a server answers, a load is under way, a measurement runs.
    Ready {
        /// The job.
        job: JobId,
    },
    /// How far a measurement is; at most two a second.
    Progress {
        /// The job.
        job: JobId,
        /// How far.
        progress: Progress,
    },
    /// The job has ended.
    Finished {
        /// The job.
        job: JobId,
        /// What it found.
        summary: Box<Summary>,
        /// Bytes of its segment, if samples were to be kept.
        segment_bytes: Option<u64>,
    },
    /// The job could not be done, or not to its end.
    Failed {
        /// The job.
        job: JobId,
        /// Why, in words for people.
        reason: String,
        /// It is not to be had on this node, whoever asks: no support, or no privilege.
        #[serde(default)]
        unsupported: bool,
    },
    /// The answer to [`Request::Hail`].
    Alive {
        /// The job of the question.
        job: JobId,
    },
    /// The segment is handed over.
    Pulled {
        /// The job.
        job: JobId,
        /// How long it was.
        bytes: u64,
        /// CRC-32 of all of it.
        crc32: u32,
    },
}

/// How far a measurement is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Probes sent.
    pub sent: u64,
    /// Of those, lost.
    pub lost: u64,
    /// Median round trip so far.
    pub p50_ns: Option<i64>,
    /// 99th percentile so far.
    pub p99_ns: Option<i64>,
}
