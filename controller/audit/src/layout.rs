//! Layout of a CSV file: delimiter, columns, formats and units, from its header and first rows.

use crate::cell::{self, Cell};
use crate::columns::Mapping;
use crate::error::AuditError;
use crate::header::{Hint, foreign_unit, hint, is_other, unit};
use crate::records::row_len;
use crate::table::{Limit, Role};
use crate::timestamp;
use crate::unit::Unit;

/// Maximum number of rows that decide the layout.
const MAX_HEAD_ROWS: usize = 2_000;
/// Maximum number of columns.
const MAX_COLUMNS: usize = 256;
/// Maximum length of a name.
const MAX_NAME_LEN: usize = 200;

/// Format of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Numbers.
    Number,
    /// Dates and times, or times of day.
    Clock,
    /// Times as numbers of a unit.
    Count(Unit),
    /// Text.
    Text,
}

/// Layout of one column.
#[derive(Clone, Debug)]
pub(crate) struct ColumnLayout {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) format: Format,
    pub(crate) unit: Option<Unit>,
    /// Origin of times, in nanoseconds.
    pub(crate) origin: i64,
    /// Whether times have a date, or count from an epoch.
    pub(crate) dated: bool,
    /// Most frequent exponent of the last digit.
    pub(crate) typical_exponent: i8,
    pub(crate) number: cell::NumberStyle,
}

/// Layout of a file.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) delimiter: u8,
    pub(crate) columns: Vec<ColumnLayout>,
    pub(crate) limits: Vec<Limit>,
    /// Length of the header, from the beginning of the file.
    pub(crate) header_len: usize,
}

impl Layout {
    /// Infers the layout from the beginning of a file. `reason` errors are completed by the caller
    /// with the path.
    pub(crate) fn infer(head: &[u8], mappings: &[Mapping]) -> Result<Self, LayoutError> {
        let no_table = |reason: &str| LayoutError::NoTable(reason.to_owned());
        let text_start = if head.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        if head.starts_with(b"\xff\xfe")
            || head.starts_with(b"\xfe\xff")
            || head[..head.len().min(4_096)].contains(&0)
        {
            return Err(no_table("not text in UTF-8; convert the file to a CSV in UTF-8"));
        }
        let mut start = text_start;
        let header = loop {
            let Some(line) = line_at(head, start) else {
                return Err(no_table("no header: the file has no text"));
            };
            start += line.len();
            let text = trimmed(line);
            let is_separator_line = text.len() == 5 && text.starts_with(b"sep=");
            if !text.is_empty() && !text.starts_with(b"# ") && !is_separator_line {
                break text;
            }
        };
        // A line of units below the names is part of the header.
        let mut units: Vec<Option<Unit>> = Vec::new();
        if let Some(line) = line_at(head, start) {
            let cells = cell::split(trimmed(line), delimiter(header, &[]));
            if let Some(found) = units_line(&cells) {
                units = found;
                start += line.len();
            }
        }
        let rows: Vec<&[u8]> = lines(&head[start..])
            .map(trimmed)
            .filter(|line| !line.is_empty() && line[0] != b'#')
            .take(MAX_HEAD_ROWS)
            .collect();
        let delimiter = delimiter(header, &rows);
        let names = names(header, delimiter)?;
        let mut limits = repeated_names(&names);
        let cells: Vec<Vec<Vec<u8>>> = rows.iter().map(|row| cell::split(row, delimiter)).collect();
        let column = |index: usize| {
            cells.iter().map(move |row| row.get(index).map_or(&[][..], Vec::as_slice))
        };
        let mut columns: Vec<ColumnLayout> = names
            .into_iter()
            .enumerate()
            .map(|(index, name)| ColumnLayout::infer(&name, delimiter, column(index)))
            .collect();
        for (column, unit) in columns.iter_mut().zip(units) {
            column.unit = unit.or(column.unit);
        }
        let mapped = map(&mut columns, mappings)?;
        assign_roles(&mut columns, &mapped, &column);
        note_foreign_units(&columns, &mut limits);
        note_texts(&columns, &mut limits);
        settle_times(&mut columns, &column, &mut limits);
        settle_latency_unit(&mut columns, &column, &mut limits);
        for (index, layout) in columns.iter_mut().enumerate() {
            layout.settle(column(index));
        }
        // Times are compared with each other, so they have one origin.
        let origin = columns.iter().find(|column| column.is_time() && column.dated);
        let origin = origin.map_or(0, |column| column.origin);
        columns.iter_mut().filter(|column| column.dated).for_each(|column| column.origin = origin);
        Ok(Self { delimiter, columns, limits, header_len: start })
    }
}

