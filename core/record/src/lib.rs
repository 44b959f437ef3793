//! Output of a measurement: the summary object, rows per probe as CSV or JSON lines, and segments
//! with every timestamp of every sample.
//!
//! Objects and segments are versioned; `docs/schema/` and `docs/formats.md` describe them. This
//! crate only formats figures and samples. It does not know how they were measured or where the
//! output goes.

#![forbid(unsafe_code)]

mod batch;
mod column;
mod columns;
mod departure_times;
mod driver_stamps;
mod environment;
mod node_value;
mod roundtrip_csv;
mod row;
mod rows;
pub mod segment;
pub mod series;
mod spikes;
mod summary;
mod trial_state;
mod trust;
mod trust_warning;
mod warning;

pub use batch::Batch;
pub use column::Column;
pub use columns::{BatchStatistics, ColumnFigures, all_valid};
pub use departure_times::{DepartureCollector, DepartureTimes};
pub use driver_stamps::{DriverStamps, DriverTx, Layer, LayerDelay};
pub use dwell_host::{Cause, CauseKind, CpuUse};
pub use environment::{CpuIdle, Ends, Environment, Placement, Scheduling, Waiting};
pub use node_value::{clock_error_value, clock_value, quota_value};
pub use rows::RowFormat;
pub use spikes::{CauseTotal, MAX_CAUSES, MAX_SPIKES, Spike, SpikePart, Spikes};
pub use summary::{
    CUT_SHORT, Figures, Kind, Packets, SEGMENT, Scalar, Stamps, Summary, SummaryError, Train,
    by_name, component_metrics, metrics, values,
};
pub use trial_state::TrialState;
pub use trust::{Clocks, NicDropped, PairingRecord, Trust};
pub use trust_warning::{Severity, TrustWarning, UNCLASSIFIED};
pub use warning::Warning;
