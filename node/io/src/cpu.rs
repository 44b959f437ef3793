//! The place of a timing thread: its CPU, its timer slack, its memory.

use std::io;
use std::mem;

use dwell_units::Nanos;

/// What a timing thread asked for and got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The only CPU it may run on, if it was pinned.
    pub cpu: Option<usize>,
    /// Timers fire at their time, not up to 50 us later.
    pub precise_timers: bool,
    /// Its memory stays in RAM.
    pub locked: bool,
}

/// CPUs this process may run on, ascending.
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

/// Makes the calling thread a timing thread: pinned if a CPU is given, with precise timers and
/// locked memory where allowed. Only a CPU that cannot be had is an error.
pub fn settle(cpu: Option<usize>) -> io::Result<Placement> {
    if let Some(cpu) = cpu {
        pin(cpu)?;
    }
    // SAFETY: PR_SET_TIMERSLACK takes one integer, in ns.
    let slack = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_usize) };
    // SAFETY: mlockall takes flags only.
    let locked = unsafe { libc::mlockall(libc::MCL_CURRENT) };
    Ok(Placement { cpu, precise_timers: slack == 0, locked: locked == 0 })
}

fn cpu_time(clock: libc::clockid_t) -> Nanos {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec that the kernel writes to.
    unsafe { libc::clock_gettime(clock, &mut ts) };
    Nanos(ts.tv_sec * 1_000_000_000 + ts.tv_nsec)
}

/// CPU time that the calling thread has used.
pub fn thread_time() -> Nanos {
    cpu_time(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_pinned_to_a_cpu_it_is_allowed_and_to_no_other() {
        let cpus = allowed();
        let last = *cpus.last().expect("at least one CPU");
        let pinned = std::thread::spawn(move || (settle(Some(last)), allowed()));
        let (placement, now) = pinned.join().unwrap();
        assert_eq!(placement.unwrap().cpu, Some(last));
        assert_eq!(now, [last]);
        assert!(pin(libc::CPU_SETSIZE as usize + 1).is_err());
    }
}
