//! CPU use by other programs and the hypervisor during a measurement, from /proc/stat and
//! /proc/PID/stat (proc(5)) at its start and end.

use serde::{Deserialize, Serialize};

use crate::cpu_stats::Stat;

/// A process, from /proc/PID/stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Process id of the parent.
    pub parent: u32,
    /// CPU time in clock ticks since its start, including that of children it has waited for.
    pub ticks: u64,
}

/// Readings at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Monotonic time in nanoseconds.
    pub at_ns: i64,
    /// /proc/stat.
    pub stat: Stat,
    /// CPU time of the measuring program and its declared loads, in clock ticks.
    pub own_ticks: Option<u64>,
}

/// CPU use during a measurement. Ratios are shares of the time of all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuUse {
    /// Duration of the observation.
    pub elapsed_ns: i64,
    /// Number of CPUs.
    pub cpus: u32,
    /// Busy for any reason.
    pub busy_ratio: f64,
    /// Used by programs other than the measuring one and its declared loads. Interrupts (irq and
    /// softirq) are excluded, because packets of the measurement cause them too; null if the
    /// measurement's own use is unknown. A kernel without precise interrupt accounting charges some
    /// interrupts to the interrupted program, so this value may be too small but not too large.
    pub others_ratio: Option<f64>,
    /// Taken by the hypervisor.
    pub steal_ratio: f64,
    /// Time for which the timing thread was ready to run but waited; null if the kernel does not
    /// count it.
    pub run_queue_wait_ns_per_s: Option<f64>,
}

/// Reads /proc/PID/stat.
pub fn process(text: &str) -> Option<Process> {
    // The name in parentheses may contain any characters.
    let (head, rest) = text.rsplit_once(')')?;
    let pid = head.split_ascii_whitespace().next()?.parse().ok()?;
    let mut fields = rest.split_ascii_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    // utime, stime, cutime and cstime are fields 14 to 17; the parent is field 4.
    let times = fields.skip(9).take(4).map(|field| field.parse::<u64>().ok());
    let times: Vec<u64> = times.collect::<Option<_>>()?;
    let is_whole = times.len() == 4;
    let ticks = times.into_iter().fold(0, u64::saturating_add);
    is_whole.then_some(Process { pid, parent, ticks })
}

/// Returns the CPU time of `roots` and all their descendants, in clock ticks.
pub fn family_ticks(processes: &[Process], roots: &[u32]) -> u64 {
    let mut family: Vec<u32> = roots.to_vec();
    // Each iteration adds one generation; there are at most as many generations as processes.
    for _ in 0..processes.len() {
        let before = family.len();
        for process in processes {
            if family.contains(&process.parent) && !family.contains(&process.pid) {
                family.push(process.pid);
            }
        }
        if family.len() == before {
            break;
        }
    }
    let members = processes.iter().filter(|process| family.contains(&process.pid));
    members.fold(0, |sum, process| sum.saturating_add(process.ticks))
}

/// Whether `above` is an ancestor of `pid`.
pub fn is_ancestor(processes: &[Process], above: u32, pid: u32) -> bool {
    let mut at = pid;
    // A table that was read while it changed may contain a cycle.
    for _ in 0..processes.len() {
        let Some(process) = processes.iter().find(|process| process.pid == at) else { break };
        if process.parent == above {
            return true;
        }
        at = process.parent;
    }
    false
}

impl CpuUse {
    /// Warning threshold for the share of CPU time used by other programs: one probe in ten may
    /// then find its CPU occupied, which affects p90.
    pub const OTHERS_LIMIT: f64 = 0.1;

    /// Warning threshold for the share of CPU time taken by the hypervisor; it affects p99.
    pub const STEAL_LIMIT: f64 = 0.01;

    /// Warning threshold for the run-queue wait of a timing thread, in nanoseconds per second: one
    /// percent of the time, which affects p99.
    pub const RUN_QUEUE_WAIT_LIMIT: f64 = 1e7;

    /// Minimum duration that is evaluated, because /proc/stat counts in ticks of 10 ms.
    pub const MIN_ELAPSED_NS: i64 = 500_000_000;

