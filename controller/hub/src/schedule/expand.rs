//! The streams of a schedule: who sends what to whom.

use std::collections::BTreeMap;
use std::net::IpAddr;

use dwell_plan::ProbeSize;
use dwell_rollup::{MAX_NAME_LEN, Name, NodeSchedule, ScheduleEntry};
use dwell_units::{Bytes, Nanos};

use super::error::ScheduleError;
use super::file::{Measure, Schedule};
use super::selection::{NodeNames, Selection};
use super::window::Window;

/// Maximum number of streams of a schedule.
const MAX_STREAMS: usize = 1_000_000;

/// A stream that a node sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Name of the stream: those of the measurement and the reflector, like `mesh+berlin`.
    pub name: Name,
    /// The node that reflects.
    pub reflector: Name,
    /// Protocol of the probes.
    pub protocol: String,
    /// Address of the reflector.
    pub address: IpAddr,
    /// Port of the reflector; `None` if the protocol has no ports.
    pub port: Option<u16>,
    /// Time between probes.
    pub interval: Nanos,
    /// Payload of a probe in bytes; `None`: the protocol's default.
    pub payload: Option<u64>,
    /// Length of the IP packet of a probe in bytes.
    pub ip_bytes: u64,
    /// Time after which a reply is late; `None`: the node's default.
    pub timeout: Option<Nanos>,
    /// Daily window in UTC.
    pub window: Option<Window>,
    /// Whether the sender keeps samples.
    pub samples: bool,
}

impl Entry {
    /// The target of the probes, as a URL.
    pub fn target(&self) -> String {
        let host = match self.address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{host}{port}", self.protocol)
    }

    fn of_node(&self) -> Result<ScheduleEntry, ScheduleError> {
        let windows = self.window.map(|window| window.to_string().parse()).transpose();
        let windows = windows.map_err(|error| ScheduleError::value(self.name.as_str(), error))?;
        Ok(ScheduleEntry {
            name: self.name.clone(),
            reflector: self.reflector.clone(),
            target: self.target(),
            interval: self.interval,
            size: self.payload.map(Bytes),
            timeout: self.timeout,
            ttl: None,
            dscp: None,
            windows: windows.into_iter().collect(),
            samples: self.samples,
        })
    }

    /// Probes per second while the stream is active.
    pub fn packets_per_second(&self) -> f64 {
        1e9 / self.interval.0 as f64
    }

    /// Seconds of a day in which the stream is active.
    pub fn seconds_per_day(&self) -> u32 {
        self.window.map_or(super::window::DAY_SECONDS, Window::seconds)
    }
}

/// The streams of all nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expansion {
    /// The streams that each node sends, by its name. Every node that sends or reflects has an entry.
    pub nodes: BTreeMap<Name, Vec<Entry>>,
}

impl Expansion {
    /// Returns the part of a node under this version, which the node reads. A node without streams has
    /// an empty part.
    ///
    /// # Errors
    /// A value is outside the range that nodes accept.
    pub fn part(&self, version: u64, node: &Name) -> Result<NodeSchedule, ScheduleError> {
        let entries = self.nodes.get(node).map(Vec::as_slice).unwrap_or_default();
        let schedule = NodeSchedule {
            version,
            node: node.clone(),
            entries: entries.iter().map(Entry::of_node).collect::<Result<_, _>>()?,
        };
        schedule
            .check()
            .map_err(|error| ScheduleError::value(format!("node {node}"), error.to_string()))?;
        Ok(schedule)
    }
}

