//! Builds a table from blocks of rows.

use crate::block::{Block, BlockColumn};
use crate::decimal::power_of_ten;
use crate::document::PrintedStatistic;
use crate::layout::{Format, Layout};
use crate::table::{
    BLOCK_ROWS, Column, Content, MAX_LISTED_ROWS, MalformedCell, OddTime, Role, StampComparison,
    StampDifference, Table,
};
use crate::timestamp::DAY_NANOS;
use crate::unit::Unit;

/// Maximum number of cells that are kept; of larger tables evenly spaced blocks are.
const MAX_KEPT_CELLS: usize = 3 << 20;

/// Name of the column of differences of timestamps.
const DIFFERENCE: &str = "received - sent";

/// Collects rows of a table, in their order and with bounded memory.
#[derive(Debug)]
pub struct TableBuilder {
    table: Table,
    /// Every `stride`-th block is kept.
    stride: usize,
    max_kept_rows: usize,
    /// Per column, days added to times of day after midnight, and the last time.
    days: Vec<Days>,
    indexes: Option<StampIndexes>,
    /// Whether the last column is the difference of the timestamps.
    adds_latency: bool,
    short_rows: u64,
}

#[derive(Clone, Copy, Debug)]
struct StampIndexes {
    sent: usize,
    received: usize,
    latency: Option<(usize, Unit)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Days {
    /// Whether the column has times of day.
    applies: bool,
    offset: f64,
    last: f64,
}

impl TableBuilder {
    pub(crate) fn new(layout: &Layout, source: &str) -> Self {
        let column = |layout: &crate::layout::ColumnLayout| {
            let content = match layout.format {
                Format::Number => Content::Number,
                Format::Clock | Format::Count(_) => Content::Time,
                Format::Text => Content::Text,
            };
            let mut column = Column::new(&layout.name, layout.role, content, layout.unit);
            column.origin = layout.origin;
            column
        };
        let columns: Vec<Column> = layout.columns.iter().map(column).collect();
        let mut builder = Self::of_columns(source, columns);
        builder.table.limits.clone_from(&layout.limits);
        for (days, column) in builder.days.iter_mut().zip(&layout.columns) {
            days.applies = column.format == Format::Clock && !column.dated;
        }
        builder
    }

    /// Starts a table with these columns, which have no rows yet. A table with send and receive
    /// times but without a latency gets a column of their differences.
    pub fn of_columns(source: &str, mut columns: Vec<Column>) -> Self {
        let has = |role: Role| columns.iter().any(|column| column.role == role);
        let is_timed = |role: Role| {
            columns.iter().any(|column| column.role == role && column.content == Content::Time)
        };
        let adds_latency = is_timed(Role::Sent) && is_timed(Role::Received) && !has(Role::Latency);
        if adds_latency {
            let unit = Some(Unit::Millis);
            columns.push(Column::new(DIFFERENCE, Role::Latency, Content::Number, unit));
        }
        let analysed = columns.iter().filter(|column| column.content != Content::Text).count();
        let days = vec![Days::default(); columns.len()];
        let at = |role: Role, content: Content| {
            columns.iter().position(|column| column.role == role && column.content == content)
        };
        let latency = at(Role::Latency, Content::Number)
            .filter(|_| !adds_latency)
            .and_then(|index| Some((index, columns[index].unit?)));
        let stamps = at(Role::Sent, Content::Time).zip(at(Role::Received, Content::Time));
        let indexes = stamps.map(|(sent, received)| StampIndexes { sent, received, latency });
        let mut table = Table { source: source.to_owned(), columns, ..Table::default() };
        table.stamps = indexes.map(|_| StampComparison::default());
        Self {
            table,
            stride: 1,
            max_kept_rows: (MAX_KEPT_CELLS / analysed.max(1)).max(BLOCK_ROWS * 8),
            days,
            indexes,
            adds_latency,
            short_rows: 0,
        }
    }

    /// Adds rows of whole numbers: one list of values per column, all of one length, NaN where
    /// missing.
    pub fn add_whole_numbers(&mut self, columns: Vec<Vec<f64>>) {
        let rows = columns.first().map_or(0, Vec::len);
        let columns = columns
            .into_iter()
            .map(|values| BlockColumn {
                exponents: vec![0; values.len()],
                values,
                trailing_zeros: 0,
            })
            .collect();
        self.add(Block { rows, columns, ..Block::default() });
    }

