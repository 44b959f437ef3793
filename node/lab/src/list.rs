//! Existing labs, and the counters of their links.

use std::fs;
use std::path::Path;

use dwell_io::netns;
use serde_json::Value;

use crate::addressing::End;
use crate::babel;
use crate::description::{Counters, DirectionCounters, Lab, LabState, Link, LinkState};
use crate::device;
use crate::down::names;
use crate::error::LabError;
use crate::iproute::Tool;
use crate::namespace::{netns_path, not_entered};
use crate::namespace_keeper::NamespaceKeeper;
use crate::quota;
use crate::state::{self, LabDir};
use crate::topology::Mechanism;

/// Returns all visible labs, without counters; those without a readable description only by name.
///
/// # Errors
/// The directories of labs cannot be read.
pub fn list() -> Result<Vec<Result<Lab, String>>, LabError> {
    let describe = |name: String| {
        let Some(dir) = state::find(&name)? else { return Ok(Err(name)) };
        let Some(mut lab) = dir.read().ok().flatten() else { return Ok(Err(name)) };
        update_state(&dir, &mut lab);
        Ok(Ok(lab))
    };
    names()?.into_iter().map(describe).collect()
}

/// Returns the lab of this name, as it was created.
pub(crate) fn open(name: &str) -> Result<(LabDir, Lab), LabError> {
    let Some(dir) = state::find(name)? else {
        return Err(LabError::NoSuchLab { name: name.to_owned(), existing: names()? });
    };
    let lab = dir.read()?.ok_or_else(|| LabError::NotWhole(name.to_owned()))?;
    Ok((dir, lab))
}

/// Records links, daemons and holders that have ended since the lab was created; the state file
/// does not list them.
pub(crate) fn update_state(dir: &LabDir, lab: &mut Lab) {
    if lab.state != LabState::Up {
        return;
    }
    for (place, link) in lab.links.iter_mut().enumerate() {
        if link.mechanism == Mechanism::Tap && !crate::link::runs(dir, place) {
            link.state = LinkState::Dead;
            lab.state = LabState::Broken;
        }
    }
    babel::update_state(dir, lab);
    if babel::dead(&lab.daemons).is_some() {
        lab.state = LabState::Broken;
    }
    if !device::run(dir, lab) {
        lab.state = LabState::Broken;
    }
    if lab.rootless && !NamespaceKeeper::runs(dir) {
        lab.state = LabState::Broken;
    }
}

/// Returns the lab of this name, with the counters of its links.
///
/// Must be called while the process is single-threaded, because it enters a rootless lab and stays
/// inside.
///
/// # Errors
/// There is no such lab, it is incomplete, or it belongs to root.
pub fn counters(name: &str) -> Result<Lab, LabError> {
    let (dir, mut lab) = open(name)?;
    update_state(&dir, &mut lab);
    quota::read(&mut lab);
    NamespaceKeeper::enter_whole(&dir)?;
    let sent = lab
        .nodes
        .iter()
        .map(|node| {
            let shaped = lab.links.iter().any(|link| {
                link.end_at(&node.name).is_some()
                    && matches!(link.mechanism, Mechanism::Tbf | Mechanism::Netem)
            });
            netns::within(&netns_path(&node.netns), || Sent::read(shaped))
                .map_err(not_entered(name, &node.netns))?
        })
        .collect::<Result<Vec<Sent>, LabError>>()?;
    let nodes: Vec<String> = lab.nodes.iter().map(|node| node.name.clone()).collect();
    for (place, link) in lab.links.iter_mut().enumerate() {
        let from = |node: &str| nodes.iter().position(|n| n == node).map(|n| &sent[n]);
        let (Some(a), Some(b)) = (from(&link.a), from(&link.b)) else { continue };
        let mut counters = match link.mechanism {
            Mechanism::Tap => crate::link::counters(&dir, place),
            Mechanism::Veth | Mechanism::Tbf | Mechanism::Netem | Mechanism::Hwsim => {
                Some(Counters {
                    a_to_b: a.direction(link, End::A),
                    b_to_a: b.direction(link, End::B),
                    events_lost: None,
                })
            }
        };
        if let Some(counters) = &mut counters {
            counters.a_to_b.interface_dropped = a.dropped(&link.a_interface);
            counters.b_to_a.interface_dropped = b.dropped(&link.b_interface);
        }
        link.counters = counters;
    }
    Ok(lab)
}

/// Transmit counters of a node's kernel.
struct Sent {
    /// /proc/net/dev.
    interfaces: String,
    /// `tc -s -j qdisc show`.
    qdiscs: Value,
}

impl Sent {
    /// Reads the counters of the calling thread's namespace.
    fn read(shaped: bool) -> Result<Self, LabError> {
        let path = Path::new("/proc/thread-self/net/dev");
        let interfaces = fs::read_to_string(path).map_err(LabError::io("reading net/dev"))?;
        let qdiscs = if shaped {
            let text = Tool::Tc.ask(&["-s", "-j", "qdisc", "show"])?;
            serde_json::from_slice(&text).unwrap_or_default()
        } else {
            Value::Null
        };
        Ok(Self { interfaces, qdiscs })
    }

    fn direction(&self, link: &Link, from: End) -> DirectionCounters {
        let interface = link.interface(from);
        if link.mechanism == Mechanism::Veth {
            return DirectionCounters {
                delivered: self.column(interface, 9).unwrap_or(0),
                delivered_bytes: self.column(interface, 8).unwrap_or(0),
                ..DirectionCounters::default()
            };
        }
        let is_ours = |qdisc: &&Value| qdisc["dev"] == interface && qdisc["root"] == true;
        let qdisc = self.qdiscs.as_array().and_then(|all| all.iter().find(is_ours));
        let number = |key: &str| qdisc.and_then(|qdisc| qdisc[key].as_u64()).unwrap_or(0);
        let dropped = number("drops");
        DirectionCounters {
            delivered: number("packets"),
            delivered_bytes: number("bytes"),
            dropped,
            // netem counts losses and frames without room together.
            overflow: (link.mechanism == Mechanism::Tbf).then_some(dropped),
            ..DirectionCounters::default()
        }
    }

    fn dropped(&self, interface: &str) -> Option<u64> {
        self.column(interface, 11)
    }

    /// Returns a column of the interface's row, from 0: bytes, packets, errs, drop and four more
    /// for reception, then the same for transmission.
    fn column(&self, interface: &str, column: usize) -> Option<u64> {
        let mut rows = self.interfaces.lines().filter_map(|line| line.split_once(':'));
        let (_, numbers) = rows.find(|(name, _)| name.trim() == interface)?;
        numbers.split_whitespace().nth(column)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_belong_to_the_requested_interface() {
        let interfaces = "Inter-|   Receive  |  Transmit\n face |bytes packets\n\
                          n12: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
                          n1: 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36\n";
        let sent = Sent { interfaces: interfaces.to_owned(), qdiscs: Value::Null };
        assert_eq!(sent.column("n1", 9), Some(30));
        assert_eq!(sent.dropped("n12"), Some(12));
        assert_eq!(sent.column("n2", 0), None);
    }
}
