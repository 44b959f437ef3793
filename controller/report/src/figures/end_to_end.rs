//! Stacked 95th percentiles of the node and its two links, with the NLR (Miya 2020, S0.15, S0.17,
//! Fig 8).

use dwell_stats::Quantile;
use serde_json::{Value, json};

use super::parts;
use crate::analysis::condition::{Condition, Links};
use crate::analysis::subject::Subject;
use crate::analysis::{group, nlr};
use crate::figures::figure::{Figure, WIDTH};
use crate::model::axes::RELAY;
use crate::model::quantity::{Unit, delay, delay_ns, share};
use crate::model::table::Table;
use crate::model::{RunData, TrialData, metric};

/// Maximum number of packet sizes, with one bar per relay mode each.
const MAX_SIZES: usize = 4;

/// A relay mode at a packet size, by one trial, because components of different trials must not be
/// combined.
struct StackedBar<'a> {
    trial: &'a TrialData,
    mode: &'a str,
    size: Option<&'a str>,
    /// Node-delay metric at whose timestamps the links end.
    node_metric: &'static str,
    /// 95th percentiles in packet order.
    parts: Vec<(&'static str, i64)>,
    node: i64,
    /// Delay of both links together, per packet.
    links: i64,
    /// End-to-end delay, by the timestamps of both ends.
    whole: Option<i64>,
    /// NLR; `None` if not valid (see [`nlr`]).
    nlr: Option<f64>,
}

/// Returns `None` unless a node and its links have 95th percentiles.
pub(super) fn end_to_end(subject: &Subject) -> Option<Figure> {
    let run = subject.run;
    let condition = Condition::of(run, subject.metric, Links::Rated);
    let conditions = nlr::NlrConditions::of(run);
    let stacks = stacks(subject, &condition.without(&["size"]), &conditions);
    let longest = stacks.iter().map(StackedBar::reach).max()?;
    let unit = Unit::fitting(longest as f64 / 2.0);
    let mut finding = finding(&stacks, condition.level("size"));
    let metric_names =
        nlr::node_delay_names(stacks.iter().map(|stack| (stack.mode, stack.node_metric)));
    if let Some(words) = condition.without(&["size"]).words() {
        finding += &format!(" Fixed: {words}.");
    }
    finding += &format!(
        " Bars stack 95th percentiles, as in Miya 2020{}; they do not sum to the end-to-end 95th \
         percentile (dark line), which includes the ends. Node delay: {metric_names}, where the links end.",
        if repeated(run) { " (the repetition with the median NLR)" } else { "" },
    );
    let drawn: Vec<&TrialData> = stacks.iter().map(|stack| stack.trial).collect();
    finding += &conditions.slow_links(&drawn);
    let title = "Node and link delay, 95th percentiles, with their ratio (NLR)";
    let table = table(&stacks, unit);
    let body = body(&stacks, unit);
    Some(Figure::new("end-to-end", title, finding, &subject.caption, body, table))
}

impl StackedBar<'_> {
    fn label(&self) -> String {
        self.size.map_or_else(|| self.mode.to_owned(), |size| format!("{}, {size}", self.mode))
    }

    /// End of the bar or of the line, whichever is larger.
    fn reach(&self) -> i64 {
        let stacked = self.parts.iter().map(|(_, ns)| *ns).sum();
        self.whole.map_or(stacked, |whole| whole.max(stacked))
    }
}

fn repeated(run: &RunData) -> bool {
    run.trials.iter().any(|trial| trial.repetition > 1)
}

fn stacks<'a>(
    subject: &Subject<'a>,
    held: &Condition,
    conditions: &nlr::NlrConditions,
) -> Vec<StackedBar<'a>> {
    let run = subject.run;
    let sizes: Vec<Option<&str>> = match run.axis("size") {
        Some(axis) => {
            group::evenly(axis.values.iter().map(|v| Some(v.as_str())).collect(), MAX_SIZES)
        }
        None => vec![None],
    };
    let mut stacks = Vec::new();
    for mode in run.modes() {
        for size in &sizes {
            let fits = |trial: &&TrialData| {
                held.holds(trial)
                    && trial.is_at(RELAY, mode)
                    && size.is_none_or(|it| trial.is_at("size", it))
            };
            let trials: Vec<&TrialData> = run.finished_trials().filter(fits).collect();
            let Some(trial) = middle(&trials) else { continue };
            let p95 = |metric: &str| p95(trial, metric);
            let Some(node_metric) = nlr::node_delay_metric(trial) else { continue };
            let (Some(node), Some(links)) = (p95(node_metric), p95("link_delay_ns")) else {
                continue;
            };
            let parts = match (p95("link_in_ns"), p95("link_out_ns")) {
                (Some(before), Some(behind)) => {
                    vec![(parts::LINK_IN, before), (parts::NODE, node), (parts::LINK_OUT, behind)]
                }
                _ => vec![(parts::NODE, node), (parts::LINKS, links)],
            };
            let whole = p95("end_to_end_ns");
            let nlr = conditions.of_trial(trial);
            stacks.push(StackedBar {
                trial,
                mode,
                size: *size,
                node_metric,
                parts,
                node,
                links,
                whole,
                nlr,
            });
        }
    }
    stacks
}

/// 95th percentile of a trial, from the summary for components without a distribution.
fn p95(trial: &TrialData, metric: &str) -> Option<i64> {
    let stored = || trial.summary.as_ref()?.metrics.get(metric)?.p95;
    group::percentile_of(trial, metric, Quantile::P95).or_else(stored)
}

