//! What a measurement leaves behind: the summary object, one row per probe as CSV or JSON lines, and
//! segments with every stamp of every sample.
//!
//! Objects and segments carry a version; `docs/schema/` and `docs/formats.md` describe them all. This crate
//! turns figures and samples into text; how they were measured and where the text goes is not
//! known here.

#![forbid(unsafe_code)]

mod batch;
mod column;
mod columns;
mod departed;
mod environment;
mod quota;
mod row;
mod rows;
mod s4;
pub mod segment;
pub mod series;
mod summary;
mod trust;

pub use batch::Batch;
pub use column::Column;
pub use columns::{ColumnFigures, Columns, all_count};
pub use departed::{Departed, Departing};
pub use dwell_host::CpuUse;
pub use environment::{Ends, Environment, Placement, Scheduling, Waiting};
pub use quota::quota_value;
pub use rows::RowFormat;
pub use summary::{
    CUT_SHORT, Figures, Kind, Packets, Scalar, Stamps, Summary, SummaryError, Train, metrics,
    values,
};
pub use trust::{Clocks, NicDropped, PairingRecord, Trust};
