//! A figure as data: its Vega-Lite specification, a finding, and the table of its numbers.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::figures::theme;
use crate::model::quantity::Unit;
use crate::model::table::Table;

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Unique id within the report: letters, digits and hyphens.
    pub id: String,
    /// Title.
    pub title: String,
    /// One sentence computed from the data; contains "cannot tell" where they do not decide.
    pub finding: String,
    /// Vega-Lite 6 specification with inline data.
    pub spec: Value,
    /// The numbers of the figure.
    pub table: Table,
    /// Explanation of its marks; empty if the axes and the legend suffice.
    #[serde(skip)]
    pub(crate) how_to_read: String,
    /// Question that it answers.
    #[serde(skip)]
    pub(crate) question: Question,
    /// Id of the finding that it shows, with only the characters of figure ids.
    #[serde(skip)]
    pub(crate) shows: Option<String>,
}

/// Question that a figure answers: the heading above it on a page, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Question {
    #[default]
    Effect,
    Accuracy,
    Components,
    Time,
    Distribution,
    Loss,
}

impl Question {
    /// Heading.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Effect => "Effects of parameters",
            Self::Accuracy => "Accuracy of senders",
            Self::Components => "Delay components",
            Self::Time => "Delay over time",
            Self::Distribution => "Delay distributions",
            Self::Loss => "Losses",
        }
    }
}

/// Width of the plotting area in CSS pixels. Fixed, because Vega-Lite fits only single views to
/// their container; the page scales down wider figures.
pub(crate) const WIDTH: u32 = 640;

/// Turns text into an id: every character that is not a letter or digit becomes a hyphen.
pub(crate) fn slug(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect()
}

impl Figure {
    /// Builds a figure from `body` and the parts that all specifications share. The caption is
    /// drawn below the plot and saved with it.
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
        let (how_to_read, question, shows) = Default::default();
        let (id, spec) = (id.into(), Value::Object(spec));
        Self { id, title, finding, spec, table, how_to_read, question, shows }
    }

    /// Adds an explanation of the marks.
    pub(crate) fn explained(self, how_to_read: impl Into<String>) -> Self {
        Self { how_to_read: how_to_read.into(), ..self }
    }

    /// Replaces the title, also inside the specification.
    pub(crate) fn with_title(mut self, title: impl Into<String>) -> Self {
        let before = std::mem::replace(&mut self.title, title.into());
        let text = &self.spec["title"]["text"];
        let rest = text.as_str().and_then(|text| text.strip_prefix(&before)?.strip_prefix(" | "));
        if let Some(caption) = rest.or_else(|| text[1].as_str()).map(str::to_owned) {
            self.spec["title"]["text"] = under(&self.title, &caption);
        }
        self.described()
    }

    /// Replaces the finding, also inside the specification.
    pub(crate) fn with_finding(mut self, finding: impl Into<String>) -> Self {
        self.finding = finding.into();
        self.described()
    }

    fn described(mut self) -> Self {
        self.spec["description"] = json!(format!("{}. {}", self.title, self.finding));
        self
    }
}

/// Text below the plot: one line if it fits, else two.
fn under(title: &str, caption: &str) -> Value {
    const MAX_LINE_LEN: usize = 110;
    let line = format!("{title} | {caption}");
    if line.chars().count() <= MAX_LINE_LEN { json!(line) } else { json!([title, caption]) }
}

/// Scale and axis for delays from `min_ns` to `max_ns`: logarithmic if they span more than a factor
/// of eight, with ticks at 1, 2 and 5 times powers of ten.
pub(crate) fn delay_axis(title: &str, unit: Unit, min_ns: f64, max_ns: f64) -> (Value, Value) {
    let (min, max) = (unit.of(min_ns), unit.of(max_ns));
    let logarithmic = min > 0.0 && max / min > 8.0;
    let title =
        format!("{title} [{}{}]", unit.name(), if logarithmic { ", logarithmic" } else { "" });
    let format = ",.6~r";
    if logarithmic {
        let scale = json!({"type": "log", "nice": false, "domain": [min * 0.95, max * 1.05]});
        let values = round_ticks(min * 0.95, max * 1.05);
        (scale, json!({"title": title, "format": format, "values": values}))
    } else {
        (json!({"zero": false, "nice": true}), json!({"title": title, "format": format}))
    }
}

/// Returns 1, 2 and 5 times powers of ten between two positive numbers; only powers of ten beyond
/// five decades.
pub(crate) fn round_ticks(min: f64, max: f64) -> Vec<f64> {
    let steps: &[f64] = if max / min > 1e5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let (from, to) = (min.log10().floor() as i32, max.log10().ceil() as i32);
    let all = (from..=to).flat_map(|e| steps.iter().map(move |step| scaled(*step, e)));
    all.filter(|value| (min..=max).contains(value)).collect()
}

fn scaled(step: f64, exponent: i32) -> f64 {
    if exponent >= 0 { step * 10f64.powi(exponent) } else { step / 10f64.powi(-exponent) }
}

/// The channel without a legend, for groups that another legend or the panels identify.
pub(crate) fn without_legend(channel: &Value) -> Value {
    let mut channel = channel.clone();
    channel["legend"] = Value::Null;
    channel
}

/// Channel that distinguishes groups, used for colour, dash or shape. The domain is explicit, so
/// that a group has the same colour in every figure.
pub(crate) fn group_channel<'a>(labels: impl IntoIterator<Item = &'a str>) -> Value {
    let labels: Vec<&str> = labels.into_iter().collect();
    json!({
        "field": "group", "type": "nominal", "title": null, "sort": null,
        "scale": {"domain": labels}
    })
}
