//! Lab for measuring relays: three nodes in a line with the relay in the middle, a prober or flood
//! on one side and its receiver on the other. Sender and receiver share one CPU, the relay has the
//! other.
//!
//! The prober polls while it waits, so that its CPU never sleeps, and no program replies to probes:
//! waking one costs more than most relays do.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::contestant::{Cipher, Contestant, FORWARDING, Program, SOCKET, Wait};
use super::events::{self, RunTime};
use crate::echo::{Echo, PORT};
use crate::lab::sibling;
use crate::{Interrupt, Lab, Node, Server, Summary, finish};

/// CPU of sender and receiver.
const ENDS_CPU: &str = "0";
/// CPU of the relay.
const RELAY_CPU: &str = "1";

/// Rate of delay probes, the lowest of Miya 2020.
const PROBES_PER_SECOND: u64 = 200;

/// A running lab with the path of the C programs.
pub(super) struct Arena {
    lab: Lab,
    c_program: PathBuf,
}

/// Parameters of a flood.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blast {
    /// Bytes of payload.
    pub(super) size: u32,
    /// Packets per second; `None`: as fast as possible.
    pub(super) rate: Option<u64>,
    /// Duration in milliseconds.
    pub(super) milliseconds: u64,
    /// Whether every packet passes the stack separately, so that tracing sees it.
    pub(super) single: bool,
}

/// Results of probes, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trip {
    /// Median round trip.
    pub(super) rtt_ns: f64,
    /// Median time in dwell's relay by its own timestamps, one way.
    pub(super) processing_ns: Option<f64>,
}

/// Results of a flood.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flood {
    pub(super) sent: u64,
    /// Packets sent per second.
    pub(super) rate: f64,
    /// Packets that reached the receiver's kernel.
    pub(super) delivered: u64,
}

impl Flood {
    /// Returns the share of packets that did not arrive.
    pub(super) fn loss(&self) -> f64 {
        1.0 - self.delivered as f64 / self.sent.max(1) as f64
    }
}

/// Results of a traced flood.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traced {
    pub(super) flood: Flood,
    pub(super) events: u64,
    pub(super) lost_events: u64,
}

impl Arena {
    pub(super) fn new(lab: Lab) -> Result<Self> {
        Ok(Self { lab, c_program: sibling("crelay")? })
    }

    /// Returns the median round trip of probes with `size` bytes through a contestant.
    pub(super) fn round_trip(
        &self,
        contestant: &Contestant,
        size: u32,
        count: u64,
        interrupt: &Interrupt,
    ) -> Result<Trip> {
        let direct = contestant.program == Program::None;
        let (before, end) = if direct { (Node::N1, Node::N2) } else { (Node::N2, Node::N3) };
        let _echo = Echo::attach(&self.lab.netns(end)?, self.lab.address(before)?)?;
        let relay = self.relay(contestant)?;
        let target = target(contestant);
        let mut ping = self.lab.dwell_on(Node::N1);
        let interval = format!("{}us", 1_000_000 / PROBES_PER_SECOND);
        ping.args(["ping", &format!("udp://{}:{PORT}", self.lab.address(target)?)]);
        ping.args(["-s", &size.to_string(), "-i", &interval, "-c", &count.to_string()]);
        ping.args(["--stamps", "user", "--cpu", ENDS_CPU, "--busy-poll", "--scheduling", "other"]);
        ping.args(["-q", "--json"]);
        let finished = finish(ping, interrupt)?;
        ensure!(finished.status.success(), "{}: {}", contestant.name, finished.status);
        let output = relay.map(Server::stop).transpose()?;
        let processing_ns = match (output, contestant.program) {
            (Some(output), SOCKET) => {
                Summary::parse(&output).context(contestant.name)?.processing()?.p50
            }
            _ => None,
        };
        let summary = Summary::parse(&finished.stdout).context(contestant.name)?;
        let rtt_ns = summary.round_trips()?.p50.context("too few round trips for a median")?;
        Ok(Trip { rtt_ns, processing_ns })
    }

    /// Floods a contestant.
    pub(super) fn flood(
        &self,
        contestant: &Contestant,
        with: Blast,
        interrupt: &Interrupt,
    ) -> Result<Flood> {
        let mut hole = self.pinned(Node::N3, ENDS_CPU);
        hole.args(["hole", "0.0.0.0", PORT]);
        let hole = Server::start(hole, Some("listening on"))?;
        let relay = self.relay(contestant)?;
        let before = self.arrived_at(Node::N3)?;
        let target = self.lab.address(target(contestant))?.to_string();
        let mut blast = self.pinned(Node::N1, ENDS_CPU);
        blast.args(["blast", &target, PORT, &with.size.to_string()]);
        blast.args([with.rate.unwrap_or(0).to_string(), with.milliseconds.to_string()]);
        blast.args(with.single.then_some("single"));
        let finished = finish(blast, interrupt)?;
        ensure!(finished.status.success(), "blast: {}", finished.status);
        let blast: Blasted =
            serde_json::from_str(&finished.stdout).context("cannot read the output of blast")?;
        let delivered = self.settled(before)?;
        if let Some(relay) = relay {
            relay.stop()?;
        }
        hole.stop()?;
        let rate = blast.sent as f64 * 1e9 / blast.elapsed_ns.max(1) as f64;
        Ok(Flood { sent: blast.sent, rate, delivered })
    }

