//! Tables of a run's trials for the terminal: probe counts, and figures of the delay with their
//! intervals.

use std::io::{self, Write};

use dwell_record::{Figures, Packets};
use dwell_report::Unit;
use dwell_report::model::{RunData, TrialData};
use dwell_stats::Quantile;

/// Maximum width of a table, unless a single cell is wider.
const MAX_TABLE_WIDTH: usize = 110;

/// Space between two columns.
const COLUMN_GAP: &str = "  ";

/// Prints both tables.
pub(super) fn print(out: &mut impl Write, run: &RunData) -> io::Result<()> {
    print_counts(out, run)?;
    print_delays(out, run)
}

/// Prints the probe counts and the cell of each trial.
fn print_counts(out: &mut impl Write, run: &RunData) -> io::Result<()> {
    let of = |trial: &TrialData| trial.summary.as_ref()?.packets;
    let count = |name: &'static str, count: fn(&Packets) -> u64| {
        let mut column = Column::new(name);
        column.cells.extend(run.trials.iter().map(|t| number(of(t).map(|all| count(&all)))));
        column
    };
    let mut columns = vec![
        Column::of_trials(run.trials.iter()),
        count("sent", |all| all.sent),
        count("in time", |all| all.received),
        count("late", |all| all.late),
        count("lost", |all| all.lost),
        count("duplicate", |all| all.duplicate),
        count("reordered", |all| all.reordered),
    ];
    if run.trials.iter().filter_map(of).any(|packets| packets.send_failed > 0) {
        columns.push(count("not sent", |all| all.send_failed));
    }
    let cells: Vec<String> = run.trials.iter().map(|trial| described(run, trial)).collect();
    writeln!(out)?;
    let margin = columns.iter().map(|column| column.width() + COLUMN_GAP.len()).sum::<usize>();
    let room = MAX_TABLE_WIDTH.saturating_sub(margin).max(40);
    writeln!(out, "{}{COLUMN_GAP}cell", line(&columns, None).trim_end())?;
    for (row, cell) in cells.iter().enumerate() {
        let mut parts = wrapped(cell, room).into_iter();
        let first = parts.next().unwrap_or_default();
        writeln!(
            out,
            "{}",
            format!("{}{COLUMN_GAP}{first}", line(&columns, Some(row))).trim_end()
        )?;
        parts.try_for_each(|part| writeln!(out, "{:margin$}{part}", ""))?;
    }
    Ok(())
}

/// Prints the delay of each trial in one unit. Percentiles are followed by their 95 % intervals if
/// available.
fn print_delays(out: &mut impl Write, run: &RunData) -> io::Result<()> {
    let of_run = dwell_report::main_metric(run);
    let measured: Vec<(&TrialData, &str, &Figures)> = run
        .trials
        .iter()
        .filter_map(|trial| {
            let (metric, figures) = super::main_metric(trial, of_run)?;
            Some((trial, metric, figures))
        })
        .collect();
    let Some((_, metric, _)) = measured.first() else { return Ok(()) };
    let scale = Scale::of(measured.iter().map(|(.., figures)| *figures));
    let column = |name: &'static str, value: &dyn Fn(&Figures) -> Option<f64>| {
        let mut column = Column::new(name);
        column.cells.extend(measured.iter().map(|(.., figures)| scale.cell(value(figures))));
        column
    };
    let whole = |ns: Option<i64>| ns.map(|ns| ns as f64);
    let within = |name: &'static str, quantile: Quantile, value: fn(&Figures) -> Option<i64>| {
        let cell = |(trial, metric, figures): &(&TrialData, &str, &Figures)| {
            let cell = scale.cell(whole(value(figures)));
            let interval = dwell_report::interval_of(trial, metric, quantile);
            let [low, high] = [interval.map(|it| it.0), interval.map(|it| it.1)];
            match interval.filter(|_| value(figures).is_some()) {
                Some(_) => format!("{cell} ({} to {})", scale.cell(low), scale.cell(high)),
                None => cell,
            }
        };
        let mut column = Column::new(name);
        column.cells.extend(measured.iter().map(cell));
        column.align_values();
        column
    };
    let mut columns = vec![
        Column::of_trials(measured.iter().map(|(trial, ..)| *trial)),
        column("mean", &|figures| figures.mean),
        column("std dev", &|figures| figures.stddev),
        column("min", &|figures| whole(figures.min)),
        within("median", Quantile::P50, |figures| figures.p50),
        within("p95", Quantile::P95, |figures| figures.p95),
        within("p99", Quantile::P99, |figures| figures.p99),
        column("p99.9", &|figures| whole(figures.p99_9)),
        column("max", &|figures| whole(figures.max)),
    ];
    let has_intervals =
        columns.iter().any(|column| column.cells.iter().any(|cell| cell.contains(" to ")));
    let named = |metric: &str| metric.trim_end_matches("_ns").to_owned();
    let is_one = measured.iter().all(|(_, other, _)| other == metric);
    let title = if is_one {
        named(metric)
    } else {
        let mut column = Column::new("metric");
        column.cells.extend(measured.iter().map(|(_, metric, _)| named(metric)));
        column.is_text = true;
        columns.push(column);
        "delay".to_owned()
    };
    let note = if has_intervals { ", with 95 % intervals in parentheses" } else { "" };
    writeln!(out, "\n{title} in {}{note}", scale.unit.name())?;
    print_wrapped(out, columns, measured.len())
}

