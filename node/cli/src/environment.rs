//! The part of every result that says what machine it was measured on.

use dwell_io::interface::Interface;
use dwell_io::{cpu, machine};
use dwell_record::{Ends, Environment, Placement};

/// This machine, the interface that packets leave or come by, and how the timing thread ran.
pub(crate) fn environment(interface: Option<&Interface>, near: Placement) -> Environment {
    let machine = machine::facts();
    let mut environment = Environment {
        kernel: machine.kernel,
        cpu: machine.cpu,
        cores: u32::try_from(cpu::allowed().len()).ok(),
        governor: machine.governor,
        clocksource: machine.clocksource,
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
