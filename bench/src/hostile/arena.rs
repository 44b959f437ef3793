//! Lab for attacks on reflectors: attacker and prober on one node, reflectors on the other.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::goals::{Class, Flood, Measured, Prober};
use super::pool::{KEY, Kind, Protocol};
use crate::lab::sibling;
use crate::{Interrupt, Lab, Node, Server, finish};

/// Spoofed sources, routed back to the attacker's node and dropped there.
const SOURCES: &str = "10.0.0.0/8";

/// CPUs of the attacker and of the reflectors.
const ATTACKER: &str = "0";
const REFLECTOR: &str = "1";

/// Rate limit of the reflector for sources outside private networks.
const LIMIT: &str = "10kpps";

/// Interval of the prober, and the time it runs before and after the flood.
const PROBE_INTERVAL: &str = "10ms";
const PROBES_PER_SECOND: u64 = 100;
const PROBE_LEAD_SECONDS: u64 = 1;

/// A running lab with the attack program.
pub(super) struct Arena {
    lab: Lab,
    hostile: PathBuf,
    scratch: tempfile::TempDir,
}

impl Arena {
    pub(super) fn new(lab: Lab) -> Result<Self> {
        let scratch = tempfile::tempdir().context("cannot create a directory for pools")?;
        let arena = Self { lab, hostile: sibling("hostile-c")?, scratch };
        let attacker = arena.lab.address(Node::N1)?.to_string();
        arena.ip(Node::N1, &["route", "add", "blackhole", SOURCES])?;
        arena.ip(Node::N2, &["route", "add", SOURCES, "via", &arena.hop(&attacker)?])?;
        Ok(arena)
    }

