//! `/mesh`: all pairs of the fleet, by sender and reflector.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;
use dwell_hub::{
    Mesh, MeshFigures, MeshStream, WINDOW_QUANTILES, Window, delay_text, measure, mesh,
};
use dwell_report::Unit;
use dwell_report::model::quantity::{share, three_digits};
use dwell_rollup::{Name, RollupMetric};
use serde::Deserialize;

use super::layout::{Layout, render};
use super::query_text;
use crate::app::App;
use crate::error::Error;
use crate::hub::now_ns;

/// Upper limits of the shares of lost probes that have a colour of their own.
const LOSS_LIMITS: [f64; COLOURS - 1] = [0.0, 0.001, 0.01, 0.05, 0.2];

/// Number of colours of cells.
const COLOURS: usize = 6;

pub(super) fn router() -> Router<App> {
    Router::new().route("/mesh", get(page))
}

/// The query of the address, as the form sends it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct MeshQuery {
    window: String,
    metric: String,
    delay: String,
    of: String,
}

/// What a cell shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellMetric {
    /// Position in [`WINDOW_QUANTILES`].
    Percentile(usize),
    Loss,
}

/// The view that the visitor chose.
#[derive(Clone, Debug)]
struct View {
    window: Window,
    metric: CellMetric,
    is_one_way: bool,
    /// Measurement and protocol; `None`: those with most pairs.
    of: Option<(String, String)>,
}

impl View {
    fn new(query: &MeshQuery) -> Result<Self, Error> {
        let known = |field: &str, text: &str, known: &[&str]| {
            let known = known.join(", ");
            Error::Invalid(format!("{field}: '{text}' is unknown; known are {known}"))
        };
        let window = match query.window.as_str() {
            "" => Window::Hour,
            name => {
                let names = Window::ALL.map(Window::name);
                Window::named(name).ok_or_else(|| known("window", name, &names))?
            }
        };
        let metric = match query.metric.as_str() {
            "" => CellMetric::Percentile(0),
            "loss" => CellMetric::Loss,
            name => {
                let at = WINDOW_QUANTILES.iter().position(|(of, _)| *of == name);
                let names = [WINDOW_QUANTILES.map(|(name, _)| name).as_slice(), &["loss"]].concat();
                CellMetric::Percentile(at.ok_or_else(|| known("metric", name, &names))?)
            }
        };
        let is_one_way = match query.delay.as_str() {
            "" | "rtt" => false,
            "one-way" => true,
            name => return Err(known("delay", name, &["rtt", "one-way"])),
        };
        let of = query.of.split_once('/');
        let of = of.map(|(measure, protocol)| (measure.to_owned(), protocol.to_owned()));
        Ok(Self { window, metric, is_one_way, of })
    }

    /// Name of the metric in the address.
    fn metric_name(&self) -> &'static str {
        match self.metric {
            CellMetric::Percentile(at) => WINDOW_QUANTILES[at].0,
            CellMetric::Loss => "loss",
        }
    }
}

/// An option of a form.
pub(super) struct Choice {
    pub(super) value: String,
    pub(super) text: String,
    pub(super) selected: bool,
}

impl Choice {
    pub(super) fn new(value: impl Into<String>, text: impl Into<String>, selected: bool) -> Self {
        Self { value: value.into(), text: text.into(), selected }
    }
}

#[derive(Template)]
#[template(path = "mesh.html")]
struct Page {
    layout: Layout,
    windows: Vec<Choice>,
    metrics: Vec<Choice>,
    delays: Vec<Choice>,
    streams: Vec<Choice>,
    grid: Option<Grid>,
}

/// The table.
struct Grid {
    caption: String,
    columns: Vec<Heading>,
    rows: Vec<(Heading, Vec<Cell>)>,
    /// Colour and text of each entry of the legend.
    legend: Vec<(usize, String)>,
    /// Query of the links to pairs.
    link: String,
    stale: usize,
    hidden: u64,
}

/// A node.
struct Heading {
    name: Name,
    is_paused: bool,
}

/// A pair.
#[derive(Debug, Default, PartialEq)]
struct Cell {
    /// Classes of the cell.
    class: String,
    /// The value; empty: nothing is measured.
    text: String,
    /// A second line.
    note: String,
    /// Description of the figures.
    title: String,
}

