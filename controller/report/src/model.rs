//! Input of a report: a run, already summarised, so that its size does not grow with the number of
//! samples.

pub mod axes;
mod claim;
pub(crate) mod distribution;
pub(crate) mod host;
pub mod metric;
mod plan;
mod published;
pub mod quantity;
mod run;
pub(crate) mod samples;
mod smoke;
pub(crate) mod table;

pub use claim::{Claim, ClaimMetric, ClaimUnit, ClaimVerdict, JudgedClaims};
pub use dwell_record::TrialState;
pub use dwell_record::series::{Hampel, Point, Series, Step, TimeBin};
pub use host::{HostData, HostSeries, HostWanted, Quantity};
pub use plan::RunPlan;
pub use published::{Published, PublishedLevel, PublishedLimit, PublishedRate, PublishedSender};
pub use run::{Axis, MachineData, PacketData, RunData, TrialData};
pub use samples::SampleReader;
pub use smoke::{SmokeDelays, SmokeSeries, SmokeStep};
