//! Jobs of relays: packets to forward, and how to transform them.

use std::path::PathBuf;
use std::str::FromStr;

use dwell_units::{Nanos, UnitError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Stamps, ThreadPlacement};

/// Options of a relay that plans, jobs and the command line share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct RelayParameters {
    /// Encryption. aes-128-ctr: secrecy only, modified and replayed packets are accepted;
    /// aes-128-gcm: such packets are dropped.
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = Cipher::Aes128Ctr))]
    pub cipher: Cipher,
    /// Bytes at the start of each payload to leave unencrypted; auto: the iperf2 header [default:
    /// 12].
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES|auto"))]
    pub clear: Option<ClearPrefix>,
    /// How packets are moved. socket: one receive and one send call per packet; batch: many packets
    /// per call; xdp: in the network driver (translate only).
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = RelayEngine::Socket))]
    pub engine: RelayEngine,
    /// Timestamps to use.
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = Stamps::Auto))]
    pub stamps: Stamps,
}

impl RelayParameters {
    /// Parameters of a result that are recorded as requested, by their names there.
    pub fn recorded(&self) -> Vec<(&'static str, Value)> {
        vec![("engine", json!(self.engine)), ("stamps", json!(self.stamps))]
    }
}

/// A relay from one address to another (Miya 2020, S0.4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct RelayJob {
    /// Address that clients send to: udp://ADDRESS:PORT or tcp://ADDRESS:PORT.
    #[cfg_attr(feature = "clap", arg(long, value_name = "URL"))]
    pub listen: String,
    /// Address to relay to, with the same protocol as --listen.
    #[cfg_attr(feature = "clap", arg(long, value_name = "URL"))]
    pub to: String,
    /// Processing of payloads. translate: none, only addresses and ports change; encrypt: encrypt
    /// towards --to and decrypt replies; decrypt: the reverse of encrypt.
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = RelayMode::Translate))]
    pub mode: RelayMode,
    /// Options that plans have too.
    #[cfg_attr(feature = "clap", command(flatten))]
    #[serde(default)]
    pub parameters: RelayParameters,
    /// Source of the key.
    #[cfg_attr(feature = "clap", arg(skip))]
    #[serde(default)]
    pub key: KeySource,
    /// Pass packets of equal length to the kernel as one segmented message: a higher packet rate,
    /// but without kernel timestamps per packet (batch engine). `None`: if no requested timestamps
    /// are lost, see [`RelayJob::merges`].
    #[cfg_attr(feature = "clap", arg(skip))]
    pub merge: Option<bool>,
    /// Format of the packet id in payloads; none: number packets in order of arrival.
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = IdFormat::Auto))]
    #[serde(default)]
    pub id: IdFormat,
    /// Maximum number of clients (at most 512 over TCP). A new client replaces the one idle for
    /// longest.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = default_flows()))]
    #[serde(default = "default_flows")]
    pub flows: u32,
    /// Forget a client, or close its connection, after this idle time; default 60s (TCP 124min).
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub idle: Option<Nanos>,
    /// Delay every packet by this time, in the program or unread in the socket, like program:200us.
    #[cfg_attr(feature = "clap", arg(long, value_name = "program|socket:TIME"))]
    pub hold: Option<Hold>,
    /// Fill empty telemetry slots in relayed STAMP packets.
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default)]
    pub telemetry: bool,
    /// Number of this node in telemetry.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = 0))]
    #[serde(default)]
    pub node_id: u32,
    /// CPU and scheduling of the relaying thread.
    #[cfg_attr(feature = "clap", command(flatten))]
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
            parameters: RelayParameters::default(),
            key: KeySource::default(),
            merge: None,
            id: IdFormat::default(),
            flows: default_flows(),
            idle: None,
            hold: None,
            telemetry: false,
            node_id: 0,
            place: ThreadPlacement::default(),
        }
    }

    /// Bytes at the start of a payload that stay unencrypted.
    pub fn clear(&self) -> ClearPrefix {
        self.parameters.clear.unwrap_or_default()
    }

    /// Returns whether packets are merged: if requested, or by default with an engine that can and
    /// user-space timestamps.
    pub fn merges(&self) -> bool {
        let RelayParameters { engine, stamps, .. } = self.parameters;
        self.merge.unwrap_or(engine.can_merge() && stamps == Stamps::User)
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

/// Maximum number of clear bytes: a UDP payload over IPv4.
const MAX_CLEAR_LEN: u16 = 65_507;

/// The text is not a number of clear bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a number of bytes from 0 to {MAX_CLEAR_LEN}, like 12, 16, 76 or 108; or auto")]
pub struct ClearPrefixError;

impl FromStr for ClearPrefix {
    type Err = ClearPrefixError;

    /// Reads `auto`, or a number of bytes with or without its unit.
    fn from_str(text: &str) -> Result<Self, ClearPrefixError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let bytes = text.strip_suffix('B').unwrap_or(text).parse().ok();
        let bytes = bytes.filter(|bytes| *bytes <= MAX_CLEAR_LEN);
        bytes.map(Self::Bytes).ok_or(ClearPrefixError)
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

impl RelayEngine {
    /// Whether it can encrypt and decrypt payloads.
    pub const fn can_encrypt(self) -> bool {
        match self {
            Self::Socket | Self::Batch => true,
            Self::Xdp => false,
        }
    }

    /// Whether it can pass several packets to the kernel as one message.
    pub const fn can_merge(self) -> bool {
        match self {
            Self::Batch => true,
            Self::Socket | Self::Xdp => false,
        }
    }
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

/// The text is not a deliberate delay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoldError {
    /// The location is missing or unknown.
    #[error("where and for how long, like program:200us or socket:2ms")]
    Location,
    /// The time is invalid.
    #[error(transparent)]
    Time(#[from] UnitError),
}

impl FromStr for Hold {
    type Err = HoldError;

    fn from_str(text: &str) -> Result<Self, HoldError> {
        let (at, time) = text.split_once(':').ok_or(HoldError::Location)?;
        let at = match at {
            "program" => HoldAt::Program,
            "socket" => HoldAt::Socket,
            _ => return Err(HoldError::Location),
        };
        Ok(Self { at, time: time.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_relay_value_error_names_the_correction() {
        let clear = |text: &str| text.parse::<ClearPrefix>();
        assert_eq!(clear("auto"), Ok(ClearPrefix::Auto));
        assert_eq!(
            (clear("108"), clear("12B")),
            (Ok(ClearPrefix::Bytes(108)), Ok(ClearPrefix::Bytes(12)))
        );
        assert!(clear("70000").unwrap_err().to_string().contains("from 0 to 65507"));
        let hold = |text: &str| text.parse::<Hold>();
        let held = hold("socket:2ms").unwrap();
        assert_eq!((held.at, held.time), (HoldAt::Socket, Nanos::from_millis(2)));
        assert!(hold("200us").unwrap_err().to_string().contains("program:200us"));
        assert!(hold("program:200").is_err(), "a unit is required");
    }
}
