//! Placement of timing threads: the options, and the actual placement for the result.

use std::thread;

use dwell_io::cpu::{self, Class, Placement, RealTime};
use dwell_protocol::{Scheduling as RequestedScheduling, ThreadPlacement};
use dwell_record::{Scheduling, Waiting};

use crate::Failure;

/// Options that place a timing thread.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct PlacementArgs {
    /// CPU to run on
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,

    /// Scheduling class. auto: real-time (SCHED_FIFO) if permitted, for open-loop pings and sampled
    /// traffic that sleep most of the time; other for the rest
    #[arg(long, value_enum, value_name = "CLASS", default_value_t = SchedulingChoice::Auto)]
    pub scheduling: SchedulingChoice,

    /// Poll without sleeping: lowest delay, but occupies a CPU
    #[arg(long)]
    pub busy_poll: bool,
}

/// Scheduling class of a timing thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SchedulingChoice {
    /// Chosen by the kind of work
    Auto,
    /// Time-sharing (SCHED_OTHER)
    Other,
    /// Real-time priority (SCHED_FIFO). Exits with code 4 if not permitted
    Fifo,
}

impl From<ThreadPlacement> for PlacementArgs {
    fn from(place: ThreadPlacement) -> Self {
        let scheduling = match place.scheduling {
            RequestedScheduling::Auto => SchedulingChoice::Auto,
            RequestedScheduling::Other => SchedulingChoice::Other,
            RequestedScheduling::Fifo => SchedulingChoice::Fifo,
        };
        Self { cpu: place.cpu, scheduling, busy_poll: place.busy_poll }
    }
}

impl From<PlacementArgs> for ThreadPlacement {
    fn from(args: PlacementArgs) -> Self {
        let scheduling = match args.scheduling {
            SchedulingChoice::Auto => RequestedScheduling::Auto,
            SchedulingChoice::Other => RequestedScheduling::Other,
            SchedulingChoice::Fifo => RequestedScheduling::Fifo,
        };
        Self { cpu: args.cpu, scheduling, busy_poll: args.busy_poll }
    }
}

impl PlacementArgs {
    /// Checks the options before anything is sent.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if let Some(cpu) = self.cpu {
            check_cpu(cpu)?;
        }
        if self.scheduling != SchedulingChoice::Fifo {
            return Ok(());
        }
        if self.busy_poll {
            return Err(Failure::usage(
                "--scheduling fifo cannot be used with --busy-poll: for 50 ms of every second, the \
                 kernel stops a real-time thread that never sleeps",
            ));
        }
        thread::spawn(cpu::set_real_time).join().expect("the thread does not panic").map_err(
            |error| {
                Failure::unsupported(format!(
                    "--scheduling fifo is not permitted ({error}): it needs CAP_SYS_NICE (root, or \
                 setcap cap_sys_nice+ep on the program) or a limit (ulimit -r), and in a control \
                 group cpu.rt_runtime_us above 0"
                ))
            },
        )
    }

    /// The scheduling to request. `sleeps`: the thread sleeps most of the time.
    pub(crate) fn real_time(&self, sleeps: bool) -> RealTime {
        match self.scheduling {
            SchedulingChoice::Auto if sleeps && !self.busy_poll => RealTime::IfAllowed,
            SchedulingChoice::Auto | SchedulingChoice::Other => RealTime::No,
            SchedulingChoice::Fifo => RealTime::Required,
        }
    }

    /// The actual placement, for the result.
    pub(crate) fn record(&self, placement: Placement) -> dwell_record::Placement {
        dwell_record::Placement {
            cpu: placement.cpu.and_then(|cpu| u32::try_from(cpu).ok()),
            waiting: Some(if self.busy_poll { Waiting::Polling } else { Waiting::Blocking }),
            scheduling: placement.class.map(|class| match class {
                Class::Other => Scheduling::Other,
                Class::Fifo => Scheduling::Fifo,
                Class::RoundRobin => Scheduling::RoundRobin,
                Class::Batch => Scheduling::Batch,
                Class::Idle => Scheduling::Idle,
                Class::Deadline => Scheduling::Deadline,
            }),
        }
    }
}

/// Checks that this process may run on `cpu`.
pub(crate) fn check_cpu(cpu: usize) -> Result<(), Failure> {
    let allowed = cpu::allowed();
    if allowed.contains(&cpu) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "invalid value {cpu} for --cpu: this process may run on {allowed:?}"
    )))
}
