//! Rows of paced packets: departure time, gap to the previous packet of the train and error against
//! the schedule.
//!
//! Packet numbers are consecutive within a train and skip one between trains, so packets with
//! consecutive numbers belong to the same train.

use dwell_sample::{Sample, State, TimestampSource};
use dwell_units::Pairing;

use crate::batch::Batch;
use crate::column::Column;
use crate::summary::Summary;

/// Collects packets in any order. Uses 56 B per packet, plus 32 B for the result of
/// [`DepartureCollector::by`].
#[derive(Clone, Debug, Default)]
pub struct DepartureCollector {
    packets: Vec<Packet>,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    id: u64,
    /// On the schedule's clock.
    due: i64,
    app: i64,
    kernel: Option<i64>,
    /// Receive timestamp of the far end.
    far: Option<i64>,
}

/// Departure times of packets.
#[derive(Clone, Debug)]
pub struct DepartureTimes {
    /// Number, due time and departure time if known; sorted by number.
    packets: Vec<(u64, i64, Option<i64>)>,
    stamp: Stamp,
}

/// Timestamp used as departure time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stamp {
    App,
    Kernel,
    Far,
}

impl Stamp {
    /// The timestamp, and whether it is on the local clock.
    fn of(self, sample: &Sample) -> Option<(i64, bool)> {
        match self {
            Self::App => Some((sample.tx.app.as_nanos(), true)),
            Self::Kernel => Some((sample.tx.kernel?.as_nanos(), true)),
            Self::Far => sample.remote.map(|far| (far.rx.as_nanos(), far.same_clock)),
        }
    }
}

impl DepartureCollector {
    /// Adds a packet. `void` means that a clock was stepped, so its timestamps are not comparable.
    pub fn take(&mut self, sample: &Sample, void: bool) {
        let left = !matches!(sample.state, State::SendFailed | State::Late | State::Duplicate);
        if left && !void {
            self.packets.push(Packet {
                id: sample.id,
                due: sample.intended.as_nanos(),
                app: sample.tx.app.as_nanos(),
                kernel: sample.tx.kernel.map(dwell_units::Instant::as_nanos),
                far: sample.remote.map(|far| far.rx.as_nanos()),
            });
        }
    }

    /// Selects the departure timestamp. The summary names it; otherwise it follows the summary's
    /// source: user-space timestamps, or the more frequent of local kernel timestamps and far-end
    /// timestamps.
    pub fn by(self, summary: &Summary) -> DepartureTimes {
        let count = |of: fn(&Packet) -> Option<i64>| self.packets.iter().filter_map(of).count();
        let named = summary.parameters.get("departures").and_then(serde_json::Value::as_str);
        let stamp = match (named, summary.stamps.tx) {
            (Some("tx_app"), _) => Stamp::App,
            (Some("tx_kernel" | "tap"), _) => Stamp::Kernel,
            (Some("sink"), _) => Stamp::Far,
            (_, None | Some(TimestampSource::User)) => Stamp::App,
            _ if count(|packet| packet.far) > count(|packet| packet.kernel) => Stamp::Far,
            _ => Stamp::Kernel,
        };
        let packet = |packet: &Packet| {
            let left = match stamp {
                Stamp::App => Some(packet.app),
                Stamp::Kernel => packet.kernel,
                Stamp::Far => packet.far,
            };
            (packet.id, packet.due, left)
        };
        let mut packets: Vec<_> = self.packets.iter().map(packet).collect();
        packets.sort_unstable_by_key(|(id, ..)| *id);
        DepartureTimes { packets, stamp }
    }
}

impl DepartureTimes {
    /// The gap before a packet and |gap - scheduled gap|, in nanoseconds; `None` for the first
    /// packet of a train or if a timestamp is missing.
    pub fn gap(&self, id: u64) -> Option<(i64, i64)> {
        let at = self.packets.binary_search_by_key(&id, |(id, ..)| *id).ok()?;
        let (before, due_before, left_before) = *self.packets.get(at.checked_sub(1)?)?;
        let (_, due, left) = self.packets[at];
        if before.checked_add(1) != Some(id) {
            return None;
        }
        let gap = left?.checked_sub(left_before?)?;
        let scheduled = due.checked_sub(due_before)?;
        Some((gap, gap.checked_sub(scheduled)?.checked_abs()?))
    }

