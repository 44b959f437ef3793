//! Memory and processor time of processes.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::param::clock_ticks_per_second;

/// Resident memory of a process in MB: at most so far, and now.
pub(super) fn memory_mb(pid: u32) -> Result<(f64, f64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid} is gone"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        kib.map(|kib| kib * 1024.0 / 1e6).with_context(|| format!("process {pid} has no {name}"))
    };
    Ok((field("VmHWM:")?, field("VmRSS:")?))
}

/// Processor time of a process, its running children, and those that it has waited for, in seconds.
pub(super) fn cpu_seconds(pid: u32) -> Result<f64> {
    let own = Times::read(pid).with_context(|| format!("process {pid} is gone"))?;
    // A child may end in between; then its parent has waited for it at the next look.
    let ticks = children(pid)?
        .iter()
        .fold(own.own + own.waited_for, |ticks, (_, times)| ticks + times.own + times.waited_for);
    Ok(ticks as f64 / clock_ticks_per_second() as f64)
}

/// Restricts all threads of a process and of its children to one core.
pub(super) fn pin(pid: u32, core: usize) -> Result<()> {
    let children = children(pid)?;
    for process in children.iter().map(|(child, _)| *child).chain([pid]) {
        let mut command = Command::new("taskset");
        command.args(["-a", "-c", "-p", &core.to_string(), &process.to_string()]);
        let output = command.output().context("cannot start taskset")?;
        // A child may have ended.
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() || process != pid, "taskset: {said}");
    }
    Ok(())
}

/// Running children of a process.
fn children(pid: u32) -> Result<Vec<(u32, Times)>> {
    let processes = fs::read_dir("/proc")?.flatten().filter_map(|entry| {
        let child = entry.file_name().to_str()?.parse().ok()?;
        Some((child, Times::read(child)?))
    });
    Ok(processes.filter(|(_, times)| times.parent == pid).collect())
}

/// Fields of proc_pid_stat(5), in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    parent: u32,
    own: u64,
    waited_for: u64,
}

impl Times {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name of the program may have spaces and parentheses.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            parent: number(1)?.try_into().ok()?,
            own: number(11)? + number(12)?,
            waited_for: number(13)? + number(14)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_behind_any_name() {
        let stat = "7 (a) b (c)) S 3 7 7 0 -1 4194560 1 2 3 4 100 20 3000 400 20 0 1 0 5 6 7";
        let times = Times { parent: 3, own: 120, waited_for: 3_400 };
        assert_eq!(Times::parse(stat), Some(times));
        assert_eq!(Times::parse("7 (a"), None);
    }

    #[test]
    fn own_process_has_memory_and_time() {
        let (peak, now) = memory_mb(std::process::id()).unwrap();
        assert!(now > 0.1 && peak >= now * 0.9, "{peak} {now}");
        assert!(cpu_seconds(std::process::id()).is_ok());
    }
}
