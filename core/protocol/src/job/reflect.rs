//! Jobs that answer probes.

use std::path::PathBuf;
use std::str::FromStr;

use dwell_units::{PacketRate, UnitError};
use serde::{Deserialize, Serialize};

use super::{Stamps, ThreadPlacement};

/// Probes to answer, and where to listen for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct ReflectJob {
    /// URLs to listen on; empty means STAMP on port 862 of all addresses.
    pub urls: Vec<String>,
    /// STAMP: answer only packets authenticated with the key in this file (hexadecimal, readable
    /// only by its owner). Alternatively set the environment variable DWELL_KEY.
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE"))]
    pub key_file: Option<PathBuf>,
    /// STAMP with a key: answer each request once, and only if it is less than N numbers behind the
    /// newest of its session (address and SSID). 1 to 4096 [default: replays are answered].
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub replay_window: Option<u32>,
    /// STAMP: return the sender's sequence number instead of counting per session.
    #[cfg_attr(feature = "clap", arg(long))]
    pub stateless: bool,
    /// Timestamp to use as T2.
    #[cfg_attr(
        feature = "clap",
        arg(long, default_value = "auto", value_parser = t2_stamps())
    )]
    pub stamps: Stamps,
    /// Maximum reply rate per source address and port, like 1000pps, or off. A TCP connection is
    /// slowed down to it
    /// [default: off on loopback and in dwell's labs, else 100kpps for sources with private and
    /// link-local addresses and 10kpps for others].
    #[cfg_attr(feature = "clap", arg(long, value_name = "RATE|off"))]
    pub limit: Option<Limit>,
    /// Also answer source ports 7, 19, 862 and the ports of this reflector.
    #[cfg_attr(feature = "clap", arg(long))]
    pub allow_any_port: bool,
    /// Engine that sends the replies. xdp and auto need root; see docs/reflect.md.
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t))]
    pub engine: ReflectEngine,
    /// Interface on which --engine xdp or auto replies.
    #[cfg_attr(feature = "clap", arg(long, value_name = "IF"))]
    pub interface: Option<String>,
    /// Host that sends the probes. Without `interface`, an engine in the network driver uses the
    /// interface that leads there.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub prober: Option<String>,
    /// Where the XDP program runs [default: native if the driver has it, except on veth].
    #[cfg_attr(feature = "clap", arg(long, value_enum, value_name = "MODE"))]
    pub xdp_mode: Option<DriverMode>,
    /// CPU and scheduling of the threads.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub place: ThreadPlacement,
}

/// Parses `--stamps`: a reflector cannot require kernel timestamps.
#[cfg(feature = "clap")]
fn t2_stamps() -> impl clap::builder::TypedValueParser<Value = Stamps> {
    use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
    let auto = PossibleValue::new("auto").help("The deepest timestamp that the socket delivers");
    let user = PossibleValue::new("user").help("Clock read of the program");
    let known = PossibleValuesParser::new([auto, user]);
    known.map(|name| if name == "user" { Stamps::User } else { Stamps::Auto })
}

/// Engine that replies to probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum ReflectEngine {
    /// Sockets, on any interface.
    #[default]
    Socket,
    /// An XDP program on one interface, in the driver if it has native XDP; sockets for the rest.
    /// Attaching may reset the card.
    Xdp,
    /// Like xdp; generic mode if native replies fail, sockets if there is no XDP.
    Auto,
}

impl ReflectEngine {
    /// Whether the engine replies in the network driver.
    pub const fn is_in_driver(self) -> bool {
        matches!(self, Self::Xdp | Self::Auto)
    }

    /// Name, as in `--engine`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Xdp => "xdp",
            Self::Auto => "auto",
        }
    }
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum DriverMode {
    /// In the driver, before a socket buffer exists.
    Native,
    /// In the kernel, just after the driver; on any Ethernet interface.
    Generic,
}

/// Rate limit of replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// No limit.
    Off,
    /// Replies per second and source.
    #[serde(untagged)]
    Rate(PacketRate),
}

/// The text is neither a packet rate nor `off`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}, or off")]
pub struct LimitError(UnitError);

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        match text {
            "off" => Ok(Self::Off),
            rate => rate.parse().map(Self::Rate).map_err(LimitError),
        }
    }
}
