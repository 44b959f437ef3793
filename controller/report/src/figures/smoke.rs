//! Smoke timeline: median and nested percentile bands per step, with a strip of losses, gaps and pauses
//! below.

use serde_json::{Value, json};

use crate::figures::figure::{Figure, Question, WIDTH, delay_axis};
use crate::model::quantity::{Unit, count, delay_ns, share};
use crate::model::table::Table;
use crate::model::{SmokeDelays, SmokeSeries, SmokeStep};

/// Nanoseconds of an hour, the unit of the time axis.
const HOUR_NS: f64 = 3_600e9;

/// Maximum number of ticks of the time axis.
const MAX_TICKS: f64 = 8.0;

/// Distances of ticks in hours.
const TICK_HOURS: [f64; 11] =
    [1.0 / 12.0, 0.25, 0.5, 1.0, 3.0, 6.0, 12.0, 24.0, 48.0, 168.0, 336.0];

/// Rows of the strip, in their order.
const STRIP_ROWS: [&str; 3] = ["lost", "no records", "paused"];

/// Returns the smoke timeline of a pair; `None` without steps.
pub fn smoke(series: &SmokeSeries) -> Option<Figure> {
    let delays = || series.steps.iter().filter_map(|step| step.delays);
    let min = delays().map(|delays| delays.min_ns).min();
    let max = delays().map(|delays| delays.max_ns).max();
    series.steps.first()?;
    let mut typical: Vec<i64> = delays().filter_map(|delays| delays.p50_ns).collect();
    typical.sort_unstable();
    let typical = typical.get(typical.len() / 2).copied().or(max).unwrap_or(1_000_000);
    let unit = Unit::fitting(typical as f64);
    let strip = Strip::of(series);
    let main = min.zip(max).map(|(min, max)| plot(series, unit, min, max, strip.rows.is_empty()));
    let parts: Vec<Value> = main.into_iter().chain(strip.plot(series)).collect();
    let body = json!({"vconcat": parts, "spacing": 2, "resolve": {"scale": {"x": "shared"}}});
    let (id, title) = (series.id.as_str(), series.title.as_str());
    let table = table(&series.steps, unit);
    let mut figure = Figure::new(id, title, finding(series), &series.caption, body, table);
    figure.question = Question::Time;
    Some(figure.explained(
        "Line: median; bands: percentiles 5 to 95 and 25 to 75; ticks: maximum. No line: no delays. \
         Crosses: lost probes; bars: steps with missing records, and pauses.",
    ))
}

/// Hours since the start of the series.
fn hours(series: &SmokeSeries, at_ns: i64) -> f64 {
    let hours = (at_ns - series.from_ns) as f64 / HOUR_NS;
    (hours * 1e4).round() / 1e4
}

/// Time axis in hours since the start, labelled in UTC.
fn x_axis(series: &SmokeSeries, has_labels: bool) -> Value {
    let length = hours(series, series.to_ns);
    let fits = |step: &f64| length / step <= MAX_TICKS;
    let step = TICK_HOURS.into_iter().find(fits).unwrap_or((length / MAX_TICKS).ceil());
    let format = if step < 24.0 { "%d %b %H:%M" } else { "%d %b" };
    // A day may have a part of a step more.
    let format = if step < 24.0 && length <= 25.0 { "%H:%M" } else { format };
    // Ticks at multiples of their distance in UTC.
    let start = series.from_ns as f64 / HOUR_NS;
    let first = (start / step).ceil() * step - start;
    let ticks = (0..).map(|n| first + f64::from(n) * step).take_while(|at| *at <= length);
    let start_ms = series.from_ns / 1_000_000;
    json!({
        "field": "time", "type": "quantitative",
        "scale": {"nice": false, "domain": [0, length]},
        "axis": {
            "title": if has_labels { json!("time (UTC)") } else { Value::Null },
            "labels": has_labels, "ticks": has_labels, "grid": false,
            "values": ticks.map(|at| (at * 1e4).round() / 1e4).collect::<Vec<_>>(),
            "labelExpr": format!("utcFormat({start_ms} + datum.value * 3600000, '{format}')")
        }
    })
}

