//! Wording for the packets of a run: probes are answered, one-way packets arrive.

use dwell_record::{Kind, Summary};

use crate::data::RunData;
use crate::group;

/// Words for the packets of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    /// Noun for one packet.
    pub(crate) probe: &'static str,
    /// Verb for received packets, after their number.
    pub(crate) came: &'static str,
    /// Verb for lost and late packets, after their number.
    pub(crate) gone: &'static str,
    /// Verb after "None of N probes".
    pub(crate) none: &'static str,
}

const ANSWERED: Fate = Fate {
    probe: "probe",
    came: "were answered in time",
    gone: "got no reply in time",
    none: "was answered",
};

const ARRIVED: Fate =
    Fate { probe: "packet", came: "arrived", gone: "did not arrive", none: "arrived" };

/// Import engines that measure one-way packets.
const ONE_WAY: [&str; 2] = ["iperf2", "d-itg"];

impl Fate {
    pub(crate) fn of(run: &RunData) -> Self {
        let one_way = |s: &Summary| match s.kind {
            Kind::Relay | Kind::Pace => true,
            Kind::Import => ONE_WAY.contains(&s.engine.as_str()),
            _ => false,
        };
        let mut summaries = group::finished(run).filter_map(|trial| trial.summary.as_ref());
        if summaries.any(one_way) { ARRIVED } else { ANSWERED }
    }
}
