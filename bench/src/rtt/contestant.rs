//! Programs in the comparison and how each is started: the same 64-byte message, the same CPUs and
//! the same way of waiting at both ends.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::sockperf;
use crate::lab::sibling;
use crate::{Interrupt, Lab, Node, Server, Summary, finish};

const PORT: u16 = 7200;
const SIZE: &str = "64";
/// sockperf takes a duration, not a count.
const SOCKPERF_SECONDS: &str = "1";

/// A program and its settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contestant {
    /// Unique; used in goals and in the JSON object.
    pub(super) name: &'static str,
    program: Program,
    wait: Wait,
    /// CPUs of client and server.
    cores: (u8, u8),
}

#[derive(Clone, Copy, Debug)]
enum Program {
    Dwell {
        scheme: &'static str,
        stamps: Stamps,
    },
    /// `dwell ping` with the echo of the C program, which shows the cost of the prober alone.
    DwellToC {
        stamps: Stamps,
    },
    /// `dwell ping` at 1,000 probes/s, with or without `--explain`.
    DwellAtRate {
        explain: bool,
    },
    C {
        stamps: Stamps,
    },
    Sockperf,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stamps {
    /// Clock readings of the program only.
    User,
    /// Also kernel timestamps of every packet, recorded.
    Kernel,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Wait {
    Busy,
    Blocking,
}

const TWO_CORES: (u8, u8) = (0, 1);
const ONE_CORE: (u8, u8) = (0, 0);

const fn dwell(name: &'static str, wait: Wait, cores: (u8, u8), stamps: Stamps) -> Contestant {
    Contestant { name, program: Program::Dwell { scheme: "udp", stamps }, wait, cores }
}

const fn c(name: &'static str, wait: Wait, cores: (u8, u8), stamps: Stamps) -> Contestant {
    Contestant { name, program: Program::C { stamps }, wait, cores }
}

const fn sockperf(name: &'static str, wait: Wait, cores: (u8, u8)) -> Contestant {
    Contestant { name, program: Program::Sockperf, wait, cores }
}

/// All contestants; those that are compared are neighbours.
pub(super) const ALL: [Contestant; 13] = [
    dwell("dwell busy", Wait::Busy, TWO_CORES, Stamps::User),
    c("C busy", Wait::Busy, TWO_CORES, Stamps::User),
    sockperf("sockperf busy", Wait::Busy, TWO_CORES),
    dwell("dwell busy, kernel stamps", Wait::Busy, TWO_CORES, Stamps::Kernel),
    c("C busy, kernel stamps", Wait::Busy, TWO_CORES, Stamps::Kernel),
    Contestant {
        name: "dwell busy, kernel stamps, C echo",
        program: Program::DwellToC { stamps: Stamps::Kernel },
        wait: Wait::Busy,
        cores: TWO_CORES,
    },
    Contestant {
        name: "dwell stamp:// busy",
        program: Program::Dwell { scheme: "stamp", stamps: Stamps::User },
        wait: Wait::Busy,
        cores: TWO_CORES,
    },
    dwell("dwell blocking, two cores", Wait::Blocking, TWO_CORES, Stamps::User),
    c("C blocking, two cores", Wait::Blocking, TWO_CORES, Stamps::User),
    sockperf("sockperf blocking, two cores", Wait::Blocking, TWO_CORES),
    dwell("dwell blocking, one core", Wait::Blocking, ONE_CORE, Stamps::User),
    c("C blocking, one core", Wait::Blocking, ONE_CORE, Stamps::User),
    sockperf("sockperf blocking, one core", Wait::Blocking, ONE_CORE),
];

/// The cost of `--explain`: small, so these two are measured [`EXPLAIN_TURNS`] times in a round.
pub(super) const EXPLAIN: [Contestant; 2] = [
    Contestant {
        name: "dwell 1,000/s",
        program: Program::DwellAtRate { explain: false },
        wait: Wait::Blocking,
        cores: TWO_CORES,
    },
    Contestant {
        name: "dwell 1,000/s, --explain",
        program: Program::DwellAtRate { explain: true },
        wait: Wait::Blocking,
        cores: TWO_CORES,
    },
];

/// Turns of [`EXPLAIN`] in a round.
pub(super) const EXPLAIN_TURNS: u64 = 4;

/// Probes of a turn.
const EXPLAIN_COUNT: u64 = 1_000;

/// Results of one measurement, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct RoundTrip {
    /// Median.
    pub(crate) p50: f64,
    /// 99th percentile.
    pub(crate) p99: f64,
}

/// Lab of the comparison.
#[derive(Debug)]
pub(super) struct Arena {
    lab: Lab,
    server: Ipv4Addr,
    c_program: PathBuf,
    scratch: PathBuf,
}

impl Arena {
    /// Creates the arena in a lab with an unlimited link; contestants write to `scratch`.
    pub(super) fn new(lab: Lab, scratch: &Path) -> Result<Self> {
        let server = lab.address(Node::N2)?;
        let scratch = fs::canonicalize(scratch)
            .with_context(|| format!("cannot use directory {}", scratch.display()))?;
        Ok(Self { lab, server, c_program: sibling("pingpong")?, scratch })
    }