/// Median and bands.
fn plot(series: &SmokeSeries, unit: Unit, min_ns: i64, max_ns: i64, has_labels: bool) -> Value {
    let (scale, axis) = delay_axis("delay", unit, min_ns as f64, max_ns as f64);
    let y =
        |field: &str| json!({"field": field, "type": "quantitative", "scale": scale, "axis": axis});
    let band = |style: &str, from: &str, to: &str| {
        json!({
            "mark": {"type": "area", "style": style, "interpolate": "step-after"},
            "encoding": {"y": y(from), "y2": {"field": to}}
        })
    };
    json!({
        "width": WIDTH, "height": 220,
        "data": {"values": rows(series, unit)},
        "encoding": {"x": x_axis(series, has_labels)},
        "layer": [
            band("outer", "p5", "p95"),
            band("inner", "p25", "p75"),
            {
                "mark": {"type": "line", "style": "median", "interpolate": "step-after"},
                "encoding": {"y": y("p50")}
            },
            {
                "transform": [{"filter": "!datum.end"}],
                "mark": {"type": "tick", "style": "extreme", "size": 5, "thickness": 1.5, "orient": "horizontal"},
                "encoding": {"y": y("max")}
            }
        ]
    })
}

/// Steps as rows. Each part without a gap is closed by a row at its end and one without values, so that
/// nothing is drawn across a gap.
fn rows(series: &SmokeSeries, unit: Unit) -> Vec<Value> {
    let row = |at_ns: i64, delays: &SmokeDelays, is_end: bool| {
        let value = |ns: Option<i64>| ns.map(|ns| unit.of(ns as f64));
        // With too few values for a percentile, the extremes form the band.
        let low = |ns: Option<i64>| value(ns.or(Some(delays.min_ns)));
        let high = |ns: Option<i64>| value(ns.or(Some(delays.max_ns)));
        json!({
            "time": hours(series, at_ns), "end": is_end, "n": delays.n,
            "p5": low(delays.p5_ns), "p25": low(delays.p25_ns),
            "p50": value(delays.p50_ns.or((delays.n == 1).then_some(delays.min_ns))),
            "p75": high(delays.p75_ns), "p95": high(delays.p95_ns), "max": value(Some(delays.max_ns))
        })
    };
    let mut rows = Vec::new();
    let ends = series.steps.iter().skip(1).map(|step| step.delays.is_none()).chain([true]);
    for (step, is_last) in series.steps.iter().zip(ends) {
        let Some(delays) = &step.delays else { continue };
        rows.push(row(step.from_ns, delays, false));
        if is_last {
            rows.push(row(step.to_ns, delays, true));
            rows.push(json!({
                "time": hours(series, step.to_ns), "end": true, "p5": null, "p25": null, "p50": null,
                "p75": null, "p95": null, "max": null
            }));
        }
    }
    rows
}

/// Losses, gaps and pauses.
struct Strip {
    /// Names of the rows that have marks.
    rows: Vec<&'static str>,
    lost: Vec<Value>,
    spans: Vec<Value>,
    most_lost: u64,
}

impl Strip {
    fn of(series: &SmokeSeries) -> Self {
        let span = |from_ns: i64, to_ns: i64, row: &str| json!({"time": hours(series, from_ns), "until": hours(series, to_ns), "row": row});
        let lost = series.steps.iter().filter(|step| step.lost > 0).map(|step| {
            let middle = step.from_ns + (step.to_ns - step.from_ns) / 2;
            json!({"time": hours(series, middle), "lost": step.lost, "row": STRIP_ROWS[0]})
        });
        let lost: Vec<Value> = lost.collect();
        let gaps = joined(series.steps.iter().filter(|step| step.is_gap));
        let gaps: Vec<Value> =
            gaps.into_iter().map(|(from, to)| span(from, to, STRIP_ROWS[1])).collect();
        let pauses: Vec<Value> =
            series.pauses.iter().map(|(from, to)| span(*from, *to, STRIP_ROWS[2])).collect();
        let has = [!lost.is_empty(), !gaps.is_empty(), !pauses.is_empty()];
        let rows = STRIP_ROWS.into_iter().zip(has).filter_map(|(row, has)| has.then_some(row));
        let most_lost = series.steps.iter().map(|step| step.lost).max().unwrap_or(0);
        Self { rows: rows.collect(), lost, spans: [gaps, pauses].concat(), most_lost }
    }

