//! Figures computed from batches of samples, for the summary of an import.

use std::collections::BTreeMap;
use std::ops::Range;

use dwell_sample::State;
use dwell_stats::{DecimatedSeries, Distribution, Ipdv, Jitter, Metric, Quantile, Resolution};

use crate::batch::Batch;
use crate::column::Column;
use crate::summary::{Figures, Packets, Scalar, by_name};

/// The columns that are metrics themselves.
const METRICS: [Column; 25] = [
    Column::Rtt,
    Column::RttIntended,
    Column::RttKernel,
    Column::RttDriver,
    Column::RttHw,
    Column::ScheduleError,
    Column::Residence,
    Column::OneWayForward,
    Column::OneWayBackward,
    Column::Gap,
    Column::GapError,
    Column::EndToEnd,
    Column::SenderOut,
    Column::LinkIn,
    Column::NodeDelay,
    Column::NodeDelayNetfilter,
    Column::NodeDelayDriver,
    Column::QueueingIn,
    Column::Processing,
    Column::ProcessingWithSend,
    Column::QueueingOut,
    Column::Qdisc,
    Column::LinkOut,
    Column::LinkDelay,
    Column::ReceiverIn,
];

/// Total delays, from which delay variation is computed; a data set has one of them.
const TOTAL_DELAYS: [Column; 2] = [Column::Rtt, Column::EndToEnd];

/// Metrics and values by name, and packet counts; `None` for the counts without rows.
pub type ColumnFigures =
    (BTreeMap<String, Figures>, BTreeMap<String, Option<Scalar>>, Option<Packets>);

/// Streaming figures of one data set, in bounded memory.
#[derive(Clone, Debug, Default)]
pub struct BatchStatistics {
    distributions: BTreeMap<&'static str, Distribution>,
    ipdv: BTreeMap<&'static str, Ipdv>,
    jitter: Jitter,
    /// Total delays in time order.
    series: BTreeMap<&'static str, DecimatedSeries>,
    packets: Counted,
    rows: u64,
    // Scratch buffers, kept to reuse their memory.
    values: Vec<i64>,
    ids: Vec<u64>,
}

/// Packet counts, updated row by row.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    packets: Packets,
    /// Late packets without a preceding row that reported them as lost.
    unannounced: u64,
}

/// Columns used by [`BatchStatistics::take`]: [`METRICS`] and those of IPDV.
const USED_COLUMNS: [Column; METRICS.len() + 2] = {
    let mut all = [Column::ForwardPlusOffset; METRICS.len() + 2];
    let mut place = 0;
    while place < METRICS.len() {
        all[place] = METRICS[place];
        place += 1;
    }
    all[METRICS.len()] = Column::BackwardMinusOffset;
    all
};

impl BatchStatistics {
    /// The columns that figures are computed from.
    pub const USED_COLUMNS: &[Column] = &USED_COLUMNS;

    /// Adds rows in order.
    pub fn take(&mut self, batch: &Batch) {
        self.rows += batch.len() as u64;
        for start in (0..batch.len()).step_by(PIECE_LEN) {
            self.take_piece(batch, start..(start + PIECE_LEN).min(batch.len()));
        }
    }

    /// Adds some rows of a batch.
    fn take_piece(&mut self, batch: &Batch, rows: Range<usize>) {
        self.packets.take(&batch.state[rows.clone()], &batch.reordered[rows.clone()]);
        for column in METRICS {
            let Some(values) = batch.column(column) else { continue };
            // Departures are also known for lost packets.
            let lost_too = matches!(column, Column::ScheduleError | Column::Gap | Column::GapError);
            self.select(batch, values, rows.clone(), lost_too);
            self.distributions.entry(column.name()).or_default().record_all(&self.values);
            if TOTAL_DELAYS.contains(&column) {
                self.jitter.record_all(&self.values);
                self.series.entry(column.name()).or_default().record_all(&self.values);
                let ipdv = self.ipdv.entry(Metric::Ipdv.name()).or_default();
                ipdv.record_all(&self.ids, &self.values);
            }
        }
        let by_pair = [
            (Column::ForwardPlusOffset, Metric::IpdvForward),
            (Column::BackwardMinusOffset, Metric::IpdvBackward),
        ];
        for (column, metric) in by_pair {
            let Some(values) = batch.column(column) else { continue };
            self.select(batch, values, rows.clone(), false);
            let ipdv = self.ipdv.entry(metric.name()).or_default();
            ipdv.record_all(&self.ids, &self.values);
        }
    }

    /// Selects the valid values and the ids of their rows.
    fn select(&mut self, batch: &Batch, values: &[i64], rows: Range<usize>, lost_too: bool) {
        self.values.clear();
        self.ids.clear();
        for start in rows.clone().step_by(RUN_LEN) {
            let run = start..(start + RUN_LEN).min(rows.end);
            let (ids, values) = (&batch.id[run.clone()], &values[run.clone()]);
            let (states, void) = (&batch.state[run.clone()], &batch.void[run]);
            if all_valid(states, void, values) {
                self.ids.extend_from_slice(ids);
                self.values.extend_from_slice(values);
                continue;
            }
            for (((&id, &value), state), void) in ids.iter().zip(values).zip(states).zip(void) {
                let counts = matches!(state, State::Received | State::Sent)
                    || (lost_too && *state == State::Lost);
                if counts && !void && value != Batch::ABSENT {
                    self.ids.push(id);
                    self.values.push(value);
                }
            }
        }
    }

