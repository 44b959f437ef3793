//! Experiment plans: what to measure, over which parameters, how often and in which order, and the
//! jobs that nodes are given for it.
//!
//! A plan is a TOML file. [`Source`] keeps the text and the positions in it, so that every error
//! points at a line; [`Plan`] is what the file says; [`Plan::expand`](expand::expand) turns it into
//! [`Trial`]s. Nothing here opens a file, reads a clock or draws luck of its own.

#![forbid(unsafe_code)]

mod axis;
mod constraint;
mod error;
mod estimate;
mod expand;
mod job;
mod lab_file;
mod limits;
mod pacing;
mod path;
mod plan;
mod relaying;
mod source;
mod words;

pub use axis::{AxisValues, Quantity};
pub use error::{PlanError, Position};
pub use estimate::Estimate;
pub use expand::{Cell, Expansion, Trial, expand};
pub use job::{
    BulkJob, Cipher, Clear, CpuJob, FarStamps, FlowFilter, FlowFilterError, FlowProtocol,
    Generator, Hold, HoldAt, IcmpSocket, IdFormat, ItgJob, ItgSinkJob, Job, KeySource, Limit,
    PaceEngine, PaceJob, PacePattern, PaceSinkJob, PaceSize, Pattern, PingJob, Place, ReflectJob,
    RelayEngine, RelayJob, RelayMode, Scheduling, SinkJob, Stamps, TraceHook, TraceJob,
    TrafficHeader, TrafficJob,
};
pub use pacing::{
    Accurate, AccurateError, CrossPlan, NamedSize, NamedSizeError, PaceKind, PacePlan,
};
pub use plan::{
    ClaimSet, Constraint, CpuLoad, LinkPlan, Load, NodePlace, Order, PingPlan, Plan, Quota,
    ReflectPlan, Routing, StopRules, Topology, TrafficLoad, Transport, Trials,
};
pub use relaying::{FlowPlan, RelayPlan, Relaying, TracePlan, Tracing};
pub use source::Source;
