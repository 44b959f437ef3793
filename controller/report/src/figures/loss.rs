//! Loss ratio against a parameter, with confidence intervals.

use std::collections::BTreeSet;

use dwell_stats::share_interval;
use serde_json::json;

use crate::analysis::group::{self, Group};
use crate::analysis::subject::caption;
use crate::figures::figure::{Figure, WIDTH, slug};
use crate::model::axes::{RELAY, axis_words};
use crate::model::quantity::{count, listed, share, significant};
use crate::model::table::Table;
use crate::model::{Axis, RunData, TrialData};

/// Counts of sent packets and of lost or late ones.
struct Loss {
    sent: u64,
    gone: u64,
}

/// Returns `None` if nothing was lost, or if the axis has fewer than two values.
pub(super) fn loss(run: &RunData, axis: &Axis) -> Option<Figure> {
    let along: Vec<(Group, Loss)> = group::by_axis(run, "", axis)
        .into_iter()
        .filter_map(|(_, group)| {
            let packets = group.packets().filter(|packets| packets.sent > 0)?;
            let gone = packets.lost.saturating_add(packets.late);
            Some((group, Loss { sent: packets.sent, gone }))
        })
        .collect();
    if along.len() < 2 || along.iter().all(|(_, loss)| loss.gone == 0) {
        return None;
    }
    let mut table = Table::new(["group", "sent", "lost or late", "share", "95 % interval"]);
    let mut rows = Vec::new();
    for (group, loss) in &along {
        let (low, high) = loss.interval();
        table.row([
            group.label.clone(),
            count(loss.sent),
            count(loss.gone),
            share(loss.ratio()),
            format!("{} to {}", share(low), share(high)),
        ]);
        rows.push(json!({
            "group": group.label, "share": significant(loss.ratio(), 4),
            "low": significant(low, 4), "high": significant(high, 4)
        }));
    }
    let labels: Vec<&str> = along.iter().map(|(group, _)| group.label.as_str()).collect();
    let x = |field: &str| {
        json!({
            "field": field, "type": "quantitative", "scale": {"domainMin": 0},
            "axis": {"title": "share of probes lost or late [bar: 95 % interval]", "format": "~%"}
        })
    };
    let body = json!({
        "data": {"values": rows}, "width": WIDTH, "height": {"step": 32},
        "encoding": {"y": {
            "field": "group", "type": "nominal", "sort": labels,
            "axis": {"title": null, "ticks": false, "domain": false, "labelPadding": 8, "grid": true}
        }},
        "layer": [
            {"mark": {"type": "rule", "style": "lost", "strokeWidth": 2}, "encoding": {"x": x("low"), "x2": {"field": "high"}}},
            {"mark": {"type": "point", "style": "lost", "shape": "cross", "angle": 45, "filled": true, "size": 90, "tooltip": {"content": "data"}}, "encoding": {"x": x("share")}}
        ]
    });
    let title = format!("Loss against {}", axis.name);
    let id = format!("loss-{}", slug(&axis.name));
    Some(Figure::new(id, title, finding(&along), &caption(run), body, table))
}

/// Loss of one relay mode.
pub(super) fn of_mode(run: &RunData, axis: &Axis) -> Option<Figure> {
    let mut figure = loss(run, axis)?;
    if run.axis("rate").is_some_and(|rate| rate.values.len() > 1) {
        figure.finding += " All rates are merged.";
    }
    Some(figure)
}

/// Loss by relay mode, over the combinations of parameters measured for all modes: otherwise a mode
/// measured alone at a lossy rate would look like the cause. `None` if nothing was lost there.
pub(super) fn by_mode(run: &RunData) -> Option<Figure> {
    let axis = run.axis(RELAY)?;
    let counts = |trial: &&TrialData| {
        trial.summary.as_ref().is_some_and(|summary| summary.packets.is_some())
    };
    let others = |trial: &TrialData| {
        let mut others = trial.parameters.clone();
        others.remove(RELAY);
        others
    };
    let of_mode = |mode: &String| {
        let has = |trial: &&TrialData| trial.is_at(RELAY, mode);
        run.finished_trials().filter(counts).filter(has).map(others).collect::<BTreeSet<_>>()
    };
    let measured = axis.values.iter().map(of_mode).filter(|all| !all.is_empty());
    let alike = measured.reduce(|a, b| a.intersection(&b).cloned().collect())?;
    let mut part = run.at(&[]);
    part.trials.retain(|trial| alike.contains(&others(trial)));
    let figure = loss(&part, axis)?;
    let levels = |axis: &Axis| {
        let at = |value: &&String| alike.iter().any(|it| it.get(&axis.name) == Some(*value));
        let values: Vec<String> = axis.values.iter().filter(at).cloned().collect();
        format!("{} {}", axis_words(&axis.name), listed(&values))
    };
    let said: Vec<String> = run.axes.iter().filter(|axis| axis.name != RELAY).map(levels).collect();
    let mut finding = figure.finding.clone();
    if !said.is_empty() {
        finding += &format!(" Counted where every mode was measured: {}.", said.join("; "));
    }
    Some(figure.with_title("Loss by relay mode").with_finding(finding))
}

impl Loss {
    fn ratio(&self) -> f64 {
        self.gone as f64 / self.sent as f64
    }

    /// Wilson's 95 % interval, which is meaningful for zero losses too.
    fn interval(&self) -> (f64, f64) {
        let interval = share_interval(self.gone, self.sent, 0.95);
        interval.map_or((0.0, 1.0), |interval| (interval.low, interval.high))
    }
}

fn finding(along: &[(Group, Loss)]) -> String {
    let by_ratio = |a: &&(Group, Loss), b: &&(Group, Loss)| a.1.ratio().total_cmp(&b.1.ratio());
    let (Some(least), Some(most)) = (along.iter().min_by(by_ratio), along.iter().max_by(by_ratio))
    else {
        return String::new();
    };
    let said = |(group, loss): &(Group, Loss)| {
        let (gone, sent) = (count(loss.gone), count(loss.sent));
        format!("{} at {} ({gone} of {sent})", share(loss.ratio()), group.label)
    };
    if least.1.interval().1 >= most.1.interval().0 {
        let name = said(most);
        return format!(
            "Highest loss {name}, but the intervals overlap: cannot tell whether values differ."
        );
    }
    format!("Highest loss {}; lowest {}.", said(most), said(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_loss_has_nonempty_interval() {
        let (low, high) = Loss { sent: 1_000, gone: 0 }.interval();
        assert!(low < 1e-9, "{low}");
        assert!((high - 0.003_83).abs() < 1e-4, "{high}");
        let (low, high) = Loss { sent: 100, gone: 100 }.interval();
        assert!(low > 0.95 && high > 1.0 - 1e-9);
    }
}
