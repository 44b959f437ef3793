//! Time series from successive readings: counter differences become ratios and rates, other values
//! are passed through.

use std::collections::BTreeMap;

use dwell_units::{Instant, Realtime};
use serde::{Deserialize, Serialize};

use crate::cpu_stats::Stat;
use crate::nl80211::{Channel, Network, Station};
use crate::wireless::Radio;

/// Maximum number of values in a sample; a machine with 256 CPUs has about 1,500.
const MAX_VALUES: usize = 4_096;

/// Host activity at one time, or since the previous sample.
///
/// | name | meaning |
/// |---|---|
/// | `cpuN_busy_ratio`, `cpuN_steal_ratio` | share of the time |
/// | `cpuN_frequency_hz` | current frequency |
/// | `cpuN_run_queue_wait_ns_per_s` | run-queue wait of all threads on this CPU |
/// | `process_run_queue_wait_ns_per_s` | run-queue wait of this process's threads |
/// | `interrupts_per_s`, `softirqs_per_s`, `context_switches_per_s` | rates of the whole machine |
/// | `thermalN_celsius` | temperature of a thermal zone |
/// | `IF_signal_dbm`, `IF_noise_dbm`, `IF_link_quality` | wireless interface, not in ad hoc mode; quality in driver units |
/// | `IF_ADDRESS_signal_dbm` | another station, by its hardware address in 12 digits |
/// | `IF_Fmhz_noise_dbm`, `IF_Fmhz_busy_ratio` | wireless channel; share of the time on it |
/// | `IF_Fmhz_networks_count`, `IF_Fmhz_strongest_dbm` | networks that a scan received on a channel |
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSample {
    /// CLOCK_REALTIME, in nanoseconds.
    pub at_ns: i64,
    /// Values by name, with the unit in the name. Values that the kernel does not report are
    /// absent.
    pub values: BTreeMap<String, f64>,
}

/// Readings at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Readings {
    /// Time of the readings.
    pub at: Instant<Realtime>,
    /// /proc/stat.
    pub stat: Stat,
    /// Run-queue waits by CPU, in nanoseconds since boot.
    pub run_delays: Vec<(u32, u64)>,
    /// Run-queue waits of this process's threads by thread id, in nanoseconds since their start.
    pub thread_waits: Vec<(u32, u64)>,
    /// Frequencies by CPU, in Hz.
    pub frequencies: Vec<(u32, u64)>,
    /// Temperatures by thermal zone, in millidegrees Celsius.
    pub temperatures: Vec<(u32, i64)>,
    /// Wireless interfaces.
    pub radios: Vec<Radio>,
    /// Stations in reach, by wireless interface.
    pub stations: Vec<(String, Station)>,
    /// Wireless channels, by interface.
    pub channels: Vec<(String, Channel)>,
}

impl Readings {
    /// Creates empty readings.
    pub fn at(at: Instant<Realtime>) -> Self {
        Self {
            at,
            stat: Stat::default(),
            run_delays: Vec::new(),
            thread_waits: Vec::new(),
            frequencies: Vec::new(),
            temperatures: Vec::new(),
            radios: Vec::new(),
            stations: Vec::new(),
            channels: Vec::new(),
        }
    }
}

/// Returns the result of a scan of the channels `frequencies` (in MHz) by `interface`.
pub fn scan_sample(
    at: Instant<Realtime>,
    interface: &str,
    frequencies: &[u32],
    networks: &[Network],
) -> HostSample {
    let mut values = Values(BTreeMap::new());
    for mhz in frequencies {
        let found = networks.iter().filter(|network| network.frequency_mhz == *mhz);
        let strongest = found.clone().filter_map(|network| network.signal_dbm).reduce(f64::max);
        values.put(format!("{interface}_{mhz}mhz_networks_count"), found.count() as f64);
        if let Some(strongest) = strongest {
            values.put(format!("{interface}_{mhz}mhz_strongest_dbm"), strongest);
        }
    }
    HostSample { at_ns: at.as_nanos(), values: values.0 }
}

/// A time series. Keeps the previous readings.
#[derive(Clone, Debug, Default)]
pub struct Series {
    before: Option<Readings>,
    /// Last survey of each channel. Surveys are less frequent than other readings.
    channels: Vec<(String, Channel)>,
}

