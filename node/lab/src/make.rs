//! Making what a lab consists of, from a description that is written down already. Nothing here
//! cleans up: whoever calls removes all of it when a step fails.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use dwell_io::netns;

use crate::addressing::{self, End, LINK_V4_LEN, LINK_V6_LEN};
use crate::background;
use crate::description::{Lab, LabState, Link};
use crate::emulation;
use crate::error::LabError;
use crate::iproute::Tool;
use crate::routes::{Neighbours, Route, routes};
use crate::state::{LabDir, Lock};
use crate::topology::{Mechanism, Topology};

/// Where `ip netns` keeps namespaces.
pub(crate) const NETNS_DIR: &str = "/run/netns";

/// What every namespace of dwell begins with.
pub(crate) const PREFIX: &str = "dwell-";

/// The namespace of a node. Nodes have no hyphens, so the name can be taken apart again.
pub(crate) fn netns_name(lab: &str, node: &str) -> String {
    format!("{PREFIX}{lab}-{node}")
}

/// The lab and the node of a namespace, if it is one of dwell's.
pub(crate) fn lab_of(netns: &str) -> Option<(&str, &str)> {
    netns.strip_prefix(PREFIX)?.rsplit_once('-')
}

/// The file that stands for a namespace.
pub(crate) fn netns_path(netns: &str) -> PathBuf {
    Path::new(NETNS_DIR).join(netns)
}

/// Makes namespaces, links, addresses and routes. `interrupted` is asked between the steps.
pub(crate) fn make(
    dir: &LabDir,
    lock: &Lock,
    topology: &Topology,
    lab: &mut Lab,
    interrupted: &dyn Fn() -> bool,
) -> Result<(), LabError> {
    let go_on = || if interrupted() { Err(LabError::Interrupted) } else { Ok(()) };
    dir.write_file("hosts", hosts(lab).as_bytes())?;
    let names = lab.nodes.iter().map(|node| format!("netns add {}\n", node.netns));
    Tool::Ip.batch(&names.collect::<String>(), Some(lock))?;
    go_on()?;
    in_every_node(lab, |_| Settings::apply(lab.nodes.len()))?;
    go_on()?;
    Tool::Ip.batch(&veth_pairs(lab), Some(lock))?;
    tap_links(dir, lock, lab)?;
    go_on()?;
    let neighbours = Neighbours::of(topology);
    in_every_node(lab, |node| {
        Tool::Ip.batch(&configuration(topology, lab, &neighbours, node), Some(lock))?;
        Tool::Tc.batch(&emulation::qdiscs(lab, node), Some(lock))
    })?;
    go_on()?;
    lab.state = LabState::Up;
    dir.write(lab)
}

