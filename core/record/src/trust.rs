//! Section `trust` of a summary: information on the reliability of its numbers.

use dwell_host::CpuUse;
use dwell_stats::{Resolution, RoundTrip};
use dwell_units::{Nanos, Pairing};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::summary::Figures;
use crate::{TrustWarning, Warning};

/// Information on the reliability of the numbers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trust {
    /// Actual minus intended send time; null if nothing was sent on a schedule.
    pub schedule_error_ns: Option<Figures>,
    /// Number of probes planned; null for an unlimited run.
    pub planned: Option<u64>,
    /// Number of warm-up probes, which are not counted elsewhere; null if unknown.
    pub warm_up_sent: Option<u64>,
    /// Samples lost because the ring to the recording thread was full.
    pub ring_dropped: u64,
    /// Packets dropped during the measurement by the interfaces used; null if these are unknown,
    /// and in results of older versions.
    #[serde(default)]
    pub nic_dropped: Option<Vec<NicDropped>>,
    /// CPU use of this machine during the measurement; null if it was not observed, or for less
    /// than half a second, and in results of older versions.
    #[serde(default)]
    pub host: Option<CpuUse>,
    /// Void samples, because a clock was stepped.
    pub void: u64,
    /// Delay that this machine itself adds to every round trip; null if not measured.
    pub floor_ns: Option<i64>,
    /// Resolution of percentiles: `exact` (an observed value) or `0.1%`; null without percentiles.
    #[serde(serialize_with = "resolution_name", deserialize_with = "resolution_named")]
    pub percentile_resolution: Option<Resolution>,
    /// Both clocks at start and end; null if the command needed no pairing.
    pub clocks: Option<Clocks>,
    /// Step of CLOCK_REALTIME during the measurement; null without a step.
    pub clock_step_ns: Option<i64>,
    /// Warnings to read before quoting a number.
    pub warnings: Vec<TrustWarning>,
}

/// Packets dropped by one network interface during the measurement, of any traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicDropped {
    /// Name of the interface.
    pub interface: String,
    /// Received packets that were not passed on.
    pub rx_dropped: u64,
    /// Packets not sent, without drops by queueing disciplines.
    pub tx_dropped: u64,
    /// Packets not received because the card had no buffer space.
    pub rx_missed: u64,
}

impl NicDropped {
    /// Sum of all drops.
    pub fn total(&self) -> u64 {
        self.rx_dropped.saturating_add(self.tx_dropped).saturating_add(self.rx_missed)
    }
}

/// Pairings of CLOCK_REALTIME and CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// Before the first probe.
    pub start: PairingRecord,
    /// After the last probe.
    pub end: PairingRecord,
}

/// One pairing of two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairingRecord {
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC.
    pub offset_ns: i64,
    /// Width of the interval in which both were read.
    pub width_ns: i64,
}

impl Trust {
    /// Adds a warning.
    pub fn warn(&mut self, warning: impl Into<TrustWarning>) {
        self.warnings.push(warning.into());
    }

    /// Adds the warning of a count unless it is zero.
    pub fn warn_count(&mut self, count: u64, warning: impl FnOnce(u64) -> Warning) {
        if count > 0 {
            self.warn(warning(count));
        }
    }

    /// Fills in the fields known to a round-trip measurement; the caller adds the others.
    pub fn of(measured: &RoundTrip) -> Self {
        let schedule_error = measured.figures(dwell_stats::Metric::ScheduleError);
        Self {
            schedule_error_ns: (schedule_error.count > 0).then(|| schedule_error.into()),
            void: measured.void(),
            percentile_resolution: Some(measured.resolution()),
            ..Self::default()
        }
    }

    /// Records the drops of interfaces and adds a warning for each interface with drops.
    pub fn note_nics(&mut self, dropped: Option<Vec<NicDropped>>) {
        self.nic_dropped = dropped;
        let warnings: Vec<_> = self.nic_warnings().map(TrustWarning::from).collect();
        self.warnings.extend(warnings);
    }

    /// A warning for each interface with drops.
    pub fn nic_warnings(&self) -> impl Iterator<Item = Warning> + '_ {
        let dropping = self.nic_dropped.iter().flatten().filter(|nic| nic.total() > 0);
        dropping.map(|nic| Warning::NicDrops(nic.interface.clone()))
    }

    /// Records the CPU use and adds a warning for each exceeded limit.
    pub fn note_host(&mut self, used: Option<CpuUse>) {
        self.host = used;
        let warnings = used.iter().flat_map(Warning::of_cpu_use);
        self.warnings.extend(warnings.map(TrustWarning::from));
    }

    /// Records the pairings at start and end, and the clock step between them.
    pub fn note_clocks(&mut self, start: &Pairing, end: &Pairing) {
        self.clocks = Some(Clocks { start: start.into(), end: end.into() });
        self.clock_step_ns = start.step_until(end).map(|Nanos(step)| step);
    }
}

impl From<&Pairing> for PairingRecord {
    fn from(pairing: &Pairing) -> Self {
        Self { offset_ns: pairing.offset().0, width_ns: pairing.width.0 }
    }
}

fn resolution_name<S: Serializer>(
    resolution: &Option<Resolution>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    resolution.map(Resolution::name).serialize(serializer)
}

fn resolution_named<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Resolution>, D::Error> {
    let Some(name) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let resolution = Resolution::named(&name);
    resolution.map(Some).ok_or_else(|| de::Error::custom(format!("unknown resolution '{name}'")))
}
