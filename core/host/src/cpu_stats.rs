//! CPU statistics: /proc/stat, /proc/schedstat and /proc/PID/task/TID/schedstat (proc(5);
//! Documentation/scheduler/sched-stats.rst).

/// Upper bound of CPU numbers; Linux supports at most 8,192.
const MAX_CPUS: u32 = 8_192;

/// Times of one CPU since boot, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// CPU number.
    pub cpu: u32,
    /// Busy, including guests and interrupts.
    pub busy: u64,
    /// Part of `busy` without interrupts: user, nice and system.
    pub programs: u64,
    /// Idle or waiting for I/O.
    pub idle: u64,
    /// Stolen by the hypervisor.
    pub stolen: u64,
}

/// Counters since boot; absent if the kernel does not report them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Online CPUs.
    pub cpus: Vec<CpuTimes>,
    /// Interrupts of all kinds.
    pub interrupts: Option<u64>,
    /// Softirqs of all kinds.
    pub softirqs: Option<u64>,
    /// Context switches.
    pub context_switches: Option<u64>,
}

/// Reads /proc/stat.
pub fn stat(text: &str) -> Stat {
    let mut stat = Stat::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(key) = words.next() else { continue };
        let mut first = || words.next().and_then(|word| word.parse().ok());
        match key {
            "intr" => stat.interrupts = first(),
            "softirq" => stat.softirqs = first(),
            "ctxt" => stat.context_switches = first(),
            _ => {
                let Some(cpu) = number(key) else { continue };
                // user nice system idle iowait irq softirq steal; guest time is included in user.
                let mut times = [0_u64; 8];
                times.iter_mut().for_each(|time| *time = first().unwrap_or(0));
                let [user, nice, system, idle, disk, irq, softirq, stolen] = times;
                let programs = user.saturating_add(nice).saturating_add(system);
                let busy = programs.saturating_add(irq).saturating_add(softirq);
                let idle = idle.saturating_add(disk);
                stat.cpus.push(CpuTimes { cpu, busy, programs, idle, stolen });
            }
        }
    }
    stat
}

/// Reads /proc/schedstat: for each CPU the run-queue wait of its threads, in nanoseconds since
/// boot.
pub fn run_delays(text: &str) -> Vec<(u32, u64)> {
    // Index of the value in versions 14 to 17.
    const RUN_DELAY_INDEX: usize = 7;
    let known = text.lines().next().and_then(|line| line.strip_prefix("version "));
    if !known.is_some_and(|version| ["14", "15", "16", "17"].contains(&version.trim())) {
        return Vec::new();
    }
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let cpu = number(words.next()?)?;
            Some((cpu, words.nth(RUN_DELAY_INDEX)?.parse().ok()?))
        })
        .collect()
}

/// Reads /proc/PID/task/TID/schedstat: the run-queue wait of a thread, in nanoseconds since its
/// start.
pub fn thread_wait(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Returns the number in a name such as `cpu7`.
fn number(key: &str) -> Option<u32> {
    key.strip_prefix("cpu")?.parse().ok().filter(|cpu| *cpu < MAX_CPUS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAT: &str = "\
cpu  300 20 100 5000 50 5 25 30 4 0
cpu0 100 10 50 2500 25 5 15 20 4 0
cpu3 200 10 50 2500 25 0 10 10 0 0
intr 50952061 0 0 7 0
ctxt 133916240
btime 1700000000
softirq 201818615 0 1270122
";

    #[test]
    fn recorded_stat_gives_the_times_of_each_cpu() {
        let read = stat(STAT);
        assert_eq!(
            read.cpus[0],
            CpuTimes { cpu: 0, busy: 180, programs: 160, idle: 2_525, stolen: 20 }
        );
        assert_eq!(read.cpus[1].cpu, 3, "CPUs 1 and 2 are offline");
        assert_eq!(read.cpus.len(), 2, "the line of the sums is skipped");
        assert_eq!(read.interrupts, Some(50_952_061));
        assert_eq!((read.softirqs, read.context_switches), (Some(201_818_615), Some(133_916_240)));
    }

    #[test]
    fn run_queue_waits_are_read_from_known_versions() {
        let text = "version 15\ntimestamp 4294937368\n\
                    cpu0 0 0 5184 2098 2616 1186 1040516 777 3081\ndomain0 3 0 1\n\
                    cpu1 0 0 1 2 3 4 5 888 9\n";
        assert_eq!(run_delays(text), [(0, 777), (1, 888)]);
        assert_eq!(run_delays(&text.replace("15", "99")), []);
        assert_eq!(thread_wait("250055 1234 1\n"), Some(1_234));
        assert_eq!(thread_wait("250055"), None);
    }

    #[test]
    fn unreported_values_are_absent() {
        assert_eq!(stat("btime 5\n"), Stat::default());
        assert_eq!(stat("intr many"), Stat::default());
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text in "(\\PC|\n){0,200}", cpu in any::<u64>()) {
            let _ = (stat(&text), run_delays(&text), thread_wait(&text));
            let _ = stat(&format!("cpu1 {cpu} {cpu} {cpu} {cpu} {cpu} {cpu}"));
        }
    }
}
