//! Schedules: what a node measures, as a hub sends it, and the local limits of the node.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use dwell_units::{Bytes, Nanos, PacketRate};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::name::Name;

/// Maximum length of a schedule as JSON in bytes.
pub const MAX_SCHEDULE_LEN: usize = 1 << 20;

/// Maximum number of entries of a schedule.
const MAX_ENTRIES: usize = 1_000;

/// Shortest interval between the probes of an entry.
const MIN_INTERVAL: Nanos = Nanos::from_millis(1);

/// Longest interval between the probes of an entry.
const MAX_INTERVAL: Nanos = Nanos::from_secs(3_600);

/// Longest time-out.
const MAX_TIMEOUT: Nanos = Nanos::from_secs(60);

/// Default time-out.
const DEFAULT_TIMEOUT: Nanos = Nanos::from_secs(1);

/// Payload that is assumed where the size of the protocol's own message applies: the longest of those
/// without a key, that of STAMP with the clock's TLV.
pub const ASSUMED_PAYLOAD: Bytes = Bytes(76);

/// Length of the longest headers of a probe: IPv6, and TCP with timestamps.
pub const HEADERS_LEN: u64 = 72;

/// Nanoseconds of a day.
const DAY_NS: i64 = 86_400_000_000_000;

/// What a node measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSchedule {
    /// Number that the hub gave to the applied schedule, from 1.
    pub version: u64,
    /// The node. Another node refuses the schedule.
    pub node: Name,
    /// Streams to send.
    #[serde(default)]
    pub entries: Vec<ScheduleEntry>,
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleEntry {
    /// Name, unique in the schedule.
    pub name: Name,
    /// Node that reflects the probes.
    pub reflector: Name,
    /// Target, as a URL: `stamp://192.0.2.7`.
    pub target: String,
    /// Time between probes, 1 ms to 1 h. The phase is random.
    pub interval: Nanos,
    /// Payload size; `None` is that of the protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// Time after which a reply is late, at most 60 s [default: 1s].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Nanos>,
    /// TTL or hop limit of probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u8>,
    /// DSCP of probes, 0 to 63.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    /// Times of day (UTC) at which probes are sent; none: always.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<DailyWindow>,
    /// Keep samples in the spool.
    #[serde(default = "yes")]
    pub samples: bool,
}

const fn yes() -> bool {
    true
}

/// A schedule that cannot be used at all.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum ScheduleError {
    #[error("invalid schedule: longer than 1 MiB")]
    TooLong,
    #[error("invalid schedule: {0}")]
    Malformed(String),
    #[error("the schedule is for node {for_node}, this is {node}")]
    OtherNode { node: Name, for_node: Name },
    #[error("invalid schedule: {0} entries; at most {MAX_ENTRIES}")]
    TooManyEntries(usize),
    #[error("invalid schedule: two entries are named {0}")]
    DuplicateEntry(String),
    #[error("invalid schedule: entry {entry}: {field} {value}: {right}")]
    Field { entry: Name, field: &'static str, value: String, right: &'static str },
}

/// An entry that a local limit refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Name of the entry.
    pub entry: Name,
    /// The limit and the value that exceeds it, for a person.
    pub limit: String,
}

/// Limits of a node, which no schedule can exceed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LocalLimits {
    /// Maximum rate of probes of all entries together; `None`: unlimited.
    pub packets: Option<PacketRate>,
    /// Maximum bytes of IP packets per day, probes and replies of all entries together; `None`:
    /// unlimited.
    pub bytes_per_day: Option<Bytes>,
    /// Networks that targets must be in; none: any.
    pub targets: Vec<Prefix>,
}

/// Addresses with a common prefix, like `192.0.2.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

/// Times of day in UTC, like `22:00-06:00`: from the first, included, to the second, which may be on
/// the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct DailyWindow {
    from_minute: u16,
    to_minute: u16,
}

