//! Facts about this machine that accompany a measurement. Unreadable ones are `None`.

use std::fs::{self, File};
use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

/// Facts about the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Kernel release.
    pub kernel: Option<String>,
    /// CPU model.
    pub cpu: Option<String>,
    /// Frequency governor of the first CPU.
    pub governor: Option<String>,
    /// The kernel's clock source.
    pub clocksource: Option<String>,
}

/// Reads the facts.
pub fn facts() -> Machine {
    Machine {
        kernel: line("/proc/sys/kernel/osrelease"),
        cpu: cpu_model(),
        governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        clocksource: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    }
}

/// Returns an id of the running kernel, and so of its clocks, that lasts until the next boot.
pub fn boot_id() -> Option<[u8; 16]> {
    let text = boot_id_text()?;
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

/// Returns the same id as the kernel prints it.
pub fn boot_id_text() -> Option<String> {
    line("/proc/sys/kernel/random/boot_id")
}

/// Returns the host name; in a lab, that of the node.
pub fn host_name() -> Option<String> {
    line("/proc/sys/kernel/hostname")
}

/// Returns the SHA-256 of the running program's file, as sha256sum prints it. Reads the whole file.
///
/// # Errors
/// The file cannot be read.
pub fn program_sha256() -> io::Result<String> {
    let mut program = File::open("/proc/self/exe")?;
    let mut hasher = Sha256::new();
    let mut piece = vec![0; 1 << 18];
    loop {
        match program.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => hasher.update(&piece[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let (_, model) = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| matches!(key.trim(), "model name" | "Model" | "Hardware"))?;
    Some(model.trim().to_owned())
}
