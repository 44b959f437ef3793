//! Stacked mean parts of spikes, by cause (`dwell ping --explain`). Parts of a spike sum to its
//! delay, and so do the means of the parts to the mean delay of the spikes.

use dwell_record::{Cause, CauseKind, Spikes};
use serde_json::{Value, json};

use crate::analysis::group::{self, Group};
use crate::analysis::subject::Subject;
use crate::figures::figure::{Figure, WIDTH, group_channel};
use crate::model::quantity::{Unit, delay, share};
use crate::model::table::Table;

/// Maximum number of segments, one for each colour; the last joins the causes that are left.
const MAX_SEGMENTS: usize = 6;
const OTHER: &str = "other causes";

/// Spikes of the trials that form one bar.
struct Bar {
    label: String,
    /// Number of spikes that are divided.
    spikes: u64,
    /// Sum of the times by cause.
    sums: Vec<(&'static str, i64)>,
    /// Main cause of most spikes, and their number.
    most: Option<(Cause, u64)>,
}

/// Returns `None` without divided spikes.
pub(super) fn spike_causes(subject: &Subject) -> Option<Figure> {
    let (groups, note) = group::overlaid(subject.run, subject.metric);
    let bars: Vec<Bar> = groups.iter().filter_map(Bar::of).collect();
    let widest = bars.iter().map(Bar::mean).max_by(f64::total_cmp)?;
    let unit = Unit::fitting(widest);
    let names = names(&bars);
    let mut table = Table { columns: vec!["group".into(), "spikes".into()], rows: Vec::new() };
    table.columns.extend(names.iter().map(|name| format!("{name} [{}]", unit.name())));
    table.columns.push(format!("mean delay of spikes [{}]", unit.name()));
    for bar in &bars {
        let mut row = vec![bar.label.clone(), bar.spikes.to_string()];
        row.extend(names.iter().map(|name| unit.cell(Some(bar.part(name, &names)))));
        row.push(unit.cell(Some(bar.mean())));
        table.rows.push(row);
    }
    let finding: Vec<String> = bars.iter().filter_map(Bar::finding).take(3).collect();
    let note = note.map_or_else(String::new, |note| format!(" {note}"));
    let finding = format!("{}.{note}", finding.join(". "));
    let body = body(&bars, &names, unit, widest);
    Some(Figure::new("spike-causes", "Spike causes", finding, &subject.caption, body, table))
}

impl Bar {
    fn of(group: &Group) -> Option<Self> {
        let summaries = group.trials.iter().filter_map(|trial| trial.summary.as_ref());
        let all: Vec<&Spikes> = summaries.filter_map(|summary| summary.spikes.as_ref()).collect();
        let spikes = all.iter().map(|spikes| spikes.explained).sum();
        if spikes == 0 {
            return None;
        }
        let mut sums: Vec<_> = CauseKind::ALL.iter().map(|kind| (kind.words(), 0)).collect();
        let mut main: Vec<(Cause, u64)> = Vec::new();
        for total in all.iter().flat_map(|spikes| &spikes.causes) {
            let sum = &mut sums[total.cause as usize].1;
            *sum = total.time_ns.saturating_add(*sum);
            let cause = Cause { kind: total.cause, by: total.by.clone(), pid: None };
            match main.iter_mut().find(|(known, _)| *known == cause) {
                Some((_, count)) => *count += total.spikes,
                None => main.push((cause, total.spikes)),
            }
        }
        let most = main.into_iter().max_by_key(|(_, count)| *count);
        Some(Self { label: group.label.clone(), spikes, sums, most })
    }

    /// Mean delay of the spikes in nanoseconds.
    fn mean(&self) -> f64 {
        self.sums.iter().map(|(_, ns)| *ns as f64).sum::<f64>() / self.spikes as f64
    }

    /// Mean time of a cause; [`OTHER`] is the sum of those that are not in `names`.
    fn part(&self, name: &str, names: &[&str]) -> f64 {
        let is_part = |of: &str| of == name || (name == OTHER && !names.contains(&of));
        let sum: i64 = self.sums.iter().filter(|(of, _)| is_part(of)).map(|(_, ns)| ns).sum();
        sum as f64 / self.spikes as f64
    }

    fn finding(&self) -> Option<String> {
        let (cause, count) = self.most.as_ref()?;
        let of = share(*count as f64 / self.spikes as f64);
        let place = if self.label.is_empty() { "" } else { " at " };
        Some(format!("{count} of {} spikes ({of}): {cause}{place}{}", self.spikes, self.label))
    }
}

/// The causes with a segment, in the order of [`CauseKind::ALL`].
fn names(bars: &[Bar]) -> Vec<&'static str> {
    let sum = |name: &str| -> f64 { bars.iter().map(|bar| bar.part(name, &[])).sum() };
    let mut names: Vec<&str> = CauseKind::ALL.iter().map(|kind| kind.words()).collect();
    names.retain(|name| sum(name) > 0.0);
    if names.len() > MAX_SEGMENTS {
        let mut largest = names.clone();
        largest.sort_by(|a, b| sum(b).total_cmp(&sum(a)));
        largest.truncate(MAX_SEGMENTS - 1);
        names.retain(|name| largest.contains(name));
        names.push(OTHER);
    }
    names
}

fn body(bars: &[Bar], names: &[&str], unit: Unit, widest: f64) -> Value {
    let mut rows = Vec::new();
    for bar in bars {
        let mut from = 0.0;
        for name in names {
            let ns = bar.part(name, names);
            if ns <= 0.0 {
                continue;
            }
            let label = if ns > 0.09 * widest { delay(ns) } else { String::new() };
            rows.push(json!({
                "row": bar.label, "group": name, "from": unit.of(from), "to": unit.of(from + ns),
                "middle": unit.of(from + ns / 2.0), "label": label, "mean": delay(ns),
                "spikes": bar.spikes
            }));
            from += ns;
        }
    }
    let labels: Vec<&str> = bars.iter().map(|bar| bar.label.as_str()).collect();
    let title = format!("mean delay of spikes [{}]", unit.name());
    let x = |field: &str| {
        json!({
            "field": field, "type": "quantitative", "scale": {"zero": true, "nice": false},
            "axis": {"title": title, "format": ",.6~r"}
        })
    };
    let tooltip = json!([
        {"field": "row", "title": "group"}, {"field": "group", "title": "cause"},
        {"field": "mean"}, {"field": "spikes"}
    ]);
    let colour = group_channel(names.iter().copied());
    json!({
        "data": {"values": rows}, "width": WIDTH, "height": {"step": 40},
        "encoding": {"y": {
            "field": "row", "type": "nominal", "sort": labels,
            "axis": {"title": null, "ticks": false, "domain": false, "labelPadding": 8}
        }},
        "layer": [
            {
                "mark": {"type": "bar", "size": 18, "yOffset": 7},
                "encoding": {
                    "x": x("from"), "x2": {"field": "to"}, "color": colour, "tooltip": tooltip
                }
            },
            {
                "mark": {"type": "text", "style": "label", "fontSize": 11, "yOffset": -9},
                "encoding": {"x": x("middle"), "text": {"field": "label", "type": "nominal"}}
            }
        ]
    })
}