/// Errors of a layout, without the path.
#[derive(Debug)]
pub(crate) enum LayoutError {
    NoTable(String),
    Columns(String),
}

impl LayoutError {
    pub(crate) fn of_file(self, path: &str) -> AuditError {
        match self {
            Self::NoTable(reason) => AuditError::NoTable { path: path.to_owned(), reason },
            Self::Columns(text) => AuditError::Columns(format!("{path}: {text}")),
        }
    }
}

impl ColumnLayout {
    fn infer<'c>(
        name: &Name,
        delimiter: u8,
        cells: impl Iterator<Item = &'c [u8]> + Clone,
    ) -> Self {
        let number = cell::NumberStyle::infer(delimiter, cells.clone());
        let (mut numbers, mut times, mut texts) = (0, 0, 0);
        let has_unknown_form = has_unknown_form(cells.clone());
        for cell in cells {
            match cell::number(cell, &number) {
                Cell::Missing => {}
                Cell::Value(_) => numbers += 1,
                Cell::Malformed if timestamp::resembles(cell) && !has_unknown_form => times += 1,
                Cell::Malformed => texts += 1,
            }
        }
        let format = if numbers > 0 && numbers >= times + texts {
            Format::Number
        } else if times > 0 && times >= texts {
            Format::Clock
        } else {
            named_format(name, numbers, times, texts)
        };
        // A unit beside the numbers is that of the numbers.
        let unit = number.suffix.or_else(|| unit(&name.header));
        Self {
            name: name.unique.clone(),
            role: Role::Other,
            format,
            unit,
            origin: 0,
            dated: false,
            typical_exponent: 0,
            number,
        }
    }

    fn is_time(&self) -> bool {
        matches!(self.format, Format::Clock | Format::Count(_))
    }

    /// Finds the origin and the usual number of digits.
    fn settle<'c>(&mut self, cells: impl Iterator<Item = &'c [u8]>) {
        let mut counts = [0_u32; 256];
        let mut first = None;
        for cell in cells {
            let exponent = match self.format {
                Format::Clock => match timestamp::parse(cell::plain(cell)) {
                    Ok(time) => {
                        self.dated |= time.dated;
                        first = first.or(Some(time.nanos).filter(|_| time.dated));
                        9 - time.decimals.min(30) as i8
                    }
                    Err(_) => continue,
                },
                Format::Count(unit) => match cell::count(cell, unit) {
                    Some((nanos, exponent)) => {
                        self.dated = true;
                        first = first.or(Some(nanos));
                        exponent
                    }
                    None => continue,
                },
                Format::Number => match cell::number(cell, &self.number) {
                    Cell::Value(decimal) => decimal.exponent,
                    _ => continue,
                },
                Format::Text => return,
            };
            counts[(i32::from(exponent) + 128) as usize] += 1;
        }
        let typical = (0..counts.len()).max_by_key(|at| counts[*at]).unwrap_or(128);
        self.typical_exponent = (typical as i32 - 128) as i8;
        self.origin = first.unwrap_or(0);
        if self.is_time() {
            self.unit = Some(Unit::Nanos);
        }
    }
}

/// Whether cells resemble times but are all in another form than those understood, such as
/// `31.03.2024 10:00:00`: the cells are not malformed.
fn has_unknown_form<'c>(cells: impl Iterator<Item = &'c [u8]>) -> bool {
    /// Fewer may all be malformed.
    const MIN_TIMES: usize = 3;
    let mut times = 0;
    for cell in cells.filter(|cell| timestamp::resembles(cell)) {
        if timestamp::parse(cell::plain(cell)).is_ok() {
            return false;
        }
        times += 1;
    }
    times >= MIN_TIMES
}

