//! Plan tables of one-way measurements: `[flow]` for the packets, `[relay]` for the node between
//! and `[trace]` for kernel hooks.

use dwell_units::{Bytes, Nanos, PacketRate, Rate};
use serde::{Deserialize, Deserializer, de};
use toml::Table;

use crate::error::PlanError;
use crate::plan::Plan;
use crate::source::Source;
use dwell_protocol::{
    Cipher, ClearPrefix, FlowParameters, IdFormat, KeySource, RelayMode, RelayParameters,
    TraceHook, TrafficHeader,
};

/// Default port of receivers and relays: iperf's port.
const DEFAULT_PORT: u16 = 5_001;

/// Maximum UDP payload.
const MAX_UDP_PAYLOAD: u64 = 65_507;

/// Minimum payload of a flow's packet: the header with its id.
const MIN_PAYLOAD: u64 = 16;

/// Measurement of every trial: one-way packets, timestamped at every machine on their path. The
/// fields that only plans have, and the shared options.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowPlan {
    /// Node that sends.
    pub from: String,
    /// Node that receives.
    pub to: String,
    /// Send rate: packets, or bits of payload (equation (1) of Miya 2020: packets x size x 8).
    pub rate: Rate,
    /// Warm-up packets, not counted.
    #[serde(default = "default_warm_up")]
    pub warm_up: u32,
    /// Port of the receiver and of the relay.
    #[serde(default = "port")]
    pub port: u16,
    /// Time to wait for packets in flight after the last one is sent.
    #[serde(default = "settle")]
    pub settle: Nanos,
    /// Busy-poll at both ends instead of sleeping.
    #[serde(default)]
    pub busy_poll: bool,
    /// Use IPv6.
    #[serde(default)]
    pub ipv6: bool,
    /// Options of the packets; their fields are in the same table.
    #[serde(skip)]
    pub parameters: FlowParameters,
    /// Relay between the ends.
    #[serde(skip)]
    pub relay: Option<RelayPlan>,
    /// Kernel hooks that timestamp the packets.
    #[serde(skip)]
    pub trace: TraceSetting,
}

/// The relay and its mode: the fields that only plans have, and the shared options.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayPlan {
    /// Node of the relay.
    pub on: String,
    /// How it forwards packets.
    pub mode: ForwardingMode,
    /// Busy-poll instead of sleeping.
    #[serde(default)]
    pub busy_poll: bool,
    /// Source of the key.
    #[serde(default = "default_key")]
    pub key: KeySource,
    /// Options of the relaying program; their fields are in the same table.
    #[serde(skip)]
    pub parameters: RelayParameters,
}

impl RelayPlan {
    /// Reads the table `[relay]`.
    pub(crate) fn read(source: &Source, table: Table) -> Result<Self, PlanError> {
        let (relay, parameters) = source.read_parts("relay", table)?;
        Ok(Self { parameters, ..relay })
    }

    /// Bytes at the start of a payload that stay unencrypted: by default the header that dwell
    /// sends.
    pub fn clear(&self) -> ClearPrefix {
        self.parameters.clear.unwrap_or(ClearPrefix::Bytes(HEADER_LEN))
    }

    /// Whether it encrypts or decrypts payloads.
    fn is_ciphering(&self) -> bool {
        matches!(self.mode, ForwardingMode::Encrypt | ForwardingMode::Decrypt)
    }
}

/// How a node forwards packets (Miya 2020, S0.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForwardingMode {
    /// Routed by the kernel, without a program.
    Route,
    /// A program rewrites addresses and ports.
    Translate,
    /// Like translate, with encryption of the payload.
    Encrypt,
    /// Like translate, with decryption of the payload.
    Decrypt,
}

impl ForwardingMode {
    /// Mode of the relaying program; `None` without one.
    pub const fn program(self) -> Option<RelayMode> {
        match self {
            Self::Route => None,
            Self::Translate => Some(RelayMode::Translate),
            Self::Encrypt => Some(RelayMode::Encrypt),
            Self::Decrypt => Some(RelayMode::Decrypt),
        }
    }

    /// Name in a plan.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Translate => "translate",
            Self::Encrypt => "encrypt",
            Self::Decrypt => "decrypt",
        }
    }
}

/// Kernel hooks that timestamp the packets of the flow.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracePlan {
    /// Nodes.
    pub on: Vec<String>,
    /// Hooks; empty means all.
    #[serde(default)]
    pub hooks: Vec<TraceHook>,
}