impl NodeSchedule {
    /// Reads a schedule from JSON.
    ///
    /// # Errors
    /// [`ScheduleError`]; every value is in its range otherwise.
    pub fn from_json(json: &[u8]) -> Result<Self, ScheduleError> {
        if json.len() > MAX_SCHEDULE_LEN {
            return Err(ScheduleError::TooLong);
        }
        let schedule: Self = serde_json::from_slice(json)
            .map_err(|error| ScheduleError::Malformed(error.to_string()))?;
        schedule.check()?;
        Ok(schedule)
    }

    /// The schedule as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a schedule has no map with other keys than text")
    }

    /// Checks the values of all entries.
    ///
    /// # Errors
    /// The first value outside its range.
    pub fn check(&self) -> Result<(), ScheduleError> {
        if self.entries.len() > MAX_ENTRIES {
            return Err(ScheduleError::TooManyEntries(self.entries.len()));
        }
        let mut names: Vec<_> = self.entries.iter().map(|entry| entry.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ScheduleError::DuplicateEntry(twice[0].to_owned()));
        }
        self.entries.iter().try_for_each(ScheduleEntry::check)
    }

    /// The entries that local limits refuse. Entries are admitted in their order, as long as all
    /// admitted ones together respect the limits.
    pub fn refusals(&self, limits: &LocalLimits) -> Vec<Refusal> {
        let (mut millipps, mut bytes) = (0_u64, 0_u64);
        let mut refused = Vec::new();
        for entry in &self.entries {
            let with_entry = (
                millipps.saturating_add(entry.millipps()),
                bytes.saturating_add(entry.bytes_per_day().0),
            );
            match limits.fault(entry, with_entry) {
                Some(limit) => refused.push(Refusal { entry: entry.name.clone(), limit }),
                None => (millipps, bytes) = with_entry,
            }
        }
        refused
    }

    /// Rate of probes of all entries together, without windows.
    pub fn packet_rate(&self) -> PacketRate {
        let all = self.entries.iter().map(ScheduleEntry::millipps);
        PacketRate::from_millipps(all.fold(0, u64::saturating_add))
    }

    /// Bytes of IP packets per day, probes and replies of all entries together.
    pub fn bytes_per_day(&self) -> Bytes {
        let all = self.entries.iter().map(|entry| entry.bytes_per_day().0);
        Bytes(all.fold(0, u64::saturating_add))
    }
}

impl ScheduleEntry {
    /// Time after which a reply is late.
    pub fn timeout(&self) -> Nanos {
        self.timeout.unwrap_or(DEFAULT_TIMEOUT)
    }

    /// Scheme of the target; STAMP if it names none.
    pub fn scheme(&self) -> &str {
        self.target.split_once("://").map_or("stamp", |(scheme, _)| scheme)
    }

    /// Address of the target; `None` if it is a name.
    pub fn address(&self) -> Option<IpAddr> {
        let rest = self.target.split_once("://").map_or(&*self.target, |(_, rest)| rest);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if let Some(bracketed) = rest.strip_prefix('[') {
            return bracketed.split_once(']')?.0.parse().ok();
        }
        let host = rest.split_once(':').map_or(rest, |(host, _)| host);
        host.parse().or_else(|_| rest.parse()).ok()
    }

    /// Whether probes are sent at this time on CLOCK_REALTIME.
    pub fn is_active(&self, wall_ns: i64) -> bool {
        self.windows.is_empty() || self.windows.iter().any(|window| window.contains(wall_ns))
    }

    /// Rate of probes while they are sent.
    pub fn packet_rate(&self) -> PacketRate {
        PacketRate::from_millipps(self.millipps())
    }

    fn millipps(&self) -> u64 {
        1_000_000_000_000_u64.div_ceil(self.interval.0.max(1) as u64)
    }

