//! Linear fit of delay against a parameter (Miya 2020, S0.16: d(size) = a + b size).

use dwell_stats::{LineFit, grouped_least_squares};
use serde_json::{Value, json};

use super::bands;
use crate::analysis::fits::{self, medians};
use crate::analysis::subject::Subject;
use crate::figures::figure::{Figure, WIDTH, slug};
use crate::model::Axis;
use crate::model::quantity::{delay, three_digits};
use crate::model::table::Table;

/// Number of points of the line and its band.
const LINE_POINTS: u32 = 40;

/// Returns `None` unless the axis has at least three numbers with samples; see [`medians`].
pub(super) fn fit(subject: &Subject, axis: &Axis) -> Option<Figure> {
    let numbers = axis.numbers.as_ref()?;
    let points = medians(subject, axis)?;
    let confidence = fits::confidence(subject.run);
    let others = points.iter().map(|(place, ..)| place + 1).max()?;
    let (line, adjusted) = grouped_least_squares(&points, confidence)?;
    let title = format!("Linear fit of the median {} against {}", subject.noun, axis.name);
    let id = format!("fit-{}", slug(&axis.name));
    let body = body(subject, &adjusted, &line, bands::x(axis, numbers), others > 1);
    let mut finding = finding(axis, &line, numbers, points.len());
    finding += &format!(
        " Line: a + b x {}, a = {}, b = {} per {}.",
        axis.name,
        delay(line.intercept.value),
        delay(line.slope.value),
        unit(axis)
    );
    if others > 1 {
        finding += " Effects of the other parameters are removed first.";
    }
    finding += &format!(" {}", fits::SIMULTANEOUS);
    let table = table(&line, points.len(), axis);
    Some(Figure::new(id, title, finding, &subject.caption, body, table))
}

fn body(
    subject: &Subject,
    points: &[(f64, f64)],
    line: &LineFit,
    x: Value,
    adjusted: bool,
) -> Value {
    let unit = subject.unit;
    let is_delay = points.iter().all(|(_, y)| *y >= 0.0);
    let dots: Vec<Value> =
        points.iter().map(|(x, y)| json!({"x": x, "median of a trial": unit.of(*y)})).collect();
    let (min, max) = points.iter().fold((f64::MAX, f64::MIN), |(l, h), p| (l.min(p.0), h.max(p.0)));
    let along: Vec<Value> = (0..=LINE_POINTS)
        .map(|i| {
            let x = min + (max - min) * f64::from(i) / f64::from(LINE_POINTS);
            let (y, half) = (line.at(x), line.margin_at(x));
            // A mean delay is not negative: the band ends at 0.
            let low = if is_delay { (y - half).max(y.min(0.0)) } else { y - half };
            json!({"x": x, "low": unit.of(low), "line": unit.of(y), "high": unit.of(y + half)})
        })
        .collect();
    let adjusted = if adjusted { ", adjusted" } else { "" };
    let title = format!("median of a trial{adjusted} [{}]", unit.name());
    let y = |field: &str| {
        json!({
            "field": field, "type": "quantitative", "scale": {"zero": false}, "axis": {"title": title, "format": ",.6~r"}
        })
    };
    json!({
        "width": WIDTH, "height": 280,
        "encoding": {"x": x},
        "layer": [
            {
                "data": {"values": along},
                "layer": [
                    {"mark": {"type": "area", "style": "outer"}, "encoding": {"y": y("low"), "y2": {"field": "high"}}},
                    {"mark": {"type": "line", "style": "median"}, "encoding": {"y": y("line")}}
                ]
            },
            {
                "data": {"values": dots},
                "mark": {"type": "point", "style": "extreme", "shape": "circle", "size": 36, "tooltip": true},
                "encoding": {"y": y("median of a trial")}
            }
        ]
    })
}

/// Round step along the axis, and its text.
fn step(axis: &Axis, numbers: &[f64]) -> (f64, String) {
    let (min, max) = numbers.iter().fold((f64::MAX, f64::MIN), |(l, h), x| (l.min(*x), h.max(*x)));
    let step = 10f64.powf(((max - min) / 2.0).max(f64::MIN_POSITIVE).log10().floor());
    let number = three_digits(step);
    let named = match axis.unit.as_deref() {
        // A number without a unit, such as `ttl`, is followed by the name of the axis.
        None | Some("" | "1") => format!("{number} of {}", axis.name),
        Some(unit) => format!("{number} {unit}"),
    };
    (step, named)
}

/// Share of the variance explained; 1 without any variance.
fn explained(line: &LineFit) -> f64 {
    line.r_squared.unwrap_or(1.0)
}

fn finding(axis: &Axis, line: &LineFit, numbers: &[f64], n: usize) -> String {
    let (step, named) = step(axis, numbers);
    let (low, high) = (line.slope.interval.low * step, line.slope.interval.high * step);
    let r2 = three_digits(explained(line));
    if low <= 0.0 && high >= 0.0 {
        return format!(
            "Cannot tell whether {} changes the median: {} to {} per {named} (95 % CI, {n} trials, R2 = {r2}).",
            axis.name,
            delay(low),
            delay(high)
        );
    }
    let verb = if line.slope.value > 0.0 { "rises" } else { "falls" };
    let (least, most) = (low.abs().min(high.abs()), low.abs().max(high.abs()));
    format!(
        "The median {verb} {} per {named} (95 % CI {} to {}, {n} trials, R2 = {r2}).",
        delay((line.slope.value * step).abs()),
        delay(least),
        delay(most)
    )
}

/// Unit of an axis; 1 for numbers without a unit.
fn unit(axis: &Axis) -> &str {
    axis.unit.as_deref().filter(|unit| !unit.is_empty()).unwrap_or("1")
}

fn table(line: &LineFit, n: usize, axis: &Axis) -> Table {
    let unit = unit(axis);
    let mut table = Table::new(["quantity", "value", "95 % CI, plus or minus"]);
    let half = line.margin_at(0.0);
    table.row(["a: intercept".into(), delay(line.intercept.value), delay(half)]);
    table.row([
        format!("b: slope, per {unit}"),
        delay(line.slope.value),
        delay(line.slope.interval.high - line.slope.value),
    ]);
    table.row([
        "R2: share of variance explained".into(),
        three_digits(explained(line)),
        "-".into(),
    ]);
    table.row(["trials".into(), n.to_string(), "-".into()]);
    table
}
