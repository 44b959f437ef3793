//! Which header carries the ids of packets, as flags and jobs name it.

use dwell_plan::IdFormat;
use dwell_wire::id::Format;

/// Where packets carry their id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IdChoice {
    /// As the first packet of each flow tells
    Auto,
    /// iperf2's header
    Iperf,
    /// The first 12 bytes of iperf2's header: what is behind them may be enciphered
    IperfClassic,
    /// STAMP's sequence number
    Stamp,
    /// S4's round-trip message
    Roundtrip,
    /// The mark of `dwell load traffic`
    Dwell,
    /// Nowhere: their order numbers them, which a lost or overtaken packet breaks
    None,
}

impl From<IdChoice> for IdFormat {
    fn from(choice: IdChoice) -> Self {
        match choice {
            IdChoice::Auto => Self::Auto,
            IdChoice::Iperf => Self::Iperf,
            IdChoice::IperfClassic => Self::IperfClassic,
            IdChoice::Stamp => Self::Stamp,
            IdChoice::Roundtrip => Self::Roundtrip,
            IdChoice::Dwell => Self::Dwell,
            IdChoice::None => Self::None,
        }
    }
}

/// The format that a job names; `None` where it leaves that to the packets, or says that they carry
/// none.
pub(crate) const fn format(asked: IdFormat) -> Option<Format> {
    match asked {
        IdFormat::Iperf => Some(Format::Iperf),
        IdFormat::IperfClassic => Some(Format::IperfClassic),
        IdFormat::Stamp => Some(Format::Stamp),
        IdFormat::Roundtrip => Some(Format::Roundtrip),
        IdFormat::Dwell => Some(Format::Dwell),
        IdFormat::Auto | IdFormat::None => None,
    }
}