    /// Bytes of IP packets per day: probes, and replies as long as probes.
    pub fn bytes_per_day(&self) -> Bytes {
        let minutes = match self.windows.is_empty() {
            true => 1_440,
            false => {
                let sum: u64 = self.windows.iter().map(DailyWindow::minutes).sum();
                sum.min(1_440)
            }
        };
        let probes = minutes * 60_000_000_000 / self.interval.0.max(1) as u64;
        Bytes(probes.saturating_mul(self.bytes_per_probe()))
    }

    /// Bytes of the IP packets of a probe and its reply, at their longest.
    pub fn bytes_per_probe(&self) -> u64 {
        let len = self.size.unwrap_or(ASSUMED_PAYLOAD).0.saturating_add(HEADERS_LEN);
        len.saturating_mul(2)
    }

    fn check(&self) -> Result<(), ScheduleError> {
        let wrong = |field, value: &dyn fmt::Display, right| ScheduleError::Field {
            entry: self.name.clone(),
            field,
            value: value.to_string(),
            right,
        };
        if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&self.interval) {
            return Err(wrong("interval", &self.interval, "1ms to 1h"));
        }
        let timeout = self.timeout();
        if timeout <= Nanos::ZERO || timeout > MAX_TIMEOUT {
            return Err(wrong("timeout", &timeout, "above 0, at most 60s"));
        }
        if self.target.is_empty() || self.target.len() > 300 {
            return Err(wrong("target", &self.target.len(), "a URL of at most 300 bytes"));
        }
        if self.scheme().parse::<Name>().is_err() {
            return Err(wrong("target", &"scheme", "a URL, like stamp://192.0.2.7"));
        }
        if let Some(size) = self.size.filter(|size| size.0 > 65_535) {
            return Err(wrong("size", &size, "at most 65535B"));
        }
        if let Some(ttl) = self.ttl.filter(|ttl| *ttl == 0) {
            return Err(wrong("ttl", &ttl, "1 to 255"));
        }
        match self.dscp.filter(|dscp| *dscp > 63) {
            Some(dscp) => Err(wrong("dscp", &dscp, "0 to 63")),
            None => Ok(()),
        }
    }
}

impl LocalLimits {
    /// Whether probes may be sent to an address.
    pub fn allows(&self, address: IpAddr) -> bool {
        self.targets.is_empty() || self.targets.iter().any(|prefix| prefix.contains(address))
    }

    /// The limit that an entry exceeds, given the sums of rate and bytes that include it.
    fn fault(&self, entry: &ScheduleEntry, (millipps, bytes): (u64, u64)) -> Option<String> {
        if let Some(address) = entry.address().filter(|address| !self.allows(*address)) {
            return Some(format!("targets: {address} is in none of the allowed networks"));
        }
        let rate = PacketRate::from_millipps(millipps);
        if let Some(limit) = self.packets.filter(|limit| rate > *limit) {
            return Some(format!("packets: {rate} with this entry, at most {limit}"));
        }
        let limit = self.bytes_per_day.filter(|limit| bytes > limit.0)?;
        Some(format!("bytes_per_day: {} with this entry, at most {limit}", Bytes(bytes)))
    }
}

impl Prefix {
    /// Whether an address has the prefix. An IPv4 address mapped to IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(prefix), IpAddr::V4(address)) => {
                shifted(prefix.to_bits().into(), 32, self.len)
                    == shifted(address.to_bits().into(), 32, self.len)
            }
            (IpAddr::V6(prefix), IpAddr::V6(address)) => {
                shifted(prefix.to_bits(), 128, self.len)
                    == shifted(address.to_bits(), 128, self.len)
            }
            _ => false,
        }
    }
}

