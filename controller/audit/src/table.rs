//! Tables: typed columns with the rows that are kept, and totals over all rows.
//!
//! A small table keeps every row. Of a larger one evenly spaced blocks of rows are kept, and the
//! totals still cover all rows.

use dwell_stats::LogCounts;

use crate::decimal::power_of_ten;
use crate::document::PrintedStatistic;
use crate::unit::Unit;

/// Meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Number of the row or packet.
    Id,
    /// When a packet was sent.
    Sent,
    /// When a packet or its reply was received.
    Received,
    /// Delay of a row.
    Latency,
    /// Another measured value.
    Value,
    /// Anything else.
    Other,
}

impl Role {
    /// Name of the role, as in `--columns`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Sent => "sent",
            Self::Received => "received",
            Self::Latency => "latency",
            Self::Value => "value",
            Self::Other => "other",
        }
    }

    /// Finds a role by its name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Id, Self::Sent, Self::Received, Self::Latency, Self::Value, Self::Other]
            .into_iter()
            .find(|role| role.name() == name)
    }
}

/// Content of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Numbers in the column's unit.
    Number,
    /// Times, in nanoseconds since [`Column::origin`].
    Time,
    /// Text, which is not analysed.
    Text,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Name, unique within an audit.
    pub name: String,
    /// File or run that it was read from.
    pub source: String,
    /// Number of rows.
    pub rows: u64,
    /// First rows of the blocks that are kept; rows count from 1.
    pub blocks: Vec<u64>,
    /// Columns in the order of the file.
    pub columns: Vec<Column>,
    /// Cells and rows that could not be read.
    pub malformed: Malformed,
    /// Number of rows with fewer cells than the header.
    pub short_rows: u64,
    /// Result of comparing latencies with their timestamps, if the table has all three.
    pub stamps: Option<StampComparison>,
    /// Statistics that rows of the file state, such as `mean,,491`.
    pub footers: Vec<PrintedStatistic>,
    /// Conditions that limit the audit, such as a unit that is unknown.
    pub limits: Vec<Limit>,
}

/// A check that a table does not permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The check, named after its finding.
    pub code: &'static str,
    /// The reason.
    pub reason: String,
}

/// Number of rows in a block.
pub(crate) const BLOCK_ROWS: usize = 1_024;

impl Table {
    /// Returns whether every row is kept.
    pub fn is_whole(&self) -> bool {
        self.columns.iter().all(|column| {
            column.content == Content::Text || column.values.len() as u64 == self.rows
        })
    }

    /// Returns the number (from 1) of the kept row with this index.
    pub fn row_number(&self, index: usize) -> u64 {
        let first = self.blocks.get(index / BLOCK_ROWS).copied();
        first.map_or(index as u64 + 1, |first| first + (index % BLOCK_ROWS) as u64)
    }

    /// Returns whether the kept row with this index directly follows the one before.
    pub fn follows(&self, index: usize) -> bool {
        index > 0 && self.row_number(index) == self.row_number(index - 1) + 1
    }

    /// Finds a column by its role.
    pub fn by_role(&self, role: Role) -> Option<&Column> {
        self.columns.iter().find(|column| column.role == role)
    }

    /// Finds a column by its name or the name of its role.
    pub fn column(&self, name: &str) -> Option<&Column> {
        let by_name = self.columns.iter().find(|column| column.name == name);
        by_name.or_else(|| self.by_role(Role::parse(name).filter(|role| *role != Role::Other)?))
    }

    /// Columns with measured values: the latency, other values, and numbers in a unit of time. Of a
    /// table without these, every column of numbers that is not an id.
    pub fn measures(&self) -> Vec<&Column> {
        let numbers = || self.columns.iter().filter(|column| column.content == Content::Number);
        let is_measure = |column: &&Column| {
            matches!(column.role, Role::Latency | Role::Value) || column.has_time_unit()
        };
        let measures: Vec<_> = numbers().filter(is_measure).collect();
        if !measures.is_empty() {
            return measures;
        }
        numbers()
            .filter(|column| column.role == Role::Other && !column.is_axis() && !column.rises())
            .collect()
    }