/// Format of a column without more numbers or times than other cells: that which its name states. A
/// name with a unit of time is no name of text; a word such as `request` may be.
fn named_format(name: &Name, numbers: usize, times: usize, texts: usize) -> Format {
    let values = numbers + times;
    let by_contents = if times > numbers { Format::Clock } else { Format::Number };
    let is_empty = values + texts == 0;
    // One value in ten is enough beside a name.
    let has_values = is_empty || values * 10 >= values + texts;
    match hint(&name.header) {
        Some(Hint::Sent | Hint::Received) if is_empty => Format::Clock,
        Some(Hint::Latency | Hint::Duration) if unit(&name.header).is_some() => Format::Number,
        Some(Hint::Sent | Hint::Received | Hint::Time) if unit(&name.header).is_some() => {
            by_contents
        }
        Some(Hint::Latency | Hint::Sent | Hint::Received) if has_values => by_contents,
        None if unit(&name.header).is_some() && (has_values || !is_other(&name.header)) => {
            by_contents
        }
        _ => Format::Text,
    }
}

/// Units of a line with nothing but units; `None` for other lines.
fn units_line(cells: &[Vec<u8>]) -> Option<Vec<Option<Unit>>> {
    let unit = |cell: &Vec<u8>| {
        let text = std::str::from_utf8(cell).ok()?;
        Unit::parse(text.trim_matches(['(', ')', '[', ']']))
    };
    let found: Vec<Option<Unit>> = cells.iter().map(unit).collect();
    let is_units =
        cells.iter().zip(&found).all(|(cell, unit)| unit.is_some() || cell::is_missing(cell));
    (is_units && found.iter().any(Option::is_some)).then_some(found)
}

fn line_at(bytes: &[u8], start: usize) -> Option<&[u8]> {
    let rest = bytes.get(start..).filter(|rest| !rest.is_empty())?;
    Some(&rest[..row_len(rest)])
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let line = line_at(bytes, at)?;
        at += line.len();
        Some(line)
    })
}

fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.iter().all(u8::is_ascii_whitespace) { &[] } else { line }
}

/// Chooses the delimiter that splits most rows like the header.
fn delimiter(header: &[u8], rows: &[&[u8]]) -> u8 {
    let score = |delimiter: u8| {
        let columns = cell::split(header, delimiter).len();
        let alike = |row: &&&[u8]| cell::split(row, delimiter).len() == columns;
        let agreeing = rows.iter().take(50).filter(alike).count();
        (columns > 1).then_some((agreeing, columns))
    };
    let candidates = [b',', b'|', b';', b'\t'];
    // Of equal scores the last candidate wins.
    let best = candidates.into_iter().filter_map(|d| Some((score(d)?, d))).max_by_key(|(s, _)| *s);
    best.map_or_else(
        || if has_single_spaces(header, rows) { b' ' } else { b',' },
        |(_, delimiter)| delimiter,
    )
}

/// Whether single spaces separate cells: in every row as many as in the header.
fn has_single_spaces(header: &[u8], rows: &[&[u8]]) -> bool {
    let columns = |line: &[u8]| {
        let cells = cell::split(line, b' ');
        cells.iter().all(|cell| !cell.is_empty()).then_some(cells.len())
    };
    let Some(wanted) = columns(header).filter(|columns| *columns > 1) else { return false };
    !rows.is_empty() && rows.iter().take(50).all(|row| columns(row) == Some(wanted))
}

/// Name of a column.
#[derive(Debug)]
struct Name {
    /// As in the header.
    header: String,
    /// With the number of the column if an earlier one has the same name.
    unique: String,
}

