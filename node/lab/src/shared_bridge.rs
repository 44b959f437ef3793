//! A forced line: all nodes share a bridge, on which every node would hear every other, and filters
//! on the bridge reduce that to the neighbours in the line (Miya 2020). The bridge acts as the radio
//! channel, so the filters are on it and not in the nodes, whose hooks stay free. Simulated radios
//! (`radio.rs`) use the same addresses, filters and routes.
//!
//! A frame is dropped at the egress of the port to a node that must not hear it, by the source's
//! hardware address. This includes address resolution and hellos.

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;

use dwell_io::netns;

use crate::addressing::{self, BRIDGE_V4_LEN, BRIDGE_V6_LEN, Hardware};
use crate::description::{Filter, Lab, Medium, Parameters, Port};
use crate::emulation::{self, MechanismChooser};
use crate::error::LabError;
use crate::iproute::Tool;
use crate::namespace::{self, netns_name, netns_path, not_entered};
use crate::routes::Neighbours;
use crate::state::Lock;
use crate::topology::{LinkOptions, Mechanism, Routing, Topology};

/// Name of the bridge, of its namespace, and of every node's interface on it. In a Wi-Fi lab it is
/// the name of the namespace in which the radios are created.
pub(crate) const NAME: &str = "air";

/// Plans the bridge.
pub(crate) fn plan(
    lab: &str,
    topology: &Topology,
    chooser: &mut MechanismChooser,
) -> Result<Medium, LabError> {
    let options = topology.links.first().map_or_else(LinkOptions::default, |e| e.options.clone());
    let mechanism = match chooser.mechanism(&options)? {
        Mechanism::Tap => {
            return Err(LabError::Unsupported(
                "a forced line is a bridge, and these parameters need netem, which this kernel does \
                 not have, or a TAP link, which cannot be a bridge; request only a rate, or use a line"
                    .to_owned(),
            ));
        }
        mechanism => mechanism,
    };
    Ok(Medium {
        netns: netns_name(lab, NAME),
        interface: NAME.to_owned(),
        filter: filter(chooser)?,
        mechanism,
        parameters: Parameters::new(&options.parameters(), options.seed),
        radio: None,
        ports: ports(topology),
    })
}

/// Returns what each node has on a shared medium.
pub(crate) fn ports(topology: &Topology) -> Vec<Port> {
    let neighbours = Neighbours::of(topology);
    let port = |(place, node): (usize, &String)| Port {
        node: node.clone(),
        address: addressing::on_bridge(place),
        hardware: addressing::bridge_hardware(place).to_string(),
        hears: neighbours.of_node(place).map(|other| topology.nodes[other].clone()).collect(),
    };
    topology.nodes.iter().enumerate().map(port).collect()
}

/// Returns the first filter that tc and the kernel accept.
pub(crate) fn filter(chooser: &mut MechanismChooser) -> Result<Filter, LabError> {
    for filter in [Filter::Bpf, Filter::Flower] {
        let lines = filter_lines(filter, "lo", "egress", &[0, 1]);
        if chooser.accepts(&lines)? {
            return Ok(filter);
        }
    }
    Err(LabError::Unsupported(
        "a forced line needs tc's bpf or flower classifier, and this kernel or its tc has neither; \
         load a module: modprobe cls_bpf"
            .to_owned(),
    ))
}

/// Creates the bridge, in a namespace that the lab's state lists already, and joins every node to
/// it.
pub(crate) fn make(lab: &Lab, medium: &Medium, lock: &Lock) -> Result<(), LabError> {
    let Medium { netns, interface, .. } = medium;
    let within = |work: &(dyn Fn() -> Result<(), LabError> + Sync)| {
        netns::within(&netns_path(netns), work).map_err(not_entered(&lab.name, netns))?
    };
    within(&|| {
        // The bridge itself must not send anything.
        for scope in ["all", "default"] {
            let path = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
            fs::write(&path, "1").map_err(LabError::io(format!("setting {path}")))?;
        }
        let mark = namespace::mark(&lab.name);
        let mut lines = format!(
            "link set dev lo up alias {mark}\n\
             link add name {interface} type bridge mcast_snooping 0 stp_state 0\n\
             link set dev {interface} up\n"
        );
        for port in &medium.ports {
            let Port { node, hardware, .. } = port;
            let theirs = netns_name(&lab.name, node);
            let _ = writeln!(
                lines,
                "link add name {node} type veth peer name {interface} address {hardware} netns {theirs}"
            );
            let _ = writeln!(lines, "link set dev {node} master {interface} up");
        }
        Tool::Ip.batch(&lines, Some(lock))?;
        let mut lines = String::new();
        for (place, port) in medium.ports.iter().enumerate() {
            lines += &filters(medium, place, &port.node, "egress");
        }
        Tool::Tc.batch(&lines, Some(lock))
    })
}

