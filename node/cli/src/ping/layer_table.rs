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

#[cfg(test)]
mod tests {
    use dwell_record::Figures;

    use super::*;

    fn layer(layer: Layer, p50: i64, added: Option<i64>) -> LayerDelay {
        let figures = |p50| Figures { count: 9, p50: Some(p50), ..Figures::default() };
        LayerDelay { layer, rtt_ns: figures(p50), added_ns: added.map(figures) }
    }

    fn printed(driver: &DriverStamps) -> String {
        let mut out = Vec::new();
        print(&mut out, driver).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn three_lines_show_each_layer_and_its_difference() {
        let mut driver = DriverStamps {
            tx: Some(DriverTx::Kernel),
            layers: vec![
                layer(Layer::Driver, 31_900, None),
                layer(Layer::Kernel, 36_100, Some(4_200)),
                layer(Layer::Program, 1_074_200, Some(38_100)),
            ],
            ..DriverStamps::default()
        };
        let expected = "\
driver      median   31.900 us                network and far end (tx_kernel to rx_driver)
kernel      median   36.100 us     +4.200 us  also the receiving driver, up to the stack (rx_kernel)
program     median    1.074 ms    +38.100 us  also both stacks, system calls and wake-up (tx_app to rx_app)
";
        assert_eq!(printed(&driver), expected);
        driver.tx = Some(DriverTx::Tcx);
        driver.unseen = 3;
        let text = printed(&driver);
        let first = "driver      median   31.900 us                network and far end (tx_tcx to rx_driver)";
        assert_eq!(text.lines().next(), Some(first));
        assert_eq!(text.lines().nth(3), Some("            replies not seen in the driver: 3"));
        driver.tx = None;
        assert_eq!(printed(&driver), "", "a warning gives the reason");
    }
}