fn names(header: &[u8], delimiter: u8) -> Result<Vec<Name>, LayoutError> {
    let cells = cell::split(header, delimiter);
    if cells.len() > MAX_COLUMNS {
        return Err(LayoutError::NoTable(format!(
            "{} columns; at most {MAX_COLUMNS} are supported",
            cells.len()
        )));
    }
    let is_name = |cell: &Vec<u8>| {
        !matches!(cell::number(cell, &cell::NumberStyle::default()), Cell::Value(_))
            && timestamp::parse(cell).is_err()
    };
    if cells.iter().filter(|cell| !cell.is_empty()).all(|cell| !is_name(cell)) {
        return Err(LayoutError::NoTable(
            "the first line has values, not names; add a header such as sent,received,latency_ms"
                .to_owned(),
        ));
    }
    let mut names: Vec<Name> = Vec::new();
    for (index, cell) in cells.iter().enumerate() {
        // A name may be broken into lines.
        let text = String::from_utf8_lossy(cell).replace(['\r', '\n'], " ");
        let text: String = text.trim().chars().take(MAX_NAME_LEN).collect();
        let header = if text.is_empty() { format!("column {}", index + 1) } else { text };
        let is_repeated = names.iter().any(|name| name.unique == header);
        let unique = if is_repeated { format!("{header} {}", index + 1) } else { header.clone() };
        names.push(Name { header, unique });
    }
    Ok(names)
}

fn repeated_names(names: &[Name]) -> Vec<Limit> {
    let is_repeated = |name: &&Name| name.header != name.unique;
    let limit = |name: &Name| Limit {
        code: "repeated-name",
        reason: format!(
            "two columns are named '{}'; the second is called '{}' here",
            name.header, name.unique
        ),
    };
    names.iter().filter(is_repeated).map(limit).collect()
}

/// Applies what the user states. Returns whether each column has a stated role.
fn map(columns: &mut [ColumnLayout], mappings: &[Mapping]) -> Result<Vec<bool>, LayoutError> {
    let mut mapped = vec![false; columns.len()];
    for mapping in mappings {
        let by_name = columns.iter().position(|column| column.name == mapping.name);
        let by_case = || {
            let name = mapping.name.to_lowercase();
            columns.iter().position(|column| column.name.to_lowercase() == name)
        };
        let by_number = || {
            let number: usize = mapping.name.strip_prefix('#')?.parse().ok()?;
            number.checked_sub(1).filter(|index| *index < columns.len())
        };
        let Some(index) = by_name.or_else(by_case).or_else(by_number) else {
            let known: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            return Err(LayoutError::Columns(format!(
                "no column '{}'; the file has: {}",
                mapping.name,
                known.join(", ")
            )));
        };
        let column = &mut columns[index];
        if let Some(unit) = mapping.unit {
            column.unit = Some(unit);
        }
        if let Some(role) = mapping.role {
            column.role = role;
            mapped[index] = true;
            match role {
                Role::Latency | Role::Value => column.format = Format::Number,
                Role::Sent | Role::Received if column.format == Format::Text => {
                    column.format = Format::Clock;
                }
                _ => {}
            }
        }
    }
    Ok(mapped)
}

/// Assigns roles that the user does not state, by names and then by contents.
fn assign_roles<'c, I: Iterator<Item = &'c [u8]>>(
    columns: &mut [ColumnLayout],
    mapped: &[bool],
    cells: &impl Fn(usize) -> I,
) {
    let hints: Vec<Option<Hint>> = columns.iter().map(|column| hint(&column.name)).collect();
    // The strongest hint first; each role has one column.
    let order = [Hint::Latency, Hint::Duration, Hint::Sent, Hint::Received, Hint::Time, Hint::Id];
    for wanted in order {
        let role = wanted.role();
        if columns.iter().any(|column| column.role == role) {
            continue;
        }
        let fits = |index: usize, column: &ColumnLayout| {
            let is_number = column.format == Format::Number;
            match wanted {
                Hint::Latency => is_number,
                Hint::Duration => is_number && !is_counter(cells(index), column),
                // A number without a unit may be a time or a count of packets.
                Hint::Sent | Hint::Received | Hint::Time => {
                    column.format == Format::Clock
                        || is_number && (column.unit.is_some() || is_timeline(cells(index), column))
                }
                Hint::Id => is_number && column.unit.is_none(),
            }
        };
        let found = (0..columns.len()).find(|index| {
            !mapped[*index]
                && columns[*index].role == Role::Other
                && hints[*index] == Some(wanted)
                && fits(*index, &columns[*index])
        });
        if let Some(index) = found {
            columns[index].role = role;
        }
    }
    assign_unnamed(columns, mapped);
}