    /// Returns the use between two snapshots; `None` if they are closer than
    /// [`Self::MIN_ELAPSED_NS`] or /proc/stat was empty.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Option<Self> {
        let elapsed_ns = after.at_ns.checked_sub(before.at_ns)?;
        if elapsed_ns < Self::MIN_ELAPSED_NS {
            return None;
        }
        let (mut busy, mut programs, mut idle, mut stolen, mut cpus) =
            (0_u64, 0_u64, 0_u64, 0_u64, 0);
        for now in &after.stat.cpus {
            let Some(old) = before.stat.cpus.iter().find(|old| old.cpu == now.cpu) else {
                continue;
            };
            busy = busy.saturating_add(now.busy.saturating_sub(old.busy));
            programs = programs.saturating_add(now.programs.saturating_sub(old.programs));
            // The idle time of a CPU may step back by a tick.
            idle = idle.saturating_add(now.idle.saturating_sub(old.idle));
            stolen = stolen.saturating_add(now.stolen.saturating_sub(old.stolen));
            cpus += 1;
        }
        let all = busy as f64 + idle as f64 + stolen as f64;
        if all == 0.0 {
            return None;
        }
        let own = after.own_ticks.zip(before.own_ticks);
        let own = own.map(|(after, before)| after.saturating_sub(before));
        Some(Self {
            elapsed_ns,
            cpus,
            busy_ratio: busy as f64 / all,
            others_ratio: own.map(|own| programs.saturating_sub(own) as f64 / all),
            steal_ratio: stolen as f64 / all,
            run_queue_wait_ns_per_s: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cpu_stats::stat;

    const SHELL: &str = "1342 (a) weird (name) S 1200 1342 1342 34817 1377 4194304 2063 41215 0 7 11 \
                         5 130 22 20 0 1 0 8429 9142272 1290 18446744073709551615 1 1 0\n";

    /// Two processors at the start of the interval.
    const BEFORE: &str = "cpu  0 0 0 0\ncpu0 1000 0 200 9000 10 0 20 0 0 0\n\
                          cpu1 1100 0 100 8900 20 0 10 0 0 0\n";

    fn snapshot(seconds: i64, text: &str, own_ticks: u64) -> Snapshot {
        Snapshot { at_ns: seconds * 1_000_000_000, stat: stat(text), own_ticks: Some(own_ticks) }
    }

    /// Five seconds later: busy 600 + 300 ticks, stolen 20, the rest idle.
    fn after() -> Snapshot {
        let text = "cpu0 1500 0 300 8880 10 0 20 20 0 0\ncpu1 1350 0 150 9080 20 0 10 0 0 0\n";
        snapshot(5, text, 150)
    }

    #[test]
    fn process_time_includes_its_children() {
        let expected = Process { pid: 1_342, parent: 1_200, ticks: 11 + 5 + 130 + 22 };
        assert_eq!(process(SHELL), Some(expected));
        assert_eq!(process("1342 (sh) S 1200 1342 1342 34817"), None);
        assert_eq!(process(""), None);
    }

    #[test]
    fn family_contains_descendants_and_no_neighbour() {
        let process = |pid, parent, ticks| Process { pid, parent, ticks };
        let all = [
            process(9, 5, 1_000),
            process(30, 20, 4),
            process(20, 10, 2),
            process(10, 5, 1),
            process(5, 1, 500),
        ];
        assert_eq!(family_ticks(&all, &[10]), 7);
        assert_eq!(family_ticks(&all, &[10, 9]), 1_007);
        assert_eq!(family_ticks(&all, &[77]), 0);
    }

    #[test]
    fn ancestors_are_parents_and_their_parents_only() {
        let process = |pid, parent| Process { pid, parent, ticks: 0 };
        let all = [process(30, 20), process(20, 10), process(10, 1), process(21, 10)];
        let above = |pid| is_ancestor(&all, pid, 30);
        assert_eq!([20, 10, 1].map(above), [true; 3]);
        assert_eq!([30, 21, 0, 77].map(above), [false; 4]);
        assert!(!is_ancestor(&all, 10, 77));
        let cycle = [process(5, 6), process(6, 5)];
        assert!(!is_ancestor(&cycle, 7, 5));
    }

    #[test]
    fn others_ratio_excludes_the_measuring_program() {
        let used = CpuUse::between(&snapshot(0, BEFORE, 50), &after()).unwrap();
        assert_eq!((used.elapsed_ns, used.cpus), (5_000_000_000, 2));
        let all = 600.0 + 300.0 + 20.0 + 180.0;
        assert!((used.busy_ratio - 900.0 / all).abs() < 1e-9, "{used:?}");
        assert!((used.others_ratio.unwrap() - 800.0 / all).abs() < 1e-9, "{used:?}");
        assert!((used.steal_ratio - 20.0 / all).abs() < 1e-9, "{used:?}");
    }

    #[test]
    fn interrupts_of_own_packets_are_not_other_programs() {
        // A flood over loopback: 150 ticks of the measuring program, 10 of irq and 400 of softirq.
        let text = "cpu0 1100 0 250 9000 10 5 220 0 0 0\ncpu1 1100 0 100 9305 20 5 210 0 0 0\n";
        let used = CpuUse::between(&snapshot(0, BEFORE, 50), &snapshot(5, text, 200)).unwrap();
        assert_eq!(used.others_ratio, Some(0.0));
        assert!((used.busy_ratio - 560.0 / 965.0).abs() < 1e-9, "{used:?}");
    }

    #[test]
    fn quiet_machine_is_below_the_limits() {
        let text = "cpu0 1040 0 210 9450 10 0 20 0 0 0\ncpu1 1110 0 110 9380 20 0 10 0 0 0\n";
        let used = CpuUse::between(&snapshot(0, BEFORE, 50), &snapshot(5, text, 90)).unwrap();
        assert!(used.others_ratio.unwrap() < 0.05, "{used:?}");
        let too_early = Snapshot { at_ns: CpuUse::MIN_ELAPSED_NS - 1, ..after() };
        assert_eq!(CpuUse::between(&snapshot(0, BEFORE, 50), &too_early), None);
        assert_eq!(CpuUse::between(&Snapshot::default(), &after()), None);
    }

    #[test]
    fn unknown_own_time_leaves_others_unknown() {
        let before = Snapshot { own_ticks: None, ..snapshot(0, BEFORE, 0) };
        let used = CpuUse::between(&before, &after()).unwrap();
        assert_eq!((used.others_ratio, used.busy_ratio > 0.8), (None, true));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text in "(\\PC|\n){0,200}", n in any::<u64>()) {
            let _ = process(&text);
            let _ = process(&format!("1 (x) S {n} {text} 1 1 1 1 1 1 1 {n} {n} {n} {n} {n}"));
        }
    }
}