/// The first `len` of `width` bits.
fn shifted(bits: u128, width: u8, len: u8) -> u128 {
    bits.checked_shr(u32::from(width - len)).unwrap_or(0)
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            let text: String = text.chars().take(64).collect();
            format!("'{text}' is not a network; write it like 192.0.2.0/24 or 2001:db8::/32")
        };
        let (address, len) = text.split_once('/').map_or((text, None), |(a, len)| (a, Some(len)));
        let address: IpAddr = address.parse().map_err(|_| refused())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let len = match len {
            None => width,
            Some(len) => len.parse().ok().filter(|len| *len <= width).ok_or_else(refused)?,
        };
        Ok(Self { address, len })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl DailyWindow {
    fn contains(&self, wall_ns: i64) -> bool {
        let minute = (wall_ns.rem_euclid(DAY_NS) / 60_000_000_000) as u16;
        match self.from_minute < self.to_minute {
            true => (self.from_minute..self.to_minute).contains(&minute),
            false => minute >= self.from_minute || minute < self.to_minute,
        }
    }

    fn minutes(&self) -> u64 {
        let (from, to) = (u64::from(self.from_minute), u64::from(self.to_minute));
        if from < to { to - from } else { 1_440 - from + to }
    }
}

impl FromStr for DailyWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let minute = |text: &str| {
            let (hour, minute) = text.split_once(':')?;
            let digits = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
            let is_form = digits(hour) && digits(minute);
            let (hour, minute) = (hour.parse::<u16>().ok()?, minute.parse::<u16>().ok()?);
            (is_form && minute < 60 && (hour < 24 || hour == 24 && minute == 0))
                .then_some(hour * 60 + minute)
        };
        let both = text.split_once('-').and_then(|(from, to)| minute(from).zip(minute(to)));
        let both = both.filter(|(from, to)| from != to && *from < 1_440);
        both.map(|(from_minute, to_minute)| Self { from_minute, to_minute }).ok_or_else(|| {
            let text: String = text.chars().take(64).collect();
            format!("'{text}' is not a time of day; write it like 08:00-18:00 (UTC)")
        })
    }
}

impl fmt::Display for DailyWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from_minute: from, to_minute: to } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

macro_rules! text_in_serde {
    ($($type:ty),+) => {$(
        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }

        impl TryFrom<String> for $type {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
    )+};
}

