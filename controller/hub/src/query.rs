//! Queries: the delays of a pair over time, with their number and coverage.

use std::collections::BTreeSet;

use dwell_rollup::{Bin, ClockQuality, Name, ProbeCounts, RollupMetric};
use dwell_stats::Quantile;
use thiserror::Error;

use crate::coverage::FleetHistory;
use crate::error::HubError;
use crate::period::{DAY_NS, Resolution, SECOND_NS};
use crate::row::Row;
use crate::store::{HubTransaction, SentStream, Span};

/// Percentiles of a query, with their names.
pub const QUANTILES: [(&str, Quantile); 5] = [
    ("p50", Quantile::P50),
    ("p90", Quantile::P90),
    ("p95", Quantile::P95),
    ("p99", Quantile::P99),
    ("p99_9", Quantile::P99_9),
];

/// Percentiles between which figures draw nested bands: 5 and 95, 25 and 75.
pub const BAND_QUANTILES: [Quantile; 4] =
    [quantile(50_000), quantile(250_000), quantile(750_000), quantile(950_000)];

const fn quantile(ppm: u32) -> Quantile {
    match Quantile::from_ppm(ppm) {
        Some(quantile) => quantile,
        None => Quantile::P50,
    }
}

/// Maximum number of rows of a query.
const MAX_ROWS: i64 = 100_000;

/// Start of the year 2200, in nanoseconds since 1970. Later times, and those before 1970, have no rows.
const MAX_TIME_NS: i64 = 84_006 * DAY_NS;

/// Largest number of rows for which a step is chosen.
const DEFAULT_ROWS: i64 = 60;

/// Steps that are chosen without a request, in seconds.
const DEFAULT_STEPS_S: [i64; 6] = [10, 60, 300, 3_600, 21_600, 86_400];

/// A question about one pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The node that sent the probes.
    pub sender: Name,
    /// The node that reflected them.
    pub reflector: Name,
    /// Name of the measurement in the schedule, or of an entry of the node's configuration.
    pub measure: Option<String>,
    /// Protocol of the probes.
    pub protocol: Option<Name>,
    /// The delay.
    pub metric: RollupMetric,
    /// Start, in nanoseconds since 1970.
    pub from_ns: i64,
    /// End, in nanoseconds since 1970.
    pub to_ns: i64,
    /// Length of a row in nanoseconds; `None`: chosen by the length of the range.
    pub step_ns: Option<i64>,
}

/// The answer for one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The stream.
    pub stream: SentStream,
    /// The delay.
    pub metric: RollupMetric,
    /// Resolution of the stored rows that were merged.
    pub resolution: Resolution,
    /// Length of a row in nanoseconds.
    pub step_ns: i64,
    /// A row for each step, in ascending order, also for steps without probes.
    pub rows: Vec<Figures>,
    /// Figures of the whole range.
    pub total: Figures,
    /// Pauses of the sender, as starts and ends in nanoseconds since 1970, within the range.
    pub sender_pauses: Vec<(i64, i64)>,
    /// Pauses of the reflector.
    pub reflector_pauses: Vec<(i64, i64)>,
}

/// Figures of one stream in a time span.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Start in nanoseconds since 1970.
    pub from_ns: i64,
    /// End in nanoseconds since 1970.
    pub to_ns: i64,
    /// Number of probes by outcome.
    pub counts: ProbeCounts,
    /// Lost probes that the paused reflector explains: those that were due during its pauses, at most
    /// all lost ones.
    pub lost_in_pause: u64,
    /// Number of probes that were due; `None` if unknown.
    pub due: Option<f64>,
    /// Share of due probes that are in the rows, from 0 to 1; `None` if unknown, none were due, or rows
    /// of the span are older than their retention.
    pub coverage: Option<f64>,
    /// Delays; `None` without any, or if the error of the clocks is unknown.
    pub delays: Option<DelayFigures>,
    /// State of the sender's clock; `None` without rows.
    pub clock: Option<ClockQuality>,
}

/// Figures of delays.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayFigures {
    /// Number of delays.
    pub n: u64,
    /// Smallest delay in nanoseconds.
    pub min_ns: i64,
    /// Arithmetic mean in nanoseconds.
    pub mean_ns: f64,
    /// Largest delay in nanoseconds.
    pub max_ns: i64,
    /// The bin of each percentile of [`QUANTILES`]; `None` if `n` does not support it.
    pub percentiles: [Option<Bin>; QUANTILES.len()],
    /// The bin of each percentile of [`BAND_QUANTILES`], as in [`Self::percentiles`].
    pub bands: [Option<Bin>; BAND_QUANTILES.len()],
    /// Maximum error in nanoseconds that the clocks of both nodes cause. 0 for round trips, and for
    /// one-way delays on one clock.
    pub error_ns: u64,
}

