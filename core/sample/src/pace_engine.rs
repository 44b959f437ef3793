//! Engines that send the packets of a train: their names. `dwell-io` implements them.

use std::str::FromStr;

/// Engine that sends the packets of a train. Engines that can hand over packets in batches do so
/// for packets due at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PaceEngine {
    /// The best engine available, chosen by measurement.
    #[default]
    Auto,
    /// Sleeps until each departure, then sends, like most programs.
    Sleep,
    /// Busy-polls the clock without sleeping.
    Spin,
    /// Sleeps until shortly before each departure, then spins.
    SleepSpin,
    /// Sleeps and spins; sends packets due together with one sendmmsg(2) call.
    Sendmmsg,
    /// Like sendmmsg, but as one message segmented by the kernel (UDP_SEGMENT) with hardware
    /// segmentation off.
    Gso,
    /// A ring of frames shared with the kernel (AF_PACKET).
    PacketRing,
    /// AF_XDP, directly before the driver.
    Xsk,
    /// The kernel holds each packet until its time (SO_TXTIME).
    Txtime,
    /// io_uring(7).
    Uring,
}

/// A text is not the name of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("known are {}", PaceEngine::NAMES.join(", "))]
pub struct UnknownEngine;

impl PaceEngine {
    /// All engines, simplest first; without [`Self::Auto`].
    pub const ALL: [Self; 9] = [
        Self::Sleep,
        Self::Spin,
        Self::SleepSpin,
        Self::Sendmmsg,
        Self::Gso,
        Self::PacketRing,
        Self::Xsk,
        Self::Txtime,
        Self::Uring,
    ];

    /// Names of all values, `auto` first.
    pub const NAMES: [&str; Self::ALL.len() + 1] = {
        let mut names = [Self::Auto.name(); Self::ALL.len() + 1];
        let mut n = 0;
        while n < Self::ALL.len() {
            names[n + 1] = Self::ALL[n].name();
            n += 1;
        }
        names
    };

    /// Name in flags, plans and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Sleep => "sleep",
            Self::Spin => "spin",
            Self::SleepSpin => "sleep-spin",
            Self::Sendmmsg => "sendmmsg",
            Self::Gso => "gso",
            Self::PacketRing => "packet-ring",
            Self::Xsk => "xsk",
            Self::Txtime => "txtime",
            Self::Uring => "uring",
        }
    }
}

impl FromStr for PaceEngine {
    type Err = UnknownEngine;

    fn from_str(text: &str) -> Result<Self, UnknownEngine> {
        let mut all = [Self::Auto].into_iter().chain(Self::ALL);
        all.find(|engine| engine.name() == text).ok_or(UnknownEngine)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_is_that_of_one_engine() {
        for name in PaceEngine::NAMES {
            assert_eq!(name.parse().map(PaceEngine::name), Ok(name));
        }
        assert_eq!(BTreeSet::from(PaceEngine::NAMES).len(), PaceEngine::NAMES.len());
        let error = "magic".parse::<PaceEngine>().unwrap_err().to_string();
        assert!(error.starts_with("known are auto, sleep, spin, sleep-spin,"), "{error}");
    }
}
