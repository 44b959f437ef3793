//! Results that Mok 2015 published for four boards, for comparison in one table.
//!
//! Mok 2015 defines no tolerance for "accurate" and takes its timestamps in a kernel module. Sizes
//! are as printed there: the largest, called an IP packet of 1514 B, is a frame of that size.

mod claims;

use dwell_report::analysis::paced::is_paced;
use dwell_report::model::quantity::count;
use dwell_report::model::{Published, PublishedLimit, PublishedRate, PublishedSender, RunData};
use dwell_units::{BitRate, Bytes};

use crate::Document;

const CITE: &str = "Mok 2015";

/// The document.
pub(crate) const DOCUMENT: Document = Document {
    name: "mok-2015",
    aliases: &["s2"],
    cite: CITE,
    judge: Some(claims::judge),
    published,
};

/// A board of table 2 (S2.7) with its verdict (S2.8).
struct Board {
    name: &'static str,
    cpu_mhz: u32,
    ram_mib: u64,
    /// Interface speed: "FE" is 100 Mbit/s, "GE" 1 Gbit/s.
    link: BitRate,
    os: &'static str,
    /// Approximate price in 2015.
    price_usd: u32,
    /// Networks it can measure with packets of every tested size.
    all_sizes: PublishedLimit,
    /// Networks it can measure with large packets.
    large_packets: PublishedLimit,
}

const fn mbit(rate: u64) -> BitRate {
    BitRate(rate * 1_000_000)
}

/// Table 2 and the verdicts, in the order of the paper (S2.7, S2.8). That the TP-LINK measures less
/// than 100 Mbit/s with packets of 576 B and more is from section 4 beside figure 3, not from its
/// verdict.
const BOARDS: [Board; 4] = [
    Board {
        name: "TP-LINK ML-3020",
        cpu_mhz: 400,
        ram_mib: 32,
        link: mbit(100),
        os: "OpenWrt 12.09",
        price_usd: 20,
        all_sizes: PublishedLimit::Below(mbit(50)),
        large_packets: PublishedLimit::Below(mbit(100)),
    },
    Board {
        name: "Raspberry Pi I (B)",
        cpu_mhz: 700,
        ram_mib: 512,
        link: mbit(100),
        os: "OpenWrt 12.09",
        price_usd: 35,
        all_sizes: PublishedLimit::NotSuitable,
        large_packets: PublishedLimit::NotSuitable,
    },
    Board {
        name: "Raspberry Pi II (B)",
        cpu_mhz: 900,
        ram_mib: 1_024,
        link: mbit(100),
        os: "OpenWrt 12.09",
        price_usd: 35,
        all_sizes: PublishedLimit::UpTo(mbit(10)),
        large_packets: PublishedLimit::UpTo(mbit(50)),
    },
    Board {
        name: "ECS LIVA",
        cpu_mhz: 2_000,
        ram_mib: 2_048,
        link: mbit(1_000),
        os: "Ubuntu 14.04",
        price_usd: 130,
        all_sizes: PublishedLimit::UpTo(mbit(50)),
        large_packets: PublishedLimit::UpTo(mbit(100)),
    },
];

/// Rates that the text gives as a number (S2.8); the figures are not digitised. Requested were 1,
/// 5, 10, 50, 100 and 1,000 Mbit/s, as far as the interface supports them (S2.5, S2.7).
const RATES: [PublishedRate; 3] = [
    rate("Raspberry Pi I (B)", (mbit(1), mbit(100)), 0, mbit(17)),
    rate("ECS LIVA", (mbit(1_000), mbit(1_000)), 0, mbit(760)),
    rate("ECS LIVA", (mbit(1_000), mbit(1_000)), 25, mbit(430)),
];

const fn rate(
    sender: &'static str,
    requested: (BitRate, BitRate),
    flows: u32,
    measured: BitRate,
) -> PublishedRate {
    let (frame, ip) = (Bytes(1_514), Bytes(1_500));
    PublishedRate { cite: CITE, sender, requested, flows, frame, ip, measured }
}

/// The boards and rates, for a run that measures send-time accuracy.
fn published(run: &RunData) -> Published {
    if !is_paced(run) {
        return Published::default();
    }
    Published {
        senders: senders(),
        rates: RATES.to_vec(),
        remarks: vec!["Below are the boards of Mok 2015, which does not define accurate."],
        ..Published::default()
    }
}

/// The boards with their verdicts, in the order of the paper.
pub(crate) fn senders() -> Vec<PublishedSender> {
    BOARDS.iter().map(sender).collect()
}

fn sender(board: &Board) -> PublishedSender {
    PublishedSender {
        cite: CITE,
        name: board.name,
        engine: "kernel module",
        hardware: format!(
            "{} MHz, {} MiB, {} interface, {}, about ${} then",
            count(board.cpu_mhz.into()),
            count(board.ram_mib),
            board.link,
            board.os,
            board.price_usd
        ),
        largest: vec![("all sizes", board.all_sizes), ("large packets", board.large_packets)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_rates_fit_interface_and_packet_size() {
        for board in BOARDS {
            let (all, large) = (board.all_sizes.rate(), board.large_packets.rate());
            assert!(all <= large && large <= Some(board.link), "{}", board.name);
        }
    }

    #[test]
    fn published_rate_is_below_the_requested_rate() {
        for rate in RATES {
            let board = BOARDS.iter().find(|board| board.name == rate.sender).unwrap();
            assert!(rate.requested.0 <= rate.requested.1 && rate.requested.1 <= board.link);
            assert!(rate.measured < rate.requested.1, "{}", board.name);
        }
    }

    #[test]
    fn published_verdicts_print_as_in_the_paper() {
        let words = BOARDS.map(|board| board.all_sizes.to_string());
        assert_eq!(words, ["below 50Mbit/s", "not suitable", "10Mbit/s", "50Mbit/s"]);
    }
}
