//! Lab for measuring reflectors: clients and the generator on one node and core, reflectors on the
//! others.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use dwell_io::{interface, netns};
use dwell_wire::stamp::{Mode, Request};
use dwell_wire::tlv;
use serde::Deserialize;

use super::contestant::{Client, Reflector, Timed, Wait};
use crate::echo::{self, Echo};
use crate::lab::sibling;
use crate::rtt::{RoundTrip, dwell_round_trip};
use crate::{Interrupt, Lab, Node, Server, finish};

/// CPU of clients and of the generator.
const CLIENT_CPU: &str = "0";
/// CPU of reflectors.
const REFLECTOR_CPU: &str = "1";

const PORT: &str = "7200";
const SIZE: &str = "64";
const REQUEST_LEN: usize = 64;

/// Duration of a flood in milliseconds.
const FLOOD_MS: &str = "400";

/// A running lab with the C programs.
pub(super) struct Arena {
    pub(super) lab: Lab,
    pingpong: PathBuf,
    generator: PathBuf,
    /// The reflectors' interface.
    interface: String,
}

/// Results of a flood.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flood {
    /// Requests per second.
    pub(super) rate: f64,
    /// Replies per second.
    pub(super) answered: f64,
    /// Share of requests without a reply at the end of the flood.
    pub(super) loss: f64,
}

/// A reflector that runs until it is dropped. That of the kernel has neither process nor program.
#[derive(Default)]
struct Running {
    _server: Option<Server>,
    _programs: Vec<Echo>,
}

impl Arena {
    pub(super) fn new(lab: Lab) -> Result<Self> {
        let towards = |node, peer| -> Result<String> {
            let peer = (lab.address(peer)?, 0).into();
            let found = netns::within(&lab.netns(node)?, || interface::towards(peer))??;
            Ok(found.context("no route to the peer")?.name)
        };
        let interface = towards(Node::N2, Node::N1)?;
        let client = towards(Node::N1, Node::N2)?;
        // Checksums that a sender leaves to its driver are invalid in frames that XDP returns.
        let mut offloads = lab.on(Node::N1, "ethtool");
        offloads.args(["-K", &client, "tx", "off"]);
        let output = offloads.output().context("cannot run ethtool")?;
        ensure!(output.status.success(), "ethtool: {}", String::from_utf8_lossy(&output.stderr));
        let (pingpong, generator) = (sibling("pingpong")?, sibling("creflect")?);
        Ok(Self { lab, pingpong, generator, interface })
    }

    /// Starts a reflector and stops it. Returns why that failed.
    pub(super) fn reason_missing(&self, reflector: Reflector) -> Option<String> {
        let error = self.start(reflector).err()?;
        let text = format!("{error:#}");
        // Without the command line.
        let reason = text.find("error:").map_or(&text[..], |at| &text[at..]);
        reason.lines().next().map(|line| line.trim().to_owned())
    }

    /// Measures `count` round trips, or as many probes beside a load.
    pub(super) fn round_trips(
        &self,
        timed: &Timed,
        count: u64,
        interrupt: &Interrupt,
    ) -> Result<RoundTrip> {
        let _running = self.start(timed.reflector)?;
        let _load = match timed.client {
            Client::Loaded => {
                let mut load = Command::new("stress-ng");
                load.args(["--cpu", "2", "--sched", "other", "--timeout", "60s"]);
                Some(Server::start(load, Some("dispatching hogs"))?)
            }
            Client::C | Client::Dwell => None,
        };
        let finished = finish(self.client(timed, count)?, interrupt)?;
        ensure!(finished.status.success(), "{}: {}", timed.name, finished.status);
        let measured = match timed.client {
            Client::C => serde_json::from_str(&finished.stdout).context("no JSON object"),
            Client::Dwell | Client::Loaded => dwell_round_trip(&finished.stdout),
        };
        measured.with_context(|| timed.name)
    }

    fn client(&self, timed: &Timed, count: u64) -> Result<Command> {
        let (here, count) = (self.lab.address(Node::N2)?.to_string(), count.to_string());
        if timed.client == Client::C {
            let port = port(timed.reflector);
            let mut command = self.pinned(Node::N1, CLIENT_CPU, &self.pingpong);
            command.args(["client", &here, port, SIZE, &count, "busy"]);
            command.arg(format!("fill={}", timed.reflector.fill()));
            return Ok(command);
        }
        let mut command = self.lab.dwell_on(Node::N1);
        let url = match timed.reflector {
            Reflector::Kernel => format!("icmp://{here}"),
            _ => format!("udp://{here}:{PORT}"),
        };
        command.args(["ping", &url, "-s", SIZE, "-c", &count, "-q", "--json"]);
        command.args(["--stamps", "user", "--cpu", CLIENT_CPU]);
        command.args(match timed.client {
            Client::Loaded => ["-i", "1ms"],
            _ => ["--closed-loop", "--busy-poll"],
        });
        Ok(command)
    }

