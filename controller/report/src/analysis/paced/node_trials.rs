//! Trials of packet pairs or trains by sending node.

use super::trial::PacedTrial;
use crate::model::{Published, RunData};

/// Trials of one node with equal other parameters.
pub(crate) struct NodeTrials<'p, 'a> {
    pub(crate) published: &'p Published,
    pub(crate) trials: Vec<&'p PacedTrial<'a>>,
    /// Suffix of titles if there are several such groups.
    pub(crate) named: String,
    /// Caption of the run.
    pub(crate) caption: &'p str,
    /// Engines of all nodes.
    pub(crate) engines: Vec<String>,
}

impl NodeTrials<'_, '_> {
    /// Lowest and highest number of cross-traffic flows with trains, as in figures 3 and 4 of Mok
    /// 2015.
    pub(crate) fn flow_ends(&self) -> Vec<u32> {
        let trains = self.trials.iter().filter(|paced| paced.rate.is_some());
        let mut flows: Vec<u32> = trains.map(|paced| paced.sender.flows).collect();
        flows.sort_unstable();
        flows.dedup();
        match flows.as_slice() {
            [] => Vec::new(),
            [only] => vec![*only],
            [fewest, .., most] => vec![*fewest, *most],
        }
    }
}

/// Trials by node and other parameters, in the order of their first trial.
pub(crate) fn by_node<'p, 'a>(
    run: &'p RunData,
    all: &'p [PacedTrial<'a>],
    caption: &'p str,
) -> Vec<NodeTrials<'p, 'a>> {
    let engines = distinct(all.iter().map(|paced| paced.sender.engine.clone()));
    let key = |paced: &PacedTrial| (paced.sender.node.clone(), paced.sender.others.clone());
    let keys = distinct(all.iter().map(key));
    let several = keys.len() > 1;
    keys.into_iter()
        .map(|(node, others)| {
            let of =
                |paced: &&PacedTrial| paced.sender.node == node && paced.sender.others == others;
            let words: Vec<_> = others.iter().map(|(name, it)| format!(", {name} {it}")).collect();
            NodeTrials {
                published: &run.published,
                trials: all.iter().filter(of).collect(),
                named: if several { format!(", {node}{}", words.concat()) } else { String::new() },
                caption,
                engines: engines.clone(),
            }
        })
        .collect()
}

/// Distinct items in order of appearance.
pub(crate) fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

/// `with 25 cross flows`, or `without cross traffic`.
pub(crate) fn cross_traffic(flows: u32) -> String {
    match flows {
        0 => "without cross traffic".to_owned(),
        1 => "with 1 cross flow".to_owned(),
        n => format!("with {n} cross flows"),
    }
}
