//! `dwell query`: the delays of a pair of nodes over time.

use std::io::{self, Write};
use std::str::FromStr;

use dwell_hub::store::SentStream;
use dwell_hub::{
    Answer, DAY_NS, Figures, Query, QueryError, Resolution, bin_text, delay_text, measure, query,
    query_csv, query_object, time_text,
};
use dwell_node_cli::{Exit, Failure, say, terminal};
use dwell_report::Table;
use dwell_rollup::{Name, ProbeCounts, RollupMetric};
use dwell_units::Nanos;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::data::DataArgs;
use super::hub;
use super::show::print_rows;

/// Range of a query without one.
const DEFAULT_RANGE: Nanos = Nanos(DAY_NS);

/// Range instead of the default one while that has no rows; short enough for rows of 10 s.
const RECENT_RANGE: Nanos = Nanos::from_secs(600);

/// Time in which a record of 10 s usually reaches the hub.
const DELIVERY_TIME: Nanos = Nanos::from_secs(30);

/// Arguments of `query`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A percentile is a bin with its bounds, at most 0.8 % wide, and is missing where too few delays support \
it. Coverage is the share of the probes that the schedules made due. A one-way delay is shown only with \
the maximum error of both clocks. docs/fleet.md explains the columns.")]
pub(crate) struct Args {
    /// Sender and reflector; without a pair, all pairs are listed
    #[arg(value_name = "SENDER:REFLECTOR")]
    pair: Option<Pair>,

    /// Delay
    #[arg(long, value_name = "METRIC", default_value = "rtt_ns", value_parser = metric)]
    metric: RollupMetric,

    /// Range that ends now, like 24h or 30d [default: 24h, or 10m until the hub has rows for 24h]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with_all = ["from", "to"])]
    last: Option<Nanos>,

    /// Start of the range: a date or a time in UTC, like 2026-11-26 or 2026-11-26T08:00Z
    #[arg(long, value_name = "TIME", value_parser = instant)]
    from: Option<i64>,

    /// End of the range [default: now]
    #[arg(long, value_name = "TIME", value_parser = instant, requires = "from")]
    to: Option<i64>,

    /// Length of a row, a multiple of 10s [default: by the length of the range]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    step: Option<Nanos>,

    /// Only this measurement of the schedule
    #[arg(long, value_name = "NAME")]
    measure: Option<String>,

    /// Only this protocol
    #[arg(long, value_name = "NAME")]
    protocol: Option<Name>,

    /// Form of the answer
    #[arg(long, value_name = "FORM", default_value = "table")]
    format: Format,

    #[command(flatten)]
    database: hub::DatabaseArgs,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    /// A table for people
    Table,
    /// Comma-separated values, one row per stream and step
    Csv,
    /// One JSON object (dwell.query/1)
    Json,
}

/// A sender and a reflector.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) sender: Name,
    pub(super) reflector: Name,
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (sender, reflector) =
            text.split_once(':').ok_or("write it like SENDER:REFLECTOR".to_owned())?;
        let name = |text: &str| text.parse::<Name>().map_err(|error| error.to_string());
        Ok(Self { sender: name(sender)?, reflector: name(reflector)? })
    }
}

fn metric(name: &str) -> Result<RollupMetric, String> {
    let known = || RollupMetric::ALL.map(RollupMetric::name).join(", ");
    // The unit may be left out.
    let found = RollupMetric::named(name).or_else(|| RollupMetric::named(&format!("{name}_ns")));
    found.ok_or_else(|| format!("known are {}", known()))
}

/// Parses a time like `24h`, or a number of days like `30d`.
pub(super) fn duration(text: &str) -> Result<Nanos, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<i64>().ok());
    let time = match days {
        Some(days) => days.checked_mul(DAY_NS).map(Nanos).ok_or("it is too long".to_owned())?,
        None => text.parse::<Nanos>().map_err(|error| error.to_string())?,
    };
    if time <= Nanos::ZERO { Err(format!("'{text}' is not above 0")) } else { Ok(time) }
}