async fn page(State(app): State<App>, Query(query): Query<MeshQuery>) -> Result<Response, Error> {
    let view = View::new(&query)?;
    let (now_ns, window) = (now_ns(), view.window);
    let read = app.read_hub(move |transaction| Ok(mesh(transaction, window, now_ns)?));
    let mesh = read.await?;
    let groups = mesh.as_ref().map(groups).unwrap_or_default();
    let largest = groups.iter().max_by_key(|(_, count)| **count).map(|(of, _)| of.clone());
    let of = view.of.clone().or(largest);
    let streams = groups.keys().map(|key| {
        let (measure, protocol) = key;
        let text = format!("{measure} ({protocol})");
        Choice::new(format!("{measure}/{protocol}"), text, of.as_ref() == Some(key))
    });
    let metric = |name: &'static str| Choice::new(name, name, view.metric_name() == name);
    let metrics = WINDOW_QUANTILES.iter().map(|(name, _)| *name).chain(["loss"]).map(metric);
    let window_text = |window: Window| match window {
        Window::Hour => "last hour",
        Window::Day => "last 24 h",
    };
    let windows = Window::ALL
        .map(|window| Choice::new(window.name(), window_text(window), window == view.window));
    let delays = [("rtt", "round trip", false), ("one-way", "one way", true)];
    let delays = delays.map(|(name, text, is)| Choice::new(name, text, is == view.is_one_way));
    let (streams, metrics) = (streams.collect(), metrics.collect());
    let grid = match (&mesh, &of) {
        (Some(mesh), Some(of)) => Some(Grid::new(mesh, &view, of, now_ns)),
        _ => None,
    };
    let layout = Layout::new("Mesh", "/mesh");
    let (windows, delays) = (windows.into(), delays.into());
    Ok(render(&Page { layout, windows, metrics, delays, streams, grid }))
}

/// Number of streams by measurement and protocol.
fn groups(mesh: &Mesh) -> BTreeMap<(String, String), usize> {
    let mut groups = BTreeMap::new();
    for stream in &mesh.streams {
        *groups.entry(group(stream)).or_default() += 1;
    }
    groups
}

fn group(of: &MeshStream) -> (String, String) {
    (measure(&of.stream.entry), of.stream.protocol.to_string())
}

impl Grid {
    fn new(mesh: &Mesh, view: &View, of: &(String, String), now_ns: i64) -> Self {
        let mut streams: BTreeMap<(&Name, &Name), &MeshStream> = BTreeMap::new();
        for stream in mesh.streams.iter().filter(|stream| group(stream) == *of) {
            let newest = |of: &MeshStream| of.figures.as_ref().map(|it| it.window.to_ns);
            let place = streams.entry((&stream.sender, &stream.stream.reflector)).or_insert(stream);
            // Two entries of a node's own configuration may have one name.
            if newest(place) < newest(stream) {
                *place = stream;
            }
        }
        let values: Vec<f64> = streams
            .values()
            .filter_map(|stream| stream.figures.as_ref())
            .flat_map(|figures| values(figures, view).map(|(_, value)| value))
            .collect();
        let scale = Scale::new(view, values);
        let senders: BTreeSet<&Name> = streams.keys().map(|(sender, _)| *sender).collect();
        let reflectors: BTreeSet<&Name> = streams.keys().map(|(_, reflector)| *reflector).collect();
        let is_stale = |stream: &&&MeshStream| {
            stream.figures.as_ref().is_some_and(|figures| !figures.is_current(now_ns))
        };
        let stale = streams.values().filter(is_stale).count();
        let heading =
            |name: &Name| Heading { name: name.clone(), is_paused: mesh.paused.contains(name) };
        let row = |sender: &&Name| {
            let cells = reflectors.iter().map(|reflector| {
                let stream = streams.get(&(*sender, *reflector));
                match stream {
                    Some(stream) => scale.cell(stream.figures.as_ref(), view, now_ns),
                    None => Cell { class: "none".to_owned(), ..Cell::default() },
                }
            });
            (heading(sender), cells.collect())
        };
        let (measure, protocol) = of;
        let what = match (view.metric, view.is_one_way) {
            (CellMetric::Loss, _) => "share of lost probes in percent".to_owned(),
            (_, false) => {
                format!("{} of the round trip in {}", view.metric_name(), scale.unit.name())
            }
            (_, true) => format!(
                "{} of the delay to (\u{2192}) and from (\u{2190}) the reflector in {}; \u{21c4}: round \
                 trip, where the error of the clocks is unknown",
                view.metric_name(),
                scale.unit.name()
            ),
        };
        let delay = if view.is_one_way { "one_way_forward_ns" } else { "rtt_ns" };
        let range = view.window.name();
        let of = query_text(&format!("{measure}/{protocol}"));
        Self {
            caption: format!("{measure} ({protocol}): {what}"),
            columns: reflectors.iter().map(|name| heading(name)).collect(),
            rows: senders.iter().map(row).collect(),
            legend: scale.legend(),
            link: format!("of={of}&metric={delay}&range={range}"),
            stale,
            hidden: mesh.hidden,
        }
    }
}

