//! Host activity during a trial, on the time axis of its delay.

use serde_json::{Value, json};

use crate::analysis::group;
use crate::analysis::host_correlation::{Correlation, correlation, correlation_finding};
use crate::analysis::subject::Subject;
use crate::figures::figure::{Figure, WIDTH, delay_axis, group_channel};
use crate::model::quantity::{Unit, listed, three_digits};
use crate::model::table::Table;
use crate::model::{HostData, HostSeries, Quantity, Series};

/// Width of the y-axis labels in pixels, equal in all panels to align their time axes.
const LABEL_WIDTH: u32 = 56;

/// Returns `None` without host samples.
pub(super) fn host(subject: &Subject) -> Option<Figure> {
    let run = subject.run;
    let host = run.host.as_ref()?;
    let trial = run.trials.iter().find(|trial| trial.trial == host.wanted.trial)?;
    let series = trial.series.get(&host.wanted.metric)?;
    let time = Unit::fitting((host.wanted.length_ns as f64 / 2.0).max(1e6));
    let mut nodes: Vec<&str> = Vec::new();
    for series in &host.series {
        if !nodes.contains(&series.node.as_str()) {
            nodes.push(&series.node);
        }
    }
    let frame = Frame { time, until: time.of(host.wanted.length_ns as f64), nodes };
    let mut panels: Vec<Value> = frame.delay(subject, series).into_iter().collect();
    let of: Vec<&[HostSeries]> = host.series.chunk_by(|a, b| a.quantity == b.quantity).collect();
    for (i, all) in of.iter().enumerate() {
        panels.push(frame.panel(all[0].quantity, all, i + 1 == of.len()));
    }
    let label = group::trial_label(run, trial);
    let body = json!({"vconcat": panels, "spacing": 10});
    let finding = finding(subject, host, &label);
    let title = "Host activity during the trial";
    Some(Figure::new("host", title, finding, &subject.caption, body, table(host)))
}

/// Settings shared by all panels.
struct Frame<'a> {
    time: Unit,
    /// End of the trial in `time` units.
    until: f64,
    nodes: Vec<&'a str>,
}

impl Frame<'_> {
    fn x(&self, last: bool) -> Value {
        let title = format!("time since the trial began [{}]", self.time.name());
        json!({
            "field": "time", "type": "quantitative", "scale": {"nice": false, "domain": [0, self.until]},
            "axis": {"title": last.then_some(title), "labels": last, "ticks": last, "grid": false}
        })
    }

    /// Panel of the delay, above the others.
    fn delay(&self, subject: &Subject, series: &Series) -> Option<Value> {
        let known = series.bins.iter().filter(|bin| bin.p99_ns.is_some()).count();
        let by_p99 = 2 * known >= series.bins.len();
        let rows: Vec<(f64, f64)> = series
            .bins
            .iter()
            .filter_map(|bin| {
                let value = if by_p99 { bin.p99_ns } else { bin.max_ns };
                Some((self.time.of(bin.from_ns as f64), value? as f64))
            })
            .collect();
        let min = rows.iter().map(|(_, ns)| *ns).reduce(f64::min)?;
        let max = rows.iter().map(|(_, ns)| *ns).reduce(f64::max)?;
        let (scale, mut axis) = delay_axis("delay", subject.unit, min, max);
        let what = if by_p99 { "99th percentile" } else { "largest" };
        let logarithmic = if scale["type"] == "log" { ", logarithmic" } else { "" };
        axis["title"] = Value::Null;
        axis["minExtent"] = json!(LABEL_WIDTH);
        let values: Vec<Value> = rows
            .iter()
            .map(|(time, ns)| json!({"time": time, "delay": subject.unit.of(*ns)}))
            .collect();
        Some(json!({
            "data": {"values": values}, "width": WIDTH, "height": 64,
            "title": heading(&format!("{}, {what} [{}{logarithmic}]", subject.noun, subject.unit.name())),
            "mark": {"type": "line", "style": "median", "interpolate": "step-after", "strokeWidth": 1.5},
            "encoding": {
                "x": self.x(false),
                "y": {"field": "delay", "type": "quantitative", "scale": scale, "axis": axis}
            }
        }))
    }

    fn panel(&self, quantity: Quantity, all: &[HostSeries], last: bool) -> Value {
        let rows: Vec<Value> = all
            .iter()
            .flat_map(|series| series.points.iter().map(move |point| (&series.node, point)))
            .map(|(node, (at, value))| {
                json!({"time": self.time.of(*at as f64), "value": quantity.drawn(*value), "group": node})
            })
            .collect();
        json!({
            "data": {"values": rows}, "width": WIDTH, "height": 64,
            "title": heading(quantity.title()),
            "mark": {"type": "line", "interpolate": "step-before", "strokeWidth": 1.5, "tooltip": true},
            "encoding": {
                "x": self.x(last),
                "y": {
                    "field": "value", "type": "quantitative", "scale": {"zero": false, "nice": true},
                    "axis": {"title": null, "format": ",.6~r", "tickCount": 3, "minExtent": LABEL_WIDTH}
                },
                "color": group_channel(self.nodes.iter().copied()),
                "strokeDash": group_channel(self.nodes.iter().copied())
            }
        })
    }
}

fn heading(text: &str) -> Value {
    json!({"text": text, "orient": "top", "fontSize": 12, "fontWeight": 600, "offset": 4})
}

fn finding(subject: &Subject, host: &HostData, label: &str) -> String {
    let known = host.windows.iter().filter(|window| window.p99_ns.is_some()).count();
    let judged = host.series.iter().any(|series| correlation(host, series).is_some());
    let said = correlation_finding(subject.run).unwrap_or_else(|| match judged {
        true => {
            format!("No host activity correlates with the p99 over {known} windows of the trial.")
        }
        false => "Cannot tell: too few windows have both a p99 and host readings.".to_owned(),
    });
    let which = match subject.run.trials.len() {
        1 => String::new(),
        _ => {
            format!(" Shown: {label}, the trial with the highest p99 among those of the timeline.")
        }
    };
    let more = match host.nodes_left_out {
        0 => String::new(),
        n => format!(" {n} more machines are not drawn."),
    };
    let shared = match host.on_one_machine.as_slice() {
        [] | [_] => String::new(),
        nodes => format!(
            " {} are namespaces of one machine: CPU, temperature and interrupts are those of the whole machine.",
            listed(nodes)
        ),
    };
    format!("{said}{shared}{which}{more}")
}

fn table(host: &HostData) -> Table {
    let mut table = Table::new([
        "quantity",
        "machine",
        "lowest",
        "highest",
        "while p99 was highest",
        "otherwise",
        "rank correlation",
        "standard errors",
        "windows",
    ]);
    for series in &host.series {
        let text = |value: f64| three_digits(series.quantity.drawn(value));
        let found = correlation(host, series);
        let cell = |of: fn(&Correlation) -> f64, say: &dyn Fn(f64) -> String| {
            found.as_ref().map_or_else(|| "-".to_owned(), |found| say(of(found)))
        };
        table.row([
            series.quantity.title().to_owned(),
            series.node.clone(),
            text(series.lowest),
            text(series.highest),
            cell(|found| found.in_slow, &text),
            cell(|found| found.in_others, &text),
            cell(|found| found.rho, &|rho| format!("{rho:.2}")),
            cell(|found| found.standard_errors, &|errors| format!("{errors:.1}")),
            found.map_or_else(|| "-".to_owned(), |found| found.windows.to_string()),
        ]);
    }
    table
}
