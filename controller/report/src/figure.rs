//! A figure as data: a specification, a sentence, and the table behind both.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::quantity::Unit;
use crate::theme;

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its name in this report: letters, digits and hyphens; no two figures share one.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// One sentence, computed from the data, that says what is to be seen; "cannot tell" where the
    /// data do not say.
    pub finding: String,
    /// The Vega-Lite 6 specification with its data inline.
    pub spec: Value,
    /// The numbers behind it.
    pub table: Table,
}

/// Rows of text under headings; units stand in the headings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Table {
    /// The headings.
    pub columns: Vec<String>,
    /// As many texts per row as there are headings.
    pub rows: Vec<Vec<String>>,
}

/// Width of a figure's plotting area in CSS pixels. Fixed, because Vega-Lite fits only single
/// views to their container; the page scales what is wider than itself.
pub(crate) const WIDTH: u32 = 640;

/// What an id is made of: the text with everything but letters and digits as hyphens.
pub(crate) fn slug(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect()
}

impl Figure {
    /// A figure whose specification is `body` with everything that all of them share. The caption
    /// stands under the picture and goes with it when it is saved.
    pub(crate) fn new(
        id: impl Into<String>,
        title: impl Into<String>,
        finding: impl Into<String>,
        caption: &str,
        body: Value,
        table: Table,
    ) -> Self {
        let (title, finding) = (title.into(), finding.into());
        let mut spec = Map::new();
        spec.insert("$schema".into(), json!("https://vega.github.io/schema/vega-lite/v6.json"));
        spec.insert("description".into(), json!(format!("{title}. {finding}")));
        spec.insert("title".into(), json!({"text": under(&title, caption)}));
        if let Value::Object(body) = body {
            spec.extend(body);
        }
        spec.insert("config".into(), theme::light());
        Self { id: id.into(), title, finding, spec: Value::Object(spec), table }
    }

    /// The same under another title, in the picture too.
    pub(crate) fn titled(mut self, title: impl Into<String>) -> Self {
        let before = std::mem::replace(&mut self.title, title.into());
        let text = &self.spec["title"]["text"];
        let rest = text.as_str().and_then(|text| text.strip_prefix(&before)?.strip_prefix(" | "));
        if let Some(caption) = rest.or_else(|| text[1].as_str()).map(str::to_owned) {
            self.spec["title"]["text"] = under(&self.title, &caption);
        }
        self.described()
    }

    /// The same with another finding, in the picture too.
    pub(crate) fn saying(mut self, finding: impl Into<String>) -> Self {
        self.finding = finding.into();
        self.described()
    }

    fn described(mut self) -> Self {
        self.spec["description"] = json!(format!("{}. {}", self.title, self.finding));
        self
    }
}

/// What stands under a picture: in one line where that fits under its plot, else in two.
fn under(title: &str, caption: &str) -> Value {
    const LINE: usize = 110;
    let line = format!("{title} | {caption}");
    if line.chars().count() <= LINE { json!(line) } else { json!([title, caption]) }
}

impl Table {
    pub(crate) fn new<const N: usize>(columns: [&str; N]) -> Self {
        Self { columns: columns.map(str::to_owned).to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row<const N: usize>(&mut self, row: [String; N]) {
        self.rows.push(row.to_vec());
    }

    /// Says in the headings in which columns intervals stand behind values.
    pub(crate) fn tell_intervals(mut self) -> Self {
        for (i, column) in self.columns.iter_mut().enumerate() {
            let mut cells = self.rows.iter().filter_map(|row| row.get(i));
            if cells.any(|cell| without_interval(cell).is_some()) {
                column.push_str(" (95 % interval)");
            }
        }
        self
    }
}

/// The value before an interval, of a cell that has one ([`Unit::cell_within`]).
pub(crate) fn without_interval(cell: &str) -> Option<&str> {
    let (value, interval) = cell.strip_suffix(')')?.split_once(" (")?;
    let (low, high) = interval.split_once(" to ")?;
    [value, low, high].iter().all(|text| text.parse::<f64>().is_ok()).then_some(value)
}

/// The scale and axis of a delay between two values: logarithmic where it spreads over more than a
/// factor of eight, with marks at 1, 2 and 5 times powers of ten.
pub(crate) fn delay_axis(title: &str, unit: Unit, min_ns: f64, max_ns: f64) -> (Value, Value) {
    let (min, max) = (unit.of(min_ns), unit.of(max_ns));
    let logarithmic = min > 0.0 && max / min > 8.0;
    let title =
        format!("{title} [{}{}]", unit.name(), if logarithmic { ", logarithmic" } else { "" });
    let format = ",.6~r";
    if logarithmic {
        let scale = json!({"type": "log", "nice": false, "domain": [min * 0.95, max * 1.05]});
        let values = handy(min * 0.95, max * 1.05);
        (scale, json!({"title": title, "format": format, "values": values}))
    } else {
        (json!({"zero": false, "nice": true}), json!({"title": title, "format": format}))
    }
}

/// 1, 2 and 5 times powers of ten between two positive numbers; powers alone over five decades.
pub(crate) fn handy(min: f64, max: f64) -> Vec<f64> {
    let steps: &[f64] = if max / min > 1e5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let (from, to) = (min.log10().floor() as i32, max.log10().ceil() as i32);
    let all = (from..=to).flat_map(|e| steps.iter().map(move |step| scaled(*step, e)));
    all.filter(|value| (min..=max).contains(value)).collect()
}

fn scaled(step: f64, exponent: i32) -> f64 {
    if exponent >= 0 { step * 10f64.powi(exponent) } else { step / 10f64.powi(-exponent) }
}

/// The same channel where another one's legend tells the groups, or the panels do.
pub(crate) fn without_legend(channel: &Value) -> Value {
    let mut channel = channel.clone();
    channel["legend"] = Value::Null;
    channel
}

/// The channel that tells groups apart, by colour here and by dash or shape beside it: the domain
/// is stated, so that a group has the same colour in every figure.
pub(crate) fn told_apart<'a>(labels: impl IntoIterator<Item = &'a str>) -> Value {
    let labels: Vec<&str> = labels.into_iter().collect();
    json!({
        "field": "group", "type": "nominal", "title": null, "sort": null,
        "scale": {"domain": labels}
    })
}
