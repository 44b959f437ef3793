//! Packet sizes of a plan at every layer.

use dwell_protocol::NamedSize;
use dwell_units::Bytes;
use dwell_wire::icmp::Family;
use dwell_wire::size::{PacketSize, SizeError};
use dwell_wire::traffic::Mark;

/// MTU of Ethernet and of lab links.
pub(super) const MTU: Bytes = Bytes(1_500);

/// Limit for a link with an unknown MTU.
pub(super) const UNKNOWN_MTU: Bytes = Bytes(u64::MAX);

/// Computes the size at every layer.
pub(super) fn packet_size(
    size: NamedSize,
    ipv6: bool,
    mtu: Bytes,
) -> Result<PacketSize, SizeError> {
    let family = if ipv6 { Family::V6 } else { Family::V4 };
    PacketSize::new(size.measure, size.bytes, family, Bytes(Mark::LEN as u64), mtu)
}

/// Error text for a plan, without the command-line flag.
pub(super) fn plan_message(error: SizeError) -> String {
    match error {
        SizeError::TooSmall { given, least, content, .. } => {
            format!(
                "{given} is too small: at least {least} for the headers and {content} of payload"
            )
        }
        SizeError::TooLarge { given, most, mtu, .. } => {
            format!("{given} is too large: at most {most}, for IP packets of at most {mtu}")
        }
        SizeError::MtuTooSmall { .. } => error.to_string(),
    }
}
