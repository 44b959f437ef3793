//! What a controller and a node say to each other over a pipe: requests one way, events the other,
//! and the bytes of segments between events.
//!
//! A frame is u32 length (little-endian), u8 kind, payload. Kind `J` is a message as JSON, kind `D`
//! a piece of a segment: u32 job, then bytes. Nothing here opens a pipe; what reads and writes is
//! handed in.

#![forbid(unsafe_code)]

mod frame;
mod message;

pub use frame::{Frame, FrameError, MOST, read_frame, write_data, write_message};
pub use message::{Event, Job, JobId, Progress, Request, VERSION};

/// Environment variable of a node: process number of the controller that started it on the same
/// machine. The CPU time of that process and its descendants is the run's own.
pub const RUNNER_PID: &str = "DWELL_RUNNER_PID";