/// `[trace]` as written: a table, or `trace = false`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TraceSetting {
    /// On the relay's node, if permitted.
    #[default]
    AtRelay,
    /// Disabled.
    Off,
    /// On the nodes of the table.
    On(TracePlan),
}

impl<'de> Deserialize<'de> for TraceSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::Boolean(true) => Ok(Self::AtRelay),
            toml::Value::Boolean(false) => Ok(Self::Off),
            table => TracePlan::deserialize(table)
                .map(Self::On)
                .map_err(|error| de::Error::custom(error.message())),
        }
    }
}

/// Length of the header that dwell sends. In current iperf versions the upper half of the id
/// follows the first 12 bytes.
const HEADER_LEN: u16 = 16;

/// Bytes left unencrypted by Miya 2020 (S0.4): in iperf's header the lower half of the id and the
/// time.
const CLASSIC_HEADER_LEN: u16 = 12;

/// Default UDP payload.
const DEFAULT_SIZE: Bytes = Bytes(1_000);

const fn default_warm_up() -> u32 {
    5
}

const fn port() -> u16 {
    DEFAULT_PORT
}

const fn settle() -> Nanos {
    Nanos::from_millis(100)
}

const fn default_key() -> KeySource {
    KeySource::Random
}

impl FlowPlan {
    /// UDP payload before encryption by a relay.
    pub fn size(&self) -> Bytes {
        self.parameters.size.unwrap_or(DEFAULT_SIZE)
    }

    /// Header at the start of the payload.
    pub fn header(&self) -> TrafficHeader {
        self.parameters.header.unwrap_or(TrafficHeader::Iperf)
    }

    /// Packets per second; bits are payload bits, as in equation (1) of Miya 2020.
    pub fn packet_rate(&self) -> PacketRate {
        match self.rate {
            Rate::Packets(rate) => rate,
            Rate::Bits(rate) => {
                let bits = u128::from(self.size().0.max(1)) * 8;
                let millipps = u128::from(rate.0) * 1_000 / bits;
                PacketRate::from_millipps(u64::try_from(millipps).unwrap_or(u64::MAX))
            }
        }
    }

    /// Nodes on which the flow is traced.
    pub fn traced(&self) -> TracePlan {
        match (&self.trace, &self.relay) {
            (TraceSetting::On(trace), _) => trace.clone(),
            (TraceSetting::AtRelay, Some(relay)) => {
                TracePlan { on: vec![relay.on.clone()], hooks: Vec::new() }
            }
            (TraceSetting::Off, _) | (_, None) => TracePlan { on: Vec::new(), hooks: Vec::new() },
        }
    }

    /// Location of a packet id that is readable on the whole path. If a relay encrypts or decrypts
    /// after 12 bytes, only the lower half of iperf's id is readable.
    pub fn id_format(&self) -> IdFormat {
        match self.header() {
            TrafficHeader::Dwell => IdFormat::Dwell,
            TrafficHeader::Iperf if self.ciphers_before(HEADER_LEN) => IdFormat::IperfClassic,
            TrafficHeader::Iperf => IdFormat::Iperf,
        }
    }

    /// Returns whether a relay changes payload bytes below this offset.
    fn ciphers_before(&self, bytes: u16) -> bool {
        self.relay.as_ref().is_some_and(|relay| {
            relay.is_ciphering()
                && matches!(relay.clear(), ClearPrefix::Bytes(clear) if clear < bytes)
        })
    }

    /// Checks that apply only to the complete values of a cell.
    pub(crate) fn check_together(&self, source: &Source) -> Result<(), PlanError> {
        let Some(relay) = &self.relay else { return Ok(()) };
        let RelayParameters { engine, cipher, .. } = relay.parameters;
        if relay.is_ciphering() && !engine.can_encrypt() {
            let mode = relay.mode.name();
            return Err(source.error(
                "relay.engine",
                format!("'xdp' rewrites headers only and does not {mode}; use socket or batch"),
            ));
        }
        if relay.mode == ForwardingMode::Decrypt && cipher == Cipher::Aes128Gcm {
            return Err(source.error(
                "relay.cipher",
                "the sender does not encrypt, so a relay that decrypts aes-128-gcm would reject \
                 every packet; use mode encrypt or cipher aes-128-ctr",
            ));
        }
        Ok(())
    }