    /// Floods a contestant while `dwell trace` timestamps every packet at both netfilter hooks of
    /// the relay's node.
    pub(super) fn traced_flood(
        &self,
        contestant: &Contestant,
        with: Blast,
        interrupt: &Interrupt,
    ) -> Result<Traced> {
        let mut trace = self.lab.dwell_on(Node::N2);
        trace.args(["trace", "--flow", &format!("udp port {PORT}"), "--hooks", "netfilter"]);
        trace.args(["--id", "none", "--json"]);
        let trace = Server::start(trace, Some("tracing"))?;
        let flood = self.flood(contestant, with, interrupt)?;
        let summary: Values = serde_json::from_str(&trace.stop()?)
            .context("cannot read the output of dwell trace --json")?;
        let value = |name: &str| {
            summary
                .values
                .get(name)
                .copied()
                .flatten()
                .with_context(|| format!("dwell trace reported no {name}"))
        };
        Ok(Traced {
            flood,
            events: value("events")? as u64,
            lost_events: value("events_dropped")? as u64,
        })
    }

    /// Measures the cost of tracing events while the kernel forwards a flood: dwell's and a minimal
    /// program's.
    pub(super) fn event_cost(
        &self,
        ours_first: bool,
        with: Blast,
        interrupt: &Interrupt,
    ) -> Result<[RunTime; 2]> {
        let port = PORT.parse().context("invalid port")?;
        events::cost(&self.lab.netns(Node::N2)?, port, ours_first, || {
            self.flood(&FORWARDING, with, interrupt).map(drop)
        })
    }

    /// Starts the relay of a contestant that has one.
    fn relay(&self, contestant: &Contestant) -> Result<Option<Server>> {
        let to = self.lab.address(Node::N3)?.to_string();
        let here = self.lab.address(Node::N2)?.to_string();
        let busy = contestant.wait == Wait::Busy;
        let aes = contestant.cipher == Cipher::Aes;
        let (command, ready) = match contestant.program {
            Program::None | Program::Kernel => return Ok(None),
            Program::Dwell { engine, merge } => {
                let mut command = self.lab.dwell_on(Node::N2);
                command.args(["relay", "--listen", &format!("udp://{here}:{PORT}")]);
                command.args(["--to", &format!("udp://{to}:{PORT}"), "--engine", engine]);
                command.args(["--mode", if aes { "encrypt" } else { "translate" }]);
                command.args(["--stamps", "user", "--json"]);
                if engine != "xdp" {
                    command.args(["--cpu", RELAY_CPU]);
                }
                command.args((!merge).then_some("--no-merge"));
                command.args(busy.then_some("--busy-poll"));
                // Any key will do: nothing decrypts.
                command.env("DWELL_KEY", "000102030405060708090a0b0c0d0e0f");
                (command, "relaying")
            }
            Program::Socat => {
                let mut command = self.lab.on(Node::N2, "taskset");
                command.args(["-c", RELAY_CPU, "socat", "-d", "-d"]);
                command
                    .args([format!("UDP4-LISTEN:{PORT},bind={here}"), format!("UDP4:{to}:{PORT}")]);
                (command, "listening on")
            }
            Program::C => {
                let mut command = self.pinned(Node::N2, RELAY_CPU);
                command.args(["relay", &here, PORT, &to, PORT]);
                command.args(busy.then_some("busy"));
                command.args(aes.then_some("aes"));
                (command, "listening on")
            }
        };
        Server::start(command, Some(ready)).map(Some)
    }

    /// Returns the UDP packets that reached an open port of a node's kernel, read or not.
    fn arrived_at(&self, node: Node) -> Result<u64> {
        let mut command = self.lab.on(node, "cat");
        command.arg("/proc/net/snmp");
        let output = command.output().context("cannot read the counters of a node")?;
        udp_datagrams(&String::from_utf8_lossy(&output.stdout))
            .context("/proc/net/snmp has no UDP counters")
    }

    /// Returns the arrivals since `before`, once the count is stable.
    fn settled(&self, before: u64) -> Result<u64> {
        let mut last = self.arrived_at(Node::N3)?;
        loop {
            // Reading takes some milliseconds, in which packets in flight arrive.
            let now = self.arrived_at(Node::N3)?;
            if now == last {
                return Ok(now - before);
            }
            last = now;
        }
    }

    fn pinned(&self, node: Node, core: &str) -> Command {
        let mut command = self.lab.on(node, "taskset");
        command.args(["-c", core]).arg(&self.c_program);
        command
    }
}

/// Returns the node that packets are sent to.
fn target(contestant: &Contestant) -> Node {
    match contestant.program {
        Program::Kernel => Node::N3,
        _ => Node::N2,
    }
}

#[derive(Deserialize)]
struct Blasted {
    sent: u64,
    elapsed_ns: u64,
}

#[derive(Deserialize)]
struct Values {
    values: std::collections::BTreeMap<String, Option<f64>>,
}

/// Returns the sum of `InDatagrams` and `RcvbufErrors` in /proc/net/snmp.
fn udp_datagrams(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let names: Vec<_> = lines.next()?.split_whitespace().collect();
    let values: Vec<_> = lines.next()?.split_whitespace().collect();
    let value = |name: &str| {
        let place = names.iter().position(|known| *known == name)?;
        values.get(place)?.parse::<u64>().ok()
    };
    Some(value("InDatagrams")? + value("RcvbufErrors")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receive_buffer_drops_count_as_arrived() {
        let text = "Tcp: a\nTcp: 1\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\n\
                    Udp: 70 1 30 5 30\nUdpLite: InDatagrams\nUdpLite: 9\n";
        assert_eq!(udp_datagrams(text), Some(100));
        assert_eq!(udp_datagrams("Udp: InDatagrams\n"), None);
    }
}
