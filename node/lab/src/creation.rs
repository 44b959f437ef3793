//! Creates the parts of a lab, from a description that has already been written. Nothing here
//! cleans up: the caller removes everything when a step fails.

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use dwell_io::netns;

use crate::addressing::{self, End, LINK_V4_LEN, LINK_V6_LEN};
use crate::babel;
use crate::background;
use crate::description::{Lab, LabState};
use crate::device;
use crate::emulation;
use crate::error::LabError;
use crate::iproute::Tool;
use crate::namespace::{self, netns_name, netns_path, not_entered};
use crate::quota;
use crate::radio;
use crate::routes::{Neighbours, Route, routes};
use crate::shared_bridge;
use crate::state::{LabDir, Lock};
use crate::topology::{Mechanism, Routing, Topology};

/// Progress of the creation.
pub(crate) struct Steps<'a> {
    done: AtomicUsize,
    of: usize,
    progress: &'a (dyn Fn(usize, usize) + Sync),
    interrupted: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Steps<'a> {
    /// `progress` is called, on any thread, with the number of steps done and of all steps.
    /// `interrupted` is called between steps.
    pub(crate) fn new(
        topology: &Topology,
        progress: &'a (dyn Fn(usize, usize) + Sync),
        interrupted: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        // A node is created, set up and configured; a link is created.
        let of = 3 * topology.nodes.len() + topology.links.len();
        Self { done: AtomicUsize::new(0), of, progress, interrupted }
    }

    fn add(&self, steps: usize) {
        (self.progress)(self.done.fetch_add(steps, Ordering::Relaxed) + steps, self.of);
    }

    /// Fails if the creation was interrupted.
    pub(crate) fn check_interrupted(&self) -> Result<(), LabError> {
        if (self.interrupted)() { Err(LabError::Interrupted) } else { Ok(()) }
    }
}

/// Creates namespaces, links, addresses and routes.
pub(crate) fn make(
    dir: &LabDir,
    lock: &Lock,
    topology: &Topology,
    lab: &mut Lab,
    steps: &Steps<'_>,
) -> Result<(), LabError> {
    dir.write_file("hosts", hosts(lab).as_bytes())?;
    quota::make(lab)?;
    make_namespaces(dir, lock, lab, steps)?;
    in_every_node(lab, steps, |_| Settings::apply(lab.nodes.len()))?;
    steps.check_interrupted()?;
    for lines in veth_pairs(lab).chunks(LINE_BATCH) {
        Tool::Ip.batch(&lines.concat(), Some(lock))?;
        steps.add(lines.len());
        steps.check_interrupted()?;
    }
    tap_links(dir, lock, lab, steps)?;
    if let Some(medium) = &lab.medium {
        match medium.radio {
            Some(_) => radio::make(lab, medium, lock)?,
            None => shared_bridge::make(lab, medium, lock)?,
        }
        steps.add(topology.links.len());
    }
    steps.check_interrupted()?;
    let neighbours = Neighbours::of(topology);
    in_every_node(lab, steps, |node| {
        if let Some(medium) = lab.medium.as_ref().filter(|medium| medium.radio.is_some()) {
            radio::join(lab, medium, node, lock)?;
        }
        Tool::Ip.batch(&configuration(topology, lab, &neighbours, node), Some(lock))?;
        Tool::Tc.batch(&emulation::qdiscs(lab, node), Some(lock))?;
        lab.medium
            .as_ref()
            .map_or(Ok(()), |medium| Tool::Tc.batch(&shared_bridge::qdisc(medium), Some(lock)))
    })?;
    steps.check_interrupted()?;
    device::start(dir, lock, lab)?;
    steps.check_interrupted()?;
    if lab.routing == Routing::Babel {
        babel::start(dir, lock, lab)?;
        babel::converge(dir, lab, &|| steps.check_interrupted().is_err())?;
    }
    lab.state = LabState::Up;
    dir.write(lab)
}

