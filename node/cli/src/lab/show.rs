//! Prints labs as text and as JSON.

use std::io::{self, Write};

use dwell_lab::{
    DaemonState, Lab, LabState, LinkState, Parameters, RadioChannel, RouteTable, Routing,
};
use dwell_units::Ratio;
use serde::Serialize;

/// Prints `value` as one JSON object.
pub(super) fn json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)
}

/// Prints the nodes and links of a lab.
pub(super) fn lab(lab: &Lab) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let rootless = if lab.rootless { " (rootless)" } else { "" };
    writeln!(
        out,
        "lab {}{rootless}: {} nodes, {} links",
        lab.name,
        lab.nodes.len(),
        lab.links.len()
    )?;
    for node in &lab.nodes {
        let addresses = node.addresses;
        match &node.device {
            Some(device) => writeln!(
                out,
                "  {:<15} {:<15} {} ({})",
                node.name,
                addresses.v4,
                device.kind,
                device.image.display()
            )?,
            None => writeln!(out, "  {:<15} {:<15} {}", node.name, addresses.v4, addresses.v6)?,
        }
    }
    for link in &lab.links {
        let text = link_text(link.mechanism.name(), &link.parameters);
        writeln!(out, "  {} - {}: {text}", link.a, link.b)?;
    }
    if let Some(medium) = &lab.medium {
        match &medium.radio {
            Some(RadioChannel { driver, ssid, frequency_mhz, width_mhz, .. }) => writeln!(
                out,
                "  ad hoc network {ssid} ({driver}): {frequency_mhz} MHz, {width_mhz} MHz wide, by {}",
                medium.interface
            )?,
            None => {
                let text = link_text(medium.mechanism.name(), &medium.parameters);
                writeln!(out, "  one bridge ({}): {text}", medium.netns)?;
            }
        }
        for port in &medium.ports {
            let hears = if port.hears.is_empty() { "no node" } else { &port.hears.join(", ") };
            writeln!(out, "  {} hears {hears}", port.node)?;
        }
    }
    if lab.routing == Routing::Babel {
        writeln!(out, "  routes by babeld in every node; see: dwell lab routes {}", lab.name)?;
    }
    for node in &lab.nodes {
        let Some(quota) = &node.quota else { continue };
        let percent = quota.share_ratio * 100.0;
        writeln!(out, "  {} may use {percent} % of one processor, on average", node.name)?;
    }
    let (first, last) = (&lab.nodes[0].name, &lab.nodes[lab.nodes.len() - 1].name);
    writeln!(out, "try: dwell lab exec --lab {} {first} -- ping {last}", lab.name)
}

/// Prints a line per lab.
pub(super) fn labs(labs: &[Result<Lab, String>]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for lab in labs {
        match lab {
            Err(name) => writeln!(out, "{name}: incomplete; remove it: dwell lab down {name}")?,
            Ok(lab) => {
                let rootless = if lab.rootless { " (rootless)" } else { "" };
                let state = match lab.state {
                    LabState::Making => ", incomplete: being created, or aborted".to_owned(),
                    LabState::Up => String::new(),
                    LabState::Broken => format!(", broken: {}", dead_parts(lab)),
                };
                let mut mechanisms: Vec<&str> =
                    lab.links.iter().map(|link| link.mechanism.name()).collect();
                mechanisms.sort_unstable();
                mechanisms.dedup();
                let (nodes, links) = (lab.nodes.len(), lab.links.len());
                let joined = match &lab.medium {
                    Some(medium) => match &medium.radio {
                        Some(radio) => format!("ad hoc network ({})", radio.driver),
                        None => format!("one bridge ({})", medium.mechanism.name()),
                    },
                    None => format!("{links} links ({})", mechanisms.join(", ")),
                };
                let routing = match lab.routing {
                    Routing::Static => "",
                    Routing::Babel => ", routes by babeld",
                };
                writeln!(out, "{}{rootless}: {nodes} nodes, {joined}{routing}{state}", lab.name)?;
            }
        }
    }
    Ok(())
}

/// Names the dead links and daemons of a broken lab.
fn dead_parts(lab: &Lab) -> String {
    let dead = lab.links.iter().filter(|link| link.state == LinkState::Dead);
    let dead: Vec<String> = dead.map(|link| format!("{} - {}", link.a, link.b)).collect();
    let daemons = lab.daemons.iter().filter(|daemon| daemon.state == DaemonState::Dead);
    let daemons: Vec<&str> = daemons.map(|daemon| daemon.node.as_str()).collect();
    match &dead[..] {
        [] if !daemons.is_empty() => format!("babeld in {} has ended", daemons.join(", ")),
        [] => "its namespace keeper has ended".to_owned(),
        [link] => format!("link {link} is dead: its process has ended"),
        links => format!("links {} are dead: their processes have ended", links.join(", ")),
    }
}

/// Prints a line per route.
pub(super) fn routes(table: &RouteTable) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "lab {}, {} routes", table.lab, table.routing)?;
    for route in &table.routes {
        let Some(protocol) = &route.protocol else {
            writeln!(out, "  {} -> {} ({}): none", route.from, route.to, route.address)?;
            continue;
        };
        let via = route.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
        let by = route.interface.as_ref().map(|name| format!(" by {name}")).unwrap_or_default();
        writeln!(out, "  {} -> {} ({}): {protocol}{via}{by}", route.from, route.to, route.address)?;
    }
    Ok(())
}

/// Prints all labs as one JSON object.
pub(super) fn labs_json(labs: Vec<Lab>) -> io::Result<()> {
    #[derive(Serialize)]
    struct Labs {
        schema: &'static str,
        labs: Vec<Lab>,
    }
    json(&Labs { schema: "dwell.labs/1", labs })
}

/// The mechanism of a link and its parameters, as on the command line.
fn link_text(mechanism: &str, emulated: &Parameters) -> String {
    let parameters = emulated.link_parameters();
    let mut text = mechanism.to_owned();
    let mut word = |name: &str, value: String| {
        text += &format!(" {name} {value}");
    };
    if let Some(rate) = parameters.rate {
        word("rate", rate.to_string());
    }
    for (name, time) in [("delay", parameters.delay), ("jitter", parameters.jitter)] {
        if time.is_positive() {
            word(name, time.to_string());
        }
    }
    for (name, share) in [
        ("loss", parameters.loss),
        ("duplicate", parameters.duplicate),
        ("reorder", parameters.reorder),
    ] {
        if share != Ratio::ZERO {
            word(name, share.to_string());
        }
    }
    if let Some(seed) = emulated.seed {
        word("seed", seed.to_string());
    }
    text
}
