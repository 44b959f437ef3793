//! Simulated agents: records in the format of real ones, with random counts and delays, and the sums that
//! a hub has to compute from them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use dwell_rollup::{
    Body, BootId, ClockQuality, DelayRollup, Identity, Incarnation, Level, Name, ProbeCounts,
    Record, Rollup, RollupMetric, Status, Stream,
};
use dwell_units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::expected::{Counts, ExpectedRow};

/// Streams of an agent: a message has one record of each.
const STREAMS: u64 = 3;

/// Time between messages, and length of the short intervals in nanoseconds.
pub(super) const INTERVAL_NS: i64 = 10_000_000_000;

/// Length of the long intervals in nanoseconds.
pub(super) const LONG_INTERVAL_NS: i64 = 300_000_000_000;

/// Probes of a short interval.
const PROBES: u64 = 10;

/// Chances in 1,000 of each state of a probe; the others are received in time and in order.
const LOST: u32 = 20;
const LATE: u32 = 5;
const SEND_FAILED: u32 = 2;
const REORDERED: u32 = 5;
const DUPLICATE: u32 = 3;

/// Seed and form of the records of all agents.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct RecordForm {
    /// Seed of counts and delays.
    pub(super) seed: u64,
    /// Metrics with delays in each record, 1 to 4: a real agent has all four of a STAMP reflector.
    pub(super) metrics: u8,
}

/// A message, and what its receipt must contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Encodings of the records.
    pub(super) bytes: Vec<u8>,
    /// Number of records.
    pub(super) records: u64,
    /// Largest sequence number.
    pub(super) last: u64,
    /// Whether it has records of 5 min.
    pub(super) has_long: bool,
}

/// An agent that measures [`STREAMS`] others.
#[derive(Debug)]
pub(super) struct SimulatedAgent {
    node: Name,
    incarnation: Incarnation,
    form: RecordForm,
    sequence: u64,
    random: Xoshiro256PlusPlus,
    streams: Vec<Measured>,
    /// Sums that the generator keeps beside the records: by stream and start of the long interval.
    sums: BTreeMap<(usize, i64), Counts>,
}

/// A stream and its open long interval.
#[derive(Debug)]
struct Measured {
    stream: Stream,
    base_ns: i64,
    long: Option<(i64, ProbeCounts, Vec<DelayRollup>)>,
}

/// Name of the agent with a number.
pub(super) fn agent_name(number: u64) -> Result<Name> {
    format!("agent-{number:05}").parse().context("the name of an agent")
}

impl SimulatedAgent {
    /// Creates the agent with a number. `start` makes its incarnation and its random numbers others.
    pub(super) fn new(number: u64, start: u64, form: RecordForm) -> Result<Self> {
        let others = (1..=STREAMS).map(|other| agent_name(number + other));
        let others = others.collect::<Result<Vec<_>>>()?;
        Self::measuring(number, &others, start, form)
    }

    /// Creates an agent with a stream to each of these reflectors.
    pub(super) fn measuring(
        number: u64,
        reflectors: &[Name],
        start: u64,
        form: RecordForm,
    ) -> Result<Self> {
        let mut random =
            Xoshiro256PlusPlus::seed_from_u64(form.seed ^ (number << 20) ^ (start << 50));
        let streams = reflectors.iter().map(|reflector| {
            let (protocol, entry) = ("stamp".parse()?, format!("mesh+{reflector}").parse()?);
            let stream = Stream { reflector: reflector.clone(), protocol, entry };
            Ok(Measured { stream, base_ns: random.random_range(200_000..80_000_000), long: None })
        });
        let streams = streams.collect::<Result<Vec<_>>>()?;
        Ok(Self {
            node: agent_name(number)?,
            incarnation: Incarnation(random.random()),
            form,
            sequence: 0,
            random,
            streams,
            sums: BTreeMap::new(),
        })
    }

    pub(super) const fn node(&self) -> &Name {
        &self.node
    }

