//! Which header carries the ids of packets, as jobs name it.

use dwell_plan::IdFormat;
use dwell_wire::id::Format;

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