    /// Returns whether the rows of `later` start with an id that is among the last ones here. IPDV
    /// is then correct only if the rows are added in sequence.
    pub fn shares_an_id(&self, later: &Self) -> bool {
        let shares = |(name, ipdv): (_, &Ipdv)| {
            self.ipdv.get(name).is_some_and(|own| own.shares_an_id(ipdv))
        };
        later.ipdv.iter().any(shares)
    }

    /// Appends rows that were collected separately and follow these.
    pub fn append(&mut self, later: &Self) {
        self.rows += later.rows;
        self.packets.append(&later.packets);
        for (name, distribution) in &later.distributions {
            self.distributions.entry(name).or_default().merge(distribution);
        }
        for (name, ipdv) in &later.ipdv {
            self.ipdv.entry(name).or_default().append(ipdv);
        }
        self.jitter.append(&later.jitter);
        for (name, series) in &later.series {
            self.series.entry(name).or_default().append(series);
        }
    }

    /// The valid values of a column; `None` without any.
    pub fn distribution(&self, column: Column) -> Option<&Distribution> {
        self.distributions.get(column.name())
    }

    /// All names that [`Self::metric`] accepts, without unit.
    pub fn metric_names() -> impl Iterator<Item = &'static str> {
        let columns = METRICS.into_iter().map(|column| column.name().trim_end_matches("_ns"));
        let pairs = [Metric::Pdv, Metric::Ipdv, Metric::IpdvForward, Metric::IpdvBackward];
        columns.chain(pairs.map(|metric| metric.name().trim_end_matches("_ns")))
    }

    /// The values of a metric by its name without unit; `None` without any. For PDV these are total
    /// delays, from which the minimum has to be subtracted.
    pub fn metric(&self, name: &str) -> Option<&Distribution> {
        let called = |full: &str| full.trim_end_matches("_ns") == name;
        if called(Metric::Pdv.name()) {
            return TOTAL_DELAYS.iter().find_map(|column| self.distribution(*column));
        }
        let column = METRICS.into_iter().find(|column| called(column.name()));
        let ipdv = || self.ipdv.iter().find(|(full, _)| called(full));
        match column {
            Some(column) => self.distribution(column),
            None => ipdv().map(|(_, ipdv)| ipdv.magnitudes()),
        }
    }

    /// RFC 3550 jitter in nanoseconds.
    pub fn jitter(&self) -> Option<f64> {
        self.jitter.nanos()
    }

    /// Packet counts from the rows.
    pub fn packets(&self) -> Packets {
        self.packets.packets
    }

    /// The coarsest resolution of percentiles of any column with values.
    pub fn resolution(&self) -> Option<Resolution> {
        let filled = self.distributions.values().filter(|distribution| distribution.count() > 0);
        filled.map(Distribution::resolution).max()
    }

    /// 95 % confidence intervals of percentiles of the total delay, accounting for dependent
    /// neighbours, as values by name: `rtt_p99_low_ns`, `rtt_p99_high_ns`. Percentiles that the
    /// count does not support are omitted.
    pub fn intervals(&self) -> BTreeMap<String, Option<Scalar>> {
        const CONFIDENCE: f64 = 0.95;
        let quantiles = [(Quantile::P50, "p50"), (Quantile::P95, "p95"), (Quantile::P99, "p99")];
        let mut values = BTreeMap::new();
        for (name, series) in &self.series {
            let name = name.trim_end_matches("_ns");
            for (quantile, called) in quantiles {
                let Some(found) = series.interval(quantile, CONFIDENCE) else { continue };
                for (end, nanos) in [("low", found.low), ("high", found.high)] {
                    let value = Some(Scalar::Real(nanos.0 as f64));
                    values.insert(format!("{name}_{called}_{end}_ns"), value);
                }
            }
        }
        values
    }

    /// Metrics and values by name as in a summary, and the packet counts.
    pub fn figures(&self) -> ColumnFigures {
        let variations = self.ipdv.iter().map(|(name, ipdv)| (*name, ipdv.magnitudes()));
        let all = self.distributions.iter().map(|(name, values)| (*name, values)).chain(variations);
        let filled = all.filter(|(_, values)| values.count() > 0);
        let mut metrics = by_name(filled.map(|(name, values)| (name, values.figures().into())));
        let whole = TOTAL_DELAYS.iter().find_map(|column| self.distributions.get(column.name()));
        if let Some((whole, min)) = whole.and_then(|whole| Some((whole, whole.min()?))) {
            let pdv = whole.figures().relative_to(min);
            metrics.insert(Metric::Pdv.name().to_owned(), pdv.into());
        }
        let real = |value: Option<f64>| value.map(Scalar::Real);
        let packets = self.packets.packets;
        let share = |part: u64| (packets.sent > 0).then(|| part as f64 / packets.sent as f64);
        let mut values = by_name([
            ("loss_ratio", real(share(packets.lost))),
            ("late_ratio", real(share(packets.late))),
            ("jitter_rfc3550_ns", real(self.jitter.nanos())),
        ]);
        values.extend(self.intervals());
        (metrics, values, (self.rows > 0).then_some(packets))
    }
}