    /// Appends a packet as a row. Its schedule error refers to the departure, not to the earlier
    /// hand-over by the program.
    pub fn push(
        &self,
        batch: &mut Batch,
        sample: &Sample,
        bridge: Option<&Pairing>,
        near: TimestampSource,
    ) {
        batch.push_sample(sample, bridge, near);
        let error = bridge.zip(self.stamp.of(sample)).and_then(|(bridge, (left, same_clock))| {
            let error = left.checked_sub(bridge.to_real(sample.intended).as_nanos())?;
            (same_clock && sample.state != State::SendFailed).then_some(error)
        });
        match error {
            Some(error) => batch.set(Column::ScheduleError, error),
            None => batch.unset(Column::ScheduleError),
        }
        if let Some((gap, error)) = self.gap(sample.id).filter(|_| bridge.is_some()) {
            batch.set(Column::Gap, gap);
            batch.set(Column::GapError, error);
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_sample::{Remote, TxStamps};
    use dwell_units::{Instant, Nanos};

    use super::*;
    use crate::columns::BatchStatistics;
    use crate::environment::Environment;
    use crate::summary::{Kind, Stamps};
    use crate::trust::Trust;

    const BRIDGE: Pairing = Pairing {
        real: Instant::from_nanos(1_000_000),
        mono: Instant::from_nanos(0),
        width: Nanos(30),
    };

    /// Due every 100 ns; `late` is the delay of the kernel timestamp.
    fn packet(id: u64, late: Option<i64>) -> Sample {
        let due = id as i64 * 100;
        Sample {
            id,
            state: State::Sent,
            reordered: false,
            intended: Instant::from_nanos(due),
            tx: TxStamps {
                tcx: None,
                app: Instant::from_nanos(1_000_000 + due - 5_000),
                sched: None,
                kernel: late.map(|late| Instant::from_nanos(1_000_000 + due + late)),
                hw: None,
            },
            rx: None,
            remote: None,
        }
    }

    fn summary(source: TimestampSource, departures: Option<&str>) -> Summary {
        let named = departures.map(|name| ("departures".to_owned(), name.into()));
        Summary {
            kind: Kind::Pace,
            target: String::new(),
            parameters: named.into_iter().collect(),
            packets: None,
            metrics: Default::default(),
            values: Default::default(),
            stamps: Stamps { tx: Some(source), rx: None, near: None },
            engine: String::new(),
            trains: Vec::new(),
            spikes: None,
            driver: None,
            trust: Trust::default(),
            environment: Environment::default(),
        }
    }

    fn departed(packets: &[Sample], source: TimestampSource) -> DepartureTimes {
        let mut departing = DepartureCollector::default();
        packets.iter().rev().for_each(|packet| departing.take(packet, false));
        departing.by(&summary(source, None))
    }

    #[test]
    fn gaps_are_absent_across_trains_and_missing_timestamps() {
        let late = [Some(3), Some(10), None, Some(4), Some(1)];
        // Packet 2 has no timestamp; number 5 is skipped between two trains.
        let mut packets: Vec<_> = (0..5).zip(late).map(|(id, late)| packet(id, late)).collect();
        packets.extend([packet(6, Some(0)), packet(7, Some(-9))]);
        let gaps = departed(&packets, TimestampSource::KernelSw);
        let found: Vec<_> = (0..9).map(|id| gaps.gap(id)).collect();
        let known = [(1, (107, 7)), (4, (97, 3)), (7, (91, 9))];
        for (id, found) in found.iter().enumerate() {
            let expected = known.iter().find(|(at, _)| *at == id).map(|(_, gap)| *gap);
            assert_eq!(*found, expected, "packet {id}");
        }
    }

    #[test]
    fn unanswered_rows_count_with_departure_errors() {
        let packets: Vec<_> = (0..4).map(|id| packet(id, Some(10 * id as i64))).collect();
        let gaps = departed(&packets, TimestampSource::KernelSw);
        let mut batch = Batch::default();
        for sample in &packets {
            gaps.push(&mut batch, sample, Some(&BRIDGE), TimestampSource::KernelSw);
        }
        // A clock was stepped before the last packet.
        gaps.push(&mut batch, &packets[3], None, TimestampSource::KernelSw);
        assert_eq!(batch.column(Column::ScheduleError), Some(&[0, 10, 20, 30, Batch::ABSENT][..]));
        assert_eq!(batch.number(4, Column::Gap), None);
        let mut columns = BatchStatistics::default();
        columns.take(&batch);
        let (metrics, _, packets) = columns.figures();
        assert_eq!(metrics["gap_error_ns"].count, 3);
        assert_eq!((metrics["gap_ns"].min, metrics["gap_ns"].max), (Some(110), Some(110)));
        assert_eq!(packets.map(|packets| packets.sent), Some(5));
    }

    #[test]
    fn most_frequent_departure_timestamp_is_used() {
        let mut packets: Vec<_> = (0..3).map(|id| packet(id, (id == 0).then_some(0))).collect();
        for (late, packet) in [50, 40, 90].into_iter().zip(&mut packets) {
            let rx = Instant::from_nanos(7_000_000 + packet.intended.as_nanos() + late);
            packet.remote = Some(Remote { rx, tx: rx, seq: 0, ttl: None, same_clock: false });
        }
        let gaps = departed(&packets, TimestampSource::KernelSw);
        assert_eq!([gaps.gap(1), gaps.gap(2)], [Some((90, 10)), Some((150, 50))]);
        let mut batch = Batch::default();
        gaps.push(&mut batch, &packets[1], Some(&BRIDGE), TimestampSource::KernelSw);
        assert_eq!(batch.number(0, Column::ScheduleError), None, "the clocks differ");
        // The summary may select the less frequent timestamp.
        let mut departing = DepartureCollector::default();
        packets.iter().for_each(|packet| departing.take(packet, false));
        let gaps = departing.by(&summary(TimestampSource::KernelSw, Some("tx_kernel")));
        assert_eq!([gaps.gap(1), gaps.gap(2)], [None; 2]);
        // By the program's clock all packets are on schedule.
        let gaps = departed(&packets, TimestampSource::User);
        assert_eq!([gaps.gap(1), gaps.gap(2)], [Some((100, 0)), Some((100, 0))]);
    }
}
