//! Bulk transfer over TCP: the load of a bufferbloat test.

use dwell_units::{BitRate, Bytes, Nanos};
use serde::{Deserialize, Serialize};

use super::ThreadPlacement;

/// TCP connections to send on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BulkJob {
    /// Target: `tcp://HOST:PORT`.
    pub url: String,
    /// Number of connections.
    pub flows: u32,
    /// Rate of all connections together, in bits of payload; `None`: unlimited.
    pub rate: Option<BitRate>,
    /// Bytes per write; `None`: 128 KiB, or 10 ms of the rate if that is less.
    pub write_size: Option<Bytes>,
    /// Stop after this many bytes on all connections together.
    pub bytes: Option<Bytes>,
    /// Stop after this time.
    pub duration: Option<Nanos>,
    /// Use IPv4 only.
    #[serde(default)]
    pub ipv4: bool,
    /// Use IPv6 only.
    #[serde(default)]
    pub ipv6: bool,
    /// CPU and scheduling of the sending thread.
    #[serde(default)]
    pub place: ThreadPlacement,
}