    /// The column that printed statistics refer to: the latency, or the first measured column.
    pub fn main(&self) -> Option<&Column> {
        self.by_role(Role::Latency).or_else(|| self.measures().first().copied())
    }
}

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Name in the header.
    pub name: String,
    /// Meaning.
    pub role: Role,
    /// Content.
    pub content: Content,
    /// Unit of time, if known; of times always nanoseconds.
    pub unit: Option<Unit>,
    /// Kept values, in row order; NaN where missing or malformed.
    pub values: Vec<f64>,
    /// Origin of times, in nanoseconds since the epoch or midnight.
    pub origin: i64,
    /// Totals over all rows.
    pub totals: Totals,
    /// Times with an unusual number of decimals.
    pub odd_times: Vec<OddTime>,
}

impl Column {
    /// Creates an empty column.
    pub fn new(name: impl Into<String>, role: Role, content: Content, unit: Option<Unit>) -> Self {
        Self {
            name: name.into(),
            role,
            content,
            unit,
            values: Vec::new(),
            origin: 0,
            totals: Totals::default(),
            odd_times: Vec::new(),
        }
    }

    /// Symbol of the unit; empty if unknown.
    pub fn unit_name(&self) -> &'static str {
        self.unit.map_or("", Unit::name)
    }

    /// Kept values without missing ones.
    pub fn present(&self) -> impl Iterator<Item = f64> + Clone + '_ {
        self.values.iter().copied().filter(|value| !value.is_nan())
    }

    fn has_time_unit(&self) -> bool {
        self.unit.is_some() && self.role == Role::Other
    }

    /// Whether the values never fall, like times of events.
    fn rises(&self) -> bool {
        self.totals.count >= 3 && self.totals.falls == 0
    }

    /// Whether the values look like a counter or a setting: they never change or rise by a constant.
    fn is_axis(&self) -> bool {
        let mut steps = self.values.windows(2).map(|pair| pair[1] - pair[0]);
        match steps.next() {
            Some(first) => steps.all(|step| step == first),
            None => false,
        }
    }
}

/// A time with another number of decimals than most of its column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OddTime {
    /// Row, from 1.
    pub row: u64,
    /// Exponent of ten of its last digit, in nanoseconds.
    pub exponent: i8,
    /// The cell.
    pub text: String,
}

/// An extreme value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extreme {
    /// Value.
    pub value: f64,
    /// First row with this value, from 1.
    pub row: u64,
    /// Step of its last printed digit.
    pub step: f64,
}

/// Smallest exponent of ten of a last digit that is distinguished.
const MIN_EXPONENT: i8 = -20;
/// Number of exponents that are distinguished.
const EXPONENTS: usize = 41;

/// Totals of a column over all rows.
#[derive(Clone, Debug)]
pub struct Totals {
    /// Number of values.
    pub count: u64,
    /// Number of missing cells.
    pub missing: u64,
    /// First rows with a missing cell, at most [`MAX_LISTED_ROWS`].
    pub missing_rows: Vec<u64>,
    /// Smallest value.
    pub min: Option<Extreme>,
    /// Largest value.
    pub max: Option<Extreme>,
    /// Number of values by exponent of their last digit, from [`MIN_EXPONENT`].
    exponents: [u64; EXPONENTS],
    /// Number of times with the most frequent number of decimals that end in 0.
    pub(crate) trailing_zeros: u64,
    /// Number of steps back: values below the one before.
    pub(crate) falls: u64,
    sum: f64,
    /// Rounding error of `sum` (Neumaier).
    lost: f64,
    /// First value, to which squares are relative.
    first: f64,
    offset_sum: f64,
    squares: f64,
    last: f64,
    /// Counts of values in units of `count_step`; only non-negative ones.
    counts: LogCounts,
    count_step: f64,
}

