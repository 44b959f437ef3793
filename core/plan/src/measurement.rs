//! Measurement of the trials of a plan.

use crate::error::PlanError;
use crate::fields::field_names;
use crate::flow::{FlowPlan, RelayPlan, TraceSetting};
use crate::pacing::PacePlan;
use crate::path::Path;
use crate::plan::{PingPlan, PlanFile};
use crate::source::Source;
use dwell_protocol::{FlowParameters, PaceParameters, PingParameters};

/// Measurement that every trial makes.
#[derive(Clone, Debug, PartialEq)]
pub enum Measurement {
    /// Round trips between two nodes.
    Ping(PingPlan),
    /// One-way packets, timestamped at every machine on their path.
    Flow(FlowPlan),
    /// Departures of packets sent on schedule.
    Pace(PacePlan),
}

dwell_units::named! {
    /// Kind of a measurement, named like its table.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum MeasurementKind {
        /// `[ping]`.
        Ping = "ping",
        /// `[flow]`, with `[relay]` and `[trace]`.
        Flow = "flow",
        /// `[pace]`, with `[cross]` and `[accurate]`.
        Pace = "pace",
    }
}

impl MeasurementKind {
    /// Fields of its table, which are axes by their plain names.
    pub(crate) fn fields(self) -> Vec<&'static str> {
        match self {
            Self::Ping => [field_names::<PingPlan>(), field_names::<PingParameters>()].concat(),
            Self::Flow => [field_names::<FlowPlan>(), field_names::<FlowParameters>()].concat(),
            Self::Pace => [field_names::<PacePlan>(), field_names::<PaceParameters>()].concat(),
        }
    }

    /// Path of the field that an axis of this name sets, like `pace.size` for `size`; `None` if
    /// there is no such field.
    pub fn axis_path(self, axis: &str) -> Option<String> {
        self.path_of(axis).map(|path| path.to_string())
    }

    /// Path of the field that an axis of this name sets.
    pub(crate) fn path_of(self, axis: &str) -> Option<Path> {
        match axis {
            "relay" if self == Self::Flow => return Path::of("relay.mode").ok(),
            "relay" => return None,
            "flows" if self == Self::Pace => return Path::of("cross.flows").ok(),
            _ => {}
        }
        if axis == "load" || axis.contains('.') {
            let path = Path::of(axis).ok()?;
            let forbidden = ["matrix", "constraint", "trials", "stop"];
            return (!forbidden.contains(&path.first())).then_some(path);
        }
        let path = || Path::of(&format!("{}.{axis}", self.name())).ok();
        self.fields().contains(&axis).then(path).flatten()
    }
}

impl Measurement {
    /// Reads the one table of a measurement, and those that belong to it.
    pub(crate) fn read(source: &Source, file: &mut PlanFile) -> Result<Self, PlanError> {
        use MeasurementKind::{Flow, Pace, Ping};
        let tables = [(Ping, file.ping.take()), (Flow, file.flow.take()), (Pace, file.pace.take())];
        let mut given = tables.into_iter().filter_map(|(kind, table)| Some((kind, table?)));
        let Some((kind, table)) = given.next() else {
            return Err(source.error("", "nothing to measure; add [ping], [flow] or [pace]"));
        };
        let at = kind.name();
        if let Some((other, _)) = given.next() {
            let other = other.name();
            return Err(source.error(other, format!("give [{at}] or [{other}], not both")));
        }
        let parts = [
            ("relay", file.relay.is_some(), Flow),
            ("trace", file.trace != TraceSetting::default(), Flow),
            ("cross", file.cross.is_some(), Pace),
            ("accurate", file.accurate.is_some(), Pace),
        ];
        let foreign = parts.iter().find(|(_, is_given, owner)| *is_given && *owner != kind);
        if let Some((part, _, owner)) = foreign {
            return Err(source.error(part, format!("[{part}] needs a [{}]", owner.name())));
        }
        Ok(match kind {
            Ping => {
                let (ping, parameters) = source.read_parts(at, table)?;
                Self::Ping(PingPlan { parameters, ..ping })
            }
            Flow => {
                let (flow, parameters) = source.read_parts(at, table)?;
                let relay = file.relay.take().map(|table| RelayPlan::read(source, table));
                let (relay, trace) = (relay.transpose()?, std::mem::take(&mut file.trace));
                Self::Flow(FlowPlan { parameters, relay, trace, ..flow })
            }
            Pace => {
                let (pace, parameters) = source.read_parts(at, table)?;
                let (cross, accurate) = (file.cross.take(), file.accurate.take());
                Self::Pace(PacePlan { parameters, cross, accurate, ..pace })
            }
        })
    }

    /// Its kind.
    pub const fn kind(&self) -> MeasurementKind {
        match self {
            Self::Ping(_) => MeasurementKind::Ping,
            Self::Flow(_) => MeasurementKind::Flow,
            Self::Pace(_) => MeasurementKind::Pace,
        }
    }

    /// The measurement of round trips, if it is one.
    pub const fn ping(&self) -> Option<&PingPlan> {
        match self {
            Self::Ping(ping) => Some(ping),
            Self::Flow(_) | Self::Pace(_) => None,
        }
    }

    /// The measurement of one-way packets, if it is one.
    pub const fn flow(&self) -> Option<&FlowPlan> {
        match self {
            Self::Flow(flow) => Some(flow),
            Self::Ping(_) | Self::Pace(_) => None,
        }
    }

    /// The measurement of departures, if it is one.
    pub const fn pace(&self) -> Option<&PacePlan> {
        match self {
            Self::Pace(pace) => Some(pace),
            Self::Ping(_) | Self::Flow(_) => None,
        }
    }

    /// Node that sends, whose samples a trial has.
    pub fn sender(&self) -> &str {
        match self {
            Self::Ping(PingPlan { from, .. })
            | Self::Flow(FlowPlan { from, .. })
            | Self::Pace(PacePlan { from, .. }) => from,
        }
    }

    /// Whether packets are IPv6.
    pub const fn ipv6(&self) -> bool {
        match self {
            Self::Ping(PingPlan { ipv6, .. })
            | Self::Flow(FlowPlan { ipv6, .. })
            | Self::Pace(PacePlan { ipv6, .. }) => *ipv6,
        }
    }
}
