//! Engines that send the packets of a train: their names, and what each needs and offers.
//! `dwell-io` implements them.

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

/// Where departures are timestamped on the sending machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepartureStamps {
    /// In the socket that sends.
    Socket,
    /// In a tap on the outgoing interface.
    Tap,
    /// Nowhere: only the far end has timestamps of the packets.
    Nowhere,
}

/// Whether packets bypass the queueing discipline, including any rate limit there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QdiscBypass {
    /// They never do.
    Never,
    /// On request.
    Optional,
    /// They always do.
    Always,
}

/// Needs and offers of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Where departures are timestamped, if the job requests it.
    pub departure_stamps: DepartureStamps,
    /// Relation to the queueing discipline.
    pub qdisc_bypass: QdiscBypass,
    /// UDP segmentation offload of the interface must be off: otherwise one timestamp would cover
    /// several packets.
    pub needs_segmentation_off: bool,
    /// Sleeps in long gaps instead of polling the clock.
    pub sleeps: bool,
    /// Rank among unbeaten engines in the automatic choice, lowest first: lower demands on the
    /// machine and timestamps nearer to the wire come first. `None`: not a candidate.
    pub preference: Option<u8>,
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

    /// Engine that is used if nothing can be compared.
    pub const FALLBACK: Self = Self::SleepSpin;

    /// Name and capabilities.
    const fn row(self) -> (&'static str, Capabilities) {
        use DepartureStamps::{Nowhere, Socket, Tap};
        use QdiscBypass::{Always, Never, Optional};
        // Columns in the order of the fields of `Capabilities`.
        let (name, departure_stamps, qdisc_bypass, needs_segmentation_off, sleeps, preference) =
            match self {
                Self::Auto => ("auto", Nowhere, Never, true, true, None),
                Self::Sleep => ("sleep", Socket, Never, false, true, None),
                Self::Spin => ("spin", Socket, Never, false, false, Some(1)),
                Self::SleepSpin => ("sleep-spin", Socket, Never, false, true, Some(0)),
                Self::Sendmmsg => ("sendmmsg", Socket, Never, false, true, Some(2)),
                Self::Gso => ("gso", Tap, Never, true, true, Some(5)),
                Self::PacketRing => ("packet-ring", Socket, Optional, false, true, Some(4)),
                Self::Xsk => ("xsk", Nowhere, Always, false, true, Some(7)),
                Self::Txtime => ("txtime", Socket, Never, false, true, Some(6)),
                Self::Uring => ("uring", Socket, Never, false, true, Some(3)),
            };
        let capabilities = Capabilities {
            departure_stamps,
            qdisc_bypass,
            needs_segmentation_off,
            sleeps,
            preference,
        };
        (name, capabilities)
    }

    /// Name in flags, plans and results.
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// Capabilities. Those of [`Self::Auto`] are what any candidate may need, and what all offer.
    pub const fn capabilities(self) -> Capabilities {
        self.row().1
    }

    /// Whether it leaves the choice of an engine to a measurement.
    pub const fn is_automatic(self) -> bool {
        matches!(self, Self::Auto)
    }

    /// Whether packets bypass the queueing discipline if, and only if, it is requested.
    pub fn has_optional_bypass(self) -> bool {
        self.capabilities().qdisc_bypass == QdiscBypass::Optional
    }

    /// Whether packets bypass the queueing discipline if the job has requested it or not.
    pub fn bypasses_qdisc(self, requested: bool) -> bool {
        match self.capabilities().qdisc_bypass {
            QdiscBypass::Never => false,
            QdiscBypass::Optional => requested,
            QdiscBypass::Always => true,
        }
    }

    /// Names of the engines that bypass the queueing discipline on request.
    pub fn names_with_bypass() -> Vec<&'static str> {
        Self::ALL
            .into_iter()
            .filter(|engine| engine.has_optional_bypass())
            .map(Self::name)
            .collect()
    }

    /// Candidates of the automatic choice in order of preference. With `spinning_first`, engines
    /// that never sleep come before the others.
    pub fn candidates(spinning_first: bool) -> Vec<Self> {
        let rank = |engine: &Self| {
            let Capabilities { sleeps, preference, .. } = engine.capabilities();
            (spinning_first && sleeps, preference)
        };
        let mut candidates = Self::ALL.to_vec();
        candidates.retain(|engine| engine.capabilities().preference.is_some());
        candidates.sort_by_key(rank);
        candidates
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

    #[test]
    fn candidates_follow_preference() {
        use PaceEngine::{Gso, PacketRing, Sendmmsg, SleepSpin, Spin, Txtime, Uring, Xsk};
        let sleeping = [SleepSpin, Spin, Sendmmsg, Uring, PacketRing, Gso, Txtime, Xsk];
        assert_eq!(PaceEngine::candidates(false), sleeping);
        let spinning = [Spin, SleepSpin, Sendmmsg, Uring, PacketRing, Gso, Txtime, Xsk];
        assert_eq!(PaceEngine::candidates(true), spinning);
    }

    #[test]
    fn bypass_is_optional_for_packet_ring_only() {
        assert_eq!(PaceEngine::names_with_bypass(), ["packet-ring"]);
        let bypassing = |requested| {
            let all = PaceEngine::ALL.into_iter();
            all.filter(|engine| engine.bypasses_qdisc(requested)).collect::<Vec<_>>()
        };
        assert_eq!(bypassing(false), [PaceEngine::Xsk]);
        assert_eq!(bypassing(true), [PaceEngine::PacketRing, PaceEngine::Xsk]);
    }
}
