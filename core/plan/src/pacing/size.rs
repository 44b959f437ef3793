//! Packet size with its layer in one text, so that one axis can hold the sizes of Mok 2015:
//! `"200B"` and `"576B"` are IP packets, `"frame:1514B"` is a frame.

use std::fmt;
use std::str::FromStr;

use dwell_units::Bytes;
use dwell_wire::icmp::Family;
use dwell_wire::size::{PacketSize, SizeError, SizeMeasure};
use dwell_wire::traffic::Mark;
use serde::{Deserialize, Deserializer, de};
use thiserror::Error;

use dwell_protocol::PaceSize;

/// MTU of Ethernet and of lab links.
pub(super) const MTU: Bytes = Bytes(1_500);

/// Limit for a link with an unknown MTU.
pub(super) const UNKNOWN_MTU: Bytes = Bytes(u64::MAX);

/// A size as written in plans: `200B` or `ip:200B`, `payload:172B`, `frame:1514B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedSize(pub PaceSize);

/// A text that is not a packet size.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "invalid packet size '{0}'; write it like \"200B\" (IP packet), \"payload:172B\" or \
     \"frame:1514B\""
)]
pub struct NamedSizeError(String);

impl FromStr for NamedSize {
    type Err = NamedSizeError;

    fn from_str(text: &str) -> Result<Self, NamedSizeError> {
        let (name, bytes) = text.split_once(':').unwrap_or(("ip", text));
        let bytes: Bytes = bytes.trim().parse().map_err(|_| NamedSizeError(text.to_owned()))?;
        Ok(Self(match name {
            "ip" => PaceSize::Ip(bytes),
            "payload" => PaceSize::Payload(bytes),
            "frame" => PaceSize::Frame(bytes),
            _ => return Err(NamedSizeError(text.to_owned())),
        }))
    }
}

impl fmt::Display for NamedSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            PaceSize::Ip(bytes) => bytes.fmt(f),
            PaceSize::Payload(bytes) => write!(f, "payload:{bytes}"),
            PaceSize::Frame(bytes) => write!(f, "frame:{bytes}"),
        }
    }
}

impl<'de> Deserialize<'de> for NamedSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(text) => text.parse().map_err(de::Error::custom),
            other => Err(de::Error::custom(NamedSizeError(other.to_string()))),
        }
    }
}

/// Computes the size at every layer.
pub(super) fn packet_size(size: PaceSize, ipv6: bool, mtu: Bytes) -> Result<PacketSize, SizeError> {
    let (counted, given) = match size {
        PaceSize::Ip(bytes) => (SizeMeasure::Ip, bytes),
        PaceSize::Payload(bytes) => (SizeMeasure::Payload, bytes),
        PaceSize::Frame(bytes) => (SizeMeasure::Frame, bytes),
    };
    let family = if ipv6 { Family::V6 } else { Family::V4 };
    PacketSize::new(counted, given, family, Bytes(Mark::LEN as u64), mtu)
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