impl Counted {
    fn take(&mut self, states: &[State], reordered: &[bool]) {
        for (states, reordered) in states.chunks(RUN_LEN).zip(reordered.chunks(RUN_LEN)) {
            let received = states.iter().fold(true, |all, state| all & (*state == State::Received));
            if received {
                let overtook = reordered.iter().map(|reordered| u64::from(*reordered)).sum::<u64>();
                self.packets.sent += states.len() as u64;
                self.packets.received += states.len() as u64;
                self.packets.reordered += overtook;
            } else {
                states.iter().zip(reordered).for_each(|(state, other)| self.count(*state, *other));
            }
        }
    }

    fn count(&mut self, state: State, reordered: bool) {
        let packets = &mut self.packets;
        match state {
            State::Received => {
                packets.sent += 1;
                packets.received += 1;
                packets.reordered += u64::from(reordered);
            }
            State::Lost => {
                packets.sent += 1;
                packets.lost += 1;
            }
            // Usually reported as lost before.
            State::Late => {
                packets.late += 1;
                match packets.lost.checked_sub(1) {
                    Some(lost) => packets.lost = lost,
                    None => {
                        packets.sent += 1;
                        self.unannounced += 1;
                    }
                }
            }
            State::Duplicate => packets.duplicate += 1,
            State::SendFailed => packets.send_failed += 1,
            State::Sent => packets.sent += 1,
        }
    }

    fn append(&mut self, later: &Self) {
        // A late packet without a preceding loss here may be reported as lost in `self`.
        let announced = later.unannounced.min(self.packets.lost);
        self.unannounced += later.unannounced - announced;
        let (own, other) = (&mut self.packets, &later.packets);
        own.sent += other.sent - announced;
        own.received += other.received;
        own.lost = own.lost - announced + other.lost;
        own.late += other.late;
        own.duplicate += other.duplicate;
        own.reordered += other.reordered;
        own.send_failed += other.send_failed;
    }
}

/// Rows checked together; usually all have the same state.
const RUN_LEN: usize = 128;

/// Rows added together: few enough for the CPU cache.
const PIECE_LEN: usize = 1 << 14;

/// Returns whether every row is received, not void and has a value.
pub fn all_valid(states: &[State], void: &[bool], values: &[i64]) -> bool {
    let received = states.iter().fold(true, |all, state| all & (*state == State::Received));
    let void = void.iter().fold(false, |any, void| any | void);
    // Fast path: non-negative values cannot be [`Batch::ABSENT`].
    let bits = values.iter().fold(0, |bits, value| bits | value);
    let present =
        bits >= 0 || values.iter().fold(true, |all, value| all & (*value != Batch::ABSENT));
    received & !void & present
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_cover_received_rows_only() {
        let mut columns = BatchStatistics::default();
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
        // 0-1, 1-2, 4-5, 5-6, 6-7, 7-8, 8-9: pairs with a lost probe do not count.
        assert_eq!(metrics["ipdv_ns"].count, 7);
        let packets = packets.unwrap();
        assert_eq!((packets.received, packets.late), (9, 2));
        assert_eq!(packets.sent, packets.received + packets.lost + packets.late);
        assert!(values["loss_ratio"].is_some());
    }

    #[test]
    fn rows_added_in_parts_give_equal_figures() {
        let mut rows = Batch::default();
        for id in 0..9_000_u64 {
            let state = match id % 50 {
                7 => State::Lost,
                _ => State::Received,
            };
            rows.push(id, state);
            if state == State::Received {
                rows.set(Column::Rtt, 100_000 + (id as i64 * 7_919) % 5_003);
            }
            // The probe lost at 57 arrives much later.
            if id == 6_000 {
                rows.push(57, State::Late);
            }
        }
        let part = |from: usize, to: usize| {
            let mut batch = Batch::default();
            for row in from..to {
                batch.push(rows.id[row], rows.state[row]);
                if let Some(rtt) = rows.number(row, Column::Rtt) {
                    batch.set(Column::Rtt, rtt);
                }
            }
            let mut columns = BatchStatistics::default();
            columns.take(&batch);
            columns
        };
        let (metrics, _, packets) = part(0, rows.len()).figures();
        for cut in [0, 1, 58, 5_990, 6_001, rows.len()] {
            let mut parts = part(0, cut);
            parts.append(&part(cut, rows.len()));
            let (cut_metrics, _, cut_packets) = parts.figures();
            assert_eq!(cut_packets, packets, "{cut}");
            for name in ["rtt_ns", "ipdv_ns", "pdv_ns"] {
                let of = |figures: &Figures| (figures.count, figures.min, figures.p50, figures.max);
                assert_eq!(of(&cut_metrics[name]), of(&metrics[name]), "{name} {cut}");
            }
        }
    }
}