    /// Measures `count` round trips (sockperf: one second; at a rate: [`EXPLAIN_COUNT`]).
    pub(super) fn measure(
        &self,
        contestant: &Contestant,
        count: u64,
        interrupt: &Interrupt,
    ) -> Result<RoundTrip> {
        let (serve, ready) = self.server_of(contestant);
        let server = Server::start(serve, Some(ready))?;
        let log = self.scratch.join("rtt-contestant.csv");
        let client = self.client_of(contestant, count, &log);
        let finished = finish(client, interrupt)?;
        ensure!(finished.status.success(), "{}: {}", contestant.name, finished.status);
        let measured = match contestant.program {
            Program::Dwell { .. } | Program::DwellToC { .. } | Program::DwellAtRate { .. } => {
                dwell_round_trip(&finished.stdout)
            }
            Program::C { .. } => {
                serde_json::from_str(&finished.stdout).context("pingpong printed no JSON object")
            }
            Program::Sockperf => sockperf::read_log(&log),
        };
        server.stop()?;
        measured.with_context(|| contestant.name)
    }

    /// Returns the peak memory of `dwell ping` over `count` closed-loop cycles, in KiB.
    pub(super) fn peak_memory_kib(&self, count: u64, interrupt: &Interrupt) -> Result<u64> {
        let contestant = &ALL[0];
        let (serve, ready) = self.server_of(contestant);
        let server = Server::start(serve, Some(ready))?;
        let report = self.scratch.join("rtt-peak-memory.txt");
        let mut client = self.lab.on(Node::N1, "time");
        client.args(["--format", "%M", "--output"]).arg(&report);
        client.arg(self.lab.dwell());
        client.args(self.dwell_ping(contestant, count));
        let finished = finish(client, interrupt)?;
        ensure!(finished.status.success(), "time dwell ping: {}", finished.status);
        server.stop()?;
        let text = fs::read_to_string(&report)?;
        text.trim().parse().with_context(|| format!("'{}' is not a size in KiB", text.trim()))
    }

    /// Returns the server's command and its ready message.
    fn server_of(&self, contestant: &Contestant) -> (Command, &'static str) {
        let core = contestant.cores.1;
        let busy = contestant.wait == Wait::Busy;
        match contestant.program {
            Program::Dwell { .. } | Program::DwellAtRate { .. } => {
                let scheme = match contestant.program {
                    Program::Dwell { scheme, .. } => scheme,
                    _ => "udp",
                };
                let mut command = self.lab.dwell_on(Node::N2);
                command.args(["reflect", &self.url(scheme), "--cpu", &core.to_string()]);
                command.args(["--stamps", "user"]);
                command.args(busy.then_some("--busy-poll"));
                (command, "listening on")
            }
            Program::C { .. } | Program::DwellToC { .. } => {
                let mut command = self.pinned(Node::N2, core, &self.c_program);
                command.arg("server").arg(self.server.to_string()).arg(PORT.to_string());
                command.args(busy.then_some("busy"));
                (command, "listening on")
            }
            Program::Sockperf => {
                let mut command = self.pinned(Node::N2, core, Path::new("sockperf"));
                command.args(["server", "-i", &self.server.to_string()]);
                command.args(["-p", &PORT.to_string()]);
                command.args(busy.then_some("--nonblocked"));
                (command, "using recvfrom()")
            }
        }
    }

