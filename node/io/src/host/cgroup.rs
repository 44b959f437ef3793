//! Control groups that limit processes to a share of a CPU: version 1 (`cpu` and `cpuacct`) and
//! version 2 (`cpu.max`), as described in the kernel's Documentation/admin-guide/cgroup-v1 and
//! cgroup-v2.rst and in Documentation/scheduler/sched-bwc.rst.
//!
//! The share is an average over periods of 100 ms, with stalls in between. It does not make the CPU
//! slower.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dwell_units::{Nanos, Ratio};

/// Quota period in microseconds, the kernel's default.
const PERIOD_US: u64 = 100_000;

/// A control group: one directory in each hierarchy that it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuGroup {
    directories: Vec<PathBuf>,
}

/// CPU usage of a group since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuUsage {
    /// CPU time.
    pub used: Option<Nanos>,
    /// Time for which its processes were runnable but throttled.
    pub throttled: Option<Nanos>,
}

impl CpuGroup {
    /// Returns the group of this name at the top of every hierarchy that it uses. Creates nothing.
    ///
    /// # Errors
    /// No cgroup CPU controller is mounted.
    pub fn named(name: &str) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let roots = hierarchies(&mounts, |root| {
            fs::read_to_string(root.join("cgroup.controllers"))
                .is_ok_and(|all| all.split_whitespace().any(|controller| controller == "cpu"))
        });
        if roots.is_empty() {
            let text = "no cgroup CPU controller is mounted (cpu of version 1 or 2)";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        Ok(Self { directories: roots.into_iter().map(|root| root.join(name)).collect() })
    }

    /// Returns the group with these directories.
    pub fn at(directories: Vec<PathBuf>) -> Self {
        Self { directories }
    }

    /// Returns its directories.
    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Creates the group with this share of one CPU.
    ///
    /// # Errors
    /// The privilege is missing, or the kernel has no CPU quotas (CONFIG_CFS_BANDWIDTH).
    pub fn create(&self, share: Ratio) -> io::Result<()> {
        let quota = (u64::from(share.ppm()) * PERIOD_US / 1_000_000).max(1_000);
        for directory in &self.directories {
            let root = directory.parent().unwrap_or(Path::new("/"));
            let handed_down = root.join("cgroup.subtree_control");
            if handed_down.exists() {
                write(&handed_down, "+cpu")?;
            }
            match fs::create_dir(directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(with_path(directory, error));
                }
                _ => {}
            }
            let (one, two) = (directory.join("cpu.cfs_quota_us"), directory.join("cpu.max"));
            if one.exists() {
                write(&directory.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
                write(&one, &quota.to_string())?;
            } else if two.exists() {
                write(&two, &format!("{quota} {PERIOD_US}"))?;
            } else if !directory.join("cpuacct.usage").exists() {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "this kernel has no CPU quotas (CONFIG_CFS_BANDWIDTH)",
                ));
            }
        }
        Ok(())
    }

    /// Moves the calling process, which must be single-threaded, into the group.
    ///
    /// # Errors
    /// The group does not exist, or the privilege is missing.
    pub fn enter(&self) -> io::Result<()> {
        self.directories.iter().try_for_each(|group| write(&group.join("cgroup.procs"), "0"))
    }

    /// Returns the usage so far; values that the kernel does not report are `None`.
    pub fn usage(&self) -> CpuUsage {
        let mut usage = CpuUsage::default();
        for directory in &self.directories {
            if let Ok(text) = fs::read_to_string(directory.join("cpuacct.usage")) {
                usage.used = text.trim().parse().ok().map(Nanos);
            }
            let Ok(text) = fs::read_to_string(directory.join("cpu.stat")) else { continue };
            let value = |key: &str| {
                let mut rows = text.lines().filter_map(|row| row.split_once(' '));
                rows.find(|(name, _)| *name == key)?.1.trim().parse::<i64>().ok()
            };
            let micros = |key: &str| value(key).and_then(|us| us.checked_mul(1_000));
            usage.used = usage.used.or(micros("usage_usec").map(Nanos));
            let throttled = value("throttled_time").or_else(|| micros("throttled_usec"));
            usage.throttled = usage.throttled.or(throttled.map(Nanos));
        }
        usage
    }

    /// Returns the ids of its processes.
    pub fn processes(&self) -> Vec<u32> {
        let texts = self
            .directories
            .iter()
            .filter_map(|group| fs::read_to_string(group.join("cgroup.procs")).ok());
        let mut all: Vec<u32> = texts
            .flat_map(|text| text.lines().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Removes the group after its processes have ended. A missing group is not an error.
    ///
    /// # Errors
    /// It still contains processes, or the privilege is missing.
    pub fn remove(&self) -> io::Result<()> {
        // A group may stay busy briefly after its last process was reaped.
        const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
        const POLL_INTERVAL: Duration = Duration::from_millis(1);
        let since = Instant::now();
        for directory in &self.directories {
            loop {
                match fs::remove_dir(directory) {
                    Err(error)
                        if error.kind() == io::ErrorKind::ResourceBusy
                            && since.elapsed() < BUSY_TIMEOUT =>
                    {
                        std::thread::sleep(POLL_INTERVAL);
                    }
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(with_path(directory, error));
                    }
                    _ => break,
                }
            }
        }
        Ok(())
    }
}

