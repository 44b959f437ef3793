//! Wording for the packets of a run: probes are answered, one-way packets arrive.

use dwell_record::{Kind, Summary};

use crate::model::RunData;

/// Words for the packets of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketWords {
    /// Noun for one packet.
    pub(crate) probe: &'static str,
    /// Verb for received packets, after their number.
    pub(crate) received: &'static str,
    /// Verb for lost and late packets, after their number.
    pub(crate) missing: &'static str,
    /// Verb after "None of N probes".
    pub(crate) none_received: &'static str,
}

const PROBE_WORDS: PacketWords = PacketWords {
    probe: "probe",
    received: "were answered in time",
    missing: "got no reply in time",
    none_received: "was answered",
};

const ONE_WAY_WORDS: PacketWords = PacketWords {
    probe: "packet",
    received: "arrived",
    missing: "did not arrive",
    none_received: "arrived",
};

/// Import engines that measure one-way packets.
const ONE_WAY: [&str; 2] = ["iperf2", "d-itg"];

impl PacketWords {
    pub(crate) fn of(run: &RunData) -> Self {
        let one_way = |s: &Summary| match s.kind {
            Kind::Relay | Kind::Pace => true,
            Kind::Import => ONE_WAY.contains(&s.engine.as_str()),
            _ => false,
        };
        let mut summaries = run.summaries();
        if summaries.any(one_way) { ONE_WAY_WORDS } else { PROBE_WORDS }
    }
}
