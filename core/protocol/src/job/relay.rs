//! Jobs of relays: packets to forward, and how to transform them.

use std::path::PathBuf;

use dwell_units::Nanos;
use serde::{Deserialize, Serialize};

use super::{Stamps, ThreadPlacement};

/// A relay from one address to another (Miya 2020, S0.4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayJob {
    /// Listening address for clients: `udp://ADDRESS:PORT` or `tcp://ADDRESS:PORT`.
    pub listen: String,
    /// Destination, with the same scheme.
    pub to: String,
    /// Treatment of the payload.
    pub mode: RelayMode,
    /// How payloads are encrypted.
    #[serde(default)]
    pub cipher: Cipher,
    /// Bytes at the start of a payload that stay unencrypted.
    #[serde(default)]
    pub clear: ClearPrefix,
    /// Source of the key.
    #[serde(default)]
    pub key: KeySource,
    /// Engine that moves the packets.
    #[serde(default)]
    pub engine: RelayEngine,
    /// Pass packets of equal length to the kernel as one segmented message: a higher packet rate,
    /// but without kernel timestamps per packet (batch engine). `None`: if no requested timestamps
    /// are lost, see [`RelayJob::merges`].
    pub merge: Option<bool>,
    /// Timestamps to use.
    #[serde(default)]
    pub stamps: Stamps,
    /// Location of the packet id.
    #[serde(default)]
    pub id: IdFormat,
    /// Maximum number of flows; beyond it the longest idle flow is evicted.
    #[serde(default = "default_flows")]
    pub flows: u32,
    /// Idle time after which a flow is removed or a connection closed; `None`: the default of the
    /// protocol.
    pub idle: Option<Nanos>,
    /// Fill empty telemetry slots of passing STAMP packets.
    #[serde(default)]
    pub telemetry: bool,
    /// Id of this node in telemetry.
    #[serde(default)]
    pub node_id: u32,
    /// Deliberate delay of every packet, to verify the attribution of delays.
    pub hold: Option<Hold>,
    /// CPU and scheduling of the thread.
    #[serde(default)]
    pub place: ThreadPlacement,
}

const fn default_flows() -> u32 {
    4_096
}

impl RelayJob {
    /// Forwards from `listen` to `to` and changes only addresses.
    pub fn translate(listen: impl Into<String>, to: impl Into<String>) -> Self {
        Self {
            listen: listen.into(),
            to: to.into(),
            mode: RelayMode::Translate,
            cipher: Cipher::default(),
            clear: ClearPrefix::default(),
            key: KeySource::default(),
            engine: RelayEngine::default(),
            merge: None,
            stamps: Stamps::default(),
            id: IdFormat::default(),
            flows: default_flows(),
            idle: None,
            telemetry: false,
            node_id: 0,
            hold: None,
            place: ThreadPlacement::default(),
        }
    }

    /// Returns whether packets are merged: if requested, or by default with the batch engine and
    /// user-space timestamps.
    pub fn merges(&self) -> bool {
        let is_free = self.engine == RelayEngine::Batch && self.stamps == Stamps::User;
        self.merge.unwrap_or(is_free)
    }
}

/// Treatment of payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum RelayMode {
    /// Only addresses and ports change.
    Translate,
    /// Encrypts towards the destination and decrypts replies.
    Encrypt,
    /// Decrypts towards the destination and encrypts replies.
    Decrypt,
}

/// How a relay encrypts payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Cipher {
    /// AES-128 in counter mode, as in Miya 2020: confidentiality without integrity.
    #[default]
    #[cfg_attr(feature = "clap", value(name = "aes-128-ctr"))]
    #[serde(rename = "aes-128-ctr")]
    Aes128Ctr,
    /// AES-128-GCM: confidentiality, integrity and replay protection.
    #[cfg_attr(feature = "clap", value(name = "aes-128-gcm"))]
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
}

impl Cipher {
    /// Name in plans and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Ctr => "aes-128-ctr",
            Self::Aes128Gcm => "aes-128-gcm",
        }
    }
}

/// Bytes at the start of a payload that stay unencrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClearPrefix {
    /// The length of the iperf2 header in the packet.
    Auto,
    /// A fixed number of bytes.
    #[serde(untagged)]
    Bytes(u16),
}

impl Default for ClearPrefix {
    /// Id and time of the packets of Miya 2020 (S0.4, S0.7).
    fn default() -> Self {
        Self::Bytes(12)
    }
}

/// Source of a relay's key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeySource {
    /// Environment variable `DWELL_KEY`: 32 hexadecimal digits.
    #[default]
    Environment,
    /// Random key for this job. Nothing can decrypt its packets; for measuring the cost of
    /// encryption.
    Random,
    /// File on the node with 32 hexadecimal digits.
    File(PathBuf),
}

/// Engine that moves a relay's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum RelayEngine {
    /// One receive and one send call per packet, as in Miya 2020.
    #[default]
    Socket,
    /// Batches of packets per call.
    Batch,
    /// In the driver, bypassing the kernel stack (translation only).
    Xdp,
}

/// Location of the packet id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum IdFormat {
    /// Detect it from the first packet of each flow.
    #[default]
    Auto,
    /// The iperf2 header.
    Iperf,
    /// The first 12 bytes of the iperf2 header; the bytes after them may be encrypted.
    #[serde(rename = "iperf-classic")]
    IperfClassic,
    /// The STAMP sequence number.
    Stamp,
    /// The round-trip message of Roedlach/Vock.
    Roundtrip,
    /// The mark of `dwell load traffic`.
    Dwell,
    /// No id: packets are numbered in order of arrival, so loss and reordering break the matching.
    None,
}

/// A deliberate delay, which must not change any other delay component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// Location of the delay.
    pub at: HoldAt,
    /// Length of the delay.
    pub time: Nanos,
}

/// Location of a deliberate delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HoldAt {
    /// In the program, between receiving and sending.
    Program,
    /// In the receive socket, before reading.
    Socket,
}
