//! Placement of a timing thread: CPU, scheduling class, timer slack, memory locking.

use std::io;
use std::mem;

use dwell_units::Nanos;

use crate::sys::time::{timespec, wide};

/// A scheduling class (sched(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// SCHED_OTHER: shares the CPU with all ordinary threads.
    #[default]
    Other,
    /// SCHED_FIFO: runs before all ordinary threads until it sleeps.
    Fifo,
    /// SCHED_RR
    RoundRobin,
    /// SCHED_BATCH
    Batch,
    /// SCHED_IDLE
    Idle,
    /// SCHED_DEADLINE
    Deadline,
}

/// Whether a thread requests real-time priority (SCHED_FIFO, lowest priority). Not for threads that
/// never sleep: the kernel stops those for 50 ms of every second (sched_rt_runtime_us).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RealTime {
    /// Ordinary priority.
    #[default]
    No,
    /// Real-time priority if permitted.
    IfAllowed,
    /// Real-time priority, or an error if not permitted.
    Required,
}

/// Placement that a timing thread obtained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The CPU that it is pinned to.
    pub cpu: Option<usize>,
    /// Scheduling class, if known.
    pub class: Option<Class>,
    /// Timers fire when due instead of up to 50 us late.
    pub precise_timers: bool,
    /// Its memory is locked into RAM.
    pub locked: bool,
}

/// Returns the CPUs that this process may use, ascending.
pub fn allowed() -> Vec<usize> {
    // SAFETY: cpu_set_t is plain data for which all zeros (no CPU) is valid.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes at most the stated size to `set`.
    let result = unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) };
    if result != 0 {
        return Vec::new();
    }
    // SAFETY: every index is below CPU_SETSIZE, the number of bits in the set.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// Pins the calling thread to `cpu`.
pub fn pin(cpu: usize) -> io::Result<()> {
    if !allowed().contains(&cpu) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: cpu_set_t is plain data for which all zeros is valid; `cpu` is below CPU_SETSIZE,
    // because `allowed` returned it.
    let set = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        set
    };
    // SAFETY: the kernel reads the stated size from `set`; 0 is the calling thread.
    let result = unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets up the calling thread as a timing thread: pinned if a CPU is given, with precise timers and
/// locked memory if permitted. Fails only if the CPU or a required scheduling class is unavailable.
pub fn place_thread(cpu: Option<usize>, real_time: RealTime) -> io::Result<Placement> {
    if let Some(cpu) = cpu {
        pin(cpu)?;
    }
    match real_time {
        RealTime::No => {}
        // The resulting class is read back below.
        RealTime::IfAllowed => drop(set_real_time()),
        RealTime::Required => set_real_time()?,
    }
    // MCL_ONFAULT: untouched memory, such as most of a stack, needs no RAM.
    // SAFETY: mlockall takes flags only.
    let locked = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) };
    Ok(Placement { cpu, class: class(), precise_timers: set_timer_slack(), locked: locked == 0 })
}

/// Sets the timer slack of this thread to 1 ns, so that timers fire when due and not when
/// convenient for the kernel. Returns whether that succeeded.
pub fn set_timer_slack() -> bool {
    // SAFETY: PR_SET_TIMERSLACK takes one integer, in ns, and acts on the calling thread.
    let slack = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    slack == 0
}

/// Gives this thread real-time priority (SCHED_FIFO, lowest priority).
///
/// # Errors
/// Not permitted.
pub fn set_real_time() -> io::Result<()> {
    // struct sched_param of the kernel. musl's wrapper always fails with ENOSYS, because the call
    // acts on a thread and not on the process.
    let priority: libc::c_int = 1;
    // SAFETY: the kernel reads one sched_param and acts on the calling thread.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const priority)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the calling thread's scheduling class.
fn class() -> Option<Class> {
    // SAFETY: takes a thread id; 0 is the calling thread. musl's wrapper always fails.
    let class = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    match libc::c_int::try_from(class).ok()? & !libc::SCHED_RESET_ON_FORK {
        libc::SCHED_OTHER => Some(Class::Other),
        libc::SCHED_FIFO => Some(Class::Fifo),
        libc::SCHED_RR => Some(Class::RoundRobin),
        libc::SCHED_BATCH => Some(Class::Batch),
        libc::SCHED_IDLE => Some(Class::Idle),
        libc::SCHED_DEADLINE => Some(Class::Deadline),
        _ => None,
    }
}

fn cpu_time(clock: libc::clockid_t) -> Nanos {
    let mut ts = timespec(Nanos::ZERO);
    // SAFETY: `ts` is a valid timespec that the kernel writes to.
    unsafe { libc::clock_gettime(clock, &mut ts) };
    Nanos(wide(ts.tv_sec) * 1_000_000_000 + wide(ts.tv_nsec))
}

/// Returns the CPU time used by the calling thread.
pub fn thread_time() -> Nanos {
    cpu_time(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_can_be_pinned_to_allowed_cpu_only() {
        let cpus = allowed();
        let last = *cpus.last().expect("at least one CPU");
        let pinned =
            std::thread::spawn(move || (place_thread(Some(last), RealTime::No), allowed()));
        let (placement, now) = pinned.join().unwrap();
        assert_eq!(placement.unwrap().cpu, Some(last));
        assert_eq!(now, [last]);
        assert!(pin(libc::CPU_SETSIZE as usize + 1).is_err());
    }

    #[test]
    fn reported_scheduling_class_is_the_actual_one() {
        let settled = |real_time| std::thread::spawn(move || place_thread(None, real_time)).join();
        let class = |real_time| settled(real_time).unwrap().map(|p| p.class);
        assert_eq!(class(RealTime::No).unwrap(), Some(Class::Other));
        match class(RealTime::Required) {
            Ok(required) => {
                assert_eq!(required, Some(Class::Fifo));
                assert_eq!(class(RealTime::IfAllowed).unwrap(), Some(Class::Fifo));
            }
            Err(_) => assert_eq!(class(RealTime::IfAllowed).unwrap(), Some(Class::Other)),
        }
    }
}
