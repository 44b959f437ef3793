//! Protocol between a controller and a node over a pipe: requests one way; events and pieces of
//! segments the other.
//!
//! A frame is u32 length (little-endian), u8 kind, payload. Kind `J` is a message in JSON, kind `D`
//! a piece of a segment: u32 job, then bytes. This crate opens no pipe; readers and writers are
//! passed in.

#![forbid(unsafe_code)]

mod frame;
mod job;
mod message;

pub use dwell_sample::PaceEngine;
pub use frame::{Frame, FrameError, MAX_PAYLOAD_LEN, read_frame, write_data, write_message};
pub use job::{
    BulkJob, Cipher, ClearPrefix, ClearPrefixError, CpuJob, DriverMode, FlowFilter,
    FlowFilterError, FlowParameters, FlowProtocol, Generator, Hold, HoldAt, HoldError, IcmpSocket,
    IdFormat, ItgJob, ItgSinkJob, Job, KeySource, Limit, LimitError, NamedSize, NamedSizeError,
    NodePreset, NodeSimJob, NodeSimParameters, PaceJob, PaceKind, PaceParameters, PaceSinkJob,
    ParameterError, Pattern, PingJob, PingParameters, ProbeStamps, ReflectEngine, ReflectJob,
    RelayEngine, RelayJob, RelayMode, RelayParameters, Scheduling, SinkJob, SinkTimestamps, Stamps,
    ThreadPlacement, TraceHook, TraceJob, TrafficHeader, TrafficJob, engine_name,
};
pub use message::{
    Event, JobId, Lease, MAX_PULL_LEN, MAX_SEGMENT_LEN, Progress, Request, SpoolAnswer,
    SpoolRequest, VERSION,
};

/// Environment variable of a node: process id of the controller that started it on the same
/// machine. The CPU time of that process and its descendants counts as the run's own.
pub const RUNNER_PID: &str = "DWELL_RUNNER_PID";
