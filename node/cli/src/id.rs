//! Packet id formats of jobs.

use dwell_protocol::IdFormat;
use dwell_wire::id::Format;

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
