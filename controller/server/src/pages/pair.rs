//! `/mesh/SENDER/REFLECTOR`: a pair over time, in both directions.

use askama::Template;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::get;
use dwell_hub::store::HubTransaction;
use dwell_hub::{
    Answer, Figures, Query as HubQuery, bin_text, delay_text, measure, query, time_text,
};
use dwell_report::model::quantity::{count, share};
use dwell_report::model::{SmokeDelays, SmokeSeries, SmokeStep};
use dwell_report::{Figure, figure_html, smoke};
use dwell_rollup::{Bin, Name, RollupMetric};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::layout::{Layout, render};
use super::mesh::Choice;
use super::pair_samples::{PairSamples, Span, add_files, file_of};
use super::query_text;
use super::run::json;
use crate::app::App;
use crate::error::Error;
use crate::hub::now_ns;
use crate::parquet_file::parquet_file;

/// Ranges: name, text, length in hours, and length of a step in seconds.
const RANGES: [(&str, &str, i64, i64); 5] = [
    ("1h", "1 h", 1, 60),
    ("24h", "24 h", 24, 300),
    ("7d", "7 days", 7 * 24, 3_600),
    ("30d", "30 days", 30 * 24, 3 * 3_600),
    ("90d", "90 days", 90 * 24, 6 * 3_600),
];

/// Position of the range without a choice.
const DEFAULT_RANGE: usize = 1;

/// Share of due probes below which records of a step are missing.
const MIN_COVERAGE: f64 = 0.9;

/// Time after which records of a step have arrived.
const ARRIVAL_NS: i64 = 11 * 60 * SECOND_NS;

const SECOND_NS: i64 = 1_000_000_000;

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/mesh/{sender}/{reflector}", get(page))
        .route("/mesh/{sender}/{reflector}/figures.json", get(figures))
        .route("/mesh/{sender}/{reflector}/samples/{file}", get(samples))
}

/// The query of the address.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PairQuery {
    range: String,
    metric: String,
    of: String,
}

/// What the page shows.
#[derive(Clone, Debug)]
struct View {
    sender: Name,
    reflector: Name,
    range: usize,
    metric: RollupMetric,
    /// Measurement and protocol.
    of: Option<(String, String)>,
}

impl View {
    fn new(sender: &str, reflector: &str, query: &PairQuery) -> Result<Self, Error> {
        let name =
            |text: &str| text.parse::<Name>().map_err(|error| Error::NotFound(error.to_string()));
        let range = match query.range.as_str() {
            "" => DEFAULT_RANGE,
            wanted => RANGES.iter().position(|(name, ..)| *name == wanted).ok_or_else(|| {
                let known = RANGES.map(|(name, ..)| name).join(", ");
                Error::Invalid(format!("range: '{wanted}' is unknown; known are {known}"))
            })?,
        };
        let metric = match query.metric.as_str() {
            "" => RollupMetric::Rtt,
            wanted => RollupMetric::named(wanted).ok_or_else(|| {
                let known = RollupMetric::ALL.map(RollupMetric::name).join(", ");
                Error::Invalid(format!("metric: '{wanted}' is unknown; known are {known}"))
            })?,
        };
        let of = query.of.split_once('/');
        let of = of.map(|(measure, protocol)| (measure.to_owned(), protocol.to_owned()));
        Ok(Self { sender: name(sender)?, reflector: name(reflector)?, range, metric, of })
    }

    /// Query of the address with another range.
    fn link(&self, range: &str) -> String {
        let of = self.of.as_ref().map(|(measure, protocol)| {
            format!("of={}&", query_text(&format!("{measure}/{protocol}")))
        });
        format!("{}metric={}&range={range}", of.unwrap_or_default(), self.metric.name())
    }
}