/// A query without an answer.
#[derive(Debug, Error)]
pub enum QueryError {
    /// The question is invalid. The text says what would be right.
    #[error("{0}")]
    Invalid(String),
    /// The database failed.
    #[error(transparent)]
    Hub(#[from] HubError),
}

/// Answers a query for each stream that matches.
///
/// # Errors
/// The range or step is invalid, there is no such stream, or the database failed.
pub fn query(
    transaction: &mut dyn HubTransaction,
    query: &Query,
    now_ns: i64,
) -> Result<Vec<Answer>, QueryError> {
    if query.from_ns >= query.to_ns {
        return Err(QueryError::Invalid(
            "the range is empty: its start is not before its end".into(),
        ));
    }
    if query.from_ns < 0 || query.to_ns > MAX_TIME_NS {
        return Err(QueryError::Invalid("the range must be between 1970 and 2200".into()));
    }
    let step_ns = match query.step_ns {
        Some(step_ns) => step_ns,
        None => default_step(query, transaction.horizons()?.of(Resolution::TenSeconds)),
    };
    let resolution = resolution_of(step_ns)?;
    // Steps are aligned in UTC.
    let from_ns = query.from_ns.div_euclid(step_ns) * step_ns;
    let to_ns = query.to_ns.div_euclid(step_ns) * step_ns
        + if query.to_ns.rem_euclid(step_ns) == 0 { 0 } else { step_ns };
    if (to_ns - from_ns) / step_ns > MAX_ROWS {
        let message = format!("the answer would have more than {MAX_ROWS} rows; use a longer step");
        return Err(QueryError::Invalid(message));
    }
    let streams = matching(transaction, query)?;
    let mut answers = Vec::new();
    for stream in streams {
        let steps = Steps { from_ns, to_ns, step_ns, resolution, now_ns };
        answers.push(answer(transaction, query, stream, &steps)?);
    }
    Ok(answers)
}

/// Returns the streams of the pair.
fn matching(
    transaction: &mut dyn HubTransaction,
    query: &Query,
) -> Result<Vec<SentStream>, QueryError> {
    let all = transaction.streams(None)?;
    let of_pair = |stream: &&SentStream| {
        stream.sender == query.sender && stream.stream.reflector == query.reflector
    };
    let is_wanted = |stream: &&SentStream| {
        let name = measure(&stream.stream.entry);
        query.measure.as_ref().is_none_or(|measure| *measure == name)
            && query.protocol.as_ref().is_none_or(|protocol| *protocol == stream.stream.protocol)
    };
    let pair: Vec<_> = all.iter().filter(of_pair).collect();
    let wanted: Vec<_> = pair.iter().copied().filter(|stream| is_wanted(stream)).cloned().collect();
    if !wanted.is_empty() {
        return Ok(wanted);
    }
    let (sender, reflector) = (&query.sender, &query.reflector);
    let message = if !pair.is_empty() {
        let known = pair.iter().map(|stream| {
            format!("{} ({})", measure(&stream.stream.entry), stream.stream.protocol)
        });
        let known = known.collect::<Vec<_>>().join(", ");
        format!("{sender}:{reflector} has no such measurement; it has {known}")
    } else if all.is_empty() {
        "the hub has no results yet; the first arrive within a minute after a schedule is applied; `dwell \
         hub nodes` shows what is missing"
            .to_owned()
    } else {
        let senders = all.iter().filter(|stream| stream.sender == *sender);
        let known: Vec<_> =
            senders.map(|stream| format!("{sender}:{}", stream.stream.reflector)).collect();
        match &known[..] {
            [] => format!(
                "node {sender} has sent no probes that the hub knows; `dwell hub nodes` shows why"
            ),
            known => format!(
                "the hub has no results of {sender}:{reflector}; {sender} measured {}",
                known.join(", ")
            ),
        }
    };
    Err(QueryError::Invalid(message))
}

/// The name of the measurement in that of a stream.
pub fn measure(entry: &Name) -> String {
    entry.as_str().split('+').next().unwrap_or_default().to_owned()
}

/// Chooses a step. Rows of 10 s are not used before their `horizon`.
fn default_step(query: &Query, horizon: i64) -> i64 {
    let range = query.to_ns.saturating_sub(query.from_ns);
    let mut steps = DEFAULT_STEPS_S.iter().map(|seconds| seconds * SECOND_NS);
    let fits = |step: &i64| {
        range / step <= DEFAULT_ROWS
            && (resolution_for(*step) != Resolution::TenSeconds || query.from_ns >= horizon)
    };
    steps.find(fits).unwrap_or(DAY_NS)
}

/// The coarsest resolution whose interval divides a step.
fn resolution_for(step_ns: i64) -> Resolution {
    let divides = |resolution: &&Resolution| step_ns % resolution.length_ns() == 0;
    *Resolution::ALL.iter().rev().find(divides).unwrap_or(&Resolution::TenSeconds)
}

fn resolution_of(step_ns: i64) -> Result<Resolution, QueryError> {
    if step_ns <= 0 || step_ns > MAX_TIME_NS || step_ns % Resolution::TenSeconds.length_ns() != 0 {
        let message = "the step must be a multiple of 10 s, like 10s, 5m, 1h or 24h";
        return Err(QueryError::Invalid(message.to_owned()));
    }
    Ok(resolution_for(step_ns))
}

/// The steps of an answer.
struct Steps {
    from_ns: i64,
    to_ns: i64,
    step_ns: i64,
    resolution: Resolution,
    now_ns: i64,
}

fn answer(
    transaction: &mut dyn HubTransaction,
    query: &Query,
    stream: SentStream,
    steps: &Steps,
) -> Result<Answer, QueryError> {
    let Steps { from_ns, to_ns, step_ns, resolution, now_ns } = *steps;
    let span = Span { stream: stream.id, from_ns, to_ns };
    let rows = transaction.rows(resolution, &[span])?.pop().unwrap_or_default();
    let reflector = &stream.stream.reflector;
    let names = BTreeSet::from([stream.sender.clone(), reflector.clone()]);
    let history = FleetHistory::read(transaction, &names, (from_ns, to_ns))?;
    let expected = history.expected(&stream.sender, &stream.stream);
    // Rows before were dropped.
    let kept_from_ns = transaction.horizons()?.kept_from(resolution);
    let figures = |rows: &[Row], from_ns: i64, to_ns: i64| {
        let merged = Row::merge(rows, from_ns);
        let counts = merged.as_ref().map(|row| row.counts).unwrap_or_default();
        let error_ns = merged.as_ref().and_then(|row| match query.metric.is_one_way() {
            true => history.error_ns(&row.clock, reflector, from_ns, to_ns),
            false => Some(0),
        });
        let delays = merged.as_ref().and_then(|row| row.delays(query.metric)).zip(error_ns);
        Figures {
            from_ns,
            to_ns,
            counts,
            lost_in_pause: (expected.unanswerable(from_ns, to_ns.min(now_ns)).round() as u64)
                .min(counts.lost),
            due: expected.in_span(from_ns, to_ns.min(now_ns)),
            coverage: expected
                .coverage(from_ns, to_ns.min(now_ns), counts.due())
                .filter(|_| from_ns >= kept_from_ns),
            delays: delays.and_then(|(delays, error_ns)| {
                Some(DelayFigures {
                    n: delays.count(),
                    min_ns: delays.min()?.0,
                    mean_ns: delays.mean_ns()?,
                    max_ns: delays.max()?.0,
                    percentiles: QUANTILES.map(|(_, quantile)| delays.quantile(quantile)),
                    bands: BAND_QUANTILES.map(|quantile| delays.quantile(quantile)),
                    error_ns,
                })
            }),
            clock: merged.map(|row| row.clock),
        }
    };
    let total = figures(&rows, from_ns, to_ns);
    let mut answered = Vec::new();
    let mut left = &rows[..];
    let mut start = from_ns;
    while start < to_ns {
        let end = start + step_ns;
        let is_before = |row: &Row| resolution.middle(row.start_ns) < end;
        let (inside, rest) = left.split_at(left.partition_point(is_before));
        answered.push(figures(inside, start, end));
        (left, start) = (rest, end);
    }
    let within = |pauses: &[(i64, i64)]| {
        let pauses = pauses.iter().map(|(from, to)| ((*from).max(from_ns), (*to).min(to_ns)));
        pauses.filter(|(from, to)| from < to).collect()
    };
    Ok(Answer {
        metric: query.metric,
        resolution,
        step_ns,
        rows: answered,
        total,
        sender_pauses: within(expected.sender_pauses()),
        reflector_pauses: within(expected.reflector_pauses()),
        stream,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(hours: i64) -> Query {
        Query {
            sender: "a".parse().unwrap(),
            reflector: "b".parse().unwrap(),
            measure: None,
            protocol: None,
            metric: RollupMetric::Rtt,
            from_ns: 0,
            to_ns: hours * 3_600 * SECOND_NS,
            step_ns: None,
        }
    }

    #[test]
    fn default_step_gives_a_readable_number_of_rows() {
        let step = |hours: i64, horizon: i64| default_step(&range(hours), horizon) / SECOND_NS;
        assert_eq!([1, 5, 24, 24 * 30].map(|hours| step(hours, 0)), [60, 300, 3_600, 86_400]);
        assert_eq!(step(1, 1), 300, "no rows of 10 s");
    }

    #[test]
    fn step_selects_the_coarsest_rows() {
        let of = |seconds: i64| resolution_of(seconds * SECOND_NS);
        assert_eq!(of(10).unwrap(), Resolution::TenSeconds);
        assert_eq!(of(900).unwrap(), Resolution::FiveMinutes);
        assert_eq!(of(21_600).unwrap(), Resolution::Hour);
        assert_eq!(of(7 * 86_400).unwrap(), Resolution::Day);
        for wrong in [0, -10, 15] {
            assert!(of(wrong).unwrap_err().to_string().contains("multiple of 10 s"));
        }
    }
}