impl Series {
    /// Returns the sample for the readings `now`. The first sample has no ratios and no rates.
    pub fn take(&mut self, now: Readings) -> HostSample {
        let mut values = Values(BTreeMap::new());
        for (cpu, hz) in &now.frequencies {
            values.put(format!("cpu{cpu}_frequency_hz"), *hz as f64);
        }
        for (zone, thousandths) in &now.temperatures {
            values.put(format!("thermal{zone}_celsius"), *thousandths as f64 / 1e3);
        }
        for radio in &now.radios {
            let mut level = |name: &str, level: Option<f64>| {
                if let Some(level) = level {
                    values.put(format!("{}_{name}", radio.interface), level);
                }
            };
            level("signal_dbm", radio.signal_dbm);
            level("noise_dbm", radio.noise_dbm);
            level("link_quality", radio.quality);
        }
        for (interface, station) in &now.stations {
            let Some(signal) = station.signal_dbm else { continue };
            let address: String =
                station.address.iter().map(|byte| format!("{byte:02x}")).collect();
            values.put(format!("{interface}_{address}_signal_dbm"), signal);
        }
        for (interface, channel) in &now.channels {
            let name = format!("{interface}_{}mhz", channel.frequency_mhz);
            if let Some(noise) = channel.noise_dbm {
                values.put(format!("{name}_noise_dbm"), noise);
            }
            let is_same = |(other, before): &&(String, Channel)| {
                other == interface && before.frequency_mhz == channel.frequency_mhz
            };
            let before = self.channels.iter().find(is_same).map(|(_, before)| before);
            if let Some(share) = before.and_then(|before| busy(before, channel)) {
                values.put(format!("{name}_busy_ratio"), share);
            }
        }
        if !now.channels.is_empty() {
            self.channels.clone_from(&now.channels);
        }
        if let Some(before) = &self.before {
            values.since(before, &now);
        }
        let at_ns = now.at.as_nanos();
        self.before = Some(now);
        HostSample { at_ns, values: values.0 }
    }
}

struct Values(BTreeMap<String, f64>);

impl Values {
    fn put(&mut self, name: String, value: f64) {
        if value.is_finite() && self.0.len() < MAX_VALUES {
            self.0.insert(name, value);
        }
    }

    fn since(&mut self, before: &Readings, now: &Readings) {
        for cpu in &now.stat.cpus {
            let Some(old) = before.stat.cpus.iter().find(|old| old.cpu == cpu.cpu) else {
                continue;
            };
            let ticks = [
                cpu.busy.checked_sub(old.busy),
                // The idle time of a CPU may step back by a tick.
                Some(cpu.idle.saturating_sub(old.idle)),
                cpu.stolen.checked_sub(old.stolen),
            ];
            let [Some(busy), Some(idle), Some(stolen)] = ticks else { continue };
            let all = busy as f64 + idle as f64 + stolen as f64;
            if all > 0.0 {
                self.put(format!("cpu{}_busy_ratio", cpu.cpu), busy as f64 / all);
                self.put(format!("cpu{}_steal_ratio", cpu.cpu), stolen as f64 / all);
            }
        }
        let elapsed = (now.at - before.at).as_secs_f64();
        if elapsed <= 0.0 {
            return;
        }
        let mut rate = |name: String, new: Option<u64>, old: Option<u64>| {
            if let Some(increase) = new.zip(old).and_then(|(new, old)| new.checked_sub(old)) {
                self.put(name, increase as f64 / elapsed);
            }
        };
        let (new, old) = (&now.stat, &before.stat);
        rate("interrupts_per_s".into(), new.interrupts, old.interrupts);
        rate("softirqs_per_s".into(), new.softirqs, old.softirqs);
        rate("context_switches_per_s".into(), new.context_switches, old.context_switches);
        let of = |all: &[(u32, u64)], number: u32| {
            all.iter().find(|(other, _)| *other == number).map(|(_, count)| *count)
        };
        for (cpu, wait) in &now.run_delays {
            let name = format!("cpu{cpu}_run_queue_wait_ns_per_s");
            rate(name, Some(*wait), of(&before.run_delays, *cpu));
        }
        // Only threads that exist in both readings count.
        let both = now
            .thread_waits
            .iter()
            .filter_map(|(thread, wait)| wait.checked_sub(of(&before.thread_waits, *thread)?));
        let waits: Vec<u64> = both.collect();
        if !waits.is_empty() {
            let sum = waits.into_iter().fold(0, u64::saturating_add);
            rate("process_run_queue_wait_ns_per_s".into(), Some(sum), Some(0));
        }
    }
}

