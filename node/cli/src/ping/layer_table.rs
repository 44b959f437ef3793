//! Prints the round trips of driver, kernel and program, and the time that each layer adds.

use std::io::{self, Write};

use dwell_record::{DriverStamps, DriverTx, Layer, LayerDelay};
use dwell_units::Nanos;

use super::brief::time;

/// Prints a line for each layer.
pub(super) fn print(out: &mut impl Write, driver: &DriverStamps) -> io::Result<()> {
    // A warning states why the driver has no timestamps.
    let Some(tx) = driver.tx.map(DriverTx::name) else { return Ok(()) };
    for LayerDelay { layer, rtt_ns, added_ns } in &driver.layers {
        let median = |nanos: Option<i64>| nanos.map_or("-".to_owned(), |nanos| time(Nanos(nanos)));
        let added = added_ns.map_or(String::new(), |added| format!(" +{}", median(added.p50)));
        let (name, includes) = match layer {
            Layer::Driver => ("driver", format!("network and far end ({tx} to rx_driver)")),
            Layer::Kernel => {
                ("kernel", "also the receiving driver, up to the stack (rx_kernel)".to_owned())
            }
            Layer::Program => (
                "program",
                "also both stacks, system calls and wake-up (tx_app to rx_app)".to_owned(),
            ),
        };
        let median = median(rtt_ns.p50);
        writeln!(out, "{name:12}median {median:>11}{added:>14}  {includes}")?;
    }
    let unseen = driver.unseen;
    if unseen > 0 {
        writeln!(out, "{:12}replies not seen in the driver: {unseen}", "")?;
    }
    Ok(())
}
