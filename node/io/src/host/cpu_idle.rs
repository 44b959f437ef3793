//! Idle states of the processors (cpuidle), and the limit on their exit latency (PM QoS).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// A process that keeps this file open limits the exit latency of idle states
/// (Documentation/power/pm_qos_interface.rst).
const LATENCY_FILE: &str = "/dev/cpu_dma_latency";

/// Facts about idle states, which the kernel exports here.
const CPUIDLE: &str = "/sys/devices/system/cpu/cpuidle";

/// Idle states of the first processor.
const FIRST_CPU_STATES: &str = "/sys/devices/system/cpu/cpu0/cpuidle";

/// The kernel's name for no driver (drivers/cpuidle/sysfs.c).
const NO_DRIVER: &str = "none";

/// Maximum number of states of a processor (CPUIDLE_STATE_MAX).
const MAX_STATES: usize = 10;

/// A limit of 0 us on the exit latency of idle states, on all processors of this machine. Idle
/// processors then poll. The kernel removes the limit when the value is dropped or its process
/// ends.
#[derive(Debug)]
pub struct IdleLimit {
    /// The limit lasts as long as this descriptor.
    _open: File,
}

impl IdleLimit {
    /// Sets the limit.
    ///
    /// # Errors
    /// The kernel has no such file, or this process may not write to it.
    pub fn hold() -> io::Result<Self> {
        let mut file = OpenOptions::new().write(true).open(LATENCY_FILE)?;
        // A 32-bit number in microseconds, in the byte order of the machine.
        file.write_all(&0_i32.to_ne_bytes())?;
        Ok(Self { _open: file })
    }
}

/// Idle states of this machine, as far as the kernel reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleStates {
    /// Driver of the idle states; `None` without one. The kernel then waits for interrupts without
    /// a choice of states, and ignores [`IdleLimit`].
    pub driver: Option<String>,
    /// Governor that chooses the state.
    pub governor: Option<String>,
    /// Names of the states of the first processor, the shallowest first.
    pub states: Vec<String>,
}

/// Reads the idle states of this machine.
pub fn states() -> IdleStates {
    read_from(Path::new(CPUIDLE), Path::new(FIRST_CPU_STATES))
}

fn read_from(facts: &Path, first_cpu: &Path) -> IdleStates {
    let line = |path: &Path| {
        let text = fs::read_to_string(path).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    let name = |n: usize| line(&first_cpu.join(format!("state{n}/name")));
    IdleStates {
        driver: line(&facts.join("current_driver")).filter(|driver| driver != NO_DRIVER),
        governor: ["current_governor", "current_governor_ro"]
            .iter()
            .find_map(|file| line(&facts.join(file))),
        states: (0..MAX_STATES).map_while(name).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_states_are_read_in_order() {
        let root = tempfile::tempdir().unwrap();
        let (facts, cpu) = (root.path().join("cpuidle"), root.path().join("cpu0"));
        fs::create_dir_all(&facts).unwrap();
        assert_eq!(read_from(&facts, &cpu), IdleStates::default());
        fs::write(facts.join("current_driver"), "intel_idle\n").unwrap();
        fs::write(facts.join("current_governor_ro"), "menu\n").unwrap();
        for (n, name) in ["POLL", "C1", "C6"].into_iter().enumerate() {
            fs::create_dir_all(cpu.join(format!("state{n}"))).unwrap();
            fs::write(cpu.join(format!("state{n}/name")), format!("{name}\n")).unwrap();
        }
        let found = read_from(&facts, &cpu);
        assert_eq!(found.driver.as_deref(), Some("intel_idle"));
        assert_eq!(found.governor.as_deref(), Some("menu"));
        assert_eq!(found.states, ["POLL", "C1", "C6"]);
        fs::write(facts.join("current_driver"), "none\n").unwrap();
        assert_eq!(read_from(&facts, &cpu).driver, None);
    }
}