/// Maximum number of rows listed in a finding.
pub const MAX_LISTED_ROWS: usize = 1_000;

impl Default for Totals {
    fn default() -> Self {
        Self {
            count: 0,
            missing: 0,
            missing_rows: Vec::new(),
            min: None,
            max: None,
            exponents: [0; EXPONENTS],
            trailing_zeros: 0,
            falls: 0,
            sum: 0.0,
            lost: 0.0,
            first: 0.0,
            offset_sum: 0.0,
            squares: 0.0,
            last: f64::NEG_INFINITY,
            counts: LogCounts::three_digits(),
            count_step: 0.0,
        }
    }
}

impl Totals {
    /// Adds the cells of a chunk whose first row is `row`. `exponents` are those of the last
    /// digits.
    pub fn add(&mut self, row: u64, values: &[f64], exponents: &[i8]) {
        let Some(first) = values.iter().position(|value| !value.is_nan()) else {
            return self.add_missing(row, values);
        };
        if self.count == 0 {
            self.first = values[first];
            self.count_step = power_of_ten(i32::from(exponents.iter().copied().min().unwrap_or(0)));
        }
        let base = self.first;
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        let (mut sum, mut lost, mut offsets, mut squares) = (self.sum, self.lost, 0.0, 0.0);
        let (mut missing, mut last) = (0_u64, self.last);
        let scale = 1.0 / self.count_step;
        for value in values.iter().copied() {
            if value.is_nan() {
                missing += 1;
                continue;
            }
            let next = sum + value;
            lost +=
                if sum.abs() >= value.abs() { (sum - next) + value } else { (value - next) + sum };
            sum = next;
            let offset = value - base;
            offsets += offset;
            squares += offset * offset;
            min = min.min(value);
            max = max.max(value);
            self.falls += u64::from(value < last);
            last = value;
            if value >= 0.0 {
                self.counts.record((value * scale + 0.5) as u64);
            }
        }
        (self.sum, self.lost, self.last) = (sum, lost, last);
        self.offset_sum += offsets;
        self.squares += squares;
        self.count += values.len() as u64 - missing;
        if missing > 0 {
            self.add_missing(row, values);
        }
        self.count_exponents(values, exponents, missing);
        let extreme = |value: f64| {
            let at = values.iter().position(|other| *other == value).unwrap_or(0);
            Extreme { value, row: row + at as u64, step: power_of_ten(i32::from(exponents[at])) }
        };
        if self.min.is_none_or(|old| min < old.value) {
            self.min = Some(extreme(min));
        }
        if self.max.is_none_or(|old| max > old.value) {
            self.max = Some(extreme(max));
        }
    }

    fn add_missing(&mut self, row: u64, values: &[f64]) {
        for (at, _) in values.iter().enumerate().filter(|(_, value)| value.is_nan()) {
            self.missing += 1;
            if self.missing_rows.len() < MAX_LISTED_ROWS {
                self.missing_rows.push(row + at as u64);
            }
        }
    }

    fn count_exponents(&mut self, values: &[f64], exponents: &[i8], missing: u64) {
        let uniform = missing == 0 && exponents.iter().all(|exponent| *exponent == exponents[0]);
        if uniform {
            self.exponents[place(exponents[0])] += values.len() as u64;
            return;
        }
        for (value, exponent) in values.iter().zip(exponents) {
            self.exponents[place(*exponent)] += u64::from(!value.is_nan());
        }
    }

    /// Sum of all values.
    pub fn sum(&self) -> f64 {
        self.sum + self.lost
    }