/// Returns the streams of a schedule. `known` are the nodes with the addresses that probes are sent to;
/// the file may add nodes and addresses.
///
/// # Errors
/// A name is unknown, a reflector has no address, or a protocol does not allow a size or port.
pub fn expand(
    schedule: &Schedule,
    known: &BTreeMap<Name, Option<IpAddr>>,
) -> Result<Expansion, ScheduleError> {
    let mut addresses = known.clone();
    for (name, settings) in &schedule.nodes {
        let node: Name =
            name.parse().map_err(|error| ScheduleError::value("nodes", format!("{error}")))?;
        let address = addresses.entry(node).or_default();
        *address = settings.address.or(*address);
    }
    for group in schedule.groups.keys() {
        if addresses.keys().any(|node| node.as_str() == group) {
            let message =
                format!("'{group}' is the name of a node and of a group; rename the group");
            return Err(ScheduleError::value("groups", message));
        }
    }
    let nodes = addresses.keys().cloned().collect();
    let names = NodeNames { groups: &schedule.groups, nodes: &nodes };
    for (group, members) in &schedule.groups {
        let of = format!("groups.{group}");
        names.members(members).map_err(|message| ScheduleError::value(of, message))?;
    }
    let mut expansion = Expansion::default();
    let mut streams = 0_usize;
    for measure in &schedule.measure {
        let Measure { mesh, star, pairs, .. } = measure;
        let selected = Selection { mesh: mesh.as_ref(), star: star.as_ref(), pairs };
        let pairs = names.pairs(selected).map_err(|message| measure.error(message))?;
        streams = streams.saturating_add(pairs.len());
        if streams > MAX_STREAMS {
            return Err(measure.error(format!("the schedule has more than {MAX_STREAMS} streams")));
        }
        for (sender, reflector) in pairs {
            let entry = entry(measure, &reflector, &addresses)?;
            expansion.nodes.entry(reflector).or_default();
            expansion.nodes.entry(sender).or_default().push(entry);
        }
    }
    Ok(expansion)
}

fn entry(
    measure: &Measure,
    reflector: &Name,
    addresses: &BTreeMap<Name, Option<IpAddr>>,
) -> Result<Entry, ScheduleError> {
    let payload = measure.size.map(|size| size.0);
    let size = ProbeSize::of(&measure.protocol, payload).map_err(|error| measure.error(error))?;
    let port = match (measure.port, size.has_ports) {
        (Some(_), false) => {
            return Err(measure.error(format!("{} has no ports; remove port", measure.protocol)));
        }
        (port, true) => match port.or(size.default_port) {
            Some(port) => Some(port),
            None => return Err(measure.error(format!("{} needs a port", measure.protocol))),
        },
        (None, false) => None,
    };
    let Some(address) = addresses.get(reflector).copied().flatten() else {
        return Err(measure.error(format!(
            "node {reflector} has no address for probes; set it with `dwell device edit {reflector} \
             --address ADDRESS`, or as address in [nodes.{reflector}]"
        )));
    };
    // A node has one stream to each reflector, and its streams have different names.
    let name = format!("{}+{reflector}", measure.name);
    let name = name.parse().map_err(|_| {
        measure.error(format!(
            "the name '{name}' of a stream is longer than {MAX_NAME_LEN}; use a shorter one"
        ))
    })?;
    Ok(Entry {
        name,
        reflector: reflector.clone(),
        protocol: measure.protocol.clone(),
        address,
        port,
        interval: measure.interval(),
        payload,
        ip_bytes: size.ip_bytes(address.is_ipv6()),
        timeout: measure.timeout,
        window: measure.window,
        samples: measure.samples,
    })
}

#[cfg(test)]
mod tests {
    /// Local limits of a node count this size where an entry names none.
    #[test]
    fn no_default_probe_is_longer_than_nodes_assume() {
        for protocol in ["stamp", "icmp", "udp", "tcp", "roundtrip", "text+udp", "text+tcp"] {
            let size = super::ProbeSize::of(protocol, None).unwrap();
            let assumed = dwell_rollup::ASSUMED_PAYLOAD.0;
            assert!(size.payload <= assumed, "{protocol}: {} > {assumed}", size.payload);
            assert!(size.ip_bytes(true) <= assumed + dwell_rollup::HEADERS_LEN, "{protocol}");
        }
    }

    use super::*;

    fn known(names: &[&str]) -> BTreeMap<Name, Option<IpAddr>> {
        let numbered = (1..).zip(names);
        let address = |number: u8| Some(IpAddr::from([192, 0, 2, number]));
        numbered.map(|(number, name)| (name.parse().unwrap(), address(number))).collect()
    }

    fn streams(text: &str, names: &[&str]) -> Result<Vec<String>, ScheduleError> {
        let schedule = Schedule::parse(&format!("version = 1\n{text}"))?;
        let expansion = expand(&schedule, &known(names))?;
        let of = |(node, entries): (&Name, &Vec<Entry>)| {
            let stream = |entry: &Entry| format!("{node}>{} {}", entry.reflector, entry.target());
            entries.iter().map(stream).collect::<Vec<_>>()
        };
        Ok(expansion.nodes.iter().flat_map(of).collect())
    }