/// Returns the values of a cell with their marks: shares, or nanoseconds.
fn values(figures: &MeshFigures, view: &View) -> impl Iterator<Item = (&'static str, f64)> {
    let delay = |metric: RollupMetric, at: usize| {
        let bin = figures.window.delays(metric)?.bin(at)?;
        Some((bin.low.0 as f64 + bin.high.0 as f64) / 2.0)
    };
    let mut values = [None, None];
    match view.metric {
        CellMetric::Loss => values[0] = figures.loss().map(|loss| ("", loss)),
        CellMetric::Percentile(at) if view.is_one_way && figures.error_ns.is_some() => {
            values[0] = delay(RollupMetric::OneWayForward, at).map(|ns| ("\u{2192}", ns));
            values[1] = delay(RollupMetric::OneWayBackward, at).map(|ns| ("\u{2190}", ns));
        }
        CellMetric::Percentile(_) => {}
    }
    if values == [None, None]
        && let CellMetric::Percentile(at) = view.metric
    {
        let mark = if view.is_one_way { "\u{21c4}" } else { "" };
        values[0] = delay(RollupMetric::Rtt, at).map(|ns| (mark, ns));
    }
    values.into_iter().flatten()
}

/// Colours and units of the values of a table.
struct Scale {
    unit: Unit,
    is_loss: bool,
    /// Upper limits of all colours but the last.
    limits: Vec<f64>,
}

impl Scale {
    fn new(view: &View, mut values: Vec<f64>) -> Self {
        if view.metric == CellMetric::Loss {
            return Self { unit: Unit::Second, is_loss: true, limits: LOSS_LIMITS.to_vec() };
        }
        values.sort_unstable_by(f64::total_cmp);
        let typical = values.get(values.len() / 2).copied().unwrap_or(1e6);
        let unit = Unit::fitting(typical);
        let mut limits = Vec::new();
        // One-way delays within the error of the clocks may be negative.
        let positive = values.iter().find(|value| **value > 0.0);
        if let (Some(low), Some(high)) = (positive, values.last().filter(|high| **high > 0.0)) {
            let ratio = (high / low).powf(1.0 / COLOURS as f64);
            let limit = |n: i32| two_digits(low * ratio.powi(n));
            limits = (1..COLOURS as i32).map(limit).collect();
            limits.dedup();
        }
        Self { unit, is_loss: false, limits }
    }

    fn colour(&self, value: f64) -> usize {
        self.limits.partition_point(|limit| *limit < value)
    }

    fn text(&self, value: f64) -> String {
        if self.is_loss { three_digits(value * 100.0) } else { three_digits(self.unit.of(value)) }
    }

    /// Colour and meaning of each entry.
    fn legend(&self) -> Vec<(usize, String)> {
        let unit = if self.is_loss { "%" } else { self.unit.name() };
        let up_to = self.limits.iter().map(|limit| match *limit {
            0.0 => format!("0 {unit}"),
            limit => format!("up to {} {unit}", self.text(limit)),
        });
        let above = self.limits.last().map(|limit| format!("above {} {unit}", self.text(*limit)));
        up_to.chain(above).enumerate().collect()
    }