    pub(crate) fn check(&self, plan: &Plan, source: &Source) -> Result<(), PlanError> {
        plan.check_node(source, "flow.from", &self.from)?;
        plan.check_node(source, "flow.to", &self.to)?;
        if self.from == self.to {
            return Err(source.error("flow.to", format!("'{}' would send to itself", self.to)));
        }
        if !(MIN_PAYLOAD..=MAX_UDP_PAYLOAD).contains(&self.size().0) {
            return Err(
                source.error("flow.size", format!("must be {MIN_PAYLOAD}B to {MAX_UDP_PAYLOAD}B"))
            );
        }
        let FlowParameters { count, duration, .. } = self.parameters;
        if count == Some(0) {
            return Err(source.error("flow.count", "must be 1 or more"));
        }
        if count.is_none() && duration.is_none() {
            return Err(source.error("flow", "a trial needs an end: give count or duration"));
        }
        if duration.is_some_and(|time| time <= Nanos::ZERO) {
            return Err(source.error("flow.duration", "must be above 0"));
        }
        let (id_end, header) = match self.header() {
            TrafficHeader::Iperf => (CLASSIC_HEADER_LEN, "iperf"),
            TrafficHeader::Dwell => (HEADER_LEN, "dwell"),
        };
        if self.ciphers_before(id_end) {
            let message = format!(
                "the receiver and the kernel hooks identify packets with header {header} by their \
                 first {id_end} bytes; keep them clear"
            );
            return Err(source.error("relay.clear", message));
        }
        if self.packet_rate().gap().is_none() {
            return Err(source.error("flow.rate", "must be above 0"));
        }
        if self.port == 0 {
            return Err(source.error("flow.port", "must be 1 to 65535"));
        }
        if self.settle < Nanos::ZERO {
            return Err(source.error("flow.settle", "must be 0 or more"));
        }
        if let Some(relay) = &self.relay {
            plan.check_node(source, "relay.on", &relay.on)?;
            if relay.on == self.from || relay.on == self.to {
                let message = format!(
                    "'{}' is an end of the flow; the relay must be between its ends",
                    relay.on
                );
                return Err(source.error("relay.on", message));
            }
        }
        if let TraceSetting::On(trace) = &self.trace {
            for (n, node) in trace.on.iter().enumerate() {
                plan.check_node(source, &format!("trace.on[{n}]"), node)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"
version = 1
name = "relays"
topology = { lab = "line:3" }

[flow]
from = "n1"
to = "n3"
size = "500B"
rate = "200pps"
duration = "5s"

[relay]
on = "n2"
mode = "route"
"#;

    fn read(text: &str) -> Result<Plan, PlanError> {
        Plan::read(&Source::parse(text)?)
    }

    #[test]
    fn relay_node_is_traced_by_default() {
        let flow = |text: &str| read(text).unwrap().measurement.flow().unwrap().clone();
        assert_eq!(flow(PLAN).traced().on, ["n2"]);
        assert!(flow(&format!("trace = false\n{PLAN}")).traced().on.is_empty());
        let hooked = flow(&format!("{PLAN}[trace]\non = [\"n1\", \"n2\"]\nhooks = [\"tcx\"]\n"));
        assert_eq!((hooked.traced().on.len(), hooked.traced().hooks), (2, vec![TraceHook::Tcx]));
        let relay = hooked.relay.unwrap();
        assert_eq!((relay.mode.program(), relay.key), (None, KeySource::Random));
    }

    #[test]
    fn too_few_clear_bytes_for_the_header_are_refused() {
        let with = |header: &str, mode: &str, clear: &str| {
            let text = PLAN
                .replace("rate =", &format!("header = \"{header}\"\nrate ="))
                .replace("\"route\"", &format!("\"{mode}\"\nclear = {clear}"));
            let plan = read(&text)?;
            Ok::<_, PlanError>(plan.measurement.flow().unwrap().id_format())
        };
        for (header, mode, clear, id) in [
            ("iperf", "encrypt", "12", IdFormat::IperfClassic),
            ("iperf", "decrypt", "15", IdFormat::IperfClassic),
            ("iperf", "encrypt", "16", IdFormat::Iperf),
            ("iperf", "encrypt", "\"auto\"", IdFormat::Iperf),
            ("iperf", "translate", "0", IdFormat::Iperf),
            ("dwell", "encrypt", "16", IdFormat::Dwell),
        ] {
            assert_eq!(with(header, mode, clear).unwrap(), id, "{header} {mode} {clear}");
        }
        for (header, clear, words) in [("iperf", "11", "first 12"), ("dwell", "15", "first 16")] {
            let error = with(header, "encrypt", clear).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("clear"), "{error}");
        }
    }

    #[test]
    fn xdp_engine_with_encryption_is_refused_in_its_cells() {
        let refused = |text: &str| {
            let expansion = crate::expand(&Source::parse(text).unwrap(), 1).unwrap();
            crate::Estimate::of_all(&expansion).map(drop)
        };
        let fixed = PLAN.replace("\"route\"", "\"encrypt\"\nengine = \"xdp\"");
        let error = refused(&fixed).unwrap_err();
        let at = error.at.clone().unwrap();
        assert_eq!((at.line, at.column), (16, 10), "{error}");
        assert!(error.to_string().contains("does not encrypt; use socket or batch"), "{error}");
        let matrix = "[matrix]\nrelay = [\"translate\", \"decrypt\"]\n\
                      \"relay.engine\" = [\"socket\", \"xdp\"]\n";
        let error = refused(&format!("{PLAN}{matrix}")).unwrap_err();
        let at = error.at.clone().unwrap();
        assert_eq!((at.line, at.column), (18, 29), "{error}");
        assert!(error.to_string().contains("relay decrypt, relay.engine xdp"), "{error}");
        // A constraint can exclude the combination.
        let apart = "[[constraint]]\nwhen = { relay = \"decrypt\", \"relay.engine\" = \"xdp\" }\n\
                     drop = true\n";
        refused(&format!("{PLAN}{matrix}{apart}")).unwrap();
    }

    #[test]
    fn decryption_without_encryption_is_refused() {
        let check = |mode: &str, cipher: &str| {
            let relay = format!("\"{mode}\"\ncipher = \"{cipher}\"");
            let text = PLAN.replace("\"route\"", &relay);
            let expansion = crate::expand(&Source::parse(&text)?, 1)?;
            crate::Estimate::of_all(&expansion).map(drop)
        };
        for (mode, cipher) in
            [("encrypt", "aes-128-gcm"), ("encrypt", "aes-128-ctr"), ("decrypt", "aes-128-ctr")]
        {
            assert_eq!(check(mode, cipher).map_err(|error| error.to_string()), Ok(()));
        }
        let error = check("decrypt", "aes-128-gcm").unwrap_err();
        assert_eq!(error.at.as_ref().unwrap().line, 16, "{error}");
        assert!(error.to_string().contains("reject every packet"), "{error}");
        assert!(check("encrypt", "aes-256-gcm").is_err());
        let matrix = "[matrix]\n\"relay.cipher\" = [\"aes-128-ctr\", \"aes-128-gcm\"]\n";
        let text = format!("{PLAN}{matrix}").replace("\"route\"", "\"encrypt\"");
        let expansion = crate::expand(&Source::parse(&text).unwrap(), 1).unwrap();
        assert_eq!(expansion.cells().len(), 2, "the cipher is an axis");
    }

    #[test]
    fn flow_rate_in_bits_counts_payload() {
        let flow = read(PLAN).unwrap().measurement.flow().unwrap().clone();
        assert_eq!(flow.packet_rate().as_f64(), 200.0);
        // 200 packets/s x 500 B x 8.
        let plan = read(&PLAN.replace("200pps", "800kbit/s")).unwrap();
        let flow = plan.measurement.flow().unwrap();
        assert_eq!(flow.packet_rate().as_f64(), 200.0);
    }

    #[test]
    fn flow_error_has_line_and_valid_form() {
        for (from, to, line, words) in [
            ("to = \"n3\"", "to = \"n9\"", 8, "n1 to n3"),
            ("to = \"n3\"", "to = \"n1\"", 8, "itself"),
            ("\"500B\"", "\"3B\"", 9, "16B"),
            ("\"200pps\"", "\"0pps\"", 10, "above 0"),
            ("on = \"n2\"", "on = \"n3\"", 14, "between"),
            ("\"route\"", "\"bridge\"", 15, "route"),
            ("duration = \"5s\"", "", 6, "count or duration"),
            ("[flow]", "[ping]\nfrom = \"n1\"\nto = \"n2\"\ncount = 1\n[flow]", 10, "not both"),
        ] {
            assert!(PLAN.contains(from));
            let error = read(&PLAN.replacen(from, to, 1)).unwrap_err();
            let at = error.at.clone().unwrap_or_else(|| panic!("{to}: {error}"));
            assert_eq!(at.line, line, "{to}: {error}");
            assert!(error.to_string().contains(words), "{to}: {error}");
        }
        let without = PLAN.split("[flow]").next().unwrap();
        assert!(read(without).unwrap_err().to_string().contains("[ping], [flow] or [pace]"));
        let error = read(&format!("{PLAN}[trace]\non = [\"n2\"]\nhook = []\n")).unwrap_err();
        assert!(error.to_string().contains("hook"), "{error}");
    }
}
