//! The figures of a run of paced packets: what S2 drew, with its boards beside it, and the errors of gaps.

mod errors;
mod largest;
mod pairs;
mod rates;

use serde_json::{Value, json};

use super::{Subject, caption, host};
use crate::data::RunData;
use crate::figure::Figure;
use crate::paced::{Paced, paced, verdicts};

/// The most telling first; empty for another run.
pub(super) fn pace(run: &RunData) -> Vec<Figure> {
    let all = paced(run);
    if all.is_empty() {
        return Vec::new();
    }
    let caption = caption(run);
    let mut figures = Vec::new();
    figures.extend(largest::largest(run, &verdicts(run), &caption));
    for part in parts(&all) {
        for flows in ends(&part) {
            figures.extend(rates::rates(&part, flows, &caption));
        }
        figures.extend(pairs::pairs(&part, &caption));
        figures.extend(errors::errors(&part, &caption));
    }
    figures.extend(Subject::of(run).and_then(|subject| host::host(&subject)));
    figures
}

/// Trials of one node under one set of other parameters.
struct Part<'p, 'a> {
    trials: Vec<&'p Paced<'a>>,
    /// What to add to titles, where there are several parts.
    named: String,
    engines: Vec<String>,
}

fn parts<'p, 'a>(all: &'p [Paced<'a>]) -> Vec<Part<'p, 'a>> {
    let engines = firsts(all.iter().map(|paced| paced.sender.engine.clone()));
    let key = |paced: &Paced| (paced.sender.node.clone(), paced.sender.others.clone());
    let keys = firsts(all.iter().map(key));
    let several = keys.len() > 1;
    keys.into_iter()
        .map(|(node, others)| {
            let of = |paced: &&Paced| paced.sender.node == node && paced.sender.others == others;
            let words: Vec<_> = others.iter().map(|(name, it)| format!(", {name} {it}")).collect();
            Part {
                trials: all.iter().filter(of).collect(),
                named: if several { format!(", {node}{}", words.concat()) } else { String::new() },
                engines: engines.clone(),
            }
        })
        .collect()
}

/// Each once, in the order in which they come.
fn firsts<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut told = Vec::new();
    for one in all {
        if !told.contains(&one) {
            told.push(one);
        }
    }
    told
}

/// The fewest and the most flows of traffic beside trains: S2's figures 3 and 4.
fn ends(part: &Part) -> Vec<u32> {
    let trains = part.trials.iter().filter(|paced| paced.rate.is_some());
    let mut flows: Vec<u32> = trains.map(|paced| paced.sender.flows).collect();
    flows.sort_unstable();
    flows.dedup();
    match flows.as_slice() {
        [] => Vec::new(),
        [only] => vec![*only],
        [fewest, .., most] => vec![*fewest, *most],
    }
}

/// The sizes of IP packets, from the smallest.
fn sizes<'a>(trials: impl Iterator<Item = &'a Paced<'a>>) -> Vec<u64> {
    let mut sizes: Vec<u64> = trials.map(|paced| paced.sender.ip_size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The channel that tells engines apart: more of them than other figures have series, in the colours of
/// the parts of a way, which are as many.
fn apart(engines: &[String]) -> Value {
    json!({
        "field": "group", "type": "nominal", "title": null, "sort": null,
        "scale": {"domain": engines, "range": "ordinal"}
    })
}

/// The same by shape.
fn shapes(engines: &[String]) -> Value {
    json!({
        "field": "group", "type": "nominal", "title": null, "sort": null,
        "scale": {"domain": engines, "range": "symbol"}
    })
}

/// Panels above each other, of which the first has the legend for all.
fn stacked(panels: Vec<Value>) -> Value {
    let apart = json!({"color": "independent", "shape": "independent"});
    json!({"vconcat": panels, "spacing": 24, "resolve": {"scale": apart}})
}

/// `beside 25 cross flows`, or `without cross traffic`.
fn beside(flows: u32) -> String {
    match flows {
        0 => "without cross traffic".to_owned(),
        1 => "beside 1 cross flow".to_owned(),
        n => format!("beside {n} cross flows"),
    }
}