/// Prints a table whose first column names the rows. Columns beyond the width follow in further
/// blocks that repeat the names.
fn print_wrapped(out: &mut impl Write, columns: Vec<Column>, rows: usize) -> io::Result<()> {
    let mut columns = columns.into_iter();
    let Some(names) = columns.next() else { return Ok(()) };
    let mut blocks: Vec<Vec<Column>> = Vec::new();
    let mut width = MAX_TABLE_WIDTH;
    for column in columns {
        let more = COLUMN_GAP.len() + column.width();
        if width + more > MAX_TABLE_WIDTH {
            blocks.push(vec![names.clone()]);
            width = names.width();
        }
        width += more;
        blocks.last_mut().expect("the first column starts a block").push(column);
    }
    for (number, block) in blocks.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        for row in std::iter::once(None).chain((0..rows).map(Some)) {
            writeln!(out, "{}", line(block, row).trim_end())?;
        }
    }
    Ok(())
}

/// A column of a table: its heading and its cells.
#[derive(Clone, Debug)]
struct Column {
    heading: &'static str,
    cells: Vec<String>,
    /// Whether the column is aligned to the left.
    is_text: bool,
}

impl Column {
    fn new(heading: &'static str) -> Self {
        Self { heading, cells: Vec::new(), is_text: false }
    }

    fn of_trials<'a>(trials: impl Iterator<Item = &'a TrialData>) -> Self {
        let mut column = Self::new("trial");
        column.cells.extend(trials.map(|trial| trial.trial.to_string()));
        column
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.chars().count());
        cells.chain([self.heading.len()]).max().unwrap_or_default()
    }

    /// Aligns the values before intervals, and values without an interval with them.
    fn align_values(&mut self) {
        let value = |cell: &str| cell.split(" (").next().unwrap_or_default().chars().count();
        let widest = self.cells.iter().map(|cell| value(cell)).max().unwrap_or_default();
        self.is_text = self.cells.iter().any(|cell| cell.contains(" ("));
        for cell in &mut self.cells {
            *cell = format!("{:indent$}{cell}", "", indent = widest - value(cell));
        }
    }
}

/// Formats a row of a table; the headings for `None`.
fn line(columns: &[Column], row: Option<usize>) -> String {
    let cell = |column: &Column| {
        let text = row.map_or(column.heading, |row| &column.cells[row]);
        let width = column.width();
        if column.is_text { format!("{text:width$}") } else { format!("{text:>width$}") }
    };
    columns.iter().map(cell).collect::<Vec<_>>().join(COLUMN_GAP)
}