/// Parses a date or a time in UTC, as nanoseconds since 1970.
pub(super) fn instant(text: &str) -> Result<i64, String> {
    let time = text.parse::<Timestamp>().ok().or_else(|| {
        let midnight = text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok()?;
        Some(midnight.timestamp())
    });
    let ns = time.and_then(|time| i64::try_from(time.as_nanosecond()).ok());
    ns.ok_or_else(|| "write it like 2026-11-26 or 2026-11-26T08:00:00Z (UTC)".to_owned())
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    args.data.check()?;
    let mut store = args.database.open_to_read(&args.data)?;
    let mut transaction = store.begin_to_read()?;
    let mut out = terminal::buffered_stdout();
    let Some(pair) = &args.pair else {
        print_pairs(&mut out, &transaction.streams(None)?)?;
        out.flush()?;
        return Ok(Exit::Measured);
    };
    let now_ns = i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX);
    let to_ns = args.to.unwrap_or(now_ns);
    let before = |range: Nanos| now_ns.saturating_sub(range.0).max(0);
    let mut question = Query {
        sender: pair.sender.clone(),
        reflector: pair.reflector.clone(),
        measure: args.measure.clone(),
        protocol: args.protocol.clone(),
        metric: args.metric,
        from_ns: args.from.unwrap_or_else(|| before(args.last.unwrap_or(DEFAULT_RANGE))),
        to_ns,
        step_ns: args.step.map(|step| step.0),
    };
    let mut ask = |question: &Query| {
        query(&mut *transaction, question, now_ns).map_err(|error| match error {
            QueryError::Invalid(text) => Failure::usage(text),
            QueryError::Hub(error) => error.into(),
        })
    };
    let mut answers = ask(&question)?;
    let is_empty = |answers: &[Answer]| {
        answers.iter().all(|answer| answer.total.counts == ProbeCounts::default())
    };
    let is_default = args.last.is_none() && args.from.is_none() && args.step.is_none();
    if is_default && is_empty(&answers) {
        question.from_ns = before(RECENT_RANGE);
        answers = ask(&question)?;
        say("dwell: no rows for the last 24 h yet; these are the last 10 min");
    }
    if is_empty(&answers) {
        say(&format!("dwell: {}", advice(answers.first().map(|answer| answer.resolution))));
    }
    match args.format {
        Format::Table => print_table(&mut out, &answers, now_ns)?,
        Format::Csv => out.write_all(query_csv(&answers).as_bytes())?,
        Format::Json => writeln!(out, "{:#}", query_object(&question, &answers))?,
    }
    out.flush()?;
    Ok(Exit::Measured)
}

/// Explains an answer without probes.
fn advice(resolution: Option<Resolution>) -> &'static str {
    match resolution {
        Some(Resolution::TenSeconds) => {
            "no probes in this range. A record of 10 s reaches the hub at its next collection; `dwell hub \
             nodes` lists nodes that deliver none"
        }
        _ => {
            "no probes in this range. Rows of 5 min and more appear up to 6 min after their probes; \
             `--step 10s` reads the rows of 10 s"
        }
    }
}

fn print_pairs(out: &mut impl Write, streams: &[SentStream]) -> io::Result<()> {
    let row = |stream: &SentStream| {
        let pair = format!("{}:{}", stream.sender, stream.stream.reflector);
        vec![pair, measure(&stream.stream.entry), stream.stream.protocol.to_string()]
    };
    let columns = ["pair", "measure", "protocol"].map(str::to_owned).to_vec();
    print_rows(out, &Table { columns, rows: streams.iter().map(row).collect() })
}

