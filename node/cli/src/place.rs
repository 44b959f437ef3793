//! Where a timing thread runs and before whom: the options for it, and the part of a result that
//! says what was got.

use std::thread;

use dwell_io::cpu::{self, Class, Placement, RealTime};
use dwell_plan::{Place, Scheduling as Asked};
use dwell_record::{Scheduling, Waiting};

use crate::Failure;

/// Options that place a timing thread.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct PlaceArgs {
    /// Run on this CPU
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,

    /// Scheduling class. auto: real-time (SCHED_FIFO) where allowed, for open-loop pings and
    /// sampled traffic that mostly sleep; ordinary for everything else
    #[arg(long, value_enum, value_name = "CLASS", default_value_t = SchedulingChoice::Auto)]
    pub scheduling: SchedulingChoice,

    /// Poll without sleeping: the smallest delay, and a whole core
    #[arg(long)]
    pub busy_poll: bool,
}

/// Before whom a timing thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SchedulingChoice {
    /// As suits the work
    Auto,
    /// Like every ordinary program
    Other,
    /// Before all ordinary programs; exit 4 where not allowed
    Fifo,
}

impl From<Place> for PlaceArgs {
    fn from(place: Place) -> Self {
        let scheduling = match place.scheduling {
            Asked::Auto => SchedulingChoice::Auto,
            Asked::Other => SchedulingChoice::Other,
            Asked::Fifo => SchedulingChoice::Fifo,
        };
        Self { cpu: place.cpu, scheduling, busy_poll: place.busy_poll }
    }
}

impl From<PlaceArgs> for Place {
    fn from(args: PlaceArgs) -> Self {
        let scheduling = match args.scheduling {
            SchedulingChoice::Auto => Asked::Auto,
            SchedulingChoice::Other => Asked::Other,
            SchedulingChoice::Fifo => Asked::Fifo,
        };
        Self { cpu: args.cpu, scheduling, busy_poll: args.busy_poll }
    }
}

impl PlaceArgs {
    /// Judges what can be judged before anything is sent.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if let Some(cpu) = self.cpu {
            check_cpu(cpu)?;
        }
        if self.scheduling != SchedulingChoice::Fifo {
            return Ok(());
        }
        if self.busy_poll {
            return Err(Failure::usage(
                "--scheduling fifo is not for --busy-poll: the kernel stops a real-time thread \
                 that never sleeps for 50 ms of every second",
            ));
        }
        thread::spawn(cpu::go_first).join().expect("asking does not panic").map_err(|error| {
            Failure::unsupported(format!(
                "--scheduling fifo is not allowed here ({error}): it needs CAP_SYS_NICE (root, or \
                 setcap cap_sys_nice+ep on the program) or a limit (ulimit -r), and in a control \
                 group cpu.rt_runtime_us above 0"
            ))
        })
    }

    /// What to ask for. `sleeps`: the thread spends most of its time asleep.
    pub(crate) fn real_time(&self, sleeps: bool) -> RealTime {
        match self.scheduling {
            SchedulingChoice::Auto if sleeps && !self.busy_poll => RealTime::IfAllowed,
            SchedulingChoice::Auto | SchedulingChoice::Other => RealTime::No,
            SchedulingChoice::Fifo => RealTime::Required,
        }
    }

    /// What the result says of it.
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

/// Whether this process may run on `cpu`.
pub(crate) fn check_cpu(cpu: usize) -> Result<(), Failure> {
    let allowed = cpu::allowed();
    if allowed.contains(&cpu) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "invalid value {cpu} for --cpu: this process may run on {allowed:?}"
    )))
}