    /// Adds the next rows.
    pub(crate) fn add(&mut self, mut block: Block) {
        let first_row = self.table.rows + 1;
        for (days, column) in self.days.iter_mut().zip(&mut block.columns) {
            if days.applies {
                days.unwrap(&mut column.values);
            }
        }
        if let Some(indexes) = self.indexes {
            self.compare_stamps(&block, indexes, first_row);
        }
        if self.adds_latency
            && let Some(StampIndexes { sent, received, .. }) = self.indexes
        {
            block.columns.push(differences(&block.columns[sent], &block.columns[received]));
        }
        for (column, cells) in self.table.columns.iter_mut().zip(&block.columns) {
            if column.content != Content::Text && !cells.values.is_empty() {
                column.totals.add(first_row, &cells.values, &cells.exponents);
                column.totals.trailing_zeros += cells.trailing_zeros;
            }
        }
        for odd in block.odd_times {
            let times = &mut self.table.columns[odd.column].odd_times;
            if times.len() < MAX_LISTED_ROWS {
                let row = first_row + odd.row as u64;
                times.push(OddTime { row, exponent: odd.exponent, text: odd.text });
            }
        }
        for footer in block.footers {
            for (index, printed) in footer.cells {
                let column = Some(self.table.columns[index].name.clone());
                let statistic = footer.statistic;
                self.table.footers.push(PrintedStatistic { column, statistic, printed });
            }
        }
        for fault in block.malformed {
            let row = first_row + fault.row as u64;
            let (column, text, reason) = (fault.column, fault.text, fault.reason);
            self.table.malformed.push(MalformedCell { row, column, text, reason });
        }
        self.table.malformed.count += block.more_malformed;
        self.short_rows += block.short_rows;
        self.keep(&block.columns, block.rows);
    }

    /// Returns the table.
    pub fn finish(mut self) -> Table {
        self.table.short_rows = self.short_rows;
        self.table
    }

    /// Keeps rows that belong to a kept block of rows.
    fn keep(&mut self, cells: &[BlockColumn], rows: usize) {
        let mut at = 0;
        while at < rows {
            let row = self.table.rows as usize;
            let in_block = row % BLOCK_ROWS;
            let len = (BLOCK_ROWS - in_block).min(rows - at);
            if (row / BLOCK_ROWS).is_multiple_of(self.stride) {
                if in_block == 0 {
                    self.table.blocks.push(row as u64 + 1);
                }
                for (column, cells) in self.table.columns.iter_mut().zip(cells) {
                    if column.content != Content::Text {
                        column.values.extend_from_slice(&cells.values[at..at + len]);
                    }
                }
            }
            self.table.rows += len as u64;
            at += len;
            if self.table.blocks.len() * BLOCK_ROWS >= self.max_kept_rows
                && (self.table.rows as usize).is_multiple_of(BLOCK_ROWS)
            {
                self.thin();
            }
        }
    }

    /// Drops every second kept block.
    fn thin(&mut self) {
        self.stride *= 2;
        for column in self.table.columns.iter_mut().filter(|column| !column.values.is_empty()) {
            let values = &mut column.values;
            let mut into = 0;
            for from in (0..values.len()).step_by(2 * BLOCK_ROWS) {
                let to = (from + BLOCK_ROWS).min(values.len());
                values.copy_within(from..to, into);
                into += to - from;
            }
            values.truncate(into);
        }
        let mut index = 0;
        self.table.blocks.retain(|_| {
            index += 1;
            index % 2 == 1
        });
    }

    fn compare_stamps(&mut self, block: &Block, indexes: StampIndexes, first_row: u64) {
        let Some(comparison) = &mut self.table.stamps else { return };
        let sent = &block.columns[indexes.sent];
        let received = &block.columns[indexes.received];
        let Some((latency, unit)) = indexes.latency else { return };
        let latency = &block.columns[latency];
        let per_unit = unit.nanos();
        for row in 0..block.rows {
            let computed = received.values[row] - sent.values[row];
            let printed = latency.values[row] * per_unit;
            let difference = computed - printed;
            // Not a number if one of the three is missing.
            if difference.is_nan() {
                continue;
            }
            comparison.compared += 1;
            let noise = 1e-12 * printed.abs() + 1e-6;
            if difference.abs() <= noise {
                comparison.exact += 1;
                continue;
            }
            let steps = [sent.exponents[row], received.exponents[row]]
                .map(|exponent| power_of_ten(i32::from(exponent)));
            // Truncated times leave an error below one step, and so does a truncated latency.
            let tolerance =
                steps[0].max(steps[1]) + power_of_ten(i32::from(latency.exponents[row])) * per_unit;
            if difference.abs() >= tolerance - noise {
                comparison.different += 1;
                if comparison.first.len() < MAX_LISTED_ROWS {
                    comparison.first.push(StampDifference {
                        row: first_row + row as u64,
                        computed_nanos: computed,
                        printed: latency.values[row],
                    });
                }
            }
        }
    }
}

/// Differences of timestamps, in milliseconds.
fn differences(sent: &BlockColumn, received: &BlockColumn) -> BlockColumn {
    let pairs = || sent.values.iter().zip(&received.values);
    let steps = sent.exponents.iter().zip(&received.exponents);
    BlockColumn {
        values: pairs().map(|(sent, received)| (received - sent) / 1e6).collect(),
        exponents: steps.map(|(sent, received)| (*sent).max(*received).saturating_sub(6)).collect(),
        trailing_zeros: 0,
    }
}

impl Days {
    /// Adds a day to times of day after each midnight.
    fn unwrap(&mut self, values: &mut [f64]) {
        let day = DAY_NANOS as f64;
        for value in values.iter_mut().filter(|value| !value.is_nan()) {
            let mut unwrapped = *value + self.offset;
            if unwrapped < self.last - day / 2.0 {
                self.offset += day;
                unwrapped += day;
            } else if unwrapped > self.last + day / 2.0 && self.offset > 0.0 {
                self.offset -= day;
                unwrapped -= day;
            }
            self.last = unwrapped;
            *value = unwrapped;
        }
    }
}
