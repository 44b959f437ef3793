//! The part of a summary that says how far its numbers can be trusted.

use dwell_host::CpuUse;
use dwell_stats::{Resolution, RoundTrip};
use dwell_units::{Nanos, Pairing};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::summary::Figures;

/// Reasons to trust the numbers, or not to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trust {
    /// Actual minus intended time of sending; null when nothing was sent on a schedule.
    pub schedule_error_ns: Option<Figures>,
    /// How many probes the command meant to send; null when it had no end.
    pub planned: Option<u64>,
    /// Probes sent first and counted nowhere; null when nobody told how many.
    pub warm_up_sent: Option<u64>,
    /// Samples lost because the ring to the recording thread was full.
    pub ring_dropped: u64,
    /// What the interfaces dropped by which the probes left or came, while it was measured; null
    /// where nobody knows which these are, and in results of a dwell that did not ask.
    #[serde(default)]
    pub nic_dropped: Option<Vec<NicDropped>>,
    /// Use of this machine's processors during the measurement; null when it was not watched, or for
    /// less than half a second, and in results of a dwell that did not watch.
    #[serde(default)]
    pub host: Option<CpuUse>,
    /// Samples that measure nothing because a clock was stepped.
    pub void: u64,
    /// The delay that this machine adds to every round trip by itself; null when not measured.
    pub floor_ns: Option<i64>,
    /// How true percentiles are: `exact` (an observed value) or `0.1%`; null without percentiles.
    #[serde(serialize_with = "resolution_name", deserialize_with = "resolution_named")]
    pub percentile_resolution: Option<Resolution>,
    /// The two clocks at start and end; null when the command needed no pairing.
    pub clocks: Option<Clocks>,
    /// How far CLOCK_REALTIME was stepped meanwhile; null when it was not.
    pub clock_step_ns: Option<i64>,
    /// What a reader must know before quoting a number, in plain words.
    pub warnings: Vec<String>,
}

/// What one network interface dropped meanwhile, of the probes and of everything else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicDropped {
    /// Its name.
    pub interface: String,
    /// Received and not handed on.
    pub rx_dropped: u64,
    /// Not sent. What a queueing discipline dropped is not among them.
    pub tx_dropped: u64,
    /// Never received: the card had no room for them.
    pub rx_missed: u64,
}

impl NicDropped {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.rx_dropped.saturating_add(self.tx_dropped).saturating_add(self.rx_missed)
    }
}

/// Pairings of CLOCK_REALTIME and CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// Before the first probe.
    pub start: PairingRecord,
    /// After the last.
    pub end: PairingRecord,
}

/// One pairing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairingRecord {
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC.
    pub offset_ns: i64,
    /// Width of the bracket within which both were read.
    pub width_ns: i64,
}

impl Trust {
    /// What a round-trip measurement says of itself; the rest is for its caller to fill in.
    pub fn of(measured: &RoundTrip) -> Self {
        let schedule_error = measured.figures(dwell_stats::Metric::ScheduleError);
        Self {
            schedule_error_ns: (schedule_error.count > 0).then(|| schedule_error.into()),
            void: measured.void(),
            percentile_resolution: Some(measured.resolution()),
            ..Self::default()
        }
    }

    /// Notes what interfaces dropped, with a warning of each that did.
    pub fn note_nics(&mut self, dropped: Option<Vec<NicDropped>>) {
        self.nic_dropped = dropped;
        let warnings: Vec<String> = self.nic_warnings().collect();
        self.warnings.extend(warnings);
    }

    /// A warning of each interface that dropped something. The numbers are not in it, so that many
    /// trials say the same.
    pub fn nic_warnings(&self) -> impl Iterator<Item = String> + '_ {
        let dropping = self.nic_dropped.iter().flatten().filter(|nic| nic.total() > 0);
        dropping.map(|nic| {
            format!(
                "the network interface {} dropped packets meanwhile, ours or others'",
                nic.interface
            )
        })
    }

    /// Notes how the processors were used, with a warning of each limit that was exceeded.
    pub fn note_host(&mut self, used: Option<CpuUse>) {
        self.host = used;
        self.warnings.extend(used.iter().flat_map(CpuUse::warnings));
    }

    /// Notes the pairings at start and end, and the step between them if there was one.
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
    resolution.map(Some).ok_or_else(|| de::Error::custom(format!("'{name}' is no resolution")))
}
