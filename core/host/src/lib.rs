//! Host activity during a measurement: parsers of what Linux reports about processors and radios,
//! time series of successive readings, results of 802.11 Fine Timing Measurement, and the causes of
//! a round trip's delay on this machine. Parsers accept any text, and unknown text yields no
//! values. Opens no files; `dwell-io` reads them.

#![forbid(unsafe_code)]

mod clock_state;
mod cpu_stats;
mod cpu_use;
mod delay_cause;
mod ftm;
mod kernel_event;
pub mod netlink;
pub mod nl80211;
mod series;
mod wireless;

pub use clock_state::{ChronyTracking, ClockState, KernelClock, PtpStatus};
pub use cpu_stats::{CpuTimes, Stat, run_delays, stat, thread_wait};
pub use cpu_use::{CpuUse, Process, Snapshot, family_ticks, is_ancestor, process};
pub use delay_cause::{Cause, CauseKind, DelayParts, DelayWindow, Part, UsualDelay};
pub use ftm::{FTM_STEP_PS, FTM_WRAP_PS, FtmResults, FtmRoundTrip};
pub use kernel_event::{Interrupt, KernelAction, KernelEvent, KernelName, Left};
pub use nl80211::{Channel, Network, Station, WirelessInterface};
pub use series::{HostSample, Readings, Series, scan_sample};
pub use wireless::{Radio, neighbouring_channels, radios};
