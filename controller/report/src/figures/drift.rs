//! Trials in the order of execution, to detect drift during the run.

use dwell_stats::{Block, Quantile, Shift, blocked_shift};
use serde_json::json;

use crate::analysis::group::{self, Group};
use crate::analysis::subject::Subject;
use crate::figures::figure::{Figure, WIDTH, delay_axis, group_channel};
use crate::model::TrialData;
use crate::model::axes::RELAY;
use crate::model::distribution::SampleDistribution;
use crate::model::quantity::{compared, count, delay};
use crate::model::table::Table;

/// Maximum number of trials; beyond it, evenly spaced ones are drawn.
const MAX_TRIALS: usize = 600;

/// Returns `None` with fewer than four trials with samples.
pub(super) fn drift(subject: &Subject) -> Option<Figure> {
    let unit = subject.unit;
    let mut trials: Vec<_> = subject.run.finished_trials().collect();
    trials.sort_by_key(|trial| trial.order);
    let mut measured = Vec::new();
    for trial in trials {
        let Some(series) = trial.series.get(subject.metric) else { continue };
        let steps = SampleDistribution::merged([series.steps.as_slice()]);
        if let Some(median) = group::percentile_of(trial, subject.metric, Quantile::P50) {
            measured.push((trial, steps, median));
        }
    }
    if measured.len() < 4 {
        return None;
    }
    let finding =
        finding(subject, &measured.iter().map(|(t, _, m)| (t.trial, *m)).collect::<Vec<_>>());
    let total = measured.len();
    let shown = group::evenly(measured, MAX_TRIALS);
    let mut table = Table::new(["order", "trial", "samples", "p1", "p50", "p99"]);
    for column in &mut table.columns[3..] {
        *column = format!("{column} [{}]", unit.name());
    }
    let (mut rows, mut min, mut max) = (Vec::new(), f64::MAX, f64::MIN);
    for (trial, steps, median) in &shown {
        let at = |ppm| {
            let quantile = Quantile::from_ppm(ppm)?;
            group::percentile_of(trial, subject.metric, quantile)
        };
        let low = at(10_000).or(steps.min())? as f64;
        let high = at(990_000).or(steps.max())? as f64;
        (min, max) = (min.min(low), max.max(high));
        let label = group::trial_label(subject.run, trial);
        rows.push(json!({
            "order": trial.order, "trial": label, "group": mode(trial), "p1": unit.of(low),
            "p50": unit.of(*median as f64), "p99": unit.of(high)
        }));
        let p1 = unit.cell(Some(low));
        let group = Group::new(String::new(), vec![*trial], subject.metric);
        let p50 = group.cell(unit, Quantile::P50);
        // With fewer than 100 samples the maximum replaces p99.
        let p99 = match group.quantile(Quantile::P99) {
            Some(_) => group.cell(unit, Quantile::P99),
            None => unit.cell(Some(high)),
        };
        table.row([trial.order.to_string(), label, count(steps.count()), p1, p50, p99]);
    }
    let (scale, axis) = delay_axis("delay", unit, min, max);
    let y =
        |field: &str| json!({"field": field, "type": "quantitative", "scale": scale, "axis": axis});
    let mut body = json!({
        "data": {"values": rows}, "width": WIDTH, "height": 220,
        "encoding": {"x": {
            "field": "order", "type": "quantitative",
            "scale": {"zero": false, "nice": false, "padding": 8},
            "axis": {"title": "order of execution", "format": "d", "tickMinStep": 1, "grid": false}
        }},
        "layer": [
            {"mark": {"type": "rule", "style": "whisker", "opacity": 0.6}, "encoding": {"y": y("p1"), "y2": {"field": "p99"}}},
            {
                "mark": {"type": "point", "style": "extreme", "shape": "circle", "filled": true, "size": 40},
                "encoding": {
                    "y": y("p50"),
                    "tooltip": [{"field": "trial"}, {"field": "p1"}, {"field": "p50"}, {"field": "p99"}]
                }
            }
        ]
    });
    if !subject.run.modes().is_empty() {
        let labels: Vec<String> =
            subject.run.modes().iter().map(|mode| format!("{RELAY} {mode}")).collect();
        let channel = group_channel(labels.iter().map(String::as_str));
        body["layer"][0]["encoding"]["color"] = channel.clone();
        body["layer"][1]["encoding"]["color"] = channel.clone();
        body["layer"][1]["encoding"]["shape"] = channel;
    }
    let title = format!("{} by trial order", subject.title());
    let more = if total > MAX_TRIALS {
        format!(" Shown: {MAX_TRIALS} of {total} trials, evenly spaced.")
    } else {
        String::new()
    };
    let (finding, table) = (finding + &more, table.label_intervals());
    let figure = Figure::new("drift", title, finding, &subject.caption, body, table);
    Some(figure.explained("Dots: medians; lines: p1 to p99."))
}

/// Label of the trial's relay mode.
fn mode(trial: &TrialData) -> Option<String> {
    trial.parameters.get(RELAY).map(|mode| format!("{RELAY} {mode}"))
}

/// Compares early and late trials within each cell, so that the order is not confounded with
/// parameters.
fn finding(subject: &Subject, medians: &[(u32, i64)]) -> String {
    const CONFIDENCE: f64 = 0.95;
    let half = medians.len() / 2;
    let mut cells = vec![Block::default(); subject.cells.len()];
    for (i, (number, median)) in medians.iter().enumerate() {
        let has = |cell: &Group| cell.trials.iter().any(|trial| trial.trial == *number);
        let Some(cell) = subject.cells.iter().position(has) else { continue };
        let side = if i < half { &mut cells[cell].a } else { &mut cells[cell].b };
        side.push(*median as f64);
    }
    let found = blocked_shift(&cells, CONFIDENCE);
    let Some((found, interval)) = found.and_then(|found| Some((found, found.interval?))) else {
        return "Cannot tell whether delays drifted during the run: too few repetitions."
            .to_owned();
    };
    let (low, high) = (interval.low, interval.high);
    let (from, to) = if found.relative {
        let text = |ratio: f64| compared(1.0, ratio).unwrap_or_default();
        (text(low), text(high))
    } else {
        (delay(low), delay(high))
    };
    let within = format!("{from} to {to} (95 % CI)");
    let against = "later against earlier trials of the same cell, median";
    match found.shift {
        // A change within 5 % is no drift, even if it is certain.
        _ if found.relative && low > 1.0 / 1.05 && high < 1.05 => {
            format!("No drift above 5 %: {against} {within}.")
        }
        Shift::Rises => format!("Delays rose during the run: {against} {within}."),
        Shift::Falls => format!("Delays fell during the run: {against} {within}."),
        Shift::CannotTell => {
            format!("Cannot tell whether delays drifted during the run: {against} {within}.")
        }
    }
}
