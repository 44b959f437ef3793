//! The part of a summary that says what machine it was measured on. Null is what could not be
//! found out.

use serde::{Deserialize, Serialize};

/// The machine at this end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Environment {
    /// Kernel release, as `uname -r` prints it.
    pub kernel: Option<String>,
    /// Model of the processor.
    pub cpu: Option<String>,
    /// Processors that this process may run on.
    pub cores: Option<u32>,
    /// CPU frequency governor.
    pub governor: Option<String>,
    /// What the kernel's clocks are read from, such as `tsc`.
    pub clocksource: Option<String>,
    /// The interface that probes leave by.
    pub interface: Option<String>,
    /// Its driver.
    pub driver: Option<String>,
    /// The offloads that are switched on there, by ethtool's names.
    pub offloads: Option<Vec<String>>,
    /// Its root queueing discipline.
    pub qdisc: Option<String>,
    /// The version of dwell, with the start of the SHA-256 of its program as build metadata where that is
    /// known: `0.1.0+4f2a9c01b2d3`.
    pub dwell: String,
    /// Where the programs at both ends ran.
    pub placement: Ends,
}

/// Where the programs at both ends ran. A blocking ping-pong costs some 4 us with both ends on one
/// core and 69 us on two, so no delay is comparable without it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ends {
    /// This end.
    pub near: Placement,
    /// The far end; null when nobody told.
    pub far: Option<Placement>,
}

/// Where and how a program ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The CPU it was pinned to; null when it was not.
    pub cpu: Option<u32>,
    /// How it waited for packets.
    pub waiting: Option<Waiting>,
    /// Its scheduling class.
    pub scheduling: Option<Scheduling>,
}

/// How a program waits for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    /// Asleep in the kernel.
    Blocking,
    /// Asking again and again.
    Polling,
}

/// A scheduling class of Linux, by the name sched(7) gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scheduling {
    /// SCHED_OTHER
    #[serde(rename = "SCHED_OTHER")]
    Other,
    /// SCHED_FIFO
    #[serde(rename = "SCHED_FIFO")]
    Fifo,
    /// SCHED_RR
    #[serde(rename = "SCHED_RR")]
    RoundRobin,
    /// SCHED_BATCH
    #[serde(rename = "SCHED_BATCH")]
    Batch,
    /// SCHED_IDLE
    #[serde(rename = "SCHED_IDLE")]
    Idle,
    /// SCHED_DEADLINE
    #[serde(rename = "SCHED_DEADLINE")]
    Deadline,
}

impl Default for Environment {
    /// Nothing known but the version of dwell.
    fn default() -> Self {
        Self {
            kernel: None,
            cpu: None,
            cores: None,
            governor: None,
            clocksource: None,
            interface: None,
            driver: None,
            offloads: None,
            qdisc: None,
            dwell: env!("CARGO_PKG_VERSION").to_owned(),
            placement: Ends::default(),
        }
    }
}