/// Of columns with other names, two of times are sent and received, and the only number is the
/// latency.
fn assign_unnamed(columns: &mut [ColumnLayout], mapped: &[bool]) {
    let free = |columns: &[ColumnLayout], format: Format| -> Vec<usize> {
        (0..columns.len())
            .filter(|index| {
                !mapped[*index]
                    && columns[*index].role == Role::Other
                    && columns[*index].format == format
            })
            .collect()
    };
    let has =
        |columns: &[ColumnLayout], role: Role| columns.iter().any(|column| column.role == role);
    for index in free(columns, Format::Clock) {
        let role = if !has(columns, Role::Sent) { Role::Sent } else { Role::Received };
        if !has(columns, role) {
            columns[index].role = role;
        }
    }
    let numbers = free(columns, Format::Number);
    if let [only] = numbers.as_slice()
        && !has(columns, Role::Latency)
        && has(columns, Role::Received)
    {
        columns[*only].role = Role::Latency;
    }
}

fn numbers<'c>(
    cells: impl Iterator<Item = &'c [u8]>,
    column: &ColumnLayout,
) -> impl Iterator<Item = f64> {
    cells.filter_map(move |cell| match cell::number(cell, &column.number) {
        Cell::Value(decimal) => Some(decimal.value),
        _ => None,
    })
}

/// Whether numbers look like times: since 1970, or almost always rising.
fn is_timeline<'c>(cells: impl Iterator<Item = &'c [u8]>, column: &ColumnLayout) -> bool {
    let values: Vec<f64> = numbers(cells, column).collect();
    let (Some(first), Some(last)) = (values.first(), values.last()) else { return false };
    let falls = values.windows(2).filter(|pair| pair[1] < pair[0]).count();
    unit_of_epoch(*first).is_some() || (first < last && falls * 20 <= values.len())
}

/// Whether numbers rise in every row, as times of events do.
fn is_counter<'c>(cells: impl Iterator<Item = &'c [u8]>, column: &ColumnLayout) -> bool {
    let values: Vec<f64> = numbers(cells, column).collect();
    values.len() >= 3 && values.windows(2).all(|pair| pair[0] < pair[1])
}

fn note_foreign_units(columns: &[ColumnLayout], limits: &mut Vec<Limit>) {
    for column in columns.iter().filter(|c| !matches!(c.role, Role::Other | Role::Id)) {
        if let Some(foreign) = foreign_unit(&column.name).filter(|_| column.unit.is_none()) {
            limits.push(Limit {
                code: "unknown-unit",
                reason: format!(
                    "column '{}' is in an unknown unit, {foreign}; state one with --columns \"'{}':UNIT\" ({})",
                    column.name,
                    column.name,
                    Unit::names()
                ),
            });
        }
    }
}

/// Notes columns that are not analysed although their names promise values.
fn note_texts(columns: &[ColumnLayout], limits: &mut Vec<Limit>) {
    let is_named = |column: &&ColumnLayout| {
        column.format == Format::Text
            && matches!(hint(&column.name), Some(Hint::Latency | Hint::Sent | Hint::Received))
    };
    for column in columns.iter().filter(is_named) {
        limits.push(Limit {
            code: "text-column",
            reason: format!(
                "column '{}' has no numbers or times (ISO 8601 or HH:MM:SS.fff), so it is not analysed",
                column.name
            ),
        });
    }
}

/// Turns numbers that are times into times, if their unit is known or can be inferred.
fn settle_times<'c, I: Iterator<Item = &'c [u8]>>(
    columns: &mut [ColumnLayout],
    cells: &impl Fn(usize) -> I,
    limits: &mut Vec<Limit>,
) {
    let inferred = unit_by_latency(columns, cells);
    for (index, column) in columns.iter_mut().enumerate() {
        let is_stamp = matches!(column.role, Role::Sent | Role::Received);
        if !is_stamp || column.format != Format::Number {
            continue;
        }
        let first = numbers(cells(index), column).next().unwrap_or(0.0);
        let unit = column.unit.or_else(|| unit_of_epoch(first)).or(inferred);
        match unit {
            Some(unit) => {
                column.unit = Some(unit);
                column.format = Format::Count(unit);
            }
            None => {
                limits.push(Limit {
                    code: "unknown-unit",
                    reason: format!(
                        "the unit of the times in column '{}' is unknown; state it with --columns \"{}='{}':UNIT\" ({})",
                        column.name,
                        column.role.name(),
                        column.name,
                        Unit::names()
                    ),
                });
                column.role = Role::Other;
            }
        }
    }
}