/// Number of lines to run between checks for signals.
const LINE_BATCH: usize = 16;

/// Creates the namespaces, which the lab's state lists already. If one exists by now, the state
/// forgets it again, so that another program's namespace is not removed.
fn make_namespaces(
    dir: &LabDir,
    lock: &Lock,
    lab: &mut Lab,
    steps: &Steps<'_>,
) -> Result<(), LabError> {
    let lines: Vec<String> =
        lab.nodes.iter().map(|node| format!("netns add {}\n", node.netns)).collect();
    for some in lines.chunks(LINE_BATCH) {
        if let Err(error) = Tool::Ip.batch(&some.concat(), Some(lock)) {
            if let LabError::Tool { line: Some(refused), .. } = &error {
                let made = lines.iter().take_while(|line| line.trim_end() != refused).count();
                lab.nodes.truncate(made);
                dir.write(lab)?;
            }
            return Err(error);
        }
        steps.add(some.len());
        steps.check_interrupted()?;
    }
    let Some(medium) = &lab.medium else { return Ok(()) };
    let made = Tool::Ip.batch(&format!("netns add {}\n", medium.netns), Some(lock));
    if made.is_err() {
        lab.medium = None;
        dir.write(lab)?;
    }
    made
}

/// Runs `work` inside every node's namespace, on as many threads as there are CPUs.
fn in_every_node(
    lab: &Lab,
    steps: &Steps<'_>,
    work: impl Fn(usize) -> Result<(), LabError> + Sync,
) -> Result<(), LabError> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let one = |place: usize| {
        let node = &lab.nodes[place];
        netns::within(&netns_path(&node.netns), || work(place))
            .map_err(not_entered(&lab.name, &node.netns))??;
        steps.add(1);
        Ok(())
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

/// Kernel settings of every node.
struct Settings;

impl Settings {
    /// Path below /proc/sys/net, and value. `default` applies to interfaces created later.
    const ALL: [(&str, &str); 14] = [
        ("ipv4/ip_forward", "1"),
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv6/conf/default/forwarding", "1"),
        // In a ring, the paths there and back may differ.
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        // In a forced line, packets leave by the interface that they arrived on; a redirect would
        // announce a shorter path that does not exist.
        ("ipv4/conf/all/send_redirects", "0"),
        ("ipv4/conf/default/send_redirects", "0"),
        // Addresses are assigned by dwell: unique by construction, and usable at once.
        ("ipv6/conf/all/accept_dad", "0"),
        ("ipv6/conf/default/accept_dad", "0"),
        ("ipv6/conf/default/dad_transmits", "0"),
        ("ipv6/conf/default/accept_ra", "0"),
        // The kernel sends its first packets on a new link at once, not during a measurement.
        ("ipv6/conf/default/mldv1_unsolicited_report_interval", "1"),
        ("ipv6/conf/default/mldv2_unsolicited_report_interval", "1"),
        ("ipv6/conf/default/router_solicitations", "0"),
    ];

    /// Usual initial TTL of packets.
    const USUAL_TTL: usize = 64;

    fn apply(nodes: usize) -> Result<(), LabError> {
        if !Path::new("/proc/sys/net/ipv6").exists() {
            return Err(LabError::Unsupported(
                "labs need IPv6, which is switched off in this kernel; boot it without \
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
            // The ends of a long line are further apart than the usual TTL.
            set(("ipv4/ip_default_ttl", "255"))?;
            set(("ipv6/conf/all/hop_limit", "255"))?;
            set(("ipv6/conf/default/hop_limit", "255"))?;
        }
        // In a user namespace only groups that exist there are accepted.
        let path = "ipv4/ping_group_range";
        set((path, "0 2147483647")).or_else(|_| set((path, "0 0")))
    }
}

fn hosts(lab: &Lab) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n".to_owned();
    for node in &lab.nodes {
        let _ = writeln!(text, "{} {}", node.addresses.v4, node.name);
        // A device has no IPv6.
        if node.device.is_none() {
            let _ = writeln!(text, "{} {}", node.addresses.v6, node.name);
        }
    }
    text
}

/// Returns the lines that create all veth pairs, with each end in its namespace from the start.
fn veth_pairs(lab: &Lab) -> Vec<String> {
    let mut lines = Vec::new();
    for (place, link) in lab.links.iter().enumerate() {
        if link.mechanism == Mechanism::Tap {
            continue;
        }
        lines.push(format!(
            "link add name {} address {} netns {} type veth peer name {} address {} netns {}\n",
            link.a_interface,
            addressing::hardware(place, End::A),
            netns_name(&lab.name, &link.a),
            link.b_interface,
            addressing::hardware(place, End::B),
            netns_name(&lab.name, &link.b),
        ));
    }
    lines
}

/// Starts the process of every TAP link and waits until its interfaces are in place.
fn tap_links(dir: &LabDir, lock: &Lock, lab: &Lab, steps: &Steps<'_>) -> Result<(), LabError> {
    let taps = lab.links.iter().enumerate().filter(|(_, l)| l.mechanism == Mechanism::Tap);
    let starting = taps
        .map(|(place, link)| {
            let what = format!("link {} - {}", link.a, link.b);
            let number = place.to_string();
            background::start(what, &[Path::new("link"), dir.path(), Path::new(&number)], lock)
        })
        .collect::<Result<Vec<_>, _>>()?;
    starting.into_iter().try_for_each(|link| {
        link.ready()?;
        steps.add(1);
        Ok(())
    })
}

/// Returns the lines that give a node its addresses, neighbours and routes.
fn configuration(topology: &Topology, lab: &Lab, neighbours: &Neighbours, place: usize) -> String {
    let node = &lab.nodes[place];
    let own = node.addresses;
    let mut lines = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        let _ = writeln!(lines, "{text}");
    };
    line(format_args!("link set dev lo up alias {}", namespace::mark(&lab.name)));
    // The IPv4 address of a device is behind the namespace.
    if node.device.is_none() {
        line(format_args!("addr add {}/32 dev lo", own.v4));
    }
    line(format_args!("addr add {}/128 dev lo nodad", own.v6));
    for (number, link) in lab.links.iter().enumerate() {
        let Some(end) = link.end_at(&node.name) else { continue };
        let (interface, far) = (link.interface(end), end.other());
        let (mine, theirs) = (link.address(end), link.address(far));
        line(format_args!("link set dev {interface} up"));
        line(format_args!("addr add {}/{LINK_V4_LEN} dev {interface}", mine.v4));
        line(format_args!("addr add {}/{LINK_V6_LEN} dev {interface} nodad", mine.v6));
        let hardware = addressing::hardware(number, far);
        let mut known = vec![theirs.v4.into(), theirs.v6.into()];
        if topology.routing == Routing::Babel {
            known.push(hardware.link_local().into());
        }
        line(format_args!("{}", shared_bridge::permanent(&known, hardware, interface).trim_end()));
    }
    if let Some(medium) = &lab.medium {
        return lines + &shared_bridge::configuration(topology, lab, medium, neighbours, place);
    }
    if topology.routing == Routing::Babel {
        return lines;
    }
    let mut line = |text: std::fmt::Arguments<'_>| {
        let _ = writeln!(lines, "{text}");
    };
    for Route { prefix, link, v6 } in routes(topology, neighbours, place) {
        let link = &lab.links[link];
        let Some(end) = link.end_at(&node.name) else { continue };
        let (interface, gateway) = (link.interface(end), link.address(end.other()));
        let [gateway, own]: [IpAddr; 2] = match v6 {
            true => [gateway.v6.into(), own.v6.into()],
            false => [gateway.v4.into(), own.v4.into()],
        };
        let source = match node.device {
            Some(_) if !v6 => String::new(),
            _ => format!("src {own} "),
        };
        line(format_args!("route add {prefix} via {gateway} dev {interface} {source}proto static"));
    }
    lines
}
