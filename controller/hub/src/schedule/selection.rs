//! Selections of nodes and pairs by names of nodes and groups, in schedules and alert rules.

use std::collections::{BTreeMap, BTreeSet};

use dwell_rollup::Name;

use super::file::{Names, Star};

/// Maximum number of pairs of a selection.
const MAX_PAIRS: usize = 1_000_000;

/// The meaning of names.
#[derive(Clone, Copy)]
pub(crate) struct NodeNames<'a> {
    /// Members of groups, by name.
    pub(crate) groups: &'a BTreeMap<String, Vec<String>>,
    /// The nodes. The group `all` contains them.
    pub(crate) nodes: &'a BTreeSet<Name>,
}

/// A selection of pairs.
#[derive(Clone, Copy)]
pub(crate) struct Selection<'a> {
    /// Every ordered pair of these nodes.
    pub(crate) mesh: Option<&'a Names>,
    /// Every node of one set to every node of another.
    pub(crate) star: Option<&'a Star>,
    /// Single pairs, as `SENDER:REFLECTOR`.
    pub(crate) pairs: &'a [String],
}

impl NodeNames<'_> {
    /// Returns the nodes that these names of nodes and groups name.
    pub(crate) fn members(&self, names: &[String]) -> Result<BTreeSet<Name>, String> {
        let mut members = BTreeSet::new();
        for name in names {
            if name == "all" {
                members.extend(self.nodes.iter().cloned());
            } else if let Some(group) = self.groups.get(name) {
                for member in group {
                    members.insert(self.node(member)?);
                }
            } else {
                members.insert(self.node(name)?);
            }
        }
        Ok(members)
    }

    fn node(&self, name: &str) -> Result<Name, String> {
        let node = name.parse().ok().filter(|node| self.nodes.contains(node));
        if let Some(node) = node {
            return Ok(node);
        }
        if self.groups.contains_key(name) {
            return Err(format!("'{name}' is a group; a group contains nodes only"));
        }
        Err(format!(
            "'{name}' is no node and no group; add it with `dwell device add {name}`, or as \
             [nodes.{name}] of the schedule"
        ))
    }

    /// Returns the pairs of a selection.
    pub(crate) fn pairs(&self, of: Selection<'_>) -> Result<BTreeSet<(Name, Name)>, String> {
        let mut pairs = BTreeSet::new();
        let product = |from: &BTreeSet<Name>, to: &BTreeSet<Name>| {
            let pair = |sender: &Name| {
                let others = to.iter().filter(|reflector| *reflector != sender).cloned();
                let sender = sender.clone();
                others.map(move |reflector| (sender.clone(), reflector)).collect::<Vec<_>>()
            };
            if from.len().saturating_mul(to.len()) > MAX_PAIRS {
                return Err(format!("it has more than {MAX_PAIRS} streams"));
            }
            Ok(from.iter().flat_map(pair).collect::<Vec<_>>())
        };
        if let Some(mesh) = of.mesh {
            let nodes = self.members(mesh.as_slice())?;
            pairs.extend(product(&nodes, &nodes)?);
        }
        if let Some(star) = of.star {
            let (from, to) =
                (self.members(star.from.as_slice())?, self.members(star.to.as_slice())?);
            pairs.extend(product(&from, &to)?);
            if star.both {
                pairs.extend(product(&to, &from)?);
            }
        }
        for pair in of.pairs {
            let (sender, reflector) = pair
                .split_once(':')
                .ok_or_else(|| format!("'{pair}' is no pair; write it like SENDER:REFLECTOR"))?;
            let (sender, reflector) = (self.node(sender)?, self.node(reflector)?);
            if sender == reflector {
                return Err(format!("'{pair}': a node does not probe itself"));
            }
            pairs.insert((sender, reflector));
        }
        if pairs.is_empty() {
            return Err("it has no pair of different nodes".to_owned());
        }
        Ok(pairs)
    }
}
