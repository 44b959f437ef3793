//! Routes in the kernels of a lab: for every node the path to every other, and the origin of each
//! route.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dwell_io::netns;
use serde::Serialize;
use serde_json::Value;

use crate::babel;
use crate::description::{Daemon, Lab};
use crate::error::LabError;
use crate::iproute::Tool;
use crate::list::{open, update_state};
use crate::namespace::{netns_path, not_entered};
use crate::namespace_keeper::NamespaceKeeper;
use crate::topology::Routing;

/// Name and version of [`RouteTable`].
const SCHEMA: &str = "dwell.lab-routes/1";

/// Routes between all nodes of a lab.
#[derive(Clone, Debug, Serialize)]
pub struct RouteTable {
    schema: &'static str,
    /// Lab.
    pub lab: String,
    /// Expected source of its routes.
    pub routing: Routing,
    /// Whether every node reaches every other that it is joined to, by routes from that source.
    pub complete: bool,
    /// Why it is incomplete; `null` if it is complete.
    pub reason: Option<String>,
    /// Daemons that maintain the routes.
    pub daemons: Vec<Daemon>,
    /// All routes.
    pub routes: Vec<NodeRoute>,
}

/// Route from one node to an own address of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeRoute {
    /// Node that packets leave.
    pub from: String,
    /// Node that packets go to.
    pub to: String,
    /// Address of that node.
    pub address: IpAddr,
    /// Origin of the route; `null` without a route.
    pub protocol: Option<String>,
    /// Next hop; for IPv4 it may be an IPv6 address.
    pub gateway: Option<IpAddr>,
    /// Interface that packets leave by.
    pub interface: Option<String>,
}

/// Returns the current routes of the lab of this name.
///
/// Must be called while the process is single-threaded, because it enters a rootless lab and stays
/// inside.
///
/// # Errors
/// There is no such lab, it is incomplete, or it belongs to root.
pub fn routes(name: &str) -> Result<RouteTable, LabError> {
    let (dir, mut lab) = open(name)?;
    update_state(&dir, &mut lab);
    NamespaceKeeper::enter_whole(&dir)?;
    let mut table = RouteTable {
        schema: SCHEMA,
        lab: lab.name.clone(),
        routing: lab.routing,
        complete: true,
        reason: None,
        daemons: lab.daemons.clone(),
        routes: Vec::new(),
    };
    let joined = lab.reachable_pairs();
    for from in 0..lab.nodes.len() {
        let known = Routes::of(&lab, from)?;
        for to in (0..lab.nodes.len()).filter(|to| *to != from) {
            let found = known.between(&lab, from, to);
            let wanted = joined.binary_search(&(from, to)).is_ok();
            let missing =
                found.iter().filter(|_| wanted).find_map(|route| route.fault(lab.routing));
            table.reason = table.reason.take().or(missing);
            table.routes.extend(found);
        }
    }
    if let Some(dead) = babel::dead(&lab.daemons) {
        // babeld in other nodes may keep the routes it learnt from the dead one for seconds.
        table.reason = Some(match table.reason {
            Some(missing) => format!("{dead}; {missing}"),
            None => dead,
        });
    }
    table.complete = table.reason.is_none();
    Ok(table)
}

/// Returns the first pair of joined nodes whose route is missing or not from the expected source:
/// the indices of the nodes, and a description.
pub(crate) fn first_fault(lab: &Lab) -> Result<Option<(usize, usize, String)>, LabError> {
    let mut known: Option<(usize, Routes)> = None;
    for (from, to) in lab.reachable_pairs() {
        let routes = match known.take().filter(|(of, _)| *of == from) {
            Some((_, routes)) => routes,
            None => Routes::of(lab, from)?,
        };
        let mut found = routes.between(lab, from, to).into_iter();
        let fault = found.find_map(|route| route.fault(lab.routing));
        if let Some(fault) = fault {
            return Ok(Some((from, to, fault)));
        }
        known = Some((from, routes));
    }
    Ok(None)
}

impl NodeRoute {
    /// Describes what is wrong with the route, if routes should come from `routing`.
    fn fault(&self, routing: Routing) -> Option<String> {
        let Self { from, to, address, protocol, .. } = self;
        match protocol.as_deref() {
            None => Some(format!("{from} has no route to {to} ({address})")),
            Some(by) if routing == Routing::Babel && by != Routing::Babel.name() => {
                Some(format!("the route from {from} to {to} ({address}) is from {by}, not babel"))
            }
            Some(_) => None,
        }
    }
}

