//! The CSV of `dwell ping --csv`: named columns in nanoseconds, empty if unavailable.

use std::io::BufRead;

use dwell_record::Column;
use dwell_sample::State;

use crate::lines::Lines;
use crate::sink::Sink;
use crate::{Format, ImportError, ImportWarning, Imported};

pub(crate) fn read(input: &mut dyn BufRead, mut sink: Sink) -> Result<Imported, ImportError> {
    let mut lines = Lines::of(input);
    let header = lines.next().map_err(ImportError::Read)?.map(|(_, line)| line.to_vec());
    let columns = columns(&header.unwrap_or_default(), &mut sink)?;
    let flow = sink.only_flow();
    let mut numbers = Vec::with_capacity(columns.len());
    while let Some((number, line)) = lines.next().map_err(ImportError::Read)? {
        if line.is_empty() {
            continue;
        }
        let Some(row) = row(line, columns.len(), &mut numbers) else {
            sink.skip(number, line);
            continue;
        };
        // A void row is already known to measure nothing.
        if !row.void && is_impossible(&columns, &numbers) {
            sink.skip(number, line);
            continue;
        }
        let mut new = sink.row(flow, row.id, row.state)?;
        new.reordered(row.reordered).void(row.void);
        for (column, value) in columns.iter().zip(&numbers) {
            if let Some(column) = column {
                new.set(*column, *value);
            }
        }
    }
    sink.finish()
}

/// The columns before the numbers.
const LEADING_COLUMNS: [&str; 4] = ["id", "state", "reordered", "void"];

/// Returns the columns after [`LEADING_COLUMNS`]; `None` for an unknown name.
fn columns(header: &[u8], sink: &mut Sink) -> Result<Vec<Option<Column>>, ImportError> {
    let malformed = |reason| ImportError::Malformed { format: Format::DwellCsv, reason };
    let text = std::str::from_utf8(header).map_err(|error| malformed(error.to_string()))?;
    let mut names = text.split(',');
    if names.by_ref().take(LEADING_COLUMNS.len()).ne(LEADING_COLUMNS) {
        return Err(malformed(format!(
            "line 1 does not begin with '{}'",
            LEADING_COLUMNS.join(",")
        )));
    }
    let mut columns = Vec::new();
    for name in names {
        let column = Column::named(name);
        if column.is_some() && columns.contains(&column) {
            return Err(malformed(format!("line 1 names the column '{name}' twice")));
        }
        if column.is_none() {
            let name: String = name.chars().take(40).collect();
            sink.warn(ImportWarning::UnknownColumn(name));
        }
        columns.push(column);
    }
    Ok(columns)
}

/// Whether a reply was received before its request was sent.
fn is_impossible(columns: &[Option<Column>], numbers: &[Option<i64>]) -> bool {
    use Column::{Rtt, RttDriver, RttHw, RttIntended, RttKernel};
    let is_round_trip = |column: &Option<Column>| {
        matches!(column, Some(Rtt | RttIntended | RttKernel | RttDriver | RttHw))
    };
    let mut round_trips = columns.iter().zip(numbers).filter(|(column, _)| is_round_trip(column));
    round_trips.any(|(_, number)| number.is_some_and(|number| number < 0))
}

struct Row {
    id: u64,
    state: State,
    reordered: bool,
    void: bool,
}

/// Parses a row of `count` numbers into `numbers`.
fn row(line: &[u8], count: usize, numbers: &mut Vec<Option<i64>>) -> Option<Row> {
    let mut cells = std::str::from_utf8(line).ok()?.split(',');
    let id = cells.next()?.parse().ok()?;
    let state = cells.next()?;
    let state = State::ALL.into_iter().find(|known| known.name() == state)?;
    let (reordered, void) = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
    numbers.clear();
    for cell in cells {
        numbers.push(if cell.is_empty() { None } else { Some(cell.parse().ok()?) });
    }
    (numbers.len() == count).then_some(Row { id, state, reordered, void })
}