    /// Opens a session with a reflector for floods.
    pub(super) fn flooded(&self, reflector: Reflector) -> Result<FloodTarget<'_>> {
        Ok(FloodTarget { arena: self, reflector, _running: self.start(reflector)? })
    }

    fn start(&self, reflector: Reflector) -> Result<Running> {
        let address = self.lab.address(Node::N2)?.to_string();
        let (command, ready) = match reflector {
            Reflector::Kernel => return Ok(Running::default()),
            Reflector::CXdp => {
                let programs = vec![self.echo_on(Node::N2, Node::N1)?, self.pass_all()?];
                return Ok(Running { _server: None, _programs: programs });
            }
            Reflector::DwellXdp => {
                let mut command = self.lab.dwell_on(Node::N2);
                command.args(["reflect", "--engine", "xdp", "--interface", &self.interface]);
                command.args(["--xdp-mode", "native", &format!("udp://{address}:{PORT}")]);
                (command, "listening on")
            }
            Reflector::DwellSocket { scheme, wait } => {
                let mut command = self.lab.dwell_on(Node::N2);
                command.args(["reflect", &format!("{scheme}://{address}:{PORT}")]);
                command.args(["--cpu", REFLECTOR_CPU]);
                command.args((wait == Wait::Busy).then_some("--busy-poll"));
                (command, "listening on")
            }
            Reflector::Sockperf { wait } => {
                let mut command = self.pinned(Node::N2, REFLECTOR_CPU, Path::new("sockperf"));
                command.args(["server", "-i", &address, "-p", PORT]);
                command.args((wait == Wait::Busy).then_some("--nonblocked"));
                (command, "using recvfrom()")
            }
            Reflector::C => {
                let mut command = self.pinned(Node::N2, REFLECTOR_CPU, &self.generator);
                command.args(["echo", &address, PORT]);
                (command, "listening on")
            }
        };
        let programs = match reflector {
            Reflector::DwellXdp => vec![self.pass_all()?],
            _ => Vec::new(),
        };
        Ok(Running { _server: Some(Server::start(command, Some(ready))?), _programs: programs })
    }

    fn echo_on(&self, node: Node, peer: Node) -> Result<Echo> {
        Echo::attach_native(&self.lab.netns(node)?, self.lab.address(peer)?)
    }

    /// Attaches a program to the client's interface. Without one, a veth counts frames from XDP_TX at
    /// its other end as sent, but does not deliver them. It passes replies: their ports are others.
    fn pass_all(&self) -> Result<Echo> {
        self.echo_on(Node::N1, Node::N2)
    }

    fn pinned(&self, node: Node, core: &str, program: &Path) -> Command {
        let mut command = self.lab.on(node, "taskset");
        command.args(["-c", core]).arg(program);
        command
    }
}

/// A running reflector to flood.
pub(super) struct FloodTarget<'a> {
    arena: &'a Arena,
    reflector: Reflector,
    _running: Running,
}

impl FloodTarget<'_> {
    /// Sends requests at `rate` per second, or as fast as possible.
    pub(super) fn flood(&self, rate: Option<f64>, interrupt: &Interrupt) -> Result<Flood> {
        let Arena { lab, generator, .. } = self.arena;
        let address = lab.address(Node::N2)?.to_string();
        let mut blast = self.arena.pinned(Node::N1, CLIENT_CPU, generator);
        blast.args(["blast", &address, port(self.reflector)]);
        blast.args([rate.unwrap_or(0.0).to_string(), FLOOD_MS.to_owned()]);
        blast.arg(request(self.reflector));
        let finished = finish(blast, interrupt)?;
        ensure!(finished.status.success(), "blast: {}", finished.status);
        let blast: Blasted =
            serde_json::from_str(&finished.stdout).context("cannot read the output of blast")?;
        let per_second = |count: u64| count as f64 * 1e9 / blast.elapsed_ns.max(1) as f64;
        let loss = 1.0 - blast.replies as f64 / blast.sent.max(1) as f64;
        Ok(Flood { rate: per_second(blast.sent), answered: per_second(blast.replies), loss })
    }
}

#[derive(Deserialize)]
struct Blasted {
    sent: u64,
    elapsed_ns: u64,
    replies: u64,
}

fn port(reflector: Reflector) -> &'static str {
    match reflector {
        Reflector::CXdp => echo::PORT,
        _ => PORT,
    }
}

/// A request of 64 bytes as hexadecimal digits. Its bytes 4 to 7 are overwritten: part of the number
/// of an echo request or of sockperf's, and the seconds of a STAMP timestamp.
fn request(reflector: Reflector) -> String {
    let mut request = [0; REQUEST_LEN];
    if let Reflector::DwellSocket { scheme: "stamp", .. } = reflector {
        let mode = Mode::Unauthenticated;
        Request { seq: 0, timestamp: 0, error: 0x8001, ssid: 7 }.emit(&mut request, mode);
        // As in the probes of dwell.
        let area = &mut request[mode.base()..];
        let (value, _) = tlv::begin(area, tlv::kind::NODE_CLOCK, tlv::NODE_CLOCK_LEN as u16);
        value[..tlv::NODE_CLOCK_MAGIC.len()].copy_from_slice(&tlv::NODE_CLOCK_MAGIC);
    }
    let digits: String = request.iter().map(|byte| format!("{byte:02x}")).collect();
    let fill = reflector.fill();
    format!("{}{fill}{}", &digits[..16], &digits[16 + fill.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_64_bytes_and_their_format() {
        let stamp = Reflector::DwellSocket { scheme: "stamp", wait: Wait::Blocking };
        for reflector in [Reflector::C, Reflector::Sockperf { wait: Wait::Blocking }, stamp] {
            let request = request(reflector);
            assert_eq!(request.len(), 128);
            assert!(request[16..].starts_with(reflector.fill()));
        }
        assert_eq!(&request(stamp)[24..32], "80010007");
    }
}