text_in_serde!(Prefix, DailyWindow);

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(entries: &str) -> Result<NodeSchedule, ScheduleError> {
        let json = format!(r#"{{"version":4,"node":"n1","entries":[{entries}]}}"#);
        NodeSchedule::from_json(json.as_bytes())
    }

    fn entry(name: &str, target: &str, interval: &str) -> String {
        format!(
            r#"{{"name":"{name}","reflector":"n2","target":"{target}","interval":"{interval}"}}"#
        )
    }

    #[test]
    fn schedule_survives_its_text() {
        let text = r#"{"name":"a","reflector":"n2","target":"udp://n2:7","interval":"10ms",
            "size":"64B","timeout":"2s","ttl":64,"dscp":46,"windows":["22:00-06:00"],"samples":false}"#;
        let schedule = schedule(&[text, &entry("b", "n3", "1s")].join(",")).unwrap();
        assert_eq!(NodeSchedule::from_json(schedule.to_json().as_bytes()), Ok(schedule.clone()));
        let [first, second] = &schedule.entries[..] else { panic!() };
        assert_eq!((first.scheme(), second.scheme()), ("udp", "stamp"));
        assert!(!first.samples && second.samples);
        assert_eq!(second.timeout(), Nanos::from_secs(1));
    }

    #[test]
    fn values_outside_their_range_are_named() {
        for (wrong, text) in [
            (entry("a", "n2", "0.5ms"), "entry a: interval 500us: 1ms to 1h"),
            (entry("a", "", "1s"), "entry a: target 0"),
            (entry("a", "n2", "1s").replace('}', r#","ttl":0}"#), "entry a: ttl 0: 1 to 255"),
            (entry("a", "n2", "1s").replace('}', r#","dscp":64}"#), "entry a: dscp 64"),
            (entry("a", "n2", "1s").replace('}', r#","timeout":"61s"}"#), "entry a: timeout 61s"),
            (entry("a", "n2", "1s").replace('}', r#","burst":3}"#), "unknown field `burst`"),
            (entry("a/b", "n2", "1s"), "invalid name 'a/b'"),
            ([entry("a", "n2", "1s"), entry("a", "n3", "1s")].join(","), "two entries are named a"),
        ] {
            let error = schedule(&wrong).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        let long = vec![b' '; MAX_SCHEDULE_LEN + 1];
        assert_eq!(NodeSchedule::from_json(&long), Err(ScheduleError::TooLong));
    }

    #[test]
    fn entries_beyond_a_local_limit_are_refused_and_others_are_not() {
        let entries = [
            entry("fast", "192.0.2.1", "10ms"),
            entry("slow", "stamp://[2001:db8::1]:862", "1s"),
            entry("far", "stamp://203.0.113.9:862", "1s"),
        ];
        let schedule = schedule(&entries.join(",")).unwrap();
        assert_eq!(schedule.packet_rate(), "102pps".parse().unwrap());
        assert_eq!(schedule.bytes_per_day(), Bytes(2 * 148 * 86_400 * 102));
        let refused = |limits: LocalLimits| {
            let refusals = schedule.refusals(&limits).into_iter();
            refusals.map(|r| format!("{} {}", r.entry, r.limit)).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(refused(LocalLimits::default()), "");
        let limits = LocalLimits { packets: "50pps".parse().ok(), ..LocalLimits::default() };
        assert_eq!(refused(limits), "fast packets: 100pps with this entry, at most 50pps");
        let bytes_per_day = Some(Bytes(2 * 148 * 86_400 * 101));
        let limits = LocalLimits { bytes_per_day, ..LocalLimits::default() };
        assert!(refused(limits).starts_with("far bytes_per_day: "));
        let targets = vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        let limits = LocalLimits { targets, ..LocalLimits::default() };
        assert!(refused(limits.clone()).starts_with("far targets: 203.0.113.9 is in none"));
        assert!(limits.allows("::ffff:192.0.2.7".parse().unwrap()), "a mapped address");
    }

    #[test]
    fn prefixes_compare_whole_bits() {
        let contains = |prefix: &str, address: &str| {
            prefix.parse::<Prefix>().unwrap().contains(address.parse().unwrap())
        };
        assert!(contains("10.0.0.0/9", "10.127.255.255") && !contains("10.0.0.0/9", "10.128.0.0"));
        assert!(contains("0.0.0.0/0", "203.0.113.1") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("::/0", "2001:db8::1") && contains("192.0.2.1", "192.0.2.1"));
        for text in ["192.0.2.0/33", "::/129", "n1", "192.0.2.0/", "192.0.2.0/-1", ""] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn window_may_pass_midnight() {
        let at = |hour: i64, minute: i64| (hour * 60 + minute) * 60_000_000_000;
        let entry = |window: &str| {
            let window = format!(r#","windows":["{window}"]}}"#);
            let entry = self::entry("a", "n2", "1s").replace('}', &window);
            schedule(&entry).map(|mut schedule| schedule.entries.remove(0))
        };
        let night = entry("22:00-06:00").unwrap();
        for (hour, minute, active) in [(21, 59, false), (22, 0, true), (5, 59, true), (6, 0, false)]
        {
            assert_eq!(night.is_active(at(hour, minute)), active, "{hour}:{minute}");
            assert_eq!(night.is_active(at(hour, minute) - 7 * DAY_NS), active, "before 1970");
        }
        assert_eq!(night.bytes_per_day(), Bytes(8 * 3_600 * 148 * 2));
        assert!(entry("18:00-24:00").unwrap().is_active(at(23, 59)));
        for text in ["24:00-06:00", "6:00-08:00", "08:00", "08:00-08:00", "08:60-09:00"] {
            assert!(entry(text).is_err(), "{text}");
        }
    }
}
