//! What a machine does while it measures: parsers of the texts in which Linux tells of processors and
//! radios, and the series that successive readings make. Total and bounded: a text that says nothing
//! gives nothing. Knows no file; `dwell-io` reads them.

#![forbid(unsafe_code)]

mod contention;
mod processor;
mod series;
mod wireless;

pub use contention::{CpuUse, Process, Snapshot, family_ticks, is_ancestor, process};
pub use processor::{CpuTimes, Stat, run_delays, stat, thread_wait};
pub use series::{HostSample, Readings, Series};
pub use wireless::{Channel, Radio, radios, survey};
