//! Placement of timing threads: checks, and the actual placement for the result.

use std::thread;

use dwell_io::cpu::{self, Class, Placement, RealTime};
use dwell_protocol::{Scheduling, ThreadPlacement};
use dwell_record::Waiting;

use crate::Failure;

/// Checks the options before anything is sent.
pub(crate) fn check(place: &ThreadPlacement) -> Result<(), Failure> {
    if let Some(cpu) = place.cpu {
        check_cpu(cpu)?;
    }
    if place.scheduling != Scheduling::Fifo {
        return Ok(());
    }
    if place.busy_poll {
        return Err(Failure::usage(
            "--scheduling fifo cannot be used with --busy-poll: for 50 ms of every second, the \
             kernel stops a real-time thread that never sleeps",
        ));
    }
    thread::spawn(cpu::set_real_time).join().expect("the thread does not panic").map_err(|error| {
        Failure::unsupported(format!(
            "--scheduling fifo is not permitted ({error}): it needs CAP_SYS_NICE (root, or \
             setcap cap_sys_nice+ep on the program) or a limit (ulimit -r), and in a control \
             group cpu.rt_runtime_us above 0"
        ))
    })
}

/// The scheduling to request. `sleeps`: the thread sleeps most of the time.
pub(crate) fn real_time(place: &ThreadPlacement, sleeps: bool) -> RealTime {
    match place.scheduling {
        Scheduling::Auto if sleeps && !place.busy_poll => RealTime::IfAllowed,
        Scheduling::Auto | Scheduling::Other => RealTime::No,
        Scheduling::Fifo => RealTime::Required,
    }
}

/// The actual placement, for the result.
pub(crate) fn record(place: &ThreadPlacement, placement: Placement) -> dwell_record::Placement {
    dwell_record::Placement {
        cpu: placement.cpu.and_then(|cpu| u32::try_from(cpu).ok()),
        waiting: Some(if place.busy_poll { Waiting::Polling } else { Waiting::Blocking }),
        scheduling: placement.class.map(|class| match class {
            Class::Other => dwell_record::Scheduling::Other,
            Class::Fifo => dwell_record::Scheduling::Fifo,
            Class::RoundRobin => dwell_record::Scheduling::RoundRobin,
            Class::Batch => dwell_record::Scheduling::Batch,
            Class::Idle => dwell_record::Scheduling::Idle,
            Class::Deadline => dwell_record::Scheduling::Deadline,
        }),
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
