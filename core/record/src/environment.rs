//! Section `environment` of a summary: the machine it was measured on. Unknown values are null.

use serde::{Deserialize, Serialize};

/// The local machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Environment {
    /// Kernel release, as `uname -r` prints it.
    pub kernel: Option<String>,
    /// CPU model.
    pub cpu: Option<String>,
    /// Number of CPUs that this process may use.
    pub cores: Option<u32>,
    /// CPU frequency governor.
    pub governor: Option<String>,
    /// Idle states of the processors; null in results of older versions and of other programs.
    #[serde(default)]
    pub cpu_idle: Option<CpuIdle>,
    /// Clock source of the kernel, such as `tsc`.
    pub clocksource: Option<String>,
    /// Outgoing interface of the probes.
    pub interface: Option<String>,
    /// Driver of the interface.
    pub driver: Option<String>,
    /// Offloads enabled on the interface, with ethtool's names.
    pub offloads: Option<Vec<String>>,
    /// Root queueing discipline of the interface.
    pub qdisc: Option<String>,
    /// Version of dwell, with the first digits of the program's SHA-256 as build metadata if known:
    /// `0.1.0+4f2a9c01b2d3`.
    pub dwell: String,
    /// CPU placement of the programs at both ends.
    pub placement: Ends,
}

/// Idle states of the processors (cpuidle). A deeper state takes longer to leave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuIdle {
    /// Driver of the idle states; null without one.
    pub driver: Option<String>,
    /// Governor that chooses the state.
    pub governor: Option<String>,
    /// Names of the states of the first processor, the shallowest first.
    pub states: Vec<String>,
    /// Whether `--no-idle` held the limit of their exit latency at 0. Without a driver, the limit
    /// has no effect.
    pub no_idle_held: bool,
}

impl CpuIdle {
    /// Whether the processors polled instead of entering an idle state.
    pub fn is_off(&self) -> bool {
        self.no_idle_held && self.driver.is_some()
    }
}

/// CPU placement of the programs at both ends. Delays are not comparable without it: a blocking
/// ping-pong takes about 4 us with both ends on one core and 69 us on two.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ends {
    /// Local end.
    pub near: Placement,
    /// Far end; null if it did not report its placement.
    pub far: Option<Placement>,
}

/// CPU and scheduling of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// CPU that it was pinned to; null if not pinned.
    pub cpu: Option<u32>,
    /// How it waited for packets.
    pub waiting: Option<Waiting>,
    /// Scheduling class.
    pub scheduling: Option<Scheduling>,
}

/// How a program waits for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    /// Blocked in the kernel.
    Blocking,
    /// Busy polling.
    Polling,
}

/// A Linux scheduling class, named as in sched(7).
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
    /// Only the version of dwell is known.
    fn default() -> Self {
        Self {
            kernel: None,
            cpu: None,
            cores: None,
            governor: None,
            cpu_idle: None,
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