/// One direction.
struct Direction {
    sender: Name,
    reflector: Name,
    figure: Option<Figure>,
    /// Figures of the whole range.
    facts: Vec<(&'static str, String)>,
    /// What the visitor should know about the figure.
    note: Option<&'static str>,
    /// Query of the API.
    link: String,
    span: Span,
    samples: PairSamples,
}

/// Both directions, that of the address first.
struct Pair {
    view: View,
    directions: Vec<Direction>,
    streams: Vec<Choice>,
}

/// Reads a pair; an error if the sender does not measure the reflector.
fn read(transaction: &mut dyn HubTransaction, mut view: View, now_ns: i64) -> Result<Pair, Error> {
    let streams = transaction.streams(Some(&view.sender))?;
    let of_pair = streams.iter().filter(|sent| sent.stream.reflector == view.reflector);
    let known: Vec<(String, String)> = of_pair
        .map(|sent| (measure(&sent.stream.entry), sent.stream.protocol.to_string()))
        .collect();
    if view.of.is_none() {
        view.of = known.first().cloned();
    }
    let streams = known.iter().map(|of| {
        let (measure, protocol) = of;
        let (value, text) = (format!("{measure}/{protocol}"), format!("{measure} ({protocol})"));
        Choice::new(value, text, view.of.as_ref() == Some(of))
    });
    let streams = streams.collect();
    let forward = direction(transaction, &view, (&view.sender, &view.reflector), now_ns)?;
    let mut directions = vec![forward];
    match direction(transaction, &view, (&view.reflector, &view.sender), now_ns) {
        Ok(backward) => directions.push(backward),
        // The reflector need not send probes.
        Err(Error::Invalid(_)) => {}
        Err(error) => return Err(error),
    }
    Ok(Pair { view, directions, streams })
}

fn direction(
    transaction: &mut dyn HubTransaction,
    view: &View,
    (sender, reflector): (&Name, &Name),
    now_ns: i64,
) -> Result<Direction, Error> {
    let (_, _, hours, step_s) = RANGES[view.range];
    let protocol = view.of.as_ref().map(|(_, protocol)| protocol.parse::<Name>());
    let protocol = protocol.transpose().map_err(|error| Error::Invalid(error.to_string()))?;
    let mut question = HubQuery {
        sender: sender.clone(),
        reflector: reflector.clone(),
        measure: view.of.as_ref().map(|(measure, _)| measure.clone()),
        protocol,
        metric: view.metric,
        from_ns: now_ns - hours * 3_600 * SECOND_NS,
        to_ns: now_ns,
        step_ns: Some(step_s * SECOND_NS),
    };
    let mut note = None;
    let mut answer = first(query(transaction, &question, now_ns)?)?;
    // One-way delays without a bound are unknown; round trips are not.
    if view.metric.is_one_way() && answer.total.delays.is_none() && answer.total.counts.received > 0
    {
        let has_some = answer.rows.iter().any(|row| row.delays.is_some());
        if !has_some {
            note = Some(
                "The error of the clocks is unknown, so the one-way delay is, too. Shown: the round trip.",
            );
            question.metric = RollupMetric::Rtt;
            answer = first(query(transaction, &question, now_ns)?)?;
        }
    }
    let id = if *sender == view.sender { "smoke-forward" } else { "smoke-reverse" };
    let link = format!(
        "sender={sender}&reflector={reflector}&measure={}&protocol={}&metric={}&from={}&to={}&step={step_s}s",
        query_text(&measure(&answer.stream.stream.entry)),
        query_text(answer.stream.stream.protocol.as_str()),
        question.metric.name(),
        query_text(&time_text(question.from_ns)),
        query_text(&time_text(question.to_ns)),
    );
    let span = Span {
        sender: sender.clone(),
        reflector: reflector.clone(),
        from_ns: question.from_ns,
        to_ns: question.to_ns,
    };
    Ok(Direction {
        samples: span.read(transaction)?,
        span,
        sender: sender.clone(),
        reflector: reflector.clone(),
        figure: smoke(&series(id, &answer, now_ns)),
        facts: facts(&answer),
        note,
        link: link.replace('+', "%2B"),
    })
}

fn first(answers: Vec<Answer>) -> Result<Answer, Error> {
    let mut answers = answers.into_iter();
    answers.next().ok_or_else(|| Error::Invalid("this pair has no results".to_owned()))
}

fn metric_text(metric: RollupMetric) -> &'static str {
    match metric {
        RollupMetric::Rtt => "Round trip",
        RollupMetric::RttKernel => "Round trip between kernels",
        RollupMetric::OneWayForward => "One-way delay of the probes",
        RollupMetric::OneWayBackward => "One-way delay of the replies",
    }
}