/// Main routing table of one node, both families.
struct Routes(Vec<Route>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Route {
    prefix: IpAddr,
    len: u8,
    metric: u64,
    protocol: String,
    gateway: Option<IpAddr>,
    interface: Option<String>,
    /// It rejects packets.
    refuses: bool,
}

impl Routes {
    fn of(lab: &Lab, place: usize) -> Result<Self, LabError> {
        let netns = &lab.nodes[place].netns;
        let ask = |family| Tool::Ip.ask(&[family, "-j", "-N", "route", "show", "table", "main"]);
        let both = || -> Result<_, LabError> { Ok([ask("-4")?, ask("-6")?]) };
        let texts =
            netns::within(&netns_path(netns), both).map_err(not_entered(&lab.name, netns))??;
        Ok(Self(texts.iter().flat_map(|text| parse(text)).collect()))
    }

    /// Returns the routes from one node to the own addresses of another.
    fn between(&self, lab: &Lab, from: usize, to: usize) -> [NodeRoute; 2] {
        let addresses = lab.nodes[to].addresses;
        [addresses.v4.into(), addresses.v6.into()].map(|address| {
            let route = self.towards(address);
            NodeRoute {
                from: lab.nodes[from].name.clone(),
                to: lab.nodes[to].name.clone(),
                address,
                protocol: route.map(|route| route.protocol.clone()),
                gateway: route.and_then(|route| route.gateway),
                interface: route.and_then(|route| route.interface.clone()),
            }
        })
    }

    /// Returns the route that the kernel would use: the longest prefix, then the lowest metric.
    fn towards(&self, address: IpAddr) -> Option<&Route> {
        let matching = self.0.iter().filter(|route| covers(route.prefix, route.len, address));
        let best = matching.max_by_key(|route| (route.len, u64::MAX - route.metric))?;
        (!best.refuses).then_some(best)
    }
}

/// Parses the output of `ip -j -N route show`; anything but routes is left out.
fn parse(text: &[u8]) -> Vec<Route> {
    let all: Vec<Value> = serde_json::from_slice(text).unwrap_or_default();
    all.iter().filter_map(route).collect()
}

fn route(value: &Value) -> Option<Route> {
    let is_v4 = |at: &Value| at.as_str().is_some_and(|text| text.contains('.'));
    let dst = value["dst"].as_str()?;
    let (prefix, len) = match dst.split_once('/') {
        Some((prefix, len)) => (prefix.parse().ok()?, len.parse().ok()?),
        // Only IPv6 routes have a preference.
        None if dst == "default" && value["pref"].is_null() => (Ipv4Addr::UNSPECIFIED.into(), 0),
        None if dst == "default" => (Ipv6Addr::UNSPECIFIED.into(), 0),
        None => (dst.parse().ok()?, if is_v4(&value["dst"]) { 32 } else { 128 }),
    };
    let gateway = value["gateway"].as_str().or(value["via"]["host"].as_str());
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    Some(Route {
        prefix,
        len,
        metric: value["metric"].as_u64().unwrap_or(0),
        protocol: text("protocol").map_or_else(|| "unknown".to_owned(), |number| name(&number)),
        gateway: gateway.and_then(|gateway| gateway.parse().ok()),
        interface: text("dev"),
        // By name or, with -N, by number (rtnetlink(7): RTN_BLACKHOLE and the next two).
        refuses: text("type").is_some_and(|kind| {
            ["blackhole", "unreachable", "prohibit", "6", "7", "8"].contains(&kind.as_str())
        }),
    })
}

/// Returns the name of a routing protocol by its number (linux/rtnetlink.h, RTPROT_*), independent
/// of this machine's /etc/iproute2.
fn name(number: &str) -> String {
    match number {
        "2" => "kernel",
        "3" => "boot",
        "4" => "static",
        "42" => "babel",
        other => other,
    }
    .to_owned()
}

fn covers(prefix: IpAddr, len: u8, address: IpAddr) -> bool {
    let same = |prefix: u128, address: u128, width: u32| {
        let len = u32::from(len).min(width);
        len == 0 || (prefix ^ address) >> (width - len) == 0
    };
    match (prefix, address) {
        (IpAddr::V4(prefix), IpAddr::V4(address)) => {
            same(u32::from(prefix).into(), u32::from(address).into(), 32)
        }
        (IpAddr::V6(prefix), IpAddr::V6(address)) => same(prefix.into(), address.into(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = r#"[
        {"dst":"198.18.0.0/30","dev":"n2","protocol":"2","scope":"253","flags":[]},
        {"dst":"198.19.0.2","via":{"family":"inet6","host":"fe80::1"},"dev":"n2","protocol":"42"},
        {"dst":"198.19.0.2/31","gateway":"198.18.0.2","dev":"n2","protocol":"4","flags":[]},
        {"type":"unreachable","dst":"198.19.0.4","dev":"lo","protocol":"42","metric":9},
        {"dst":"198.19.0.5","gateway":"198.18.0.2","dev":"a","protocol":"42","metric":9},
        {"dst":"198.19.0.5","gateway":"198.18.0.2","dev":"b","protocol":"42"},
        "no route"
    ]"#;

    fn towards(address: &str) -> Option<Route> {
        let v6 =
            r#"[{"dst":"default","gateway":"fe80::2","dev":"n2","protocol":"3","pref":"medium"}]"#;
        let all = [parse(V4.as_bytes()), parse(v6.as_bytes())].concat();
        Routes(all).towards(address.parse().unwrap()).cloned()
    }

    #[test]
    fn longest_prefix_wins_across_next_hop_families() {
        let near = towards("198.19.0.2").unwrap();
        assert_eq!((near.protocol.as_str(), near.len), ("babel", 32));
        assert_eq!(near.gateway, Some("fe80::1".parse().unwrap()));
        assert_eq!(towards("198.19.0.3").unwrap().protocol, "static");
        assert_eq!(towards("198.18.0.1").unwrap().protocol, "kernel");
        assert_eq!(towards("fd64::1").unwrap().protocol, "boot");
        assert_eq!(towards("198.19.0.5").unwrap().interface.as_deref(), Some("b"), "least metric");
    }

    #[test]
    fn rejecting_route_is_ignored() {
        assert_eq!(towards("198.19.0.4"), None);
        assert_eq!(towards("10.0.0.1"), None);
        assert!(parse(b"{").is_empty());
    }
}