/// Unit and number of decimals of a table.
struct Scale {
    unit: Unit,
    decimals: usize,
}

impl Scale {
    /// Chooses the unit by the largest median, or else mean or extreme, and shows four digits of
    /// the smallest delay.
    fn of<'a>(all: impl Iterator<Item = &'a Figures> + Clone) -> Self {
        let middle = |figures: &Figures| {
            let whole = |ns: Option<i64>| ns.map(|ns| ns as f64);
            whole(figures.p50).or(figures.mean).or(whole(figures.max.or(figures.min)))
        };
        let largest = all.clone().filter_map(middle).fold(0.0, f64::max);
        let unit = Unit::fitting(largest);
        let smallest = all.filter_map(|figures| figures.min.filter(|ns| *ns > 0)).min();
        let digits = unit.of(smallest.unwrap_or(1) as f64).log10().floor() + 1.0;
        let most = if unit == Unit::Nanosecond { 0.0 } else { 3.0 };
        Self { unit, decimals: (4.0 - digits).clamp(0.0, most) as usize }
    }

    fn cell(&self, ns: Option<f64>) -> String {
        let Self { unit, decimals } = *self;
        ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.decimals$}", ns / unit.nanos()))
    }
}

fn number(count: Option<u64>) -> String {
    count.map_or_else(|| "-".to_owned(), |count| count.to_string())
}

/// Formats the cell of a trial and, if it was not measured, what happened to it.
fn described(run: &RunData, trial: &TrialData) -> String {
    let cell = super::cell(run, trial);
    let state = trial.state.name();
    let state = match (&trial.summary, &trial.reason) {
        (_, Some(reason)) => format!("{state}: {reason}"),
        (None, None) => state.to_owned(),
        (Some(_), None) => return cell,
    };
    if cell.is_empty() { state } else { format!("{cell} ({state})") }
}

/// Breaks a text at spaces into lines of at most `room` characters.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(min: i64, p50: i64) -> Figures {
        Figures { count: 9, min: Some(min), p50: Some(p50), ..Figures::default() }
    }

    #[test]
    fn unit_is_chosen_once_by_the_largest_median() {
        for (all, unit, cell) in [
            (vec![figures(230_100, 255_500)], "us", "255.5"),
            (vec![figures(230_100, 255_500), figures(900_000, 2_500_000)], "ms", "0.256"),
            (vec![figures(80, 95)], "ns", "255500"),
            (vec![figures(12_300, 15_000)], "us", "255.50"),
        ] {
            let scale = Scale::of(all.iter());
            assert_eq!((scale.unit.name(), scale.cell(Some(255_500.0)).as_str()), (unit, cell));
        }
        assert_eq!(Scale::of([].into_iter()).cell(None), "-");
    }

    #[test]
    fn wide_tables_continue_in_another_block() {
        let column =
            |heading, cell: &str| Column { heading, cells: vec![cell.to_owned()], is_text: false };
        let wide = "9".repeat(60);
        let columns = vec![column("trial", "1"), column("a", &wide), column("b", &wide)];
        let mut out = Vec::new();
        print_wrapped(&mut out, columns, 1).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.lines().all(|line| line.len() <= MAX_TABLE_WIDTH), "{out}");
        let headings: Vec<_> = out.lines().filter(|line| line.starts_with("trial")).collect();
        assert_eq!(headings.len(), 2, "{out}");
        assert!(headings[0].ends_with('a') && headings[1].ends_with('b'), "{out}");
    }

    #[test]
    fn long_cells_are_broken_at_blanks() {
        let lines = wrapped("load half, protocol udp, rate 1.2kpps, size 750B, #2", 24);
        assert_eq!(lines, ["load half, protocol udp,", "rate 1.2kpps, size 750B,", "#2"]);
        assert_eq!(wrapped("", 10), [""]);
    }
}