/// Converts an answer into the input of a figure.
fn series(id: &str, answer: &Answer, now_ns: i64) -> SmokeSeries {
    let stream = &answer.stream;
    let middle = |bin: &Bin| bin.low.0 + (bin.high.0 - bin.low.0) / 2;
    // Before the first row of a new stream there is no gap.
    let first = answer.rows.iter().position(|row| row.counts.due() > 0 || row.coverage.is_some());
    let step = |(at, row): (usize, &Figures)| {
        let is_complete = row.to_ns <= now_ns - ARRIVAL_NS;
        let is_due = is_complete && first.is_some_and(|first| first <= at);
        let is_missing = match (row.coverage, row.due) {
            (Some(coverage), _) => coverage < MIN_COVERAGE,
            // Outside of daily windows, and in pauses of the sender, nothing is missing.
            (None, Some(0.0)) => false,
            (None, _) => row.counts.due() == 0,
        };
        SmokeStep {
            from_ns: row.from_ns,
            to_ns: row.to_ns,
            label: time_text(row.from_ns).replace('T', " ").replace(":00Z", ""),
            sent: row.counts.sent.saturating_sub(row.lost_in_pause),
            lost: row.counts.lost.saturating_sub(row.lost_in_pause),
            coverage: row.coverage,
            is_gap: is_due && is_missing,
            delays: row.delays.as_ref().map(|delays| {
                let [p5, p25, p75, p95] = delays.bands.map(|bin| bin.as_ref().map(middle));
                let [p50, _, _, p99, _] = delays.percentiles.map(|bin| bin.as_ref().map(middle));
                SmokeDelays {
                    n: delays.n,
                    min_ns: delays.min_ns,
                    p5_ns: p5,
                    p25_ns: p25,
                    p50_ns: p50,
                    p75_ns: p75,
                    p95_ns: p95,
                    p99_ns: p99,
                    max_ns: delays.max_ns,
                }
            }),
        }
    };
    let from_ns = answer.rows.first().map_or(0, |row| row.from_ns);
    let to_ns = answer.rows.last().map_or(0, |row| row.to_ns);
    let mut pauses = [&answer.sender_pauses[..], &answer.reflector_pauses].concat();
    pauses.sort_unstable();
    SmokeSeries {
        id: id.to_owned(),
        title: format!(
            "{} from {} to {}",
            metric_text(answer.metric),
            stream.sender,
            stream.stream.reflector
        ),
        caption: format!("{}, {}", measure(&stream.stream.entry), stream.stream.protocol),
        from_ns,
        to_ns,
        steps: answer.rows.iter().enumerate().map(step).collect(),
        pauses,
    }
}

