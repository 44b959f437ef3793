//! Labs for people and for programs.

use std::io::{self, Write};

use dwell_lab::{Lab, LabState, Link, LinkState};
use dwell_units::Ratio;
use serde::Serialize;

/// Prints `value` as one JSON object.
pub(super) fn json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)
}

/// Prints what a lab consists of.
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
        writeln!(out, "  {:<15} {:<15} {}", node.name, addresses.v4, addresses.v6)?;
    }
    for link in &lab.links {
        writeln!(out, "  {} - {}: {}", link.a, link.b, what(link))?;
    }
    let (first, last) = (&lab.nodes[0].name, &lab.nodes[lab.nodes.len() - 1].name);
    writeln!(out, "try: dwell lab exec --lab {} {first} -- ping {last}", lab.name)
}

/// Prints a line per lab.
pub(super) fn labs(labs: &[Result<Lab, String>]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for lab in labs {
        match lab {
            Err(name) => writeln!(out, "{name}: not whole; end it: dwell lab down {name}")?,
            Ok(lab) => {
                let rootless = if lab.rootless { " (rootless)" } else { "" };
                let state = match lab.state {
                    LabState::Making => ", being made, or cut short".to_owned(),
                    LabState::Up => String::new(),
                    LabState::Broken => format!(", broken: {}", what_is_dead(lab)),
                };
                let mut mechanisms: Vec<&str> =
                    lab.links.iter().map(|link| link.mechanism.name()).collect();
                mechanisms.sort_unstable();
                mechanisms.dedup();
                let (nodes, links) = (lab.nodes.len(), lab.links.len());
                let by = mechanisms.join(", ");
                writeln!(
                    out,
                    "{}{rootless}: {nodes} nodes, {links} links ({by}){state}",
                    lab.name
                )?;
            }
        }
    }
    Ok(())
}

/// What has ended of a lab that was whole.
fn what_is_dead(lab: &Lab) -> String {
    let dead = lab.links.iter().filter(|link| link.state == LinkState::Dead);
    let dead: Vec<String> = dead.map(|link| format!("{} - {}", link.a, link.b)).collect();
    match &dead[..] {
        [] => "the process that kept it has ended".to_owned(),
        [link] => format!("link {link} is dead, its process has ended"),
        links => format!("links {} are dead, their processes have ended", links.join(", ")),
    }
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

/// The mechanism of a link and what it does, in the words of the command line.
fn what(link: &Link) -> String {
    let parameters = link.parameters.link_parameters();
    let mut text = link.mechanism.name().to_owned();
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
    if let Some(seed) = link.parameters.seed {
        word("seed", seed.to_string());
    }
    text
}
