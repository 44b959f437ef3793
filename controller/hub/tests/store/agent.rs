//! A simulated agent, which writes records.

use dwell_hub::store::HubStore;
use dwell_hub::{Committed, DAY_NS, Delivery, HubError, Rules, ingest};
use dwell_rollup::{
    Body, BootId, ClockQuality, DelayRollup, Identity, Incarnation, Level, Name, ProbeCounts,
    Record, Rollup, RollupMetric, Status, Stream,
};
use dwell_units::Nanos;

pub(crate) const SECOND: i64 = 1_000_000_000;

pub(crate) const HOUR: i64 = 3_600 * SECOND;

pub(crate) const DAY: i64 = DAY_NS;

/// Noon of a day in 2024: the arrival of all messages unless stated.
pub(crate) const NOW: i64 = 20_000 * DAY_NS + 12 * HOUR;

/// Interval of 5 min.
pub(crate) const FIVE_MINUTES: i64 = 300 * SECOND;

/// An agent.
pub(crate) struct Agent {
    pub(crate) node: Name,
    incarnation: Incarnation,
    boot_id: BootId,
    sequence: u64,
    /// CLOCK_REALTIME at CLOCK_BOOTTIME 0.
    wall_at_boot_ns: i64,
    /// CLOCK_BOOTTIME, at the end of the last interval.
    pub(crate) boot_ns: i64,
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn stream(reflector: &str) -> Stream {
    Stream { reflector: name(reflector), protocol: name("stamp"), entry: name("mesh+b") }
}

/// Joins the encodings of records.
pub(crate) fn message<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<u8> {
    let mut message = Vec::new();
    records.into_iter().for_each(|record| record.encode(&mut message).unwrap());
    message
}

/// Delivers a message at [`NOW`].
pub(crate) fn deliver(
    store: &mut dyn HubStore,
    node: &Name,
    message: &[u8],
) -> Result<Committed, HubError> {
    deliver_at(store, node, message, NOW)
}

pub(crate) fn deliver_at(
    store: &mut dyn HubStore,
    node: &Name,
    message: &[u8],
    arrival_ns: i64,
) -> Result<Committed, HubError> {
    ingest(store, &[Delivery { node, arrival_ns, message }], &Rules::default())
}

impl Agent {
    /// Creates an agent whose kernel has this id and started at this time by its own clock.
    pub(crate) fn new(node: &str, incarnation: u64, boot: u8, wall_at_boot_ns: i64) -> Self {
        Self {
            node: name(node),
            incarnation: Incarnation(incarnation),
            boot_id: BootId([boot; 16]),
            sequence: 0,
            wall_at_boot_ns,
            boot_ns: 0,
        }
    }

    /// Sets the clock.
    pub(crate) fn step_clock(&mut self, by_ns: i64) {
        self.wall_at_boot_ns += by_ns;
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, ns: i64) {
        self.boot_ns += ns;
    }

    /// CLOCK_REALTIME.
    pub(crate) fn wall_ns(&self) -> i64 {
        self.wall_at_boot_ns + self.boot_ns
    }

    fn record(&mut self, body: Body) -> Record {
        self.sequence += 1;
        let (node, incarnation) = (self.node.clone(), self.incarnation);
        Record {
            identity: Identity { node, incarnation, sequence: self.sequence },
            wall_ns: self.wall_ns(),
            boot_ns: self.boot_ns,
            boot_id: self.boot_id,
            body,
        }
    }

    /// Writes a status, which pairs the clocks.
    pub(crate) fn status(&mut self) -> Record {
        self.status_with(Status { clock_synchronised: true, ..Status::default() })
    }

    pub(crate) fn status_with(&mut self, status: Status) -> Record {
        self.record(Body::Status(Box::new(status)))
    }

    /// Measures an interval with these round trips in milliseconds, and one lost probe.
    pub(crate) fn rollup(&mut self, level: Level, delays_ms: &[i64]) -> Record {
        self.rollup_to("b", level, delays_ms)
    }

    pub(crate) fn rollup_to(&mut self, reflector: &str, level: Level, delays_ms: &[i64]) -> Record {
        let start_boot_ns = self.boot_ns;
        let duration = level.interval().unwrap().0;
        self.boot_ns += duration;
        let mut delays = DelayRollup::default();
        delays_ms.iter().for_each(|ms| assert!(delays.record(Nanos::from_millis(*ms))));
        let received = delays_ms.len() as u64;
        let counts =
            ProbeCounts { sent: received + 1, received, lost: 1, ..ProbeCounts::default() };
        let start_wall_ns = self.wall_at_boot_ns + start_boot_ns;
        let delays = if received > 0 { vec![(RollupMetric::Rtt, delays)] } else { Vec::new() };
        self.record(Body::Rollup(Rollup {
            level,
            stream: stream(reflector),
            schedule_version: 1,
            start_wall_ns,
            start_boot_ns,
            duration_ns: duration as u64,
            counts,
            delays,
            clock: ClockQuality { is_synchronised: true, ..ClockQuality::default() },
        }))
    }

    /// Writes the records of 5 min for an hour, as one message.
    pub(crate) fn messages_of_an_hour(&mut self) -> Vec<u8> {
        let records: Vec<_> = (0..12)
            .map(|n| self.rollup(Level::FiveMinutes, &[n + 1, 20, 30, 40 * (n + 1)]))
            .collect();
        // The clock of a test does not go beyond the arrival.
        self.wall_at_boot_ns -= HOUR;
        message(&records)
    }
}