/// Unit of times since 1970 by their magnitude, for years from 2001 to 2286.
fn unit_of_epoch(value: f64) -> Option<Unit> {
    let exponent = value.log10();
    Some(match exponent {
        9.0..10.0 => Unit::Seconds,
        12.0..13.0 => Unit::Millis,
        15.0..16.0 => Unit::Micros,
        18.0..19.0 => Unit::Nanos,
        _ => return None,
    })
}

/// The unit of numeric times for which received minus sent equals the latency in most rows.
fn unit_by_latency<'c, I: Iterator<Item = &'c [u8]>>(
    columns: &[ColumnLayout],
    cells: &impl Fn(usize) -> I,
) -> Option<Unit> {
    let index = |role: Role| {
        columns.iter().position(|column| column.role == role && column.format == Format::Number)
    };
    let (sent, received, latency) =
        (index(Role::Sent)?, index(Role::Received)?, index(Role::Latency)?);
    let latency_unit = columns[latency].unit?;
    let of =
        |index: usize| cells(index).map(move |cell| cell::number(cell, &columns[index].number));
    let rows: Vec<(f64, f64)> = of(sent)
        .zip(of(received))
        .zip(of(latency))
        .filter_map(|((a, b), c)| match (a, b, c) {
            (Cell::Value(a), Cell::Value(b), Cell::Value(c)) => Some((b.value - a.value, c.value)),
            _ => None,
        })
        .collect();
    Unit::ALL.into_iter().find(|unit| is_usual_ratio(&rows, unit.to(latency_unit)))
}

/// Whether `difference * factor` is within 2 % of the latency in more than half of the rows.
fn is_usual_ratio(rows: &[(f64, f64)], factor: f64) -> bool {
    let agrees = |(difference, latency): &&(f64, f64)| {
        (difference * factor - latency).abs() <= 0.02 * latency.abs() && *latency != 0.0
    };
    rows.len() >= 2 && rows.iter().filter(agrees).count() * 2 > rows.len()
}

/// Infers the unit of the latency from its timestamps.
fn settle_latency_unit<'c, I: Iterator<Item = &'c [u8]>>(
    columns: &mut [ColumnLayout],
    cells: &impl Fn(usize) -> I,
    limits: &mut Vec<Limit>,
) {
    let index = |role: Role| columns.iter().position(|column| column.role == role);
    let Some(latency) = index(Role::Latency).filter(|index| columns[*index].unit.is_none()) else {
        return;
    };
    let nanos = |index: usize, cell: &[u8]| match columns[index].format {
        Format::Clock => timestamp::parse(cell::plain(cell)).ok().map(|time| time.nanos as f64),
        Format::Count(unit) => cell::count(cell, unit).map(|(nanos, _)| nanos as f64),
        _ => None,
    };
    let mut unit = None;
    if let (Some(sent), Some(received)) = (index(Role::Sent), index(Role::Received)) {
        let number = |cell: &[u8]| match cell::number(cell, &columns[latency].number) {
            Cell::Value(decimal) => Some(decimal.value),
            _ => None,
        };
        let rows: Vec<(f64, f64)> = cells(sent)
            .zip(cells(received))
            .zip(cells(latency))
            .filter_map(|((a, b), c)| Some((nanos(received, b)? - nanos(sent, a)?, number(c)?)))
            .collect();
        unit = Unit::ALL.into_iter().find(|unit| is_usual_ratio(&rows, 1.0 / unit.nanos()));
    }
    columns[latency].unit = unit;
    if unit.is_none() && !limits.iter().any(|limit| limit.reason.contains(&columns[latency].name)) {
        limits.push(Limit {
            code: "unknown-unit",
            reason: format!(
                "the unit of column '{}' is unknown; state it with --columns \"'{}':UNIT\" ({})",
                columns[latency].name,
                columns[latency].name,
                Unit::names()
            ),
        });
    }
}