    fn ip(&self, node: Node, arguments: &[&str]) -> Result<String> {
        let output = self.lab.on(node, "ip").args(arguments).output()?;
        ensure!(output.status.success(), "ip {arguments:?}: {output:?}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns the next hop from the reflectors' node to `address`.
    fn hop(&self, address: &str) -> Result<String> {
        let route = self.ip(Node::N2, &["route", "get", address])?;
        let mut words = route.split_whitespace();
        let hop = words.find(|word| *word == "via").and_then(|_| words.next());
        Ok(hop.unwrap_or(address).to_owned())
    }

    /// Returns the attacker's interface towards the reflectors.
    fn interface(&self) -> Result<String> {
        let to = self.lab.address(Node::N2)?.to_string();
        let route = self.ip(Node::N1, &["route", "get", &to])?;
        let mut words = route.split_whitespace();
        let name = words.find(|word| *word == "dev").and_then(|_| words.next());
        Ok(name.context("no route to the reflectors")?.to_owned())
    }

    /// Starts a reflector of `protocols`.
    fn reflector(&self, protocols: &[Protocol], more: &[&str]) -> Result<Server> {
        let mut command = self.lab.dwell_on(Node::N2);
        command.arg("reflect");
        for protocol in protocols {
            command.arg(format!("{}://0.0.0.0:{}", protocol.scheme(), protocol.port()));
        }
        command.args(["--json", "--allow-any-port"]).args(more);
        if protocols == [Protocol::StampKey] {
            command.env("DWELL_KEY", KEY);
        }
        Server::start(command, Some("listening on"))
    }

    /// Returns a command that sends `count` datagrams of a pool to the reflector of `protocol`.
    fn attacker(&self, protocol: Protocol, pool: &[u8], count: u64, rate: u64) -> Result<Command> {
        let path = self.scratch.path().join("pool");
        fs::write(&path, pool).context("cannot write the pool")?;
        let mut command = self.lab.on(Node::N1, "taskset");
        command.args(["-c", ATTACKER]).arg(&self.hostile).arg(self.interface()?);
        command.arg(SOURCES.split('/').next().unwrap_or(SOURCES));
        command.arg(self.lab.address(Node::N2)?.to_string());
        command.arg(protocol.port().to_string()).arg(path);
        command.args([count.to_string(), rate.to_string()]);
        Ok(command)
    }

    /// Attacks every protocol with every kind of datagram, `count` datagrams in total.
    pub(super) fn attack(
        &self,
        measured: &mut Measured,
        count: u64,
        rate: u64,
        mut pool: impl FnMut(Protocol, Kind) -> Vec<u8>,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let open = [Protocol::Stamp, Protocol::Udp, Protocol::Roundtrip, Protocol::Text];
        let place = ["--cpu", REFLECTOR];
        let reflectors =
            [self.reflector(&open, &place)?, self.reflector(&[Protocol::StampKey], &place)?];
        let before: Vec<u64> = reflectors.iter().map(resident).collect::<Result<_>>()?;
        let classes = (Protocol::ALL.len() * Kind::ALL.len()) as u64;
        let mut outcome = Ok(());
        'all: for protocol in Protocol::ALL {
            for kind in Kind::ALL {
                let pool = pool(protocol, kind);
                let mut attacker = self.attacker(protocol, &pool, count.div_ceil(classes), rate)?;
                attacker.args(kind.is_mutated().then_some("mutate"));
                eprintln!("{}, {}", protocol.name(), kind.name());
                match flood(attacker, interrupt) {
                    Ok(flood) => measured.classes.push(Class { protocol, kind, flood }),
                    Err(error) => {
                        outcome = Err(error);
                        break 'all;
                    }
                }
            }
        }
        for (reflector, before) in reflectors.into_iter().zip(before) {
            match resident(&reflector) {
                Ok(after) => measured.resident.push((before, after)),
                Err(error) => measured.failed.push(format!("{error:#}")),
            }
            match reflector.stop().and_then(|text| values(&text)) {
                Ok(values) => {
                    measured.requests += count_of(&values, "requests");
                    measured.socket_drops += count_of(&values, "socket_drops");
                }
                Err(error) => measured.failed.push(format!("{error:#}")),
            }
        }
        outcome
    }

    /// Probes a STAMP reflector during `count` valid requests from spoofed sources.
    pub(super) fn probe(
        &self,
        count: u64,
        rate: u64,
        pool: &[u8],
        interrupt: &Interrupt,
    ) -> Result<Prober> {
        let reflector = self.reflector(&[Protocol::Stamp], &["--limit", LIMIT])?;
        let seconds = count.div_ceil(rate) + 2 * PROBE_LEAD_SECONDS;
        let target = self.lab.address(Node::N2)?;
        let mut ping = self.lab.dwell_on(Node::N1);
        ping.args(["ping", &format!("stamp://{target}:{}", Protocol::Stamp.port())]);
        ping.args(["-i", PROBE_INTERVAL, "-c", &(seconds * PROBES_PER_SECOND).to_string()]);
        ping.args(["--json", "-q"]);
        let prober = std::thread::spawn({
            let interrupt = interrupt.clone();
            move || finish(ping, &interrupt)
        });
        std::thread::sleep(std::time::Duration::from_secs(PROBE_LEAD_SECONDS));
        let flood = flood(self.attacker(Protocol::Stamp, pool, count, rate)?, interrupt);
        let Ok(finished) = prober.join() else { bail!("the prober's thread panicked") };
        let text = finished?.stdout;
        let ping: Value =
            serde_json::from_str(&text).context("dwell ping printed no JSON object")?;
        let values = values(&reflector.stop()?)?;
        Ok(Prober {
            flood: flood?,
            sent: count_of(&ping["packets"], "sent"),
            lost: count_of(&ping["packets"], "lost"),
            far_socket_drops: ping["values"]["far_socket_drops"].as_u64(),
            socket_drops: count_of(&values, "socket_drops"),
            limited: count_of(&values, "limited"),
        })
    }
}

fn flood(attacker: Command, interrupt: &Interrupt) -> Result<Flood> {
    let finished = finish(attacker, interrupt)?;
    ensure!(finished.status.success(), "the attacker failed: {}", finished.status);
    serde_json::from_str(&finished.stdout).context("the attacker printed no JSON object")
}

/// Returns the `values` of a summary.
fn values(summary: &str) -> Result<Value> {
    let mut summary: Value =
        serde_json::from_str(summary).context("dwell reflect printed no JSON object")?;
    Ok(summary["values"].take())
}

fn count_of(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or(0)
}

/// Returns resident anonymous memory in bytes (proc(5), `RssAnon` of status).
fn resident(server: &Server) -> Result<u64> {
    let path = format!("/proc/{}/status", server.id());
    let status = fs::read_to_string(&path).context("a reflector has ended")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.with_context(|| format!("{path} has no RssAnon"))? * 1_024)
}
