//! Jobs that simulate a microcontroller as a server.

use dwell_units::{Nanos, Ratio, TimeRange};
use serde::{Deserialize, Serialize};

use super::{ParameterError, ThreadPlacement};

/// Maximum number of sockets of a simulated node.
const MAX_SOCKETS: u32 = 256;

/// Settings of a simulated node that plans, jobs and the command line share. A setting that is given
/// replaces that of `like`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct NodeSimParameters {
    /// Node to start from; the other options change single settings of it.
    #[cfg_attr(feature = "clap", arg(long, value_enum, value_name = "NODE", default_value_t))]
    pub like: NodePreset,
    /// Tick of the node's clock: delays are whole numbers of it. 0s is an exact clock.
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub clock_tick: Option<Nanos>,
    /// Time-out of reads from streams: a read ends this long after its last byte. 0s disables it.
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub read_timeout: Option<Nanos>,
    /// Share of reads that time out twice, while the node has one connection.
    #[cfg_attr(feature = "clap", arg(long, value_name = "PERCENT"))]
    pub repeated_reads: Option<Ratio>,
    /// Time until the main loop comes around to a request, like 5ms or 280ms..640ms.
    #[cfg_attr(feature = "clap", arg(long, value_name = "RANGE"))]
    pub loop_time: Option<TimeRange>,
    /// Time to print a line on the console before the reply, like 20ms..40ms. Printing goes on during
    /// a read time-out.
    #[cfg_attr(feature = "clap", arg(long, value_name = "RANGE"))]
    pub print_delay: Option<TimeRange>,
    /// Time for which a request occupies the node, like 1ms or 1ms..3ms; others wait for its end.
    #[cfg_attr(feature = "clap", arg(long, value_name = "RANGE"))]
    pub service_time: Option<TimeRange>,
    /// Number of connections at the same time, 1 to 256; others are refused.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub sockets: Option<u32>,
    /// Seed of the random times [default: another one each time, named in the result].
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub seed: Option<u64>,
}

impl NodeSimParameters {
    /// Checks every range.
    ///
    /// # Errors
    /// The first value outside its range.
    pub fn check(&self) -> Result<(), ParameterError> {
        let is_time = |time: Nanos| time >= Nanos::ZERO;
        ParameterError::unless("clock_tick", self.clock_tick, is_time, "0 or more, like 46.35ms")?;
        ParameterError::unless("read_timeout", self.read_timeout, is_time, "0 or more, like 1s")?;
        let fits = |sockets| (1..=MAX_SOCKETS).contains(&sockets);
        ParameterError::unless("sockets", self.sockets, fits, "1 to 256")
    }
}

/// A node with known settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum NodePreset {
    /// Exact clock and no delays.
    #[default]
    Clean,
    /// The Arduino of Chung 2021 with one client (tables 1 and 2).
    #[cfg_attr(feature = "clap", value(name = "chung-2021-best"))]
    #[serde(rename = "chung-2021-best")]
    Chung2021Best,
    /// The Arduino of Chung 2021 with several clients (tables 3 and 4).
    #[cfg_attr(feature = "clap", value(name = "chung-2021-worst"))]
    #[serde(rename = "chung-2021-worst")]
    Chung2021Worst,
}

/// A microcontroller to simulate, and where to listen for requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct NodeSimJob {
    /// URLs to listen on: text+udp://ADDRESS:PORT or text+tcp://ADDRESS:PORT [default: both on port
    /// 7100 of all addresses].
    pub urls: Vec<String>,
    /// Settings of the node.
    #[cfg_attr(feature = "clap", command(flatten))]
    #[serde(default)]
    pub parameters: NodeSimParameters,
    /// CPU and scheduling of the thread.
    #[cfg_attr(feature = "clap", command(flatten))]
    #[serde(default)]
    pub place: ThreadPlacement,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_outside_its_range_is_named() {
        let fits = NodeSimParameters { sockets: Some(256), ..NodeSimParameters::default() };
        fits.check().unwrap();
        let wrong = [
            (NodeSimParameters { sockets: Some(0), ..fits.clone() }, "sockets"),
            (NodeSimParameters { sockets: Some(257), ..fits.clone() }, "sockets"),
            (NodeSimParameters { clock_tick: Some(Nanos(-1)), ..fits.clone() }, "clock_tick"),
            (NodeSimParameters { read_timeout: Some(Nanos(-1)), ..fits }, "read_timeout"),
        ];
        for (wrong, field) in wrong {
            assert_eq!(wrong.check().unwrap_err().field, field);
        }
    }

    #[test]
    fn names_of_nodes_are_those_of_the_documentation() {
        let parameters: NodeSimParameters =
            serde_json::from_str(r#"{"like":"chung-2021-worst","print_delay":"20ms..40ms"}"#)
                .unwrap();
        assert_eq!(parameters.like, NodePreset::Chung2021Worst);
        assert_eq!(serde_json::to_value(NodePreset::Clean).unwrap(), "clean");
    }
}
