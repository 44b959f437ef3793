//! Host activity during a measurement: parsers of what Linux reports about processors and radios,
//! and time series of successive readings. Also results of 802.11 Fine Timing Measurement. Parsers accept any text, and unknown text yields no
//! values. Opens no files; `dwell-io` reads them.

#![forbid(unsafe_code)]

mod cpu_stats;
mod cpu_use;
mod ftm;
mod series;
mod wireless;

pub use cpu_stats::{CpuTimes, Stat, run_delays, stat, thread_wait};
pub use cpu_use::{CpuUse, Process, Snapshot, family_ticks, is_ancestor, process};
pub use ftm::{FTM_STEP_PS, FTM_WRAP_PS, FtmResults, FtmRoundTrip};
pub use series::{HostSample, Readings, Series};
pub use wireless::{Channel, Radio, radios, survey};
