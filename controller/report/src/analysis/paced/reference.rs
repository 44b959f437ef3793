//! The boards of Mok 2015 as rows of the table of verdicts.

use dwell_stats::accuracy::MOK_2015_DEVICES;
use dwell_units::Bytes;

use crate::model::quantity::count;

/// Node, engine, size, flows, largest rate and reason, per board and kind of packets.
pub(crate) fn reference_rows() -> Vec<[String; 6]> {
    let rows = MOK_2015_DEVICES.iter().flat_map(|device| {
        let Bytes(ram) = device.ram;
        let card = format!(
            "published (Mok 2015): {} MHz, {} MiB, {} interface, {}, about ${} then",
            count(device.cpu_mhz.into()),
            count(ram >> 20),
            device.link,
            device.os,
            device.price_usd
        );
        [("all sizes", device.all_sizes), ("large packets", device.large_packets)].map(
            |(sizes, largest)| {
                [
                    device.name.to_owned(),
                    "kernel module".to_owned(),
                    sizes.to_owned(),
                    "-".to_owned(),
                    largest.to_string(),
                    card.clone(),
                ]
            },
        )
    });
    rows.collect()
}
