//! Quantities of a machine, each combined from several host series.

use crate::model::quantity::{count, delay, share, significant, three_digits};

/// A quantity over all CPUs, thermal zones or interfaces of a machine, in the order of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// Share of CPU time in use: mean over CPUs.
    CpuUse,
    /// Share of CPU time taken by the hypervisor: mean over CPUs.
    Steal,
    /// Run-queue wait of all threads in nanoseconds per second: sum over CPUs.
    RunQueueWait,
    /// Run-queue wait of the measuring process in nanoseconds per second.
    OwnRunQueueWait,
    /// CPU frequency in Hz: mean over CPUs.
    Frequency,
    /// Temperature in degrees Celsius: maximum over zones.
    Temperature,
    /// Interrupts per second of the whole machine.
    Interrupts,
    /// Received signal strength (RSSI) in dBm: maximum over interfaces and stations.
    Signal,
    /// Share of time that a radio channel was busy: maximum over surveyed channels.
    ChannelUse,
}

impl Quantity {
    /// Quantity of a host series, by its name (`dwell_host::HostSample`).
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

    /// Combines another value of the same reading.
    pub(super) fn join(self, all: f64, value: f64) -> f64 {
        match self {
            Self::Temperature | Self::Signal | Self::ChannelUse => all.max(value),
            _ => all + value,
        }
    }

    /// Result of `count` combined values.
    pub(super) fn combined(self, all: f64, count: u32) -> f64 {
        match self {
            Self::CpuUse | Self::Steal | Self::Frequency => all / f64::from(count.max(1)),
            _ => all,
        }
    }

    /// Whether a value covers the time since the previous reading instead of an instant.
    pub(super) fn is_interval_value(self) -> bool {
        !matches!(self, Self::Frequency | Self::Temperature | Self::Signal)
    }

    /// Whether it belongs to the whole machine instead of one network namespace.
    pub(super) fn is_machine_wide(self) -> bool {
        !matches!(self, Self::OwnRunQueueWait | Self::Signal | Self::ChannelUse)
    }

    /// Name in sentences, before "of n1".
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::CpuUse => "CPU use",
            Self::Steal => "CPU time taken by the hypervisor",
            Self::RunQueueWait => "run-queue wait of all threads",
            Self::OwnRunQueueWait => "run-queue wait of the measuring process",
            Self::Frequency => "CPU frequency",
            Self::Temperature => "temperature",
            Self::Interrupts => "interrupt rate",
            Self::Signal => "received signal (RSSI)",
            Self::ChannelUse => "use of the busiest channel",
        }
    }

    /// Heading, with the unit of [`Self::drawn`].
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

    /// Value in the unit of [`Self::title`].
    pub(crate) fn drawn(self, value: f64) -> f64 {
        let scaled = match self {
            Self::CpuUse | Self::Steal | Self::ChannelUse => value * 100.0,
            Self::RunQueueWait | Self::OwnRunQueueWait => value / 1e6,
            Self::Frequency => value / 1e9,
            Self::Temperature | Self::Interrupts | Self::Signal => value,
        };
        significant(scaled, 4)
    }

    /// Value with its unit, for sentences.
    pub(crate) fn text(self, value: f64) -> String {
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
