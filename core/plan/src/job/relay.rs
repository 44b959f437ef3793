//! Jobs of relays: what to send on, and how.

use std::path::PathBuf;

use dwell_units::Nanos;
use serde::{Deserialize, Serialize};

use super::{Place, Stamps};

/// What to send on, and how (S0.4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayJob {
    /// Where clients send to: `udp://ADDRESS:PORT` or `tcp://ADDRESS:PORT`.
    pub listen: String,
    /// Where it goes: the same scheme.
    pub to: String,
    /// What happens to the payload.
    pub mode: RelayMode,
    /// How payloads are encrypted.
    #[serde(default)]
    pub cipher: Cipher,
    /// Bytes at the start of a payload that are never enciphered.
    #[serde(default)]
    pub clear: Clear,
    /// Where the key comes from.
    #[serde(default)]
    pub key: KeySource,
    /// What moves the packets.
    #[serde(default)]
    pub engine: RelayEngine,
    /// Hand packets of one length to the kernel as one that it cuts as late as it can: more of them a
    /// second, and none has kernel stamps of its own (batch). `None`: where that leaves nothing out
    /// that was asked for, see [`RelayJob::merges`].
    #[serde(default)]
    pub merge: Option<bool>,
    /// Which stamps to use.
    #[serde(default)]
    pub stamps: Stamps,
    /// Where a packet's id stands.
    #[serde(default)]
    pub id: IdFormat,
    /// Most flows at a time; beyond it the one that was idle for longest goes.
    #[serde(default = "most_flows")]
    pub flows: u32,
    /// A flow that was idle for so long is forgotten, and a connection closed; `None`: as long as suits
    /// the protocol.
    #[serde(default)]
    pub idle: Option<Nanos>,
    /// Fill the empty telemetry slots of STAMP packets that pass.
    #[serde(default)]
    pub telemetry: bool,
    /// This node in telemetry.
    #[serde(default)]
    pub node_id: u32,
    /// Time to hold every packet on purpose, to prove where a delay is attributed.
    #[serde(default)]
    pub hold: Option<Hold>,
    /// Where and how the thread runs.
    #[serde(default)]
    pub place: Place,
}

const fn most_flows() -> u32 {
    4_096
}

impl RelayJob {
    /// Sends on from `listen` to `to`, changing nothing but addresses.
    pub fn translate(listen: impl Into<String>, to: impl Into<String>) -> Self {
        Self {
            listen: listen.into(),
            to: to.into(),
            mode: RelayMode::Translate,
            cipher: Cipher::default(),
            clear: Clear::default(),
            key: KeySource::default(),
            engine: RelayEngine::default(),
            merge: None,
            stamps: Stamps::default(),
            id: IdFormat::default(),
            flows: most_flows(),
            idle: None,
            telemetry: false,
            node_id: 0,
            hold: None,
            place: Place::default(),
        }
    }

    /// Whether packets pass the kernel together: if so is asked for, or if batches are moved and nobody
    /// asks for stamps by the kernel.
    pub fn merges(&self) -> bool {
        let is_free = self.engine == RelayEngine::Batch && self.stamps == Stamps::User;
        self.merge.unwrap_or(is_free)
    }
}

/// What a relay does to payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RelayMode {
    /// Nothing: addresses and ports change.
    Translate,
    /// Enciphers towards `to`, deciphers on the way back.
    Encrypt,
    /// Deciphers towards `to`, enciphers on the way back.
    Decrypt,
}

/// How a relay encrypts payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cipher {
    /// AES-128 in counter mode, as in S0: secrecy without integrity.
    #[default]
    #[serde(rename = "aes-128-ctr")]
    Aes128Ctr,
    /// AES-128 in Galois/counter mode: secrecy, integrity, and each packet accepted once.
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
}

impl Cipher {
    /// The name, as plans and the command line write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Ctr => "aes-128-ctr",
            Self::Aes128Gcm => "aes-128-gcm",
        }
    }
}

/// Bytes at the start of a payload that are never enciphered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clear {
    /// As many as the header of iperf2 that is there takes.
    Auto,
    /// So many.
    #[serde(untagged)]
    Bytes(u16),
}

impl Default for Clear {
    /// Id and time of S0's packets (S0.4, S0.7).
    fn default() -> Self {
        Self::Bytes(12)
    }
}

/// Where a relay's key comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeySource {
    /// The environment: `DWELL_KEY`, 32 hexadecimal digits.
    #[default]
    Environment,
    /// Drawn for this job. Nobody can decipher what it sends: for measuring what enciphering costs.
    Random,
    /// A file on the node, with 32 hexadecimal digits.
    File(PathBuf),
}

/// What moves a relay's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RelayEngine {
    /// One receive call and one send call for each packet, as S0 did.
    #[default]
    Socket,
    /// Many packets by each call.
    Batch,
    /// In the driver, without the kernel's stack (translation only).
    Xdp,
}

/// Where packets carry their id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdFormat {
    /// As the first packets tell.
    #[default]
    Auto,
    /// iperf2's header.
    Iperf,
    /// The first 12 bytes of iperf2's header, where what is behind them may be enciphered.
    #[serde(rename = "iperf-classic")]
    IperfClassic,
    /// STAMP's sequence number.
    Stamp,
    /// S4's round-trip message.
    Roundtrip,
    /// dwell's own mark of traffic.
    Dwell,
    /// Nowhere: the order of arrival numbers them.
    None,
}

/// A delay on purpose. Parts that do not hold anything must not change by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// Where.
    pub at: HoldAt,
    /// For how long.
    pub time: Nanos,
}

/// Where a relay holds packets on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HoldAt {
    /// In the program, between receiving and sending.
    Program,
    /// In the receive socket, before it is read.
    Socket,
}
