//! Distribution of |gap - scheduled gap| by engine, at one condition.

use dwell_stats::Quantile;
use dwell_units::BitRate;

use super::panels::sizes;
use crate::analysis::group::{Group, MAX_OVERLAID};
use crate::analysis::paced::{NodeTrials, PacedTrial, cross_traffic};
use crate::figures::cumulative::ecdf;
use crate::figures::figure::Figure;
use crate::figures::overlay::Overlay;
use crate::model::quantity::Unit;

const METRIC: &str = "gap_error_ns";

/// Target rate in bit/s: the nearest measured rate is shown. Most boards of Mok 2015 have Fast
/// Ethernet.
const TARGET_RATE_BPS: f64 = 100e6;

/// Returns figures for the lowest and the highest cross traffic, with the largest packets. Engines
/// beyond the maximum of one figure are in further figures.
pub(crate) fn errors(node: &NodeTrials) -> Vec<Figure> {
    node.flow_ends().into_iter().flat_map(|flows| at(node, flows)).collect()
}

fn at(node: &NodeTrials, flows: u32) -> Vec<Figure> {
    let measured = |paced: &&PacedTrial| {
        let drawn = paced.trial.series.get(METRIC);
        let drawn = drawn.is_some_and(|series| series.steps.iter().any(|step| step.count > 0));
        paced.sender.flows == flows && paced.rate.is_some() && drawn
    };
    let trials: Vec<&PacedTrial> = node.trials.iter().copied().filter(measured).collect();
    let away = |rate: &BitRate| (rate.0.max(1) as f64 / TARGET_RATE_BPS).ln().abs();
    let rate =
        trials.iter().filter_map(|paced| paced.rate).min_by(|a, b| away(a).total_cmp(&away(b)));
    let Some(rate) = rate else { return Vec::new() };
    let at_rate = || trials.iter().copied().filter(move |paced| paced.rate == Some(rate));
    let Some(size) = sizes(at_rate()).into_iter().max() else { return Vec::new() };
    let mut groups: Vec<Group> = node
        .engines
        .iter()
        .map(|engine| {
            let of = |paced: &&PacedTrial| {
                paced.sender.engine == *engine && paced.sender.ip_size == size
            };
            let trials = at_rate().filter(of).map(|paced| paced.trial).collect();
            Group::new(engine.clone(), trials, METRIC)
        })
        .collect();
    groups.retain(|group| group.steps.count() > 0);
    // A logarithmic axis has no zero.
    let mut none = false;
    for group in &mut groups {
        if let (Some(0), Some(most)) = (group.steps.min(), group.steps.max()) {
            group.steps = group.steps.between(1, most.max(1));
            none = true;
        }
    }
    let middle = groups.iter().filter_map(|group| group.steps.quantile(Quantile::P50)).max();
    let unit = Unit::fitting(middle.unwrap_or_default() as f64);
    let drawn_at = if none { " Zero errors are drawn at 1 ns." } else { "" };
    let note =
        format!("Fixed: {rate}, IP packets of {size} B, {}.{drawn_at}", cross_traffic(flows));
    // Distribute the groups evenly over figures.
    let figures = groups.len().div_ceil(MAX_OVERLAID).max(1);
    let each = groups.len().div_ceil(figures).max(1);
    let drawn = groups.chunks(each).filter_map(|groups| {
        let overlay = Overlay {
            noun: "gap error",
            unit,
            caption: node.caption,
            groups,
            by: "engine",
            note: Some(note.as_str()),
            finding: None,
        };
        let figure = ecdf(&overlay)?;
        let engines: Vec<&str> = groups.iter().map(|group| group.label.as_str()).collect();
        let title = format!(
            "{}, {}{} ({})",
            figure.title,
            cross_traffic(flows),
            node.named,
            engines.join(", ")
        );
        let finding = figure.finding.replacen("Median:", "Median gap error:", 1);
        Some(figure.with_title(title).with_finding(finding))
    });
    drawn
        .map(|mut figure| {
            figure.id = format!("gap-errors-{flows}");
            figure
        })
        .collect()
}