    pub(super) const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Measures the short interval that ends at a multiple of 10 s, in nanoseconds since 1970, and returns
    /// its records, written at `wall_ns`. At the end of a long interval they include those of 5 min and a
    /// status.
    pub(super) fn message(&mut self, end_ns: i64, wall_ns: i64) -> Result<Message> {
        ensure!(end_ns % INTERVAL_NS == 0, "{end_ns} is not the end of an interval");
        let start_ns = end_ns - INTERVAL_NS;
        let mut bytes = Vec::new();
        let before = self.sequence;
        for at in 0..self.streams.len() {
            let (counts, delays) = self.measure(at, start_ns);
            let rollup = self.rollup(at, Level::TenSeconds, start_ns, counts, &delays);
            self.encode(Body::Rollup(rollup), wall_ns, &mut bytes)?;
        }
        let has_long = end_ns % LONG_INTERVAL_NS == 0;
        if has_long {
            self.encode_long(wall_ns, &mut bytes)?;
        }
        let records = self.sequence - before;
        Ok(Message { bytes, records, last: self.sequence, has_long })
    }

    /// Measures the long interval that ends at a multiple of 5 min, and returns its records of 5 min and a
    /// status, without those of 10 s.
    pub(super) fn long_message(&mut self, end_ns: i64) -> Result<Vec<u8>> {
        ensure!(end_ns % LONG_INTERVAL_NS == 0, "{end_ns} is not the end of a long interval");
        for at in 0..self.streams.len() {
            for short in 1..=LONG_INTERVAL_NS / INTERVAL_NS {
                self.measure(at, end_ns - short * INTERVAL_NS);
            }
        }
        let mut bytes = Vec::new();
        self.encode_long(end_ns, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes a status only.
    pub(super) fn status_message(&mut self, wall_ns: i64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.encode_status(wall_ns, &mut bytes)?;
        Ok(bytes)
    }

    /// Ends: returns the records of open long intervals, if any is open.
    pub(super) fn finish(&mut self, wall_ns: i64) -> Result<Option<Message>> {
        let mut bytes = Vec::new();
        let before = self.sequence;
        self.encode_long(wall_ns, &mut bytes)?;
        let records = self.sequence - before;
        let message = Message { bytes, records, last: self.sequence, has_long: true };
        // A status alone needs no message.
        Ok((records > 1).then_some(message))
    }

    /// The rows of 5 min that a hub must have after all messages.
    pub(super) fn expected(&self) -> impl Iterator<Item = ExpectedRow> {
        self.sums.iter().map(|((at, start_ns), counts)| ExpectedRow {
            node: self.node.to_string(),
            reflector: self.streams[*at].stream.reflector.to_string(),
            start_ns: *start_ns,
            counts: *counts,
        })
    }

    /// Counts and delays of a short interval, which also join those of the long one.
    fn measure(&mut self, at: usize, start_ns: i64) -> (ProbeCounts, Vec<DelayRollup>) {
        let (random, measured) = (&mut self.random, &mut self.streams[at]);
        let mut counts = ProbeCounts::default();
        let mut delays = vec![DelayRollup::default(); usize::from(self.form.metrics)];
        for _ in 0..PROBES {
            let state = random.random_range(0..1_000);
            if state < SEND_FAILED {
                counts.send_failed += 1;
                continue;
            }
            counts.sent += 1;
            if state < SEND_FAILED + LOST {
                counts.lost += 1;
            } else if state < SEND_FAILED + LOST + LATE {
                counts.late += 1;
            } else {
                counts.received += 1;
                counts.reordered += u64::from(random.random_range(0..1_000) < REORDERED);
                counts.duplicate += u64::from(random.random_range(0..1_000) < DUPLICATE);
                // A floor and a tail, as of a network path.
                let tail: f64 = random.random_range(f64::EPSILON..1.0);
                let rtt = measured.base_ns + (-tail.ln() * 0.05 * measured.base_ns as f64) as i64;
                let of = [rtt, rtt - 15_000, rtt / 2, rtt - rtt / 2];
                for (metric, delay) in delays.iter_mut().zip(of) {
                    metric.record(Nanos(delay));
                }
            }
        }
        let long_ns = start_ns.div_euclid(LONG_INTERVAL_NS) * LONG_INTERVAL_NS;
        // Not with the sums of the product, which the check compares with these.
        let sums = self.sums.entry((at, long_ns)).or_default();
        let of = [
            counts.sent,
            counts.received,
            counts.lost,
            counts.late,
            counts.duplicate,
            counts.reordered,
            counts.send_failed,
        ];
        sums.iter_mut().zip(of).for_each(|(sum, count)| *sum += count as i64);
        let empty =
            || (long_ns, ProbeCounts::default(), vec![DelayRollup::default(); delays.len()]);
        let (_, long_counts, long_delays) = measured.long.get_or_insert_with(empty);
        long_counts.add(&counts);
        long_delays.iter_mut().zip(&delays).for_each(|(long, short)| long.merge(short));
        (counts, delays)
    }

    fn rollup(
        &self,
        at: usize,
        level: Level,
        start_ns: i64,
        counts: ProbeCounts,
        delays: &[DelayRollup],
    ) -> Rollup {
        let delays = RollupMetric::ALL.iter().copied().zip(delays.iter().cloned());
        Rollup {
            level,
            stream: self.streams[at].stream.clone(),
            schedule_version: 1,
            start_wall_ns: start_ns,
            start_boot_ns: self.boot_ns(start_ns),
            duration_ns: level.interval().map_or(0, |interval| interval.0 as u64),
            counts,
            delays: delays.filter(|(_, delays)| delays.count() > 0).collect(),
            clock: ClockQuality {
                is_synchronised: true,
                bound_ns: Some(1_000_000),
                ..ClockQuality::default()
            },
        }
    }

    /// Writes the records of open long intervals and a status.
    fn encode_long(&mut self, wall_ns: i64, bytes: &mut Vec<u8>) -> Result<()> {
        for at in 0..self.streams.len() {
            if let Some((start_ns, counts, delays)) = self.streams[at].long.take() {
                let rollup = self.rollup(at, Level::FiveMinutes, start_ns, counts, &delays);
                self.encode(Body::Rollup(rollup), wall_ns, bytes)?;
            }
        }
        self.encode_status(wall_ns, bytes)
    }

    fn encode_status(&mut self, wall_ns: i64, bytes: &mut Vec<u8>) -> Result<()> {
        let status = Status {
            dwell: "bench".to_owned(),
            schedule_version: 1,
            streams: self.streams.len() as u64,
            spool_bytes: 1 << 20,
            spool_limit_bytes: 64 << 20,
            clock_synchronised: true,
            clock_bound_ns: Some(1_000_000),
            ..Status::default()
        };
        self.encode(Body::Status(Box::new(status)), wall_ns, bytes)
    }

    fn encode(&mut self, body: Body, wall_ns: i64, bytes: &mut Vec<u8>) -> Result<()> {
        self.sequence += 1;
        let identity = Identity {
            node: self.node.clone(),
            incarnation: self.incarnation,
            sequence: self.sequence,
        };
        let boot_id = BootId([self.incarnation.0 as u8 | 1; 16]);
        let boot_ns = self.boot_ns(wall_ns);
        Record { identity, wall_ns, boot_ns, boot_id, body }.encode(bytes)?;
        Ok(())
    }

    /// CLOCK_BOOTTIME at a time: the machine booted at a multiple of 30 days.
    fn boot_ns(&self, wall_ns: i64) -> i64 {
        const MONTH_NS: i64 = 30 * 86_400 * 1_000_000_000;
        wall_ns.rem_euclid(MONTH_NS)
    }
}

#[cfg(test)]
mod tests {
    use dwell_rollup::{Piece, pieces};

    use super::*;
    use crate::fleet::expected::{HOUR_NS, at_length};

    const FORM: RecordForm = RecordForm { seed: 7, metrics: 4 };

    /// 2026-11-01 10:58:20 UTC: the first interval ends at 10:58:30.
    const START_NS: i64 = 1_793_530_700_000_000_000;

    fn rollups(message: &Message) -> Vec<Rollup> {
        let records = pieces(&message.bytes).map(|piece| match piece {
            Piece::Record(record) => Record::decode(record).unwrap(),
            Piece::Damaged(_) => panic!("damaged"),
        });
        let rollups = records.filter_map(|record| match record.body {
            Body::Rollup(rollup) => Some(rollup),
            _ => None,
        });
        rollups.collect()
    }

    /// 60 messages: the rest of an interval, one whole interval, and a part.
    fn messages(agent: &mut SimulatedAgent) -> Vec<Message> {
        let mut messages: Vec<Message> = (1..=60)
            .map(|n| {
                let end_ns = START_NS + n * INTERVAL_NS;
                agent.message(end_ns, end_ns + 3_000_000_000).unwrap()
            })
            .collect();
        messages.extend(agent.finish(START_NS + 61 * INTERVAL_NS).unwrap());
        messages
    }

    #[test]
    fn records_of_a_run_are_whole_and_consecutive() {
        let mut agent = SimulatedAgent::new(3, 1, FORM).unwrap();
        let messages = messages(&mut agent);
        assert_eq!((messages.len(), messages[0].records, messages[0].last), (61, 3, 3));
        assert_eq!(messages.iter().filter(|message| message.has_long).count(), 3);
        let all: u64 = messages.iter().map(|message| message.records).sum();
        assert_eq!(messages.last().unwrap().last, all);
        assert!(agent.finish(START_NS + 62 * INTERVAL_NS).unwrap().is_none());
        for message in &messages {
            assert!(rollups(message).iter().all(|rollup| rollup.delays.len() == 4));
        }
    }

    #[test]
    fn expected_rows_are_the_sums_of_the_records() {
        let mut agent = SimulatedAgent::new(3, 1, FORM).unwrap();
        let (mut short, mut long) = ([0; 7], BTreeMap::new());
        for rollup in messages(&mut agent).iter().flat_map(rollups) {
            let counts = &rollup.counts;
            let of = [counts.sent, counts.received, counts.lost, counts.late, counts.duplicate];
            let of = [&of[..], &[counts.reordered, counts.send_failed]].concat();
            if rollup.level == Level::TenSeconds {
                short.iter_mut().zip(of).for_each(|(sum, count)| *sum += count as i64);
            } else {
                let key = (rollup.stream.reflector.to_string(), rollup.start_wall_ns);
                long.insert(key, of.iter().map(|count| *count as i64).collect::<Vec<_>>());
            }
        }
        let expected: Vec<ExpectedRow> = agent.expected().collect();
        assert_eq!(expected.len(), 9, "three streams in three intervals of 5 min");
        for row in &expected {
            assert_eq!(long[&(row.reflector.clone(), row.start_ns)], row.counts, "{row:?}");
        }
        let all = expected.iter().fold([0; 7], |mut all, row| {
            all.iter_mut().zip(row.counts).for_each(|(sum, count)| *sum += count);
            all
        });
        assert_eq!(all, short);
        assert!(all.iter().all(|count| *count > 0), "every state occurs: {all:?}");
        // 10:55, 11:00 and 11:05 belong to two hours.
        assert_eq!(at_length(&expected, HOUR_NS).len(), 6);
    }

    #[test]
    fn records_repeat_with_their_seed_only() {
        let first = |start, form| {
            let mut agent = SimulatedAgent::new(3, start, form).unwrap();
            agent.message(START_NS, START_NS).unwrap().bytes
        };
        assert_eq!(first(1, FORM), first(1, FORM));
        assert_ne!(first(1, FORM), first(2, FORM));
        assert_ne!(first(1, FORM), first(1, RecordForm { seed: 8, metrics: 4 }));
    }
}