fn facts(answer: &Answer) -> Vec<(&'static str, String)> {
    let total = &answer.total;
    let dash = || "-".to_owned();
    let sent = total.counts.sent.saturating_sub(total.lost_in_pause);
    let lost = total.counts.lost.saturating_sub(total.lost_in_pause);
    let loss = (sent > 0).then(|| share(lost as f64 / sent as f64));
    let delays = total.delays.as_ref();
    let bin = |at: usize| {
        let bin = delays.and_then(|delays| delays.percentiles[at]);
        bin.as_ref().map_or_else(dash, bin_text)
    };
    let mut facts = vec![
        ("p50", bin(0)),
        ("p95", bin(2)),
        ("p99", bin(3)),
        ("minimum", delays.map_or_else(dash, |delays| delay_text(delays.min_ns))),
        ("maximum", delays.map_or_else(dash, |delays| delay_text(delays.max_ns))),
        ("loss", loss.unwrap_or_else(dash)),
        ("n", count(delays.map_or(0, |delays| delays.n))),
        ("coverage", total.coverage.map_or_else(dash, share)),
    ];
    if answer.metric.is_one_way() {
        let error = delays.map(|delays| i64::try_from(delays.error_ns).unwrap_or(i64::MAX));
        let error = error.map(|error| format!("\u{b1}{}", delay_text(error)));
        facts.push(("error of the clocks", error.unwrap_or_else(|| "unknown".to_owned())));
    }
    if total.lost_in_pause > 0 {
        facts.push(("lost in pauses", count(total.lost_in_pause)));
    }
    facts
}

#[derive(Template)]
#[template(path = "pair.html")]
struct Page {
    layout: Layout,
    pair: Pair,
    ranges: Vec<(&'static str, String, bool)>,
    metrics: Vec<Choice>,
    range: &'static str,
    figures: String,
}

impl Direction {
    fn html(&self) -> String {
        self.figure.as_ref().map_or_else(String::new, |figure| figure_html(figure, 2))
    }
}

async fn pair(app: &App, view: View) -> Result<Pair, Error> {
    let now_ns = now_ns();
    let read = app.read_hub(move |transaction| read(transaction, view, now_ns));
    let missing =
        || Error::NotFound("there is no hub; start one with `dwell hub --embedded`".into());
    read.await?.ok_or_else(missing)
}

async fn page(
    State(app): State<App>,
    Path((sender, reflector)): Path<(String, String)>,
    Query(query): Query<PairQuery>,
) -> Result<Response, Error> {
    let view = View::new(&sender, &reflector, &query)?;
    let mut pair = match pair(&app, view).await {
        Err(Error::Invalid(text)) => return Err(Error::NotFound(text)),
        pair => pair?,
    };
    let of_spans = pair.directions.iter().map(|it| (it.span.clone(), it.samples.clone()));
    let samples = add_files(&app, of_spans.collect()).await?;
    for (direction, samples) in pair.directions.iter_mut().zip(samples) {
        direction.samples = samples;
    }
    let view = &pair.view;
    let (range, ..) = RANGES[view.range];
    let title = format!("{} to {}", view.sender, view.reflector);
    let links = RANGES.map(|(name, text, ..)| (text, view.link(name), name == range));
    let metrics = RollupMetric::ALL
        .map(|metric| Choice::new(metric.name(), metric_text(metric), metric == view.metric));
    let path = format!("/mesh/{}/{}/figures.json", view.sender, view.reflector);
    let figures = format!("{path}?{}", view.link(range));
    let layout = Layout::new(title, "/mesh").with_figures();
    let (ranges, metrics) = (links.into(), metrics.into());
    Ok(render(&Page { layout, pair, ranges, metrics, range, figures }))
}

/// Sends the specifications of the figures.
async fn figures(
    State(app): State<App>,
    Path((sender, reflector)): Path<(String, String)>,
    Query(query): Query<PairQuery>,
) -> Result<Response, Error> {
    let pair = pair(&app, View::new(&sender, &reflector, &query)?).await?;
    let figures = pair.directions.into_iter().filter_map(|direction| direction.figure);
    let specifications: Map<String, Value> =
        figures.map(|figure| (figure.id, figure.spec)).collect();
    Ok(json(Value::Object(specifications).to_string()))
}

/// Sends a file of samples.
async fn samples(
    State(app): State<App>,
    Path((sender, reflector, file)): Path<(String, String, String)>,
) -> Result<Response, Error> {
    let path = file_of(&app, sender, reflector, file).await?;
    let gone = |error| Error::NotFound(format!("cannot read {}: {error}", path.display()));
    parquet_file(&path).await.map_err(gone)
}
