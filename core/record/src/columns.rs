//! The figures of samples that come in batches: what the summary of an import says.

use std::collections::BTreeMap;

use dwell_engine::stamps::State;
use dwell_stats::{Distribution, Ipdv, Jitter, Metric};
use dwell_units::Nanos;

use crate::batch::Batch;
use crate::column::Column;
use crate::summary::{Figures, Packets, Scalar};

/// Columns that are metrics by themselves.
const METRICS: [Column; 9] = [
    Column::Rtt,
    Column::RttIntended,
    Column::RttKernel,
    Column::RttHw,
    Column::ScheduleError,
    Column::Residence,
    Column::OneWayForward,
    Column::OneWayBackward,
    Column::Gap,
];

/// Streaming figures of one data set. Memory is bounded.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    distributions: BTreeMap<&'static str, Distribution>,
    ipdv: BTreeMap<&'static str, Ipdv>,
    jitter: Jitter,
    packets: Packets,
    rows: u64,
}

impl Columns {
    /// Takes rows in, in the order in which they come.
    pub fn take(&mut self, batch: &Batch) {
        self.rows += batch.len() as u64;
        for (state, reordered) in batch.state.iter().zip(&batch.reordered) {
            self.packets.count(*state, *reordered);
        }
        let counts = |row: usize| batch.state[row] == State::Received && !batch.void[row];
        let is_sent = |row: usize| {
            matches!(batch.state[row], State::Received | State::Lost) && !batch.void[row]
        };
        for column in METRICS {
            let Some(values) = batch.column(column) else { continue };
            let distribution = self.distributions.entry(column.name()).or_default();
            for (row, value) in values.iter().enumerate() {
                let valid = match column {
                    Column::ScheduleError => is_sent(row),
                    _ => counts(row),
                };
                if *value != Batch::ABSENT && valid {
                    distribution.record(Nanos(*value));
                }
            }
        }
        let by_pair = [
            (Column::Rtt, Metric::Ipdv),
            (Column::ForwardPlusOffset, Metric::IpdvForward),
            (Column::BackwardMinusOffset, Metric::IpdvBackward),
        ];
        for (column, metric) in by_pair {
            let Some(values) = batch.column(column) else { continue };
            let ipdv = self.ipdv.entry(metric.name()).or_default();
            for (row, value) in values.iter().enumerate() {
                if *value != Batch::ABSENT && counts(row) {
                    ipdv.record(batch.id[row], Nanos(*value));
                }
            }
        }
        if let Some(values) = batch.column(Column::Rtt) {
            for (row, value) in values.iter().enumerate() {
                if *value != Batch::ABSENT && counts(row) {
                    self.jitter.record(Nanos(*value));
                }
            }
        }
    }

    /// Metrics and values by name, as a summary has them, and the counts of packets.
    #[expect(clippy::type_complexity, reason = "the three parts of a summary, taken apart at once")]
    pub fn figures(
        &self,
    ) -> (BTreeMap<String, Figures>, BTreeMap<String, Option<Scalar>>, Option<Packets>) {
        let mut metrics: BTreeMap<String, Figures> = BTreeMap::new();
        for (name, distribution) in &self.distributions {
            if distribution.count() > 0 {
                metrics.insert((*name).to_owned(), distribution.figures().into());
            }
        }
        let rtt = self.distributions.get(Column::Rtt.name());
        if let Some((rtt, min)) = rtt.and_then(|rtt| Some((rtt, rtt.min()?))) {
            let pdv = rtt.figures().relative_to(min);
            metrics.insert(Metric::Pdv.name().to_owned(), pdv.into());
        }
        for (name, ipdv) in &self.ipdv {
            let magnitudes = ipdv.magnitudes();
            if magnitudes.count() > 0 {
                metrics.insert((*name).to_owned(), magnitudes.figures().into());
            }
        }
        let real = |value: Option<f64>| value.map(Scalar::Real);
        let loss =
            (self.packets.sent > 0).then(|| self.packets.lost as f64 / self.packets.sent as f64);
        let values = [
            ("loss_ratio".to_owned(), real(loss)),
            ("jitter_rfc3550_ns".to_owned(), real(self.jitter.nanos())),
        ];
        (metrics, values.into(), (self.rows > 0).then_some(self.packets))
    }
}

impl Packets {
    fn count(&mut self, state: State, reordered: bool) {
        match state {
            State::Received => {
                self.sent += 1;
                self.received += 1;
                self.reordered += u64::from(reordered);
            }
            State::Lost => {
                self.sent += 1;
                self.lost += 1;
            }
            // It was told as lost before.
            State::Late => {
                self.late += 1;
                match self.lost.checked_sub(1) {
                    Some(lost) => self.lost = lost,
                    None => self.sent += 1,
                }
            }
            State::Duplicate => self.duplicate += 1,
            State::SendFailed => self.send_failed += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_batches_are_those_of_their_received_rows() {
        let mut columns = Columns::default();
        for start in [0, 5] {
            let mut batch = Batch::default();
            for id in start..start + 5 {
                let lost = id == 3;
                batch.push(id, if lost { State::Lost } else { State::Received });
                if !lost {
                    batch.set(Column::Rtt, 100 + id as i64);
                }
            }
            batch.push(3, State::Late);
            batch.set(Column::Rtt, 9_999);
            columns.take(&batch);
        }
        let (metrics, values, packets) = columns.figures();
        let rtt = &metrics["rtt_ns"];
        assert_eq!((rtt.count, rtt.min, rtt.max), (9, Some(100), Some(109)));
        assert_eq!(metrics["pdv_ns"].max, Some(9));
        // 0-1, 1-2, 4-5, 5-6, 6-7, 7-8, 8-9: pairs with a loss between are none.
        assert_eq!(metrics["ipdv_ns"].count, 7);
        let packets = packets.unwrap();
        assert_eq!((packets.received, packets.late), (9, 2));
        assert_eq!(packets.sent, packets.received + packets.lost + packets.late);
        assert!(values["loss_ratio"].is_some());
    }
}
