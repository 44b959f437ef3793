//! Figures of send-time accuracy as in Mok 2015, with its boards for comparison, and gap errors.

mod errors;
mod largest;
mod pairs;
mod rates;

use serde_json::{Value, json};

use super::{Subject, caption, host};
use crate::data::RunData;
use crate::figure::Figure;
use crate::paced::{PacedTrial, paced, verdicts};

/// Returns the figures, the most informative first; empty for other runs.
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

/// Trials of one node with equal other parameters.
struct Part<'p, 'a> {
    trials: Vec<&'p PacedTrial<'a>>,
    /// Suffix of titles if there are several parts.
    named: String,
    engines: Vec<String>,
}

fn parts<'p, 'a>(all: &'p [PacedTrial<'a>]) -> Vec<Part<'p, 'a>> {
    let engines = distinct(all.iter().map(|paced| paced.sender.engine.clone()));
    let key = |paced: &PacedTrial| (paced.sender.node.clone(), paced.sender.others.clone());
    let keys = distinct(all.iter().map(key));
    let several = keys.len() > 1;
    keys.into_iter()
        .map(|(node, others)| {
            let of =
                |paced: &&PacedTrial| paced.sender.node == node && paced.sender.others == others;
            let words: Vec<_> = others.iter().map(|(name, it)| format!(", {name} {it}")).collect();
            Part {
                trials: all.iter().filter(of).collect(),
                named: if several { format!(", {node}{}", words.concat()) } else { String::new() },
                engines: engines.clone(),
            }
        })
        .collect()
}

/// Distinct items in order of appearance.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

/// Lowest and highest number of cross-traffic flows with trains, as in figures 3 and 4 of Mok 2015.
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

/// Sizes of IP packets in ascending order.
fn sizes<'a>(trials: impl Iterator<Item = &'a PacedTrial<'a>>) -> Vec<u64> {
    let mut sizes: Vec<u64> = trials.map(|paced| paced.sender.ip_size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Colour channel of engines, which outnumber the series colours: it uses those of delay
/// components.
fn engine_colours(engines: &[String]) -> Value {
    json!({
        "field": "group", "type": "nominal", "title": null, "sort": null,
        "scale": {"domain": engines, "range": "ordinal"}
    })
}

/// Shape channel of engines.
fn engine_shapes(engines: &[String]) -> Value {
    json!({
        "field": "group", "type": "nominal", "title": null, "sort": null,
        "scale": {"domain": engines, "range": "symbol"}
    })
}

/// Stacked panels; the first has the legend for all.
fn stacked(panels: Vec<Value>) -> Value {
    let scales = json!({"color": "independent", "shape": "independent"});
    json!({"vconcat": panels, "spacing": 24, "resolve": {"scale": scales}})
}

/// `with 25 cross flows`, or `without cross traffic`.
fn cross_traffic(flows: u32) -> String {
    match flows {
        0 => "without cross traffic".to_owned(),
        1 => "with 1 cross flow".to_owned(),
        n => format!("with {n} cross flows"),
    }
}
