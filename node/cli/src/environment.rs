//! The `environment` of a result: the machine, the interface and the placement of threads.

use std::sync::OnceLock;

use dwell_io::interface::Interface;
use dwell_io::{cpu, cpu_idle, machine};
use dwell_record::{CpuIdle, Ends, Environment, Placement};

/// Version of this build, with the first 12 hex digits of the SHA-256 of the program as build
/// metadata, like `0.1.0+4f2a9c01b2d3`. Only the version if the program file is unreadable. The
/// first call reads that file.
pub fn build() -> &'static str {
    static BUILD: OnceLock<String> = OnceLock::new();
    BUILD.get_or_init(|| {
        let version = env!("CARGO_PKG_VERSION");
        let start = |hash: String| format!("{version}+{}", &hash[..12]);
        machine::program_sha256().map_or_else(|_| version.to_owned(), start)
    })
}

/// Describes this machine, the interface of the packets, and the placement `near` of the timing
/// thread.
pub(crate) fn environment(interface: Option<&Interface>, near: Placement) -> Environment {
    let machine = machine::facts();
    let cpu_idle::IdleStates { driver, governor, states } = cpu_idle::states();
    let mut environment = Environment {
        kernel: machine.kernel,
        cpu: machine.cpu,
        cores: u32::try_from(cpu::allowed().len()).ok(),
        governor: machine.governor,
        cpu_idle: Some(CpuIdle { driver, governor, states, no_idle_held: false }),
        clocksource: machine.clocksource,
        dwell: build().to_owned(),
        placement: Ends { near, far: None },
        ..Environment::default()
    };
    if let Some(found) = interface {
        environment.interface = Some(found.name.clone());
        environment.driver = found.driver.clone();
        environment.offloads = found.offloads.clone();
        environment.qdisc = found.qdisc.clone();
    }
    environment
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn build_contains_the_sha256_of_the_program() {
        let program = std::env::current_exe().unwrap();
        let printed = Command::new("sha256sum").arg(program).output().unwrap().stdout;
        let printed = String::from_utf8(printed).unwrap();
        assert_eq!(build(), format!("{}+{}", env!("CARGO_PKG_VERSION"), &printed[..12]));
        assert_eq!(environment(None, Placement::default()).dwell, build());
    }
}
