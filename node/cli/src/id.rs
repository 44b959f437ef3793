//! Packet id formats on the command line and in jobs.

use dwell_protocol::IdFormat;
use dwell_wire::id::Format;

/// Location of the packet id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IdChoice {
    /// Detect it from the first packet of each flow
    Auto,
    /// The iperf2 header
    Iperf,
    /// The first 12 bytes of the iperf2 header; the bytes after them may be encrypted
    IperfClassic,
    /// The STAMP sequence number
    Stamp,
    /// The round-trip message of Roedlach/Vock
    Roundtrip,
    /// The mark of `dwell load traffic`
    Dwell,
    /// No id: packets are numbered in order of arrival, so loss and reordering break the matching
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

/// The format that a job names; `None` if it is detected or absent.
pub(crate) const fn format(requested: IdFormat) -> Option<Format> {
    match requested {
        IdFormat::Iperf => Some(Format::Iperf),
        IdFormat::IperfClassic => Some(Format::IperfClassic),
        IdFormat::Stamp => Some(Format::Stamp),
        IdFormat::Roundtrip => Some(Format::Roundtrip),
        IdFormat::Dwell => Some(Format::Dwell),
        IdFormat::Auto | IdFormat::None => None,
    }
}
