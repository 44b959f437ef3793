//! Host activity from /proc and /sys (CPUs, temperatures, radios) and from nl80211 (stations,
//! channels). Missing sources are left out.

use std::fs;
use std::path::{Path, PathBuf};

use dwell_host::{
    Process, Readings, Snapshot, family_ticks, is_ancestor, process, radios, run_delays, stat,
    thread_wait,
};

use crate::clock;
use crate::host::wireless::Wireless;

/// Number of readings per channel survey. Some drivers query their firmware for it.
const READINGS_PER_SURVEY: u64 = 10;

/// Reads the host repeatedly.
#[derive(Debug)]
pub struct Host {
    frequencies: Vec<(u32, PathBuf)>,
    temperatures: Vec<(u32, PathBuf)>,
    wireless: Option<Wireless>,
    readings: u64,
}

impl Host {
    /// Finds the available sources, radios in the network namespace of the calling thread.
    pub fn find() -> Self {
        let cpus = numbered("/sys/devices/system/cpu", "cpu", "cpufreq/scaling_cur_freq");
        let zones = numbered("/sys/class/thermal", "thermal_zone", "temp");
        let wireless = Wireless::open().ok().flatten();
        Self { frequencies: cpus, temperatures: zones, wireless, readings: 0 }
    }

    /// Reads all sources. Takes tens of microseconds per file, so never call it on a timing thread.
    pub fn read(&mut self) -> Readings {
        let mut readings = Readings::at(clock::realtime());
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        readings.stat = stat(&text("/proc/stat"));
        readings.run_delays = run_delays(&text("/proc/schedstat"));
        readings.thread_waits = thread_waits();
        readings.frequencies = values(&self.frequencies)
            .filter_map(|(cpu, khz): (_, u64)| Some((cpu, khz.checked_mul(1_000)?)))
            .collect();
        readings.temperatures = values(&self.temperatures).collect();
        readings.radios = radios(&text("/proc/thread-self/net/wireless"));
        if let Some(wireless) = &self.wireless {
            let with_survey = self.readings.is_multiple_of(READINGS_PER_SURVEY);
            for interface in wireless.interfaces().unwrap_or_default() {
                let (index, name) = (interface.index, interface.name);
                let stations = wireless.stations(index).unwrap_or_default().into_iter();
                readings.stations.extend(stations.map(|station| (name.clone(), station)));
                if with_survey {
                    let channels = wireless.channels(index).unwrap_or_default().into_iter();
                    readings.channels.extend(channels.map(|channel| (name.clone(), channel)));
                }
            }
        }
        self.readings += 1;
        readings
    }
}

/// Whose CPU time belongs to the measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Own {
    /// This process and the children it has waited for.
    Process,
    /// All processes of a run: these and their descendants. A process with another parent does not
    /// count, whatever its program: it may belong to another run or a service.
    Run(Vec<u32>),
}

/// Reads the CPU usage. Takes a millisecond or more for [`Own::Run`], so never call it in a timing
/// loop.
pub fn snapshot(own: &Own) -> Snapshot {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let own_ticks = match own {
        Own::Process => process(&text("/proc/self/stat")).map(|own| own.ticks),
        Own::Run(roots) => Some(family_ticks(&processes(), roots)),
    };
    let stat = stat(&text("/proc/stat"));
    Snapshot { at_ns: clock::monotonic().as_nanos(), stat, own_ticks }
}

/// Returns how long the calling thread has waited in run queues since its start, in nanoseconds.
pub fn own_run_queue_wait() -> Option<u64> {
    thread_wait(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// Returns how long a thread of this process has waited in run queues since its start, in
/// nanoseconds.
pub fn run_queue_wait(thread: u32) -> Option<u64> {
    thread_wait(&fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?)
}

/// Returns the time that the hypervisor took from all CPUs, in clock ticks.
pub fn stolen_ticks() -> u64 {
    let cpus = stat(&fs::read_to_string("/proc/stat").unwrap_or_default()).cpus;
    cpus.iter().fold(0, |sum, cpu| sum.saturating_add(cpu.stolen))
}

/// Whether `pid` is an ancestor of this process. Reads only /proc/PID/stat, which is readable from
/// other user namespaces too.
pub fn is_own_ancestor(pid: u32) -> bool {
    is_ancestor(&processes(), pid, std::process::id())
}

fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter_map(|pid| process(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
        .collect()
}

/// Returns the directories `prefixN` of `directory` that contain the file `leaf`, sorted by N.
fn numbered(directory: &str, prefix: &str, leaf: &str) -> Vec<(u32, PathBuf)> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((number, entry.path().join(leaf)))
        })
        .filter(|(_, path)| path.exists())
        .collect();
    found.sort();
    found
}

fn values<T: std::str::FromStr>(files: &[(u32, PathBuf)]) -> impl Iterator<Item = (u32, T)> + '_ {
    files.iter().filter_map(|(number, path)| {
        Some((*number, fs::read_to_string(path).ok()?.trim().parse().ok()?))
    })
}

/// Returns the run queue waits of this process's threads except the calling one, which does not
/// measure.
fn thread_waits() -> Vec<(u32, u64)> {
    let own = fs::read_link("/proc/thread-self").ok();
    let own = own.as_deref().and_then(Path::file_name);
    let Ok(entries) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let threads = entries.flatten().filter(|entry| Some(entry.file_name().as_os_str()) != own);
    threads
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
            Some((number, thread_wait(&text)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_reading_contains_cpu_activity() {
        let mut host = Host::find();
        let first = host.read();
        assert!(!first.stat.cpus.is_empty());
        assert!(first.stat.interrupts.is_some_and(|count| count > 0));
        let later = host.read();
        assert!(later.at > first.at);
        assert!(later.stat.context_switches >= first.stat.context_switches);
    }

    #[test]
    fn numbered_files_are_sorted_and_unreadable_ones_skipped() {
        let root = tempfile::tempdir().unwrap();
        for (zone, text) in
            [("zone10", "51000\n"), ("zone2", "-3500\n"), ("zone3", "?"), ("zonex", "1")]
        {
            fs::create_dir(root.path().join(zone)).unwrap();
            fs::write(root.path().join(zone).join("temp"), text).unwrap();
        }
        let found = numbered(root.path().to_str().unwrap(), "zone", "temp");
        let read: Vec<(u32, i64)> = values(&found).collect();
        assert_eq!(read, [(2, -3_500), (10, 51_000)]);
    }
}