/// Returns the lines that give a node its address on the shared medium, its neighbours there and its
/// static routes, if any.
pub(crate) fn configuration(
    topology: &Topology,
    lab: &Lab,
    medium: &Medium,
    neighbours: &Neighbours,
    place: usize,
) -> String {
    let (interface, own) = (&medium.interface, lab.nodes[place].addresses);
    let mine = medium.ports[place].address;
    let mut lines = format!(
        "link set dev {interface} up\naddr add {}/{BRIDGE_V4_LEN} dev {interface}\n\
         addr add {}/{BRIDGE_V6_LEN} dev {interface} nodad\n",
        mine.v4, mine.v6
    );
    for other in neighbours.of_node(place) {
        let address = medium.ports[other].address;
        let hardware = addressing::bridge_hardware(other);
        lines += &permanent(&[address.v4.into(), address.v6.into()], hardware, interface);
        if topology.routing == Routing::Babel {
            lines += &permanent(&[hardware.link_local().into()], hardware, interface);
        }
    }
    if topology.routing == Routing::Babel {
        return lines;
    }
    for (to, first) in neighbours.first_links(place).into_iter().enumerate() {
        let Some(first) = first else { continue };
        let edge = &topology.links[first.link];
        let next = medium.ports[if edge.a == place { edge.b } else { edge.a }].address;
        let (theirs, far) = (lab.nodes[to].addresses, medium.ports[to].address);
        let mut route = |prefix: IpAddr, next: IpAddr, own: IpAddr| {
            let _ = writeln!(
                lines,
                "route add {prefix} via {next} dev {interface} src {own} proto static"
            );
        };
        route(theirs.v4.into(), next.v4.into(), own.v4.into());
        route(theirs.v6.into(), next.v6.into(), own.v6.into());
        if first.hops > 1 {
            // A node on the same subnet is not necessarily heard.
            route(far.v4.into(), next.v4.into(), mine.v4.into());
            route(far.v6.into(), next.v6.into(), mine.v6.into());
        }
    }
    lines
}

/// Returns the lines for permanent neighbour entries, so that no packet waits for address
/// resolution or is lost with it.
pub(crate) fn permanent(addresses: &[IpAddr], hardware: Hardware, interface: &str) -> String {
    let line = |address: &IpAddr| {
        format!("neigh replace {address} lladdr {hardware} dev {interface} nud permanent\n")
    };
    addresses.iter().map(line).collect()
}

/// Returns the line that shapes what a node sends.
pub(crate) fn qdisc(medium: &Medium) -> String {
    emulation::discipline(medium.mechanism, &medium.parameters)
        .map(|discipline| format!("qdisc add dev {} root {discipline}\n", medium.interface))
        .unwrap_or_default()
}

/// Returns the lines that drop all frames at an interface, when they leave it (`egress`) or arrive
/// (`ingress`), except those that the node with index `place` must hear.
pub(crate) fn filters(medium: &Medium, place: usize, interface: &str, direction: &str) -> String {
    let is_heard = |other: &usize| medium.ports[place].hears.contains(&medium.ports[*other].node);
    let hears: Vec<usize> = (0..medium.ports.len()).filter(is_heard).collect();
    filter_lines(medium.filter, interface, direction, &hears)
}

