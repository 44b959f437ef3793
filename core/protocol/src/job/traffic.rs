//! Jobs that send and receive UDP traffic, and the options of its flows.

use dwell_units::{Bytes, Nanos, Rate};
use serde::{Deserialize, Serialize};

use super::{Stamps, ThreadPlacement};

/// Options of flows that plans, jobs and the command line share. Plans have other defaults than
/// jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct FlowParameters {
    /// UDP payload size [default: 1400B], or size of each write with tcp:// [default: 128KiB, or 10
    /// ms of the rate].
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES"))]
    pub size: Option<Bytes>,
    /// Header at the start of the payload [default: dwell].
    #[cfg_attr(feature = "clap", arg(long, value_enum))]
    pub header: Option<TrafficHeader>,
    /// Stop after this time [default: until stopped].
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub duration: Option<Nanos>,
    /// Stop after this many packets; with tcp:// after this many writes.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub count: Option<u64>,
    /// Timestamps to use for --samples: user space, or also the kernel's where available.
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = Stamps::Auto))]
    pub stamps: Stamps,
    /// Before sending, listen on the five nearest channels of the radio that leads to the target,
    /// and record their networks with --samples. Takes about a second; needs root.
    #[cfg_attr(feature = "clap", arg(long, requires = "samples"))]
    pub scan_channels: bool,
}

/// Traffic to send.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficJob {
    /// Target: `udp://HOST:PORT`.
    pub url: String,
    /// Number of flows, each with its own source port.
    #[serde(default = "one")]
    pub flows: u32,
    /// Rate of all flows together; bits count IP packets.
    pub rate: Rate,
    /// Gaps between packets: `constant`, `poisson` or `pareto(SHAPE)`.
    #[serde(default = "constant")]
    pub distribution: String,
    /// Options of the flows.
    #[serde(default)]
    pub parameters: FlowParameters,
    /// Seed of the gaps.
    #[serde(default = "first_seed")]
    pub seed: u64,
    /// Use IPv4 only.
    #[serde(default)]
    pub ipv4: bool,
    /// Use IPv6 only.
    #[serde(default)]
    pub ipv6: bool,
    /// Do not wait for the report of an iperf server, because the relay encrypts in one direction
    /// only. The end of each flow is announced once.
    #[serde(default)]
    pub unreported: bool,
    /// CPU and scheduling of the timing loop.
    #[serde(default)]
    pub place: ThreadPlacement,
}

impl TrafficJob {
    /// Default size of the UDP payload.
    pub const DEFAULT_SIZE: Bytes = Bytes(1_400);

    /// Size of the UDP payload.
    pub fn size(&self) -> Bytes {
        self.parameters.size.unwrap_or(Self::DEFAULT_SIZE)
    }

    /// Header at the start of the payload.
    pub fn header(&self) -> TrafficHeader {
        self.parameters.header.unwrap_or_default()
    }
}

/// Header at the start of a traffic payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum TrafficHeader {
    /// dwell's own header: flow and sequence number.
    #[default]
    Dwell,
    /// The iperf2 header: `iperf -s -u -e` counts and reports the flow. The last packet of a flow
    /// is a FIN, repeated until the server reports.
    Iperf,
}

fn one() -> u32 {
    1
}

fn constant() -> String {
    "constant".into()
}

fn first_seed() -> u64 {
    1
}

/// Traffic to receive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct SinkJob {
    /// Address to listen on: udp://ADDRESS:PORT or tcp://ADDRESS:PORT [default: UDP port 5001 of
    /// all IPv6 and IPv4 addresses].
    pub urls: Vec<String>,
    /// Stop after this time [default: until stopped].
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub duration: Option<Nanos>,
    /// Maximum difference between the clocks of all senders and this one (0s: the same clock, as in
    /// a lab). Enables one-way delays of packets with an iperf header. Not needed for senders on
    /// loopback.
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub clock_error: Option<Nanos>,
    /// Timestamps to use: user space, or also the kernel's where available.
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = Stamps::Auto))]
    pub stamps: Stamps,
    /// CPU and scheduling of the threads.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub place: ThreadPlacement,
}
