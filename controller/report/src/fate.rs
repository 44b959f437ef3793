//! How a sentence says what became of packets: probes are answered, packets of one way arrive.

use dwell_record::{Kind, Summary};

use crate::data::RunData;
use crate::group;

/// The words for a run's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    /// One of them.
    pub(crate) probe: &'static str,
    /// Said of those that came.
    pub(crate) came: &'static str,
    /// Said of those that did not.
    pub(crate) gone: &'static str,
    /// Said where none came, up to their number.
    pub(crate) none: &'static str,
}

const ANSWERED: Fate = Fate {
    probe: "probe",
    came: "were answered in time",
    gone: "got no reply in time",
    none: "No reply came to",
};

const ARRIVED: Fate =
    Fate { probe: "packet", came: "arrived", gone: "did not arrive", none: "Nothing arrived of" };

/// Programs whose files are about packets of one way.
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
