//! Results that Mok 2015 published for four boards, for comparison in one table.
//!
//! Mok 2015 defines no tolerance for "accurate" and takes its timestamps in a kernel module. Sizes
//! are as printed there: the largest, called an IP packet of 1514 B, is a frame of that size.

use dwell_units::{BitRate, Bytes};

/// A board of table 2 of Mok 2015 (S2.7) with its verdict (S2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedDevice {
    /// Name as printed.
    pub name: &'static str,
    /// CPU clock.
    pub cpu_mhz: u32,
    /// Memory size.
    pub ram: Bytes,
    /// Ethernet interface speed: "FE" is 100 Mbit/s, "GE" 1 Gbit/s.
    pub link: BitRate,
    /// Operating system.
    pub os: &'static str,
    /// Approximate price in 2015.
    pub price_usd: u32,
    /// Networks it can measure with packets of every tested size.
    pub all_sizes: Measurable,
    /// Networks it can measure with large packets.
    pub large_packets: Measurable,
}

/// Networks that a board can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measurable {
    /// Up to this rate.
    UpTo(BitRate),
    /// Below this rate.
    Below(BitRate),
    /// None: the paper advises against it.
    None,
}

/// A rate that the text of Mok 2015 gives as a number; its figures are not digitised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedRate {
    /// Board name in [`MOK_2015_DEVICES`].
    pub device: &'static str,
    /// Requested rate; `None` for every rate tested on this board.
    pub asked: Option<BitRate>,
    /// Number of cross-traffic flows.
    pub flows: u32,
    /// Ethernet frame size.
    pub frame: Bytes,
    /// Approximate measured rate.
    pub measured: BitRate,
}

const fn mbit(rate: u64) -> BitRate {
    BitRate(rate * 1_000_000)
}

const fn mib(size: u64) -> Bytes {
    Bytes(size << 20)
}

/// Table 2 and the verdicts of Mok 2015, in its order (S2.7, S2.8). That the TP-LINK measures less
/// than 100 Mbit/s with packets of 576 B and more is from section 4 beside figure 3, not from its
/// verdict.
pub const MOK_2015_DEVICES: [PublishedDevice; 4] = [
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

/// Rates requested by Mok 2015 (S2.5); each board was tested with those its interface supports
/// (S2.7).
const MOK_2015_REQUESTED_RATES: [BitRate; 6] =
    [mbit(1), mbit(5), mbit(10), mbit(50), mbit(100), mbit(1_000)];

/// Rates given in the text of Mok 2015 (S2.8).
pub const MOK_2015_RATES: [PublishedRate; 3] = [
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
    /// Smallest and largest rate requested of this board.
    pub fn asked(&self) -> (BitRate, BitRate) {
        let [min, ..] = MOK_2015_REQUESTED_RATES;
        let max = MOK_2015_REQUESTED_RATES.into_iter().filter(|rate| *rate <= self.link).max();
        (min, max.unwrap_or(min))
    }
}

impl PublishedRate {
    /// Smallest and largest requested rate behind this measurement; both are the same if the paper
    /// names one.
    pub fn asked_between(&self) -> (BitRate, BitRate) {
        let device = MOK_2015_DEVICES.iter().find(|device| device.name == self.device);
        let tried = || device.map_or((self.measured, self.measured), PublishedDevice::asked);
        self.asked.map_or_else(tried, |asked| (asked, asked))
    }
}

impl Measurable {
    /// The limit.
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
    fn published_rates_fit_interface_and_packet_size() {
        for device in MOK_2015_DEVICES {
            let (all, large) = (device.all_sizes.rate(), device.large_packets.rate());
            assert!(all <= large && large <= Some(device.link), "{}", device.name);
        }
    }

    #[test]
    fn published_rate_is_below_the_requested_rate() {
        for rate in MOK_2015_RATES {
            let device = MOK_2015_DEVICES.iter().find(|device| device.name == rate.device).unwrap();
            assert!(rate.measured < rate.asked.unwrap_or(device.link), "{}", device.name);
        }
    }

    #[test]
    fn requested_range_contains_only_tested_rates() {
        let between = MOK_2015_RATES.map(|rate| rate.asked_between());
        let gigabit = (mbit(1_000), mbit(1_000));
        assert_eq!(between, [(mbit(1), mbit(100)), gigabit, gigabit]);
        let max = MOK_2015_DEVICES.map(|device| device.asked().1);
        assert_eq!(max, [mbit(100), mbit(100), mbit(100), mbit(1_000)]);
    }

    #[test]
    fn published_verdicts_print_as_in_the_paper() {
        let words = MOK_2015_DEVICES.map(|device| device.all_sizes.to_string());
        assert_eq!(words, ["below 50Mbit/s", "not suitable", "10Mbit/s", "50Mbit/s"]);
    }
}