    fn cell(&self, figures: Option<&MeshFigures>, view: &View, now_ns: i64) -> Cell {
        let Some(figures) = figures else {
            let title = "in the schedule, no results yet".to_owned();
            let class = "missing".to_owned();
            return Cell { class, text: "\u{2013}".to_owned(), note: String::new(), title };
        };
        let values: Vec<_> = values(figures, view).collect();
        let counts = &figures.window.counts;
        let mut class = match values.iter().map(|(_, value)| self.colour(*value)).max() {
            Some(colour) => format!("c{colour}"),
            None => "few".to_owned(),
        };
        let text = match &values[..] {
            [] if figures.is_paused() => "paused".to_owned(),
            [] if view.metric == CellMetric::Loss && figures.lost().is_none() => "?".to_owned(),
            [] if counts.received == 0 && figures.lost().is_some_and(|lost| lost > 0) => {
                "lost".to_owned()
            }
            [] => format!("n {}", counts.received),
            values => {
                let value = |(mark, value): &(&str, f64)| format!("{mark}{}", self.text(*value));
                values.iter().map(value).collect::<Vec<_>>().join(" ")
            }
        };
        let mut notes = Vec::new();
        if !figures.is_current(now_ns) {
            class += " stale";
            notes.push(age_text(now_ns - figures.window.to_ns));
        }
        let loss = figures.loss().filter(|loss| *loss > 0.0 && view.metric != CellMetric::Loss);
        notes.extend(loss.map(|loss| format!("\u{2715}{}%", three_digits(loss * 100.0))));
        Cell { class, text, note: notes.join(" "), title: title(figures, view) }
    }
}

/// Rounds to two significant digits.
fn two_digits(value: f64) -> f64 {
    let size = 10f64.powf(value.log10().floor() - 1.0);
    (value / size).round() * size
}

/// Formats the age of the newest interval.
fn age_text(ns: i64) -> String {
    match ns / 1_000_000_000 {
        seconds @ ..7_200 => format!("{} min old", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h old", seconds / 3_600),
        seconds => format!("{} days old", seconds / 86_400),
    }
}

fn title(figures: &MeshFigures, view: &View) -> String {
    let counts = &figures.window.counts;
    let rtt = figures.window.delays(RollupMetric::Rtt);
    let mut parts = vec![format!("{} sent", counts.sent)];
    parts.extend(
        figures.loss().filter(|loss| *loss > 0.0).map(|loss| format!("{} lost", share(loss))),
    );
    parts.extend(figures.coverage().map(|ratio| format!("coverage {}", share(ratio))));
    parts.extend(
        rtt.map(|rtt| {
            format!("round trip {} to {}", delay_text(rtt.min_ns), delay_text(rtt.max_ns))
        }),
    );
    if view.is_one_way {
        parts.push(match figures.error_ns {
            Some(ns) => format!("\u{b1}{}", delay_text(i64::try_from(ns).unwrap_or(i64::MAX))),
            None => "error of the clocks unknown".to_owned(),
        });
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(metric: &str) -> View {
        View::new(&MeshQuery { metric: metric.to_owned(), ..MeshQuery::default() }).unwrap()
    }

    #[test]
    fn unknown_choices_are_refused_with_the_known_ones() {
        let error = |query: MeshQuery| View::new(&query).unwrap_err().to_string();
        let text = || "<b>".to_owned();
        let window = error(MeshQuery { window: text(), ..MeshQuery::default() });
        assert_eq!(window, "window: '<b>' is unknown; known are 1h, 24h");
        assert!(error(MeshQuery { metric: text(), ..MeshQuery::default() }).contains("p99, loss"));
        assert!(error(MeshQuery { delay: text(), ..MeshQuery::default() }).contains("one-way"));
    }

    #[test]
    fn colours_follow_the_logarithm_of_delays() {
        let scale = Scale::new(&view("p50"), vec![1e6, 2e6, 64e6]);
        let colours = [0.5e6, 1e6, 3e6, 40e6, 64e6, 900e6].map(|ns| scale.colour(ns));
        assert_eq!(colours, [0, 0, 1, 5, 5, 5]);
        let legend = scale.legend();
        assert_eq!((legend.len(), legend[0].1.as_str()), (COLOURS, "up to 2 ms"));
        assert_eq!(legend[5].1, "above 32 ms");
        // One value is one colour.
        let one = Scale::new(&view("p50"), vec![5e6]);
        assert_eq!((one.colour(5e6), one.legend().len()), (0, 2));
        assert_eq!(Scale::new(&view("p50"), vec![-5.0]).colour(-5.0), 0);
        let loss = Scale::new(&view("loss"), Vec::new());
        assert_eq!([0.0, 0.0005, 0.03, 1.0].map(|it| loss.colour(it)), [0, 1, 3, 5]);
        assert_eq!(loss.legend()[0].1, "0 %");
    }

    #[test]
    fn missing_results_are_not_a_value() {
        let view = view("p99");
        let scale = Scale::new(&view, Vec::new());
        let cell = scale.cell(None, &view, 0);
        assert_eq!((cell.class.as_str(), cell.text.as_str()), ("missing", "\u{2013}"));
    }
}
