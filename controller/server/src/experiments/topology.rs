//! The nodes and links of a plan, what each node does, and how the nodes are connected: what a drawing
//! of the plan shows.

use std::collections::BTreeMap;

use dwell_plan::{LabSpec, LinkPlan, Measurement, Plan, Routing, Source, Topology};
use toml::Value;

/// Topology of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlanTopology {
    /// Nodes, in the order of the path of the packets.
    pub(crate) nodes: Vec<PlanNode>,
    /// How they are connected.
    pub(crate) network: Network,
    /// Settings of every emulated link, such as `100Mbit/s`; empty for devices and plain links.
    pub(crate) link: String,
    /// The measured packets.
    pub(crate) measured: Path,
    /// Further packets, of loads.
    pub(crate) loads: Vec<Path>,
}

/// A node of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlanNode {
    /// Name in the plan.
    pub(crate) name: String,
    /// The device that it is bound to.
    pub(crate) device: Option<String>,
    /// What it does, such as `sends probes`.
    pub(crate) tasks: Vec<String>,
}

/// Packets from one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// What they are.
    pub(crate) label: String,
    /// Name of the sender.
    pub(crate) from: String,
    /// Name of the receiver.
    pub(crate) to: String,
    /// Whether replies come back.
    pub(crate) has_replies: bool,
}

/// How nodes are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// Each with the next.
    Line,
    /// All with the first.
    Star,
    /// One bridge, filtered so that each reaches the next only.
    FilteredBridge,
    /// Simulated radios, filtered so that each reaches the next only.
    Radios,
    /// A network of devices, which the plan does not describe.
    Devices,
}

impl Network {
    /// Name for people.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Line => "nodes in a line",
            Self::Star => "nodes around the first",
            Self::FilteredBridge => "nodes on one bridge, filtered into a line",
            Self::Radios => "simulated radios, filtered into a line",
            Self::Devices => "devices in their own network",
        }
    }
}

/// Returns the topology of a plan with its settings (`PATH=VALUE`) and devices by role; `None` if the
/// plan has a mistake, or its nodes are in another file.
pub(crate) fn plan_topology(
    text: &str,
    settings: &[String],
    on: &BTreeMap<String, String>,
) -> Option<PlanTopology> {
    let mut source = Source::parse(text).ok()?;
    settings.iter().try_for_each(|setting| source.set(setting)).ok()?;
    let plan = Plan::read(&source).ok()?;
    let network = match &plan.topology {
        Topology::Devices(_) => Network::Devices,
        Topology::Lab(lab) => match lab.lab {
            LabSpec::Line(_) => Network::Line,
            LabSpec::Star(_) => Network::Star,
            LabSpec::Forced(_) => Network::FilteredBridge,
            LabSpec::Wifi(_) => Network::Radios,
            LabSpec::File(_) => return None,
        },
    };
    let measured = measured(&plan);
    let mut names = plan.topology.node_names()?;
    if network == Network::Devices {
        // Roles have no order of their own.
        let relay = plan.measurement.flow().and_then(|flow| flow.relay.as_ref());
        let path = [Some(&measured.from), relay.map(|relay| &relay.on), Some(&measured.to)];
        let place =
            |name: &String| path.iter().position(|one| *one == Some(name)).unwrap_or(path.len());
        names.sort_by_key(place);
    }
    let tasks = tasks(&plan, &measured);
    let nodes = names.into_iter().map(|name| PlanNode {
        device: on.get(&name).cloned(),
        tasks: tasks.get(&name).cloned().unwrap_or_default(),
        name,
    });
    let link = match &plan.topology {
        Topology::Lab(lab) => link_text(&lab.link, lab.routing, &plan),
        Topology::Devices(_) => String::new(),
    };
    Some(PlanTopology { nodes: nodes.collect(), network, link, loads: loads(&plan), measured })
}

fn measured(plan: &Plan) -> Path {
    let path = |label: String, from: &String, to: &String, has_replies| Path {
        label,
        from: from.clone(),
        to: to.clone(),
        has_replies,
    };
    match &plan.measurement {
        Measurement::Ping(ping) => {
            path(format!("round trips, {}", ping.protocol.name()), &ping.from, &ping.to, true)
        }
        Measurement::Flow(flow) => path("one-way packets".to_owned(), &flow.from, &flow.to, false),
        Measurement::Pace(pace) => path("packet trains".to_owned(), &pace.from, &pace.to, false),
    }
}

