//! Description of the machine of a benchmark, in one line.

use std::fmt;
use std::fs;
use std::process::Command;
use std::thread;

use serde::Serialize;

/// Date and machine of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Date in UTC, such as `2026-11-21`.
    pub date: String,
    /// Kernel release.
    pub kernel: String,
    /// Model name of the processor.
    pub cpu: String,
    /// Number of processors available to this process.
    pub cores: usize,
}

impl Machine {
    /// Reads the description; fields that cannot be read are "unknown".
    pub fn read() -> Self {
        let unknown = || "unknown".to_owned();
        let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output().ok();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            date: date
                .and_then(|output| String::from_utf8(output.stdout).ok())
                .map_or_else(unknown, |text| text.trim().to_owned()),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| unknown(), |text| text.trim().to_owned()),
            cpu: cpu_model(&cpuinfo).map_or_else(unknown, str::to_owned),
            cores: thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { date, kernel, cpu, cores } = self;
        write!(f, "{date}, Linux {kernel}, {cpu}, {cores} cores")
    }
}

/// x86 and 32-bit ARM have "model name" per core, a Raspberry Pi has "Model" at the end.
fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let field = |name: &str| {
        let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == name)
    };
    field("model name").or_else(|| field("Model")).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_model_is_found_on_pc_and_pi() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Fast 9\n"), Some("Fast 9"));
        assert_eq!(cpu_model("processor\t: 0\nModel\t\t: Pi 4 B\n"), Some("Pi 4 B"));
        assert_eq!(cpu_model(""), None);
    }
}
