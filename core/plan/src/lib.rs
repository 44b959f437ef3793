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
mod fields;
mod flow;
mod lab_file;
mod limits;
mod measurement;
mod messages;
mod pacing;
mod path;
mod plan;
mod probe_size;
mod source;
mod topology;

pub use axis::{AxisValues, Quantity};
pub use error::{PlanError, Position};
pub use estimate::Estimate;
pub use expand::{Cell, Expansion, Trial, expand};
pub use flow::{FlowPlan, ForwardingMode, RelayPlan, TracePlan, TraceSetting};
pub use measurement::{Measurement, MeasurementKind};
pub use pacing::{Accurate, AccurateError, CrossPlan, PacePlan};
pub use plan::{
    Constraint, CpuLoad, Load, NodeSettings, Order, PingPlan, Plan, ReflectPlan, StopRules,
    TrafficLoad, Transport, Trials,
};
pub use probe_size::ProbeSize;
pub use source::Source;
pub use topology::{LabSpec, LabSpecError, LabTopology, LinkPlan, Quota, Routing, Topology};