/// Trial with the median ratio of node to link delay.
fn middle<'a>(trials: &[&'a TrialData]) -> Option<&'a TrialData> {
    let ratio = |trial: &&'a TrialData| {
        let (node, links) =
            (p95(trial, nlr::node_delay_metric(trial)?)?, p95(trial, "link_delay_ns")?);
        Some((*trial, node as f64 / links.max(1) as f64))
    };
    let mut all: Vec<_> = trials.iter().filter_map(ratio).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    Some(all.get(all.len().checked_sub(1)? / 2)?.0)
}

/// Node and link delay of each mode at the fixed packet size.
fn finding(stacks: &[StackedBar], size: Option<&str>) -> String {
    let near = stacks.iter().filter(|stack| stack.size == size || stack.size.is_none());
    let said = |stack: &StackedBar| {
        let nlr = stack.nlr.map_or_else(String::new, |nlr| format!(", NLR {}", share(nlr)));
        let (node, links) = (delay_ns(stack.node), delay_ns(stack.links));
        let sending = nlr::transmission_ns(stack.trial)
            .map_or_else(String::new, |ns| format!(" (transmission {})", delay(ns)));
        format!("{}: node {node}, links {links}{sending}{nlr}", stack.label())
    };
    let all: Vec<String> = near.map(said).collect();
    if all.is_empty() {
        return "Cannot tell: no trial at the fixed packet size.".to_owned();
    }
    format!("95th percentiles by mode: {}.", all.join("; "))
}

fn table(stacks: &[StackedBar], unit: Unit) -> Table {
    let names = parts::present(|name| stacks.iter().any(|s| s.parts.iter().any(|p| p.0 == name)));
    let mut table = Table { columns: vec!["group".to_owned()], rows: Vec::new() };
    table.columns.extend(names.iter().map(|name| format!("{name} [{}]", unit.name())));
    table.columns.extend([
        format!("both links of a packet [{}]", unit.name()),
        format!("transmission alone [{}]", unit.name()),
        format!("{} [{}]", metric::words("end_to_end_ns"), unit.name()),
        "node over links (NLR)".to_owned(),
    ]);
    for stack in stacks {
        let cell = |ns: Option<i64>| unit.cell(ns.map(|ns| ns as f64));
        let part = |name: &&str| stack.parts.iter().find(|p| p.0 == *name).map(|p| p.1);
        let mut row = vec![stack.label()];
        row.extend(names.iter().map(|name| cell(part(name))));
        row.push(cell(Some(stack.links)));
        row.extend([unit.cell(nlr::transmission_ns(stack.trial)), cell(stack.whole)]);
        row.push(stack.nlr.map_or_else(|| "-".to_owned(), share));
        table.rows.push(row);
    }
    table
}

fn body(stacks: &[StackedBar], unit: Unit) -> Value {
    let (mut bars, mut ends) = (Vec::new(), Vec::new());
    for stack in stacks {
        let mut from = 0;
        for (part, ns) in &stack.parts {
            bars.push(json!({
                "row": stack.label(), "group": part, "from": unit.of(from as f64),
                "to": unit.of((from + ns) as f64), "p95": delay_ns(*ns)
            }));
            from += ns;
        }
        let nlr = stack.nlr.map_or_else(String::new, |nlr| format!("NLR {}", share(nlr)));
        ends.push(json!({
            "row": stack.label(), "whole": stack.whole.map(|ns| unit.of(ns as f64)),
            "end": unit.of(stack.reach() as f64), "label": nlr,
            "said": stack.whole.map(delay_ns)
        }));
    }
    let labels: Vec<String> = stacks.iter().map(StackedBar::label).collect();
    let names = parts::present(|name| stacks.iter().any(|s| s.parts.iter().any(|p| p.0 == name)));
    let title = format!("95th percentile, stacked [{}]", unit.name());
    let x = |field: &str| {
        json!({
            "field": field, "type": "quantitative", "scale": {"zero": true, "nice": true},
            "axis": {"title": title, "format": ",.6~r"}
        })
    };
    json!({
        "width": WIDTH, "height": {"step": 30},
        "encoding": {"y": {
            "field": "row", "type": "nominal", "sort": labels, "scale": {"domain": labels},
            "axis": {"title": null, "ticks": false, "domain": false, "labelPadding": 8}
        }},
        "layer": [
            {
                "data": {"values": bars},
                "mark": {"type": "bar", "size": 16, "style": "part"},
                "encoding": {
                    "x": x("from"), "x2": {"field": "to"}, "color": parts::colour(&names),
                    "tooltip": [
                        {"field": "row", "title": "mode"}, {"field": "group", "title": "part"},
                        {"field": "p95", "title": "95th percentile"}
                    ]
                }
            },
            {
                "data": {"values": ends},
                "mark": {"type": "tick", "style": "middle", "size": 22},
                "encoding": {
                    "x": x("whole"),
                    "tooltip": [
                        {"field": "row", "title": "mode"},
                        {"field": "said", "title": "end to end, 95th percentile"}
                    ]
                }
            },
            {
                "data": {"values": ends},
                "mark": {"type": "text", "style": "label", "align": "left", "dx": 6, "fontSize": 11},
                "encoding": {"x": x("end"), "text": {"field": "label", "type": "nominal"}}
            }
        ]
    })
}
