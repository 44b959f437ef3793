//! Batches of samples in columns, exchanged between importers, segments, the store and the
//! statistics.

use dwell_sample::{Sample, State, TimestampSource};
use dwell_units::Pairing;

use crate::column::Column;
use crate::row::Row;

/// Rows of one data set, in the order in which their states were decided. All columns have the
/// length of `id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Probe id, counted from 0 without wrapping.
    pub id: Vec<u64>,
    /// State of the probe.
    pub state: Vec<State>,
    /// The reply arrived before the reply to an earlier probe.
    pub reordered: Vec<bool>,
    /// A clock was stepped: timestamps exist, delays do not.
    pub void: Vec<bool>,
    /// Indexed by [`Column`]; a column without values is empty.
    numbers: [Vec<i64>; Column::ALL.len()],
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            id: Vec::new(),
            state: Vec::new(),
            reordered: Vec::new(),
            void: Vec::new(),
            numbers: [const { Vec::new() }; Column::ALL.len()],
        }
    }
}

impl Batch {
    /// Marks a missing value in a column.
    pub const ABSENT: i64 = i64::MIN;

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.id.len()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.id.is_empty()
    }

    /// Appends a row without numbers; [`Self::set`] adds them.
    pub fn push(&mut self, id: u64, state: State) {
        self.id.push(id);
        self.state.push(state);
        self.reordered.push(false);
        self.void.push(false);
        for numbers in self.numbers.iter_mut().filter(|numbers| !numbers.is_empty()) {
            numbers.push(Self::ABSENT);
        }
    }

    /// Sets a number in the last row. `value` must not be [`Self::ABSENT`].
    ///
    /// # Panics
    /// If there is no row.
    pub fn set(&mut self, column: Column, value: i64) {
        let rows = self.len();
        let numbers = &mut self.numbers[column as usize];
        numbers.resize(rows, Self::ABSENT);
        numbers[rows - 1] = value;
    }

    /// Removes a number from the last row.
    ///
    /// # Panics
    /// If there is no row.
    pub fn unset(&mut self, column: Column) {
        if let Some(last) = self.numbers[column as usize].get_mut(self.id.len() - 1) {
            *last = Self::ABSENT;
        }
    }

    /// Appends `sample` as a row; see [`dwell_stats::Delays::of`] for `bridge` and `near`.
    pub fn push_sample(
        &mut self,
        sample: &Sample,
        bridge: Option<&Pairing>,
        near: TimestampSource,
    ) {
        let row = Row::of(sample, bridge, near);
        self.push(row.id, sample.state);
        let last = self.len() - 1;
        (self.reordered[last], self.void[last]) = (row.reordered, row.void);
        for (column, number) in Column::ALL.into_iter().zip(row.numbers) {
            if let Some(number) = number {
                self.set(column, number);
            }
        }
    }

    /// The values of a column, with [`Self::ABSENT`] for missing ones; `None` if all are missing.
    pub fn column(&self, column: Column) -> Option<&[i64]> {
        let numbers = &self.numbers[column as usize];
        (!numbers.is_empty()).then_some(numbers.as_slice())
    }

    /// Replaces a whole column.
    ///
    /// # Panics
    /// If its length differs from the number of rows.
    pub fn set_column(&mut self, column: Column, values: Vec<i64>) {
        self.swap_column(column, values);
    }

    /// Like [`Self::set_column`], but returns the old values so that their memory can be reused.
    ///
    /// # Panics
    /// As [`Self::set_column`].
    pub fn swap_column(&mut self, column: Column, values: Vec<i64>) -> Vec<i64> {
        assert_eq!(values.len(), self.len(), "one value per row");
        std::mem::replace(&mut self.numbers[column as usize], values)
    }

    /// One number of one row; `None` if missing.
    pub fn number(&self, row: usize, column: Column) -> Option<i64> {
        self.column(column).map(|values| values[row]).filter(|value| *value != Self::ABSENT)
    }

    /// Removes all rows and keeps the allocations.
    pub fn clear(&mut self) {
        self.id.clear();
        self.state.clear();
        self.reordered.clear();
        self.void.clear();
        self.numbers.iter_mut().for_each(Vec::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_column_is_absent_in_earlier_rows() {
        let mut batch = Batch::default();
        batch.push(0, State::Lost);
        batch.push(1, State::Received);
        batch.set(Column::Rtt, 7);
        batch.push(2, State::Lost);
        assert_eq!(batch.column(Column::Rtt), Some(&[Batch::ABSENT, 7, Batch::ABSENT][..]));
        assert_eq!((batch.number(0, Column::Rtt), batch.number(1, Column::Rtt)), (None, Some(7)));
        assert_eq!(batch.column(Column::T2), None);
        batch.clear();
        assert!(batch.is_empty());
        assert_eq!(batch.column(Column::Rtt), None);
    }
}