    #[test]
    fn mesh_has_every_ordered_pair() {
        let mesh = "[[measure]]\nname = \"m\"\nmesh = \"all\"\nport = 8620\n";
        assert_eq!(
            streams(mesh, &["a", "b", "c"]).unwrap(),
            [
                "a>b stamp://192.0.2.2:8620",
                "a>c stamp://192.0.2.3:8620",
                "b>a stamp://192.0.2.1:8620",
                "b>c stamp://192.0.2.3:8620",
                "c>a stamp://192.0.2.1:8620",
                "c>b stamp://192.0.2.2:8620",
            ]
        );
    }

    #[test]
    fn star_goes_one_way_unless_both() {
        let star = "[groups]\nedge = [\"b\", \"c\"]\n[[measure]]\nname = \"s\"\nprotocol = \"icmp\"\n\
                    star = { from = \"edge\", to = \"a\" }\n";
        let names = ["a", "b", "c"];
        assert_eq!(
            streams(star, &names).unwrap(),
            ["b>a icmp://192.0.2.1", "c>a icmp://192.0.2.1"]
        );
        let both = star.replace("\"a\" }", "\"a\", both = true }");
        assert_eq!(streams(&both, &names).unwrap().len(), 4);
    }

    #[test]
    fn address_of_the_file_wins() {
        let text = "[nodes.b]\naddress = \"2001:db8::7\"\n\
                    [[measure]]\nname = \"p\"\npairs = [\"a:b\"]\nprotocol = \"udp\"\nport = 7000\n";
        assert_eq!(streams(text, &["a", "b"]).unwrap(), ["a>b udp://[2001:db8::7]:7000"]);
    }

    #[test]
    fn part_of_a_node_is_what_the_node_reads() {
        let text = "version = 1\n[[measure]]\nname = \"m\"\nmesh = \"all\"\nport = 8620\nsize = \"64B\"\n\
                    window = \"22:00-06:00\"\n";
        let expansion = expand(&Schedule::parse(text).unwrap(), &known(&["a", "b", "c"])).unwrap();
        let part = expansion.part(7, &"a".parse().unwrap()).unwrap();
        assert_eq!(NodeSchedule::from_json(part.to_json().as_bytes()), Ok(part.clone()));
        let names: Vec<_> = part.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!((part.version, &names[..]), (7, &["m+b", "m+c"][..]));
        assert_eq!(part.entries[0].windows[0].to_string(), "22:00-06:00");
        assert!(part.entries[0].samples);
        assert_eq!(expansion.part(7, &"z".parse().unwrap()).unwrap().entries, []);
        let fast = text.replace("port", "interval = \"10us\"\nport");
        let expansion = expand(&Schedule::parse(&fast).unwrap(), &known(&["a", "b"])).unwrap();
        let error = expansion.part(1, &"a".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("node a: ") && error.contains("interval"), "{error}");
    }

    #[test]
    fn unknown_name_or_missing_address_is_refused() {
        let error = |text: &str| streams(text, &["a", "b"]).unwrap_err().to_string();
        let pair = |pair: &str, more: &str| {
            error(&format!("{more}[[measure]]\nname = \"p\"\npairs = [\"{pair}\"]\n"))
        };
        assert!(pair("a:c", "").contains("`dwell device add c`"));
        assert!(pair("a:a", "").contains("probe itself"));
        assert!(pair("a-b", "").contains("SENDER:REFLECTOR"));
        let nowhere = pair("a:n", "[nodes.n]\n");
        assert!(nowhere.contains("no address") && nowhere.contains("[nodes.n]"), "{nowhere}");
        assert!(pair("a:g", "[groups]\ng = [\"b\"]\n").contains("'g' is a group"));
        assert!(pair("a:b", "[groups]\na = [\"b\"]\n").contains("rename the group"));
        assert!(error("[groups]\ng = [\"x\"]\n").contains("groups.g: 'x' is no node"));
        let measure = |lines: &str| error(&format!("[[measure]]\nname = \"p\"\n{lines}\n"));
        assert!(measure("pairs = [\"a:b\"]\nprotocol = \"stomp\"").contains("unknown protocol"));
        let ports = measure("pairs = [\"a:b\"]\nprotocol = \"icmp\"\nport = 7");
        assert!(ports.contains("no ports"), "{ports}");
        assert!(measure("pairs = [\"a:b\"]\nsize = \"1B\"").contains("or more"));
        assert!(measure("mesh = \"a\"").contains("no pair of different nodes"));
    }
}