    fn client_of(&self, contestant: &Contestant, count: u64, log: &Path) -> Command {
        let core = contestant.cores.0;
        let busy = contestant.wait == Wait::Busy;
        match contestant.program {
            Program::Dwell { stamps, .. } | Program::DwellToC { stamps } => {
                let mut command = self.lab.dwell_on(Node::N1);
                command.args(self.dwell_ping(contestant, count));
                if stamps == Stamps::Kernel {
                    command.arg("--csv").arg(log);
                }
                command
            }
            Program::DwellAtRate { explain } => {
                let mut command = self.lab.dwell_on(Node::N1);
                command.args(["ping", &self.url("udp"), "-i", "1ms", "-s", SIZE, "-q", "--json"]);
                command.args(["-c", &EXPLAIN_COUNT.to_string(), "--cpu", &core.to_string()]);
                command.args(explain.then_some("--explain"));
                command
            }
            Program::C { stamps } => {
                let mut command = self.pinned(Node::N1, core, &self.c_program);
                command.arg("client").arg(self.server.to_string()).arg(PORT.to_string());
                command.args([SIZE, &count.to_string()]);
                command.args(busy.then_some("busy"));
                command.args((stamps == Stamps::Kernel).then_some("stamps"));
                command
            }
            Program::Sockperf => {
                let mut command = self.pinned(Node::N1, core, Path::new("sockperf"));
                command.args(["ping-pong", "-i", &self.server.to_string()]);
                command.args(["-p", &PORT.to_string(), "-m", SIZE, "-t", SOCKPERF_SECONDS]);
                command.arg("--full-rtt").arg("--full-log").arg(log);
                command.args(busy.then_some("--nonblocked"));
                command
            }
        }
    }

    /// Returns the arguments of `dwell ping`.
    fn dwell_ping(&self, contestant: &Contestant, count: u64) -> Vec<String> {
        let (scheme, stamps) = match contestant.program {
            Program::Dwell { scheme, stamps } => (scheme, stamps),
            Program::DwellToC { stamps } => ("udp", stamps),
            Program::DwellAtRate { .. } | Program::C { .. } | Program::Sockperf => {
                return Vec::new();
            }
        };
        let stamps = match stamps {
            Stamps::User => "user",
            Stamps::Kernel => "kernel",
        };
        let (url, count) = (self.url(scheme), count.to_string());
        let core = contestant.cores.0.to_string();
        let mut words = vec!["ping", &url, "--closed-loop", "-c", &count, "--stamps", stamps];
        words.extend(["--cpu", &core, "-q", "--json"]);
        // The default size of dwell's STAMP probes is 64 bytes.
        words.extend(if scheme == "udp" { ["-s", SIZE].as_slice() } else { &[] });
        words.extend((contestant.wait == Wait::Busy).then_some("--busy-poll"));
        words.into_iter().map(str::to_owned).collect()
    }

    fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}:{PORT}", self.server)
    }

    fn pinned(&self, node: Node, core: u8, program: &Path) -> Command {
        let mut command = self.lab.on(node, "taskset");
        command.args(["-c", &core.to_string()]).arg(program);
        command
    }
}

/// Returns the round trips in the output of `dwell ping --json`.
pub(crate) fn dwell_round_trip(json: &str) -> Result<RoundTrip> {
    let summary = Summary::parse(json)?;
    let r = summary.round_trips()?;
    let both = r.p50.zip(r.p99).map(|(p50, p99)| RoundTrip { p50, p99 });
    both.context("too few round trips for a p99")
}