/// Returns the lines that drop all frames except those of the nodes with indices `hears`.
fn filter_lines(filter: Filter, interface: &str, direction: &str, hears: &[usize]) -> String {
    let mut lines = format!("qdisc add dev {interface} clsact\n");
    let add = format!("filter add dev {interface} {direction}");
    match filter {
        Filter::Bpf => {
            let _ = writeln!(lines, "{add} bpf direct-action bytecode \"{}\"", program(hears));
        }
        Filter::Flower => {
            for place in hears {
                let hardware = addressing::bridge_hardware(*place);
                let _ = writeln!(
                    lines,
                    "{add} protocol all pref 1 flower src_mac {hardware} action pass"
                );
            }
            let _ = writeln!(lines, "{add} protocol all pref 2 flower action drop");
        }
    }
    lines
}

/// Returns a classic BPF program, as tc takes it (tc-bpf(8)), that passes frames of the nodes with
/// these indices and drops all others: 2 is TC_ACT_SHOT, 0 TC_ACT_OK (linux/pkt_cls.h).
fn program(hears: &[usize]) -> String {
    const SOURCE: usize = 6;
    let addresses: Vec<[u8; 6]> =
        hears.iter().map(|place| addressing::bridge_hardware(*place).0).collect();
    let [a, b, c, d, ..] = addressing::bridge_hardware(0).0;
    let count = addresses.len();
    let mut steps = vec![
        format!("32 0 0 {SOURCE}"),
        format!("21 0 {} {}", count + 1, u32::from_be_bytes([a, b, c, d])),
        format!("40 0 0 {}", SOURCE + 4),
    ];
    for (n, [.., e, f]) in addresses.iter().enumerate() {
        steps.push(format!("21 {} 0 {}", count - n, u16::from_be_bytes([*e, *f])));
    }
    steps.extend(["6 0 0 2".to_owned(), "6 0 0 0".to_owned()]);
    format!("{},{}", steps.len(), steps.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a classic BPF program over the first bytes of a frame.
    fn verdict(program: &str, frame: &[u8]) -> u32 {
        let steps: Vec<Vec<u32>> = program
            .split(',')
            .skip(1)
            .map(|step| step.split(' ').map(|word| word.parse().unwrap()).collect())
            .collect();
        let (mut at, mut accumulator) = (0, 0_u32);
        loop {
            let step = &steps[at];
            let offset = step[3] as usize;
            at += 1;
            match step[0] {
                32 => {
                    accumulator = u32::from_be_bytes(frame[offset..offset + 4].try_into().unwrap());
                }
                40 => {
                    let half = frame[offset..offset + 2].try_into().unwrap();
                    accumulator = u16::from_be_bytes(half).into();
                }
                21 => at += step[if accumulator == step[3] { 1 } else { 2 }] as usize,
                6 => return step[3],
                other => panic!("unknown instruction {other}"),
            }
        }
    }

    #[test]
    fn filter_drops_all_but_the_named_hardware_addresses() {
        let lines = filter_lines(Filter::Flower, "wlan0", "ingress", &[1]);
        let [qdisc, pass, drop] = *lines.lines().collect::<Vec<_>>() else { panic!("{lines}") };
        assert_eq!(qdisc, "qdisc add dev wlan0 clsact");
        assert!(pass.starts_with("filter add dev wlan0 ingress "), "{pass}");
        assert!(pass.ends_with("src_mac 02:64:77:ff:00:02 action pass"), "{pass}");
        assert!(drop.ends_with("flower action drop"), "{drop}");
    }

    #[test]
    fn bridge_filter_passes_neighbours_only() {
        let from = |hardware: [u8; 6]| [[0xff; 6], hardware, [8, 6, 0, 1, 8, 0]].concat();
        for hears in [vec![1], vec![0, 2], vec![], vec![3, 249]] {
            let program = program(&hears);
            for place in 0..250 {
                let frame = from(addressing::bridge_hardware(place).0);
                let expected = if hears.contains(&place) { 0 } else { 2 };
                assert_eq!(verdict(&program, &frame), expected, "{place} in {hears:?}");
            }
            assert_eq!(verdict(&program, &from([0x52, 0x54, 0, 0, 0, 2])), 2, "unknown address");
        }
    }
}