/// What each node does, by name.
fn tasks(plan: &Plan, measured: &Path) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut add = |node: &String, task: String| all.entry(node.clone()).or_default().push(task);
    let (sends, receives) = match plan.measurement {
        Measurement::Ping(_) => ("sends probes", "reflects probes"),
        Measurement::Flow(_) => ("sends packets", "receives packets"),
        Measurement::Pace(_) => ("sends trains", "receives trains"),
    };
    add(&measured.from, sends.to_owned());
    if let Some(relay) = plan.measurement.flow().and_then(|flow| flow.relay.as_ref()) {
        let modes = axis(plan, &["relay", "relay.mode"]);
        let modes = modes.unwrap_or_else(|| relay.mode.name().to_owned());
        add(&relay.on, format!("relays: {modes}"));
    }
    add(&measured.to, receives.to_owned());
    for (name, load) in &plan.loads {
        for cpu in &load.cpu {
            add(&cpu.on, format!("{name}: CPU {}", cpu.level));
        }
    }
    all
}

/// Traffic of loads.
fn loads(plan: &Plan) -> Vec<Path> {
    let traffic = plan.loads.iter().flat_map(|(name, load)| {
        load.traffic.iter().map(move |traffic| Path {
            label: match &traffic.rate {
                Some(rate) => format!("{name}: {rate}"),
                None => name.clone(),
            },
            from: traffic.from.clone(),
            to: traffic.to.clone(),
            has_replies: false,
        })
    });
    traffic.collect()
}

/// The values of an axis of the matrix, by one of its names.
fn axis(plan: &Plan, names: &[&str]) -> Option<String> {
    let values = names.iter().find_map(|name| plan.matrix.get(*name))?.as_array()?;
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Some(values.iter().map(text).collect::<Vec<_>>().join(" or "))
}

/// Settings of the links. Those that an axis varies have its values.
fn link_text(link: &LinkPlan, routing: Routing, plan: &Plan) -> String {
    let varied = |field: &str| axis(plan, &[&format!("topology.link.{field}")]);
    let part = |field: &str, label: &str, value: Option<String>| {
        let value = varied(field).or(value)?;
        Some(if label.is_empty() { value } else { format!("{label} {value}") })
    };
    let parts = [
        part("rate", "", link.rate.map(|rate| rate.to_string())),
        part("delay", "delay", link.delay.map(|delay| delay.to_string())),
        part("jitter", "jitter", link.jitter.map(|jitter| jitter.to_string())),
        part("loss", "loss", link.loss.map(|loss| loss.to_string())),
        part("duplicate", "duplicates", link.duplicate.map(|share| share.to_string())),
        part("reorder", "reordered", link.reorder.map(|share| share.to_string())),
        (routing == Routing::Babel).then(|| "routes by babeld".to_owned()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, on: &[(&str, &str)]) -> Option<PlanTopology> {
        let on = on.iter().map(|(role, device)| ((*role).to_owned(), (*device).to_owned()));
        plan_topology(text, &[], &on.collect())
    }

    #[test]
    fn relay_plan_has_its_path_modes_and_loads() {
        let text = include_str!("../../../../plans/relay-delay-short.toml");
        let topology = read(text, &[]).unwrap();
        let names: Vec<&str> = topology.nodes.iter().map(|node| &*node.name).collect();
        assert_eq!((names, topology.network), (vec!["n1", "n2", "n3"], Network::Line));
        assert_eq!(topology.nodes[0].tasks, ["sends packets"]);
        let relay = ["relays: route or translate or encrypt", "half: CPU 50%", "most: CPU 90%"];
        assert_eq!(topology.nodes[1].tasks, relay);
        assert_eq!(topology.link, "none or 65Mbit/s");
    }

    #[test]
    fn quick_plan_has_the_traffic_of_its_load() {
        let topology = read(include_str!("../../../../plans/quick.toml"), &[]).unwrap();
        assert_eq!(topology.measured.label, "round trips, roundtrip");
        let loads: Vec<_> =
            topology.loads.iter().map(|it| (&*it.from, &*it.to, &*it.label)).collect();
        assert_eq!(loads, [("n1", "n2", "network: 80Mbit/s"), ("n2", "n1", "network: 80Mbit/s")]);
        assert_eq!(topology.link, "100Mbit/s");
    }

    #[test]
    fn roles_follow_the_path_and_have_devices() {
        let text = include_str!("../../../../plans/two-devices.toml")
            .replace("[\"sender\", \"receiver\"]", "[\"receiver\", \"sender\"]");
        let topology = read(&text, &[("sender", "pi4")]).unwrap();
        let nodes = topology.nodes.iter().map(|node| (&*node.name, node.device.as_deref()));
        assert_eq!(nodes.collect::<Vec<_>>(), [("sender", Some("pi4")), ("receiver", None)]);
        assert_eq!(topology.network, Network::Devices);
    }

    #[test]
    fn plan_with_a_mistake_or_a_lab_file_has_no_topology() {
        assert_eq!(read("version = 1\nname = ", &[]), None);
        assert_eq!(read("version = 1\nname = \"x\"\n[topology]\nlab = \"a.toml\"\n", &[]), None);
    }
}