    /// Mean of all values; `None` without any.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum() / self.count as f64)
    }

    /// Sum of squared deviations from the mean.
    pub fn deviations(&self) -> f64 {
        let n = self.count.max(1) as f64;
        (self.squares - self.offset_sum * self.offset_sum / n).max(0.0)
    }

    /// Mean step of the last printed digits: twice the largest error of the mean by rounding rows.
    pub fn mean_step(&self) -> f64 {
        let total: f64 = self.steps().map(|(step, count)| step * count as f64).sum();
        total / self.count.max(1) as f64
    }

    /// Largest step of a last digit that at least a tenth of the values have.
    pub fn coarse_step(&self) -> f64 {
        let common = |(_, count): &(f64, u64)| *count * 10 >= self.count;
        self.steps().filter(common).map(|(step, _)| step).fold(0.0, f64::max)
    }

    /// Smallest step of a last digit.
    pub fn fine_step(&self) -> f64 {
        self.steps().map(|(step, _)| step).fold(f64::INFINITY, f64::min)
    }

    /// Largest step of a last digit.
    pub fn coarsest_step(&self) -> f64 {
        self.steps().map(|(step, _)| step).fold(0.0, f64::max)
    }

    /// Most frequent exponent of the last digit, and the number of values with it.
    pub fn typical_exponent(&self) -> (i8, u64) {
        let (at, count) =
            self.exponents.iter().enumerate().max_by_key(|(_, count)| **count).unwrap_or((0, &0));
        (MIN_EXPONENT + at as i8, *count)
    }

    fn steps(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let of = |(at, count): (usize, &u64)| {
            (power_of_ten(i32::from(MIN_EXPONENT) + at as i32), *count)
        };
        self.exponents.iter().enumerate().map(of).filter(|(_, count)| *count > 0)
    }

    /// Bounds of the value with this rank from 1, accurate to 0.1 %; `None` with negative values.
    pub fn ranked(&self, rank: u64) -> Option<(f64, f64)> {
        if self.counts.total() != self.count {
            return None;
        }
        let bin = self.counts.ranked(rank)?;
        let width = (bin.middle - bin.lowest) as f64 + 1.0;
        Some((
            (bin.lowest as f64 - 0.5) * self.count_step,
            (bin.middle as f64 + width) * self.count_step,
        ))
    }

    /// Occupied bins of all values: middle and count, ascending; empty with negative values.
    pub fn bins(&self) -> Vec<(f64, u64)> {
        if self.counts.total() != self.count {
            return Vec::new();
        }
        self.counts.bins().map(|bin| (bin.middle as f64 * self.count_step, bin.count)).collect()
    }
}

fn place(exponent: i8) -> usize {
    (exponent.clamp(MIN_EXPONENT, MIN_EXPONENT + EXPONENTS as i8 - 1) - MIN_EXPONENT) as usize
}

/// Cells and rows that could not be read.
#[derive(Clone, Debug, Default)]
pub struct Malformed {
    /// The first ones, at most [`MAX_LISTED_ROWS`].
    pub cells: Vec<MalformedCell>,
    /// Number of all.
    pub count: u64,
}

impl Malformed {
    /// Adds a cell.
    pub fn push(&mut self, cell: MalformedCell) {
        self.count += 1;
        if self.cells.len() < MAX_LISTED_ROWS {
            self.cells.push(cell);
        }
    }
}

/// A cell or row that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedCell {
    /// Row, from 1.
    pub row: u64,
    /// Index of the column; `None` for a whole row.
    pub column: Option<usize>,
    /// The cell, shortened.
    pub text: String,
    /// Why, as the rest of a sentence.
    pub reason: String,
}

/// Latencies compared with received minus sent.
#[derive(Clone, Debug, Default)]
pub struct StampComparison {
    /// Rows with all three cells.
    pub compared: u64,
    /// Rows whose latency is the difference to the last digit.
    pub exact: u64,
    /// Rows that disagree by more than rounding.
    pub different: u64,
    /// The first of these, at most [`MAX_LISTED_ROWS`].
    pub first: Vec<StampDifference>,
}

/// A latency that disagrees with its timestamps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StampDifference {
    /// Row, from 1.
    pub row: u64,
    /// Received minus sent, in nanoseconds.
    pub computed_nanos: f64,
    /// Printed latency, in its unit.
    pub printed: f64,
}