fn print_table(out: &mut impl Write, answers: &[Answer], now_ns: i64) -> io::Result<()> {
    for (at, answer) in answers.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        let stream = &answer.stream;
        writeln!(
            out,
            "{}:{}  {}  {}  {}",
            stream.sender,
            stream.stream.reflector,
            measure(&stream.stream.entry),
            stream.stream.protocol,
            answer.metric.name()
        )?;
        let is_one_way = answer.metric.is_one_way();
        let mut columns =
            vec!["from", "sent", "loss", "coverage", "n", "min", "p50", "p90", "p99", "max"];
        columns.extend(is_one_way.then_some("error"));
        let row = |name: String, figures: &Figures| {
            let mut cells = vec![name];
            cells.extend(cells_of(figures));
            let error = figures.delays.as_ref().map(|delays| Nanos(delays.error_ns as i64));
            cells.extend(is_one_way.then(|| error.map_or(absent(), |error| format!("±{error}"))));
            cells
        };
        let shown = shown(&answer.rows, now_ns).iter();
        let mut rows: Vec<_> =
            shown.map(|figures| row(time_text(figures.from_ns), figures)).collect();
        rows.push(row("total".to_owned(), &answer.total));
        let columns = columns.into_iter().map(str::to_owned).collect();
        print_rows(out, &Table { columns, rows })?;
    }
    Ok(())
}

/// Returns the steps without those at the start in which no probe was due, and those at the end whose
/// records cannot have arrived.
fn shown(rows: &[Figures], now_ns: i64) -> &[Figures] {
    let is_empty = |figures: &Figures| figures.counts == ProbeCounts::default();
    let is_before = |figures: &Figures| is_empty(figures) && figures.coverage.is_none();
    let is_open = |figures: &Figures| {
        is_empty(figures) && figures.to_ns > now_ns.saturating_sub(DELIVERY_TIME.0)
    };
    let from = rows.iter().position(|figures| !is_before(figures)).unwrap_or(rows.len());
    let to = rows.iter().rposition(|figures| !is_open(figures)).map_or(0, |last| last + 1);
    &rows[from.min(to)..to]
}

fn absent() -> String {
    "-".to_owned()
}

fn cells_of(figures: &Figures) -> Vec<String> {
    let counts = &figures.counts;
    let percent = |ratio: f64| format!("{:.1} %", ratio * 100.0);
    // What a paused reflector does not answer is maintenance.
    let sent = counts.sent.saturating_sub(figures.lost_in_pause);
    let lost = counts.lost.saturating_sub(figures.lost_in_pause);
    let loss = (sent > 0).then(|| lost as f64 / sent as f64);
    let mut cells = vec![
        counts.sent.to_string(),
        loss.map_or(absent(), percent),
        figures.coverage.map_or(absent(), percent),
    ];
    let Some(delays) = &figures.delays else {
        cells.push("0".to_owned());
        cells.extend(std::iter::repeat_with(absent).take(5));
        return cells;
    };
    let [p50, p90, _, p99, _] = &delays.percentiles;
    cells.push(delays.n.to_string());
    cells.push(delay_text(delays.min_ns));
    cells.extend([p50, p90, p99].map(|bin| bin.as_ref().map_or(absent(), bin_text)));
    cells.push(delay_text(delays.max_ns));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_metrics_are_parsed() {
        assert_eq!(duration("30d"), Ok(Nanos(30 * DAY_NS)));
        assert_eq!(duration("24h"), Ok(Nanos(DAY_NS)));
        for wrong in ["0h", "24", "-1h", "999999999999d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(instant("1970-01-02"), Ok(DAY_NS));
        assert_eq!(instant("1970-01-01T00:00:01Z"), Ok(1_000_000_000));
        assert!(instant("yesterday").is_err());
        assert_eq!(metric("rtt"), Ok(RollupMetric::Rtt));
        assert_eq!(metric("one_way_forward_ns"), Ok(RollupMetric::OneWayForward));
        assert!(metric("speed").unwrap_err().contains("rtt_kernel_ns"));
    }
}