/// Does `work` inside every node's namespace, on as many threads as there are processors.
fn in_every_node(
    lab: &Lab,
    work: impl Fn(usize) -> Result<(), LabError> + Sync,
) -> Result<(), LabError> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let one = |place: usize| {
        let node = &lab.nodes[place];
        netns::within(&netns_path(&node.netns), || work(place))
            .map_err(not_entered(&lab.name, &node.netns))?
    };
    let share = |first: usize| (first..lab.nodes.len()).step_by(workers).try_for_each(one);
    thread::scope(|scope| {
        let share = &share;
        let threads: Vec<_> = (0..workers).map(|first| scope.spawn(move || share(first))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

/// What is switched in the kernel of every node.
struct Settings;

impl Settings {
    /// Path below /proc/sys/net, value. `default` is what interfaces made later start with.
    const ALL: [(&str, &str); 12] = [
        ("ipv4/ip_forward", "1"),
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv6/conf/default/forwarding", "1"),
        // Ways there and back may differ in a ring.
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        // Addresses are ours to give, unique by construction, and usable at once.
        ("ipv6/conf/all/accept_dad", "0"),
        ("ipv6/conf/default/accept_dad", "0"),
        ("ipv6/conf/default/dad_transmits", "0"),
        ("ipv6/conf/default/accept_ra", "0"),
        // What the kernel says by itself on a new link, it shall say at once and not while
        // somebody measures.
        ("ipv6/conf/default/mldv1_unsolicited_report_interval", "1"),
        ("ipv6/conf/default/mldv2_unsolicited_report_interval", "1"),
        ("ipv6/conf/default/router_solicitations", "0"),
    ];

    /// The hops that packets of an ordinary machine survive.
    const USUAL_TTL: usize = 64;

    fn apply(nodes: usize) -> Result<(), LabError> {
        if !Path::new("/proc/sys/net/ipv6").exists() {
            return Err(LabError::Unsupported(
                "this kernel has IPv6 switched off, and labs have both families; boot it without \
                 ipv6.disable=1"
                    .to_owned(),
            ));
        }
        let set = |(path, value): (&str, &str)| {
            fs::write(format!("/proc/sys/net/{path}"), value)
                .map_err(LabError::io(format!("setting net/{path} in a namespace")))
        };
        Self::ALL.into_iter().try_for_each(set)?;
        if nodes > Self::USUAL_TTL {
            // The ends of a long line are further apart than packets usually get.
            set(("ipv4/ip_default_ttl", "255"))?;
            set(("ipv6/conf/all/hop_limit", "255"))?;
            set(("ipv6/conf/default/hop_limit", "255"))?;
        }
        // In a user namespace only groups that exist there are taken.
        let path = "ipv4/ping_group_range";
        set((path, "0 2147483647")).or_else(|_| set((path, "0 0")))
    }
}

fn hosts(lab: &Lab) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n".to_owned();
    for node in &lab.nodes {
        let _ = writeln!(text, "{} {}", node.addresses.v4, node.name);
        let _ = writeln!(text, "{} {}", node.addresses.v6, node.name);
    }
    text
}

/// The lines that make all links which are veth pairs, each end in its place from the start.
fn veth_pairs(lab: &Lab) -> String {
    let mut lines = String::new();
    for (place, link) in lab.links.iter().enumerate() {
        if link.mechanism == Mechanism::Tap {
            continue;
        }
        let _ = writeln!(
            lines,
            "link add name {} address {} netns {} type veth peer name {} address {} netns {}",
            link.a_interface,
            addressing::hardware(place, End::A),
            netns_name(&lab.name, &link.a),
            link.b_interface,
            addressing::hardware(place, End::B),
            netns_name(&lab.name, &link.b),
        );
    }
    lines
}

/// Starts the process of every TAP link and waits until the interfaces are in their places.
fn tap_links(dir: &LabDir, lock: &Lock, lab: &Lab) -> Result<(), LabError> {
    let taps = lab.links.iter().enumerate().filter(|(_, l)| l.mechanism == Mechanism::Tap);
    let starting = taps
        .map(|(place, link)| {
            let what = format!("link {} - {}", link.a, link.b);
            let number = place.to_string();
            background::start(what, &[Path::new("link"), dir.path(), Path::new(&number)], lock)
        })
        .collect::<Result<Vec<_>, _>>()?;
    starting.into_iter().try_for_each(|link| link.ready().map(drop))
}

/// For `map_err` of entering a namespace.
pub(crate) fn not_entered(lab: &str, netns: &str) -> impl FnOnce(io::Error) -> LabError {
    move |error| match error.kind() {
        io::ErrorKind::PermissionDenied => LabError::not_ours(lab),
        io::ErrorKind::NotFound => LabError::NotWhole(lab.to_owned()),
        _ => LabError::io(format!("entering {netns}"))(error),
    }
}

/// The end of `link` that belongs to the node of that name.
pub(crate) fn end_at(link: &Link, node: &str) -> Option<End> {
    if link.a == node {
        Some(End::A)
    } else if link.b == node {
        Some(End::B)
    } else {
        None
    }
}

/// The lines that give a node its addresses, neighbours and routes.
fn configuration(topology: &Topology, lab: &Lab, neighbours: &Neighbours, place: usize) -> String {
    let node = &lab.nodes[place];
    let own = node.addresses;
    let mut lines = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        let _ = writeln!(lines, "{text}");
    };
    line(format_args!("link set dev lo up"));
    line(format_args!("addr add {}/32 dev lo", own.v4));
    line(format_args!("addr add {}/128 dev lo nodad", own.v6));
    for (number, link) in lab.links.iter().enumerate() {
        let (interface, mine, theirs, far) = match end_at(link, &node.name) {
            Some(End::A) => (&link.a_interface, link.a_address, link.b_address, End::B),
            Some(End::B) => (&link.b_interface, link.b_address, link.a_address, End::A),
            None => continue,
        };
        line(format_args!("link set dev {interface} up"));
        line(format_args!("addr add {}/{LINK_V4_LEN} dev {interface}", mine.v4));
        line(format_args!("addr add {}/{LINK_V6_LEN} dev {interface} nodad", mine.v6));
        // Permanent, so that no packet waits for, or is lost with, a question of address.
        let hardware = addressing::hardware(number, far);
        for address in [&theirs.v4 as &dyn std::fmt::Display, &theirs.v6] {
            line(format_args!(
                "neigh replace {address} lladdr {hardware} dev {interface} nud permanent"
            ));
        }
    }
    for Route { prefix, link, v6 } in routes(topology, neighbours, place) {
        let (link, from_a) = (&lab.links[link], lab.links[link].a == node.name);
        let (interface, gateway) = if from_a {
            (&link.a_interface, link.b_address)
        } else {
            (&link.b_interface, link.a_address)
        };
        if v6 {
            let (gateway, own) = (gateway.v6, own.v6);
            line(format_args!("route add {prefix} via {gateway} dev {interface} src {own}"));
        } else {
            let (gateway, own) = (gateway.v4, own.v4);
            line(format_args!("route add {prefix} via {gateway} dev {interface} src {own}"));
        }
    }
    lines
}

/// The namespaces of a lab that are there, whatever its state says: (namespace, node).
pub(crate) fn namespaces_of(lab: &str) -> Result<Vec<(String, String)>, LabError> {
    let all = all_namespaces()?;
    let ours = |name: &String| {
        let (of, node) = lab_of(name)?;
        (of == lab).then(|| (name.clone(), node.to_owned()))
    };
    Ok(all.iter().filter_map(ours).collect())
}

/// All named namespaces.
pub(crate) fn all_namespaces() -> Result<Vec<String>, LabError> {
    match fs::read_dir(NETNS_DIR) {
        Ok(entries) => {
            let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
            Ok(names.collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(LabError::io(format!("reading {NETNS_DIR}"))(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_tells_its_lab_and_node_whatever_hyphens_the_lab_has() {
        assert_eq!(netns_name("rtt-2", "n1"), "dwell-rtt-2-n1");
        assert_eq!(lab_of("dwell-rtt-2-n1"), Some(("rtt-2", "n1")));
        assert_eq!(lab_of("dwell-a-b-c"), Some(("a-b", "c")), "and not node b-c of lab a");
        assert_eq!(lab_of("docker0"), None);
    }
}