    fn plot(&self, series: &SmokeSeries) -> Option<Value> {
        if self.rows.is_empty() {
            return None;
        }
        let y = json!({
            "field": "row", "type": "nominal", "scale": {"domain": self.rows},
            "axis": {"title": null, "ticks": false, "domain": false}
        });
        Some(json!({
            "width": WIDTH, "height": 16 * self.rows.len(),
            "encoding": {"x": x_axis(series, true), "y": y},
            "layer": [
                {
                    "data": {"values": self.spans},
                    "mark": {"type": "bar", "style": "span", "height": 8, "tooltip": true},
                    "encoding": {"x2": {"field": "until"}}
                },
                {
                    "data": {"values": self.lost},
                    "mark": {"type": "point", "style": "lost", "shape": "cross", "filled": true, "angle": 45, "tooltip": true},
                    "encoding": {
                        "size": {"field": "lost", "type": "quantitative", "scale": {"range": [30, 130], "domain": [0, self.most_lost.max(1)]}, "legend": null}
                    }
                }
            ]
        }))
    }
}

/// Joins steps that follow each other.
fn joined<'a>(steps: impl Iterator<Item = &'a SmokeStep>) -> Vec<(i64, i64)> {
    let mut spans: Vec<(i64, i64)> = Vec::new();
    for step in steps {
        match spans.last_mut() {
            Some(last) if last.1 == step.from_ns => last.1 = step.to_ns,
            _ => spans.push((step.from_ns, step.to_ns)),
        }
    }
    spans
}

fn finding(series: &SmokeSeries) -> String {
    let medians = || series.steps.iter().filter_map(|step| step.delays?.p50_ns);
    let sent: u64 = series.steps.iter().map(|step| step.sent).sum();
    let lost: u64 = series.steps.iter().map(|step| step.lost).sum();
    let delays = match medians().min().zip(medians().max()) {
        Some((low, high)) if low == high => format!("Median {}", delay_ns(low)),
        Some((low, high)) => format!("Median {} to {}", delay_ns(low), delay_ns(high)),
        None => {
            "Cannot tell the delay: there are too few delays, or their error is unknown".to_owned()
        }
    };
    let loss = match sent {
        0 => "no probes".to_owned(),
        _ => format!("{} lost of {} probes", share(lost as f64 / sent as f64), count(sent)),
    };
    format!("{delays}; {loss}.")
}

fn table(steps: &[SmokeStep], unit: Unit) -> Table {
    let mut table = Table::new([
        "from (UTC)",
        "sent",
        "loss",
        "coverage",
        "n",
        "min",
        "p5",
        "p25",
        "p50",
        "p75",
        "p95",
        "p99",
        "max",
    ]);
    for column in &mut table.columns[5..] {
        *column = format!("{column} [{}]", unit.name());
    }
    let dash = || "-".to_owned();
    for step in steps {
        let delay = |of: fn(&SmokeDelays) -> Option<i64>| {
            unit.cell(step.delays.as_ref().and_then(of).map(|ns| ns as f64))
        };
        let loss = (step.sent > 0).then(|| share(step.lost as f64 / step.sent as f64));
        table.row([
            step.label.clone(),
            count(step.sent),
            loss.unwrap_or_else(dash),
            step.coverage.map_or_else(dash, share),
            count(step.delays.map_or(0, |delays| delays.n)),
            delay(|of| Some(of.min_ns)),
            delay(|of| of.p5_ns),
            delay(|of| of.p25_ns),
            delay(|of| of.p50_ns),
            delay(|of| of.p75_ns),
            delay(|of| of.p95_ns),
            delay(|of| of.p99_ns),
            delay(|of| Some(of.max_ns)),
        ]);
    }
    table
}
