//! What is shown of a machine: the names of its series taken together.

use serde::{Deserialize, Serialize};

use crate::quantity::{count, delay, share, significant, three_digits};

/// A quantity of a machine, over all its processors, zones or interfaces; in the order of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Share of the time that processors worked: the mean over them.
    CpuUse,
    /// Share of the time that a hypervisor took from them: the mean over them.
    Steal,
    /// Waiting of threads that could have run, in nanoseconds per second: the sum over processors.
    RunQueueWait,
    /// The same of the measuring process alone.
    OwnRunQueueWait,
    /// In Hz: the mean over processors.
    Frequency,
    /// In degrees Celsius: the hottest zone.
    Temperature,
    /// Per second, of the whole machine.
    Interrupts,
    /// Strength of what is received (RSSI), in dBm: the strongest interface.
    Signal,
    /// Share of the time that a channel was busy: the busiest one surveyed.
    ChannelUse,
}

impl Quantity {
    /// Which one a name of a host series (`dwell_host::HostSample`) is part of.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "process_run_queue_wait_ns_per_s" => return Some(Self::OwnRunQueueWait),
            "interrupts_per_s" => return Some(Self::Interrupts),
            _ => {}
        }
        let numbered = |prefix: &str| {
            let (number, rest) = name.strip_prefix(prefix)?.split_once('_')?;
            (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(rest)
        };
        match (numbered("cpu"), numbered("thermal")) {
            (Some("busy_ratio"), _) => Some(Self::CpuUse),
            (Some("steal_ratio"), _) => Some(Self::Steal),
            (Some("run_queue_wait_ns_per_s"), _) => Some(Self::RunQueueWait),
            (Some("frequency_hz"), _) => Some(Self::Frequency),
            (_, Some("celsius")) => Some(Self::Temperature),
            _ if name.ends_with("_signal_dbm") => Some(Self::Signal),
            _ if name.ends_with("mhz_busy_ratio") => Some(Self::ChannelUse),
            _ => None,
        }
    }

    /// Takes another value of the same reading in.
    pub(super) fn join(self, all: f64, value: f64) -> f64 {
        match self {
            Self::Temperature | Self::Signal | Self::ChannelUse => all.max(value),
            _ => all + value,
        }
    }

    /// What so many values make that were joined.
    pub(super) fn joined(self, all: f64, count: u32) -> f64 {
        match self {
            Self::CpuUse | Self::Steal | Self::Frequency => all / f64::from(count.max(1)),
            _ => all,
        }
    }

    /// Whether a value is of the time since the reading before, and not of the moment.
    pub(super) fn is_of_a_time(self) -> bool {
        !matches!(self, Self::Frequency | Self::Temperature | Self::Signal)
    }

    /// Whether it is of a whole machine, and not of what runs in one of its network namespaces.
    pub(super) fn is_of_the_machine(self) -> bool {
        !matches!(self, Self::OwnRunQueueWait | Self::Signal | Self::ChannelUse)
    }

    /// As a sentence says it before "of n1".
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::CpuUse => "CPU use",
            Self::Steal => "the CPU time that a hypervisor took",
            Self::RunQueueWait => "the run-queue wait of all threads",
            Self::OwnRunQueueWait => "the run-queue wait of the measuring process",
            Self::Frequency => "the CPU frequency",
            Self::Temperature => "the temperature",
            Self::Interrupts => "the number of interrupts",
            Self::Signal => "the received signal (RSSI)",
            Self::ChannelUse => "the use of the busiest channel",
        }
    }

    /// As a heading, with the unit of [`Self::drawn`].
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::CpuUse => "CPU use [%]",
            Self::Steal => "CPU time taken by a hypervisor [%]",
            Self::RunQueueWait => "run-queue wait, all threads [ms/s]",
            Self::OwnRunQueueWait => "run-queue wait, measuring process [ms/s]",
            Self::Frequency => "CPU frequency [GHz]",
            Self::Temperature => "temperature, hottest zone [deg C]",
            Self::Interrupts => "interrupts [1/s]",
            Self::Signal => "received signal (RSSI) [dBm]",
            Self::ChannelUse => "busiest channel in use [%]",
        }
    }

    /// The value in the unit of its title.
    pub(crate) fn drawn(self, value: f64) -> f64 {
        let scaled = match self {
            Self::CpuUse | Self::Steal | Self::ChannelUse => value * 100.0,
            Self::RunQueueWait | Self::OwnRunQueueWait => value / 1e6,
            Self::Frequency => value / 1e9,
            Self::Temperature | Self::Interrupts | Self::Signal => value,
        };
        significant(scaled, 4)
    }

    /// The value with its unit, as a sentence says it.
    pub(crate) fn said(self, value: f64) -> String {
        match self {
            Self::CpuUse | Self::Steal | Self::ChannelUse => share(value),
            Self::RunQueueWait | Self::OwnRunQueueWait => format!("{} per second", delay(value)),
            Self::Frequency => format!("{} GHz", three_digits(value / 1e9)),
            Self::Temperature => format!("{} degrees Celsius", three_digits(value)),
            Self::Interrupts => format!("{} per second", count(value.max(0.0).round() as u64)),
            Self::Signal => format!("{} dBm", three_digits(value)),
        }
    }
}
