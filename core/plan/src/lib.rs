//! Experiment plans: what to measure, over which parameters, how often and in which order; and the
//! resulting jobs of nodes.
//!
//! A plan is a TOML file. [`Source`] keeps its text and positions, so that every error points at a
//! line. [`Plan`] is the parsed file, and [`Plan::expand`](expand::expand) turns it into
//! [`Trial`]s. This crate opens no files, reads no clock and uses no random source of its own.

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
mod flow;
mod source;
mod messages;

pub use axis::{AxisValues, Quantity};
pub use error::{PlanError, Position};
pub use estimate::Estimate;
pub use expand::{Cell, Expansion, Trial, expand};
pub use job::{
    BulkJob, Cipher, ClearPrefix, CpuJob, SinkTimestamps, FlowFilter, FlowFilterError, FlowProtocol,
    Generator, Hold, HoldAt, IcmpSocket, IdFormat, ItgJob, ItgSinkJob, Job, KeySource, Limit,
    PaceEngine, PaceJob, PacePattern, PaceSinkJob, PaceSize, Pattern, PingJob, ThreadPlacement, ReflectJob,
    RelayEngine, RelayJob, RelayMode, Scheduling, SinkJob, Stamps, TraceHook, TraceJob,
    TrafficHeader, TrafficJob,
};
pub use pacing::{
    Accurate, AccurateError, CrossPlan, NamedSize, NamedSizeError, PaceKind, PacePlan,
};
pub use plan::{
    ClaimSet, Constraint, CpuLoad, LinkPlan, Load, NodeSettings, Order, PingPlan, Plan, Quota,
    ReflectPlan, Routing, StopRules, Topology, TrafficLoad, Transport, Trials,
};
pub use flow::{FlowPlan, RelayPlan, ForwardingMode, TracePlan, TraceSetting};
pub use source::Source;