/// Busy share of the time on a channel between two surveys.
fn busy(before: &Channel, now: &Channel) -> Option<f64> {
    let busy = now.busy_ms?.checked_sub(before.busy_ms?)?;
    let active = now.active_ms?.checked_sub(before.active_ms?)?;
    (active > 0).then(|| busy as f64 / active as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_stats::CpuTimes;

    fn readings(ms: i64, busy: u64, interrupts: u64) -> Readings {
        let mut readings = Readings::at(Instant::from_nanos(ms * 1_000_000));
        let times = CpuTimes { cpu: 0, busy, programs: busy, idle: 100, stolen: 10 };
        readings.stat = Stat { cpus: vec![times], interrupts: Some(interrupts), ..Stat::default() };
        readings
    }

    #[test]
    fn counters_become_ratios_and_rates_from_the_second_on() {
        let mut series = Series::default();
        assert!(series.take(readings(0, 50, 1_000)).values.is_empty());
        let mut later = readings(200, 65, 1_500);
        later.stat.cpus[0].idle = 105;
        later.stat.cpus[0].stolen = 10;
        let sample = series.take(later);
        assert_eq!(sample.at_ns, 200_000_000);
        assert_eq!(sample.values["cpu0_busy_ratio"], 0.75);
        assert_eq!(sample.values["cpu0_steal_ratio"], 0.0);
        assert_eq!(sample.values["interrupts_per_s"], 2_500.0);
        assert!(!sample.values.contains_key("softirqs_per_s"), "unknown values are absent, not 0");
    }

    #[test]
    fn decreasing_counters_and_stopped_clocks_give_no_values() {
        let mut series = Series::default();
        series.take(readings(0, 50, 1_000));
        assert!(series.take(readings(200, 40, 900)).values.is_empty());
        assert!(!series.take(readings(200, 60, 950)).values.contains_key("interrupts_per_s"));
    }

    #[test]
    fn only_threads_in_both_readings_count() {
        let mut series = Series::default();
        let with = |ms: i64, waits: &[(u32, u64)]| {
            let mut readings = Readings::at(Instant::from_nanos(ms * 1_000_000));
            readings.thread_waits = waits.to_vec();
            readings
        };
        series.take(with(0, &[(1, 100), (2, 900)]));
        let sample = series.take(with(500, &[(1, 600), (3, 5_000)]));
        assert_eq!(sample.values["process_run_queue_wait_ns_per_s"], 1_000.0);
    }

    #[test]
    fn stations_are_named_by_their_address() {
        let station =
            |last, signal_dbm| Station { address: [2, 0x64, 0x77, 255, 0, last], signal_dbm };
        let mut now = readings(0, 0, 0);
        now.stations =
            [station(2, Some(-30.0)), station(3, None)].map(|s| ("wlan0".to_owned(), s)).into();
        let values = Series::default().take(now).values;
        assert_eq!(values, [("wlan0_026477ff0002_signal_dbm".to_owned(), -30.0)].into());
    }

    #[test]
    fn scan_gives_count_and_strongest_network_of_each_channel() {
        let network =
            |frequency_mhz, dbm| Network { frequency_mhz, signal_dbm: Some(dbm), age_ms: 0 };
        let found = [network(2_447, -80.0), network(2_447, -60.5), network(2_412, -10.0)];
        let sample = scan_sample(Instant::from_nanos(7), "wlan0", &[2_447, 2_457], &found);
        let expected = [
            ("wlan0_2447mhz_networks_count".to_owned(), 2.0),
            ("wlan0_2447mhz_strongest_dbm".to_owned(), -60.5),
            ("wlan0_2457mhz_networks_count".to_owned(), 0.0),
        ];
        assert_eq!((sample.at_ns, sample.values), (7, expected.into()));
    }

    #[test]
    fn channels_are_compared_with_their_last_survey() {
        let channel = |active_ms, busy_ms| Channel {
            frequency_mhz: 2_452,
            noise_dbm: Some(-95.0),
            active_ms: Some(active_ms),
            busy_ms: Some(busy_ms),
            ..Channel::default()
        };
        let mut series = Series::default();
        let mut with = |channels: Vec<Channel>| {
            let mut readings = Readings::at(Instant::from_nanos(0));
            readings.channels = channels.into_iter().map(|c| ("wlan0".to_owned(), c)).collect();
            series.take(readings)
        };
        assert_eq!(with(vec![channel(1_000, 100)]).values["wlan0_2452mhz_noise_dbm"], -95.0);
        assert!(with(vec![]).values.is_empty());
        assert_eq!(with(vec![channel(1_400, 200)]).values["wlan0_2452mhz_busy_ratio"], 0.25);
    }
}
