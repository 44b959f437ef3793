//! Replays: the experiments of the founding documents as plans, which `dwell replay` runs and judges.

use dwell_units::Nanos;

/// The experiment of a document.
#[derive(Clone, Copy, Debug)]
pub struct Replay {
    /// Name on the command line.
    pub name: &'static str,
    /// Author and year, as in docs/references.md.
    pub cite: &'static str,
    /// What it asks, in one sentence.
    pub title: &'static str,
    /// Prefix of the lines of the document, such as `S0`.
    pub line: &'static str,
    /// Its cases, of which the first is this machine as it is.
    pub cases: &'static [ReplayCase],
}

/// A replay on one kind of machine. A claim is judged for each case, by the same test.
#[derive(Clone, Copy, Debug)]
pub struct ReplayCase {
    /// Name on the command line.
    pub name: &'static str,
    /// What is special about it, as a clause.
    pub what: &'static str,
    /// The whole experiment.
    pub full: ReplayPlan,
    /// One that takes minutes.
    pub short: ReplayPlan,
    /// Program of the lab's nodes.
    pub program: LabProgram,
    /// Privileges without which trials fail; `None` if an ordinary user can run it.
    pub needs: Option<&'static str>,
}

/// A plan of a replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayPlan {
    /// File in the folder `plans`.
    pub file: &'static str,
    /// Its text.
    pub text: &'static str,
    /// Duration on a machine with two processors (docs/performance.md). The estimate of the plan alone
    /// lacks the round trips of closed loops and most of the time between trials.
    pub time: Nanos,
}

/// Program that runs in the nodes of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabProgram {
    /// The running program.
    Own,
    /// `dwell-node-soft-aes` (`make soft-aes`), whose AES uses no CPU instructions.
    SoftAes,
}

macro_rules! plan {
    ($file:literal, $seconds:expr) => {
        ReplayPlan {
            file: concat!("plans/", $file),
            text: include_str!(concat!("../../../plans/", $file)),
            time: Nanos::from_secs($seconds),
        }
    };
}

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;

const THIS_MACHINE: &str = "this-machine";

/// All replays, in the order of the documents.
pub const REPLAYS: &[Replay] = &[
    Replay {
        name: "relay-delay",
        cite: "Miya 2020",
        title: "How long does relaying a packet take in the kernel, in a program, and with encryption?",
        line: "S0",
        cases: &[
            ReplayCase {
                name: THIS_MACHINE,
                what: "this machine, with AES instructions if its processor has them",
                full: plan!("relay-delay.toml", 108 * HOUR),
                short: plan!("relay-delay-short.toml", 7 * MINUTE),
                program: LabProgram::Own,
                needs: Some("root"),
            },
            ReplayCase {
                name: "slow-board",
                what: "nearer to a Pi Zero: AES without CPU instructions, and a relay that may run for 10 of every \
                       100 ms, which slows no single packet",
                full: plan!("relay-delay-board.toml", 36 * HOUR),
                short: plan!("relay-delay-board-short.toml", 7 * MINUTE),
                program: LabProgram::SoftAes,
                needs: Some("root"),
            },
        ],
    },
    Replay {
        name: "stable-ping",
        cite: "Ramstetter",
        title: "How far do mean and variance of round trips fall if drivers timestamp and answer?",
        line: "S1",
        cases: &[ReplayCase {
            name: THIS_MACHINE,
            what: "this machine",
            full: plan!("stable-ping.toml", 4 * MINUTE),
            short: plan!("stable-ping-short.toml", 90),
            program: LabProgram::Own,
            needs: Some("root"),
        }],
    },
    Replay {
        name: "send-accuracy",
        cite: "Mok 2015",
        title: "Up to which rate does a machine send packets on time?",
        line: "S2",
        cases: &[ReplayCase {
            name: THIS_MACHINE,
            what: "this machine",
            full: plan!("send-accuracy.toml", 10 * MINUTE),
            short: plan!("send-accuracy-short.toml", 100),
            program: LabProgram::Own,
            needs: Some("root for some engines"),
        }],
    },
    Replay {
        name: "microcontroller",
        cite: "Chung 2021",
        title: "How much longer does TCP take than UDP between a client and a microcontroller?",
        line: "S3",
        cases: &[ReplayCase {
            name: THIS_MACHINE,
            what: "a simulated node, exact and as an Arduino Uno",
            full: plan!("microcontroller.toml", 40 * MINUTE),
            short: plan!("microcontroller-short.toml", 6 * MINUTE),
            program: LabProgram::Own,
            needs: None,
        }],
    },
    Replay {
        name: "round-trip",
        cite: "Roedlach/Vock",
        title: "How long are UDP round trips without load, under network load and under CPU load?",
        line: "S4",
        cases: &[ReplayCase {
            name: THIS_MACHINE,
            what: "this machine",
            full: plan!("round-trip.toml", 4 * MINUTE),
            short: plan!("round-trip-short.toml", 90),
            program: LabProgram::Own,
            needs: None,
        }],
    },
];

impl Replay {
    /// Finds a replay by its name.
    pub fn find(name: &str) -> Option<&'static Self> {
        REPLAYS.iter().find(|replay| replay.name == name)
    }
}

impl ReplayCase {
    /// The plan of one of the forms.
    pub fn plan(&self, short: bool) -> ReplayPlan {
        if short { self.short } else { self.full }
    }
}
