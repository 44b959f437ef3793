//! The three set-ups of the experiment, and the loads that make them.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use crate::{Lab, Node, Server};

/// Rate of the measured link: that of a Raspberry Pi 3's Ethernet port, the slower of the paper's
/// two. At this rate a full-size packet of the load holds the link for 120 us, which a round trip
/// feels, and 50,000 cycles still pass in seconds.
pub(super) const LINK_RATE: &str = "100Mbit/s";

/// Load in each direction: 80 % of [`LINK_RATE`].
const LOAD_RATE: &str = "80Mbit/s";
/// UDP payload of a full-size packet.
const LOAD_SIZE: &str = "1472B";
const SINK_PORT: u16 = 5001;

/// A sink says so.
const READY: &str = "listening on";
/// How long the loads run before the first cycle counts.
const SETTLE: Duration = Duration::from_millis(500);

/// A set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Case {
    /// Nothing but the round trips
    Idle,
    /// Traffic both ways over the measured link
    Network,
    /// A burner on every core
    Cpu,
}

impl Case {
    /// As files and `--case` name it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Network => "network",
            Self::Cpu => "cpu",
        }
    }

    /// As tables name it.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Idle => "no load",
            Self::Network => "network load",
            Self::Cpu => "CPU load",
        }
    }

    /// What one has to know to read its figures.
    pub(super) fn note(self, cores: usize) -> Option<String> {
        match self {
            Self::Idle => None,
            Self::Network => Some(format!(
                "network load: {LOAD_RATE} each way (80 % of the link, {LOAD_SIZE} packets at \
                 constant gaps); a round trip waits for the packets before it"
            )),
            Self::Cpu => Some(format!(
                "CPU load: {cores} burners at 100 %, one per core; both ends share these cores, \
                 while in the paper each end had its own"
            )),
        }
    }
}

/// The loads of a case, running. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Loads(Vec<Server>);

impl Loads {
    /// Starts what `case` asks for and lets it settle.
    pub(super) fn start(case: Case, lab: &Lab) -> Result<Self> {
        let loads = match case {
            Case::Idle => return Ok(Self(Vec::new())),
            Case::Network => network_load(lab)?,
            Case::Cpu => {
                let mut burners = lab.dwell_outside();
                burners.args(["load", "cpu", "--level", "100%", "--json"]);
                vec![Server::start(burners, None)?]
            }
        };
        thread::sleep(SETTLE);
        Ok(Self(loads))
    }

    /// Ends the loads and returns what each says it did; one that ended by itself is an error.
    pub(super) fn stop(self) -> Result<Vec<Value>> {
        let summaries = self.0.into_iter().map(|load| {
            let text = load.stop()?;
            serde_json::from_str(&text).context("dwell load printed no summary object")
        });
        summaries.collect()
    }
}

/// Sources come first: they are stopped first, while the sinks still listen.
fn network_load(lab: &Lab) -> Result<Vec<Server>> {
    let mut sinks = Vec::new();
    let mut sources = Vec::new();
    for (from, to) in [(Node::N1, Node::N2), (Node::N2, Node::N1)] {
        let url = sink_url(lab.address(to)?);
        let mut sink = lab.dwell_on(to);
        sink.args(["load", "sink", &url, "--json"]);
        sinks.push(Server::start(sink, Some(READY))?);
        let mut source = lab.dwell_on(from);
        source.args(["load", "traffic", &url, "--rate", LOAD_RATE, "--size", LOAD_SIZE, "--json"]);
        sources.push(source);
    }
    let mut loads = Vec::new();
    for source in sources {
        loads.push(Server::start(source, None)?);
    }
    loads.append(&mut sinks);
    Ok(loads)
}

fn sink_url(address: Ipv4Addr) -> String {
    format!("udp://{address}:{SINK_PORT}")
}
