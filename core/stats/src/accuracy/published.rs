//! What S2 published of its four boards, so that another one stands in the same table.
//!
//! S2 says of no verdict how accurate "accurate" is, and takes its stamps in its own kernel module.
//! Sizes are its own: the largest, which it calls an IP packet of 1514 B, is a frame of that size.

use dwell_units::{BitRate, Bytes};

/// A board of S2's table 2 (S2.7) with its verdict (S2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedDevice {
    /// As S2 prints it.
    pub name: &'static str,
    /// The clock of its processor.
    pub cpu_mhz: u32,
    /// Its memory.
    pub ram: Bytes,
    /// Its Ethernet interface: "FE" is 100 Mbit/s, "GE" 1 Gbit/s.
    pub link: BitRate,
    /// What ran on it.
    pub os: &'static str,
    /// About what it cost in 2015.
    pub price_usd: u32,
    /// Networks that it measures with packets of all sizes tried.
    pub all_sizes: Measurable,
    /// Networks that it measures with large packets.
    pub large_packets: Measurable,
}

/// Which networks a board can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measurable {
    /// Up to this rate.
    UpTo(BitRate),
    /// Below this rate.
    Below(BitRate),
    /// None: S2 advises against it.
    None,
}

/// A rate that S2 gives as a number; its figures are not digitised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedRate {
    /// The board, by its name in [`S2_DEVICES`].
    pub device: &'static str,
    /// The rate asked for; `None`: each of those tried on this board.
    pub asked: Option<BitRate>,
    /// Flows of cross traffic.
    pub flows: u32,
    /// The Ethernet frame.
    pub frame: Bytes,
    /// The rate measured, about.
    pub measured: BitRate,
}

const fn mbit(rate: u64) -> BitRate {
    BitRate(rate * 1_000_000)
}

const fn mib(size: u64) -> Bytes {
    Bytes(size << 20)
}

/// Table 2 and the verdicts, in S2's order (S2.7; S2.8). That the TP-LINK measures less than 100 Mbit/s
/// with packets of 576 B and more is in S2's section 4 beside figure 3, not in its verdict.
pub const S2_DEVICES: [PublishedDevice; 4] = [
    PublishedDevice {
        name: "TP-LINK ML-3020",
        cpu_mhz: 400,
        ram: mib(32),
        link: mbit(100),
        os: "OpenWrt 12.09",
        price_usd: 20,
        all_sizes: Measurable::Below(mbit(50)),
        large_packets: Measurable::Below(mbit(100)),
    },
    PublishedDevice {
        name: "Raspberry Pi I (B)",
        cpu_mhz: 700,
        ram: mib(512),
        link: mbit(100),
        os: "OpenWrt 12.09",
        price_usd: 35,
        all_sizes: Measurable::None,
        large_packets: Measurable::None,
    },
    PublishedDevice {
        name: "Raspberry Pi II (B)",
        cpu_mhz: 900,
        ram: mib(1_024),
        link: mbit(100),
        os: "OpenWrt 12.09",
        price_usd: 35,
        all_sizes: Measurable::UpTo(mbit(10)),
        large_packets: Measurable::UpTo(mbit(50)),
    },
    PublishedDevice {
        name: "ECS LIVA",
        cpu_mhz: 2_000,
        ram: mib(2_048),
        link: mbit(1_000),
        os: "Ubuntu 14.04",
        price_usd: 130,
        all_sizes: Measurable::UpTo(mbit(50)),
        large_packets: Measurable::UpTo(mbit(100)),
    },
];

/// The rates that S2 asked for (S2.5), of each board those that its interface has (S2.7).
const S2_ASKED: [BitRate; 6] = [mbit(1), mbit(5), mbit(10), mbit(50), mbit(100), mbit(1_000)];

/// The rates that S2's text gives (S2.8).
pub const S2_RATES: [PublishedRate; 3] = [
    PublishedRate {
        device: "Raspberry Pi I (B)",
        asked: None,
        flows: 0,
        frame: Bytes(1_514),
        measured: mbit(17),
    },
    PublishedRate {
        device: "ECS LIVA",
        asked: Some(mbit(1_000)),
        flows: 0,
        frame: Bytes(1_514),
        measured: mbit(760),
    },
    PublishedRate {
        device: "ECS LIVA",
        asked: Some(mbit(1_000)),
        flows: 25,
        frame: Bytes(1_514),
        measured: mbit(430),
    },
];

impl PublishedDevice {
    /// The smallest and the largest rate that S2 asked of it.
    pub fn asked(&self) -> (BitRate, BitRate) {
        let [least, ..] = S2_ASKED;
        let most = S2_ASKED.into_iter().filter(|rate| *rate <= self.link).max();
        (least, most.unwrap_or(least))
    }
}

impl PublishedRate {
    /// The smallest and the largest rate asked for of which this was measured: where S2 names one,
    /// both are that.
    pub fn asked_between(&self) -> (BitRate, BitRate) {
        let device = S2_DEVICES.iter().find(|device| device.name == self.device);
        let tried = || device.map_or((self.measured, self.measured), PublishedDevice::asked);
        self.asked.map_or_else(tried, |asked| (asked, asked))
    }
}

impl Measurable {
    /// The rate that it is about.
    pub fn rate(self) -> Option<BitRate> {
        match self {
            Self::UpTo(rate) | Self::Below(rate) => Some(rate),
            Self::None => None,
        }
    }
}

impl std::fmt::Display for Measurable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UpTo(rate) => rate.fmt(f),
            Self::Below(rate) => write!(f, "below {rate}"),
            Self::None => f.write_str("not suitable"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_board_measures_more_than_its_interface_or_less_with_large_packets() {
        for device in S2_DEVICES {
            let (all, large) = (device.all_sizes.rate(), device.large_packets.rate());
            assert!(all <= large && large <= Some(device.link), "{}", device.name);
        }
    }

    #[test]
    fn every_published_rate_is_that_of_a_board_of_the_table_and_below_what_was_asked() {
        for rate in S2_RATES {
            let device = S2_DEVICES.iter().find(|device| device.name == rate.device).unwrap();
            assert!(rate.measured < rate.asked.unwrap_or(device.link), "{}", device.name);
        }
    }

    #[test]
    fn a_rate_is_told_of_no_rate_asked_for_that_s2_did_not_try_on_its_board() {
        let between = S2_RATES.map(|rate| rate.asked_between());
        let gigabit = (mbit(1_000), mbit(1_000));
        assert_eq!(between, [(mbit(1), mbit(100)), gigabit, gigabit]);
        let most = S2_DEVICES.map(|device| device.asked().1);
        assert_eq!(most, [mbit(100), mbit(100), mbit(100), mbit(1_000)]);
    }

    #[test]
    fn verdicts_are_printed_as_s2_words_them() {
        let words = S2_DEVICES.map(|device| device.all_sizes.to_string());
        assert_eq!(words, ["below 50Mbit/s", "not suitable", "10Mbit/s", "50Mbit/s"]);
    }
}
