//! Gaps of packet pairs, and the capacity that they can measure (Mok 2015, S2.4).

use dwell_units::{BitRate, Bytes};
use serde_json::{Value, json};

use super::panels::{sizes, stacked};
use crate::analysis::paced::{NodeTrials, PacedTrial, cross_traffic};
use crate::figures::figure::{Figure, WIDTH, delay_axis, group_channel, without_legend};
use crate::model::quantity::{Unit, delay, significant};
use crate::model::table::Table;

/// Smallest and median gap per engine, one panel per size. Returns `None` without pairs.
pub(crate) fn pairs(node: &NodeTrials) -> Option<Figure> {
    let known = |paced: &&PacedTrial| paced.pairs && smallest(paced).is_some();
    let trials: Vec<&PacedTrial> = node.trials.iter().copied().filter(known).collect();
    let gaps: Vec<f64> =
        trials.iter().flat_map(|it| [smallest(it), median(it)]).flatten().collect();
    let least = gaps.iter().copied().min_by(f64::total_cmp)?;
    let most = gaps.iter().copied().max_by(f64::total_cmp)?;
    let unit = Unit::fitting(least);
    let mut flows: Vec<u32> = trials.iter().map(|paced| paced.sender.flows).collect();
    flows.sort_unstable();
    flows.dedup();
    let flows: Vec<String> = flows.into_iter().map(cross_traffic).collect();
    let engines: Vec<&String> = node
        .engines
        .iter()
        .filter(|engine| trials.iter().any(|paced| paced.sender.engine == **engine))
        .collect();
    let panel = |(i, size): (usize, u64)| {
        let (scale, axis) = delay_axis("gap between two packets", unit, least, most);
        let rows = trials.iter().filter(|paced| paced.sender.ip_size == size);
        let rows: Vec<Value> = rows
            .map(|paced| {
                json!({
                    "engine": paced.sender.engine, "group": cross_traffic(paced.sender.flows),
                    "smallest": smallest(paced).map(|ns| unit.of(ns)),
                    "median": median(paced).map(|ns| unit.of(ns)),
                    "capacity": capacity(paced).map(|bps| rate(bps).to_string())
                })
            })
            .collect();
        let channel = group_channel(flows.iter().map(String::as_str));
        let colour = if i == 0 { channel.clone() } else { without_legend(&channel) };
        let x = |field: &str| json!({"field": field, "type": "quantitative", "scale": scale, "axis": axis});
        json!({
            "title": {"text": format!("IP packets of {size} B"), "orient": "top", "fontSize": 12, "fontWeight": 600, "offset": 6},
            "data": {"values": rows},
            "width": WIDTH, "height": {"step": 26, "for": "position"},
            "encoding": {
                "y": {
                    "field": "engine", "type": "nominal", "sort": engines,
                    "axis": {"title": null, "ticks": false, "domain": false, "grid": true}
                },
                "yOffset": {"field": "group", "type": "nominal", "scale": {"domain": flows}},
                "color": colour
            },
            "layer": [
                {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": {"x": x("smallest"), "x2": {"field": "median"}}},
                {"mark": {"type": "tick", "thickness": 2, "size": 12, "tooltip": true}, "encoding": {"x": x("smallest")}},
                {"mark": {"type": "point", "filled": true, "size": 45, "tooltip": true}, "encoding": {"x": x("median")}}
            ]
        })
    };
    let sizes = sizes(trials.iter().copied());
    let panels: Vec<Value> = sizes.into_iter().enumerate().map(panel).collect();
    let body = stacked(panels);
    let title = format!("Gap of back-to-back packet pairs{}", node.named);
    Some(Figure::new("pairs", title, finding(&trials), node.caption, body, table(&trials, unit)))
}

fn smallest(paced: &PacedTrial) -> Option<f64> {
    paced.value("min_gap_ns").filter(|ns| *ns > 0.0)
}

fn median(paced: &PacedTrial) -> Option<f64> {
    let gap = paced.summary?.metrics.get("gap_ns")?;
    gap.p50.map(|ns| ns as f64).filter(|ns| *ns > 0.0)
}

fn capacity(paced: &PacedTrial) -> Option<f64> {
    paced.value("capacity_bps")
}

/// Rate to three digits.
fn rate(bps: f64) -> BitRate {
    BitRate(significant(bps, 3) as u64)
}

fn table(trials: &[&PacedTrial], unit: Unit) -> Table {
    let mut table = Table::new([
        "engine",
        "IP packet",
        "cross flows",
        "smallest gap",
        "median gap",
        "measurable capacity",
        "capacity at the median gap",
        "merged pairs",
    ]);
    for column in &mut table.columns[3..5] {
        *column = format!("{column} [{}]", unit.name());
    }
    let rate_cell =
        |bps: Option<f64>| bps.map_or_else(|| "-".to_owned(), |bps| rate(bps).to_string());
    for paced in trials {
        table.row([
            paced.sender.engine.clone(),
            Bytes(paced.sender.ip_size).to_string(),
            paced.sender.flows.to_string(),
            unit.cell(smallest(paced)),
            unit.cell(median(paced)),
            rate_cell(capacity(paced)),
            rate_cell(paced.value("capacity_median_bps")),
            paced.value("merged_pairs").map_or_else(|| "-".to_owned(), |n| n.to_string()),
        ]);
    }
    table
}

fn finding(trials: &[&PacedTrial]) -> String {
    let by_gap = |a: &&&PacedTrial, b: &&&PacedTrial| {
        let gap = |paced: &PacedTrial| median(paced).unwrap_or(f64::MAX);
        gap(a).total_cmp(&gap(b))
    };
    let Some(best) = trials.iter().min_by(by_gap) else { return String::new() };
    let of = capacity(best).map_or_else(String::new, |bps| {
        format!("; its smallest gap can measure a capacity of {}", rate(bps))
    });
    let gap = median(best).map_or_else(|| "-".to_owned(), delay);
    format!(
        "Smallest median gap {gap}: {} with IP packets of {} B {}{of}.",
        best.sender.engine,
        best.sender.ip_size,
        cross_traffic(best.sender.flows)
    )
}