/// Returns the tops of the hierarchies that a group uses, from the text of /proc/self/mountinfo
/// (proc(5)): those of version 1 with `cpu` and `cpuacct`, otherwise that of version 2 if
/// `has_cpu`.
fn hierarchies(mounts: &str, has_cpu: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut one: Vec<PathBuf> = Vec::new();
    let mut two = None;
    let mut accounts = false;
    let mut limits = false;
    for line in mounts.lines() {
        let Some((place, what)) = line.split_once(" - ") else { continue };
        let Some(point) = place.split(' ').nth(4).map(PathBuf::from) else { continue };
        let mut what = what.split(' ');
        let (kind, options) = (what.next(), what.nth(1).unwrap_or_default());
        let has = |name: &str| options.split(',').any(|option| option == name);
        match kind {
            Some("cgroup") if (has("cpu") && !limits) || (has("cpuacct") && !accounts) => {
                limits |= has("cpu");
                accounts |= has("cpuacct");
                one.push(point);
            }
            Some("cgroup2") if two.is_none() => two = Some(point),
            _ => {}
        }
    }
    if limits { one } else { two.filter(|root| has_cpu(root)).into_iter().collect() }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text).map_err(|error| with_path(path, error))
}

fn with_path(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS_V1: &str = "\
25 20 0:22 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
26 25 0:23 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
27 25 0:24 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
28 25 0:25 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
29 25 0:26 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const MOUNTS_V2: &str =
        "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";

    #[test]
    fn cgroup_v1_is_used_if_it_has_cpu_controller_else_v2() {
        let paths = |text, has| hierarchies(text, |_| has);
        let one = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct"].map(PathBuf::from);
        assert_eq!(paths(MOUNTS_V1, false), one);
        assert_eq!(paths(MOUNTS_V2, true), [PathBuf::from("/sys/fs/cgroup")]);
        assert!(paths(MOUNTS_V2, false).is_empty());
        assert!(paths("", true).is_empty());
        let joint = "26 25 0:23 / /c/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct";
        assert_eq!(paths(joint, false), [PathBuf::from("/c/cpu,cpuacct")]);
    }

    #[test]
    fn cpu_usage_is_read_from_both_cgroup_versions() {
        let group = tempfile::tempdir().unwrap();
        let read = || CpuGroup::at(vec![group.path().to_owned()]).usage();
        assert_eq!(read(), CpuUsage::default());
        let stat = "usage_usec 1500\nuser_usec 1000\nnr_throttled 2\nthrottled_usec 300\n";
        fs::write(group.path().join("cpu.stat"), stat).unwrap();
        let (used, throttled) = (Some(Nanos(1_500_000)), Some(Nanos(300_000)));
        assert_eq!(read(), CpuUsage { used, throttled });
        fs::write(group.path().join("cpu.stat"), "nr_throttled 2\nthrottled_time 77\n").unwrap();
        fs::write(group.path().join("cpuacct.usage"), "42\n").unwrap();
        assert_eq!(read(), CpuUsage { used: Some(Nanos(42)), throttled: Some(Nanos(77)) });
    }
}
