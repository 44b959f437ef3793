//! Divides the probes of a stream into intervals and rolls each up.
//!
//! Intervals are fixed on CLOCK_MONOTONIC. When the stream starts, they are aligned with CLOCK_REALTIME;
//! a later step of that clock moves their dates, but neither repeats nor skips an interval. A start within
//! 1 ms of a multiple of 10 s is that multiple. A probe
//! belongs to the interval of its intended send time. An interval is rolled up once, when all its probes
//! are decided: answered, or past their time-out.

use dwell_sample::{Sample, State, TimestampSource};
use dwell_stats::Delays;
use dwell_units::{Instant, Monotonic, Nanos, Pairing, Realtime};

use crate::delay_rollup::DelayRollup;
use crate::rollup::{ClockQuality, Level, ProbeCounts, Rollup, RollupMetric, Stream};

/// Length of the short intervals.
const SHORT_INTERVAL: Nanos = Nanos::from_secs(10);

/// Number of short intervals in a long one.
const INTERVALS_PER_LONG: i64 = 30;

/// Maximum distance of an interval's start from a multiple of 10 s on CLOCK_REALTIME at which it is one:
/// successive pairings of the clocks differ by nanoseconds.
const SNAP_DISTANCE: Nanos = Nanos::from_millis(1);

/// The clocks of the node at one moment.
#[derive(Clone, Copy, Debug)]
pub struct NodeClocks {
    /// CLOCK_REALTIME and CLOCK_MONOTONIC.
    pub pairing: Pairing,
    /// CLOCK_BOOTTIME minus CLOCK_MONOTONIC: the time that the machine was suspended.
    pub suspended: Nanos,
    /// Whether a daemon has declared CLOCK_REALTIME synchronised.
    pub is_synchronised: bool,
    /// Maximum error of CLOCK_REALTIME against UTC in nanoseconds; `None` unless synchronised.
    pub bound_ns: Option<u64>,
}

impl NodeClocks {
    /// CLOCK_REALTIME now.
    pub const fn wall_ns(&self) -> i64 {
        self.pairing.real.as_nanos()
    }

    /// CLOCK_BOOTTIME now.
    pub fn boot_ns(&self) -> i64 {
        self.boot_at(self.pairing.mono)
    }

    /// CLOCK_REALTIME at a time on CLOCK_MONOTONIC, if it was not stepped since.
    pub fn wall_at(&self, at: Instant<Monotonic>) -> i64 {
        self.pairing.to_real(at).as_nanos()
    }

    /// CLOCK_BOOTTIME at a time on CLOCK_MONOTONIC, if the machine was not suspended since.
    pub fn boot_at(&self, at: Instant<Monotonic>) -> i64 {
        (at + self.suspended).as_nanos()
    }
}

/// Rolls up the probes of one stream. See the module documentation.
///
/// ```
/// use dwell_rollup::{Collector, NodeClocks, Stream};
/// use dwell_sample::{Sample, State, TimestampSource, TxStamps};
/// use dwell_units::{Instant, Nanos, Pairing};
///
/// let pairing = Pairing {
///     real: Instant::from_parts(1_700_000_000, 0),
///     mono: Instant::from_parts(50, 0),
///     width: Nanos(30),
/// };
/// let name = |name: &str| name.parse().unwrap();
/// let stream = Stream { reflector: name("n2"), protocol: name("stamp"), entry: name("mesh") };
/// let mut collector = Collector::new(stream, 1, &pairing);
/// let lost = Sample {
///     id: 0,
///     state: State::Lost,
///     reordered: false,
///     intended: Instant::from_parts(51, 0),
///     tx: TxStamps { app: pairing.real, sched: None, tcx: None, kernel: None, hw: None },
///     rx: None,
///     remote: None,
/// };
/// collector.record(&lost, Some(&pairing), TimestampSource::User);
/// let clocks =
///     NodeClocks { pairing, suspended: Nanos::ZERO, is_synchronised: false, bound_ns: None };
/// let mut rolled_up = Vec::new();
/// collector.settle(Instant::from_parts(61, 0), &clocks, &mut |rollup| rolled_up.push(rollup));
/// assert_eq!(rolled_up[0].counts.lost, 1);
/// assert_eq!(rolled_up[0].start_wall_ns, 1_700_000_000_000_000_000);
/// ```
#[derive(Clone, Debug)]
pub struct Collector {
    stream: Stream,
    schedule_version: u64,
    /// Start of interval 0, which is also the start of a long one.
    origin: Instant<Monotonic>,
    /// Intervals with probes that are not rolled up yet, in ascending order of their numbers: few.
    open: Vec<(i64, Interval)>,
    /// The long interval that the last short one belongs to.
    long: Option<(i64, Interval)>,
    /// All short intervals before this number are rolled up.
    next: i64,
    /// Whether the reflector showed that it reads the sender's clock; `None` before the first reply.
    one_clock: Option<bool>,
    replies_after_record: u64,
    probes_after_record: u64,
}

/// Probes of one interval.
#[derive(Clone, Debug, Default)]
struct Interval {
    counts: ProbeCounts,
    delays: [DelayRollup; RollupMetric::ALL.len()],
    was_stepped: bool,
    clock: Option<ClockQuality>,
}

impl Collector {
    /// Creates the collector of a stream that starts at `start`.
    pub fn new(stream: Stream, schedule_version: u64, start: &Pairing) -> Self {
        let long = SHORT_INTERVAL.0 * INTERVALS_PER_LONG;
        let into_interval = Nanos(start.real.as_nanos().rem_euclid(long));
        Self {
            stream,
            schedule_version,
            origin: start.mono - into_interval,
            open: Vec::new(),
            long: None,
            next: 0,
            one_clock: None,
            replies_after_record: 0,
            probes_after_record: 0,
        }
    }

    /// Adds the outcome of a probe. See [`Delays::of`] for `bridge` and `near`: without a bridge the
    /// sample is void, so the outcome counts, but its delays do not.
    pub fn record(&mut self, sample: &Sample, bridge: Option<&Pairing>, near: TimestampSource) {
        let number = self.number(sample.intended);
        if number < self.next {
            match sample.state {
                State::Late | State::Duplicate => self.replies_after_record += 1,
                State::Received | State::Lost | State::SendFailed | State::Sent => {
                    self.probes_after_record += 1;
                }
            }
            return;
        }
        let interval = interval_of(&mut self.open, number);
        let counts = &mut interval.counts;
        match sample.state {
            State::Received => {
                counts.sent += 1;
                counts.received += 1;
                counts.reordered += u64::from(sample.reordered);
            }
            State::Lost => {
                counts.sent += 1;
                counts.lost += 1;
            }
            // Supersedes the loss of the same probe, which precedes it.
            State::Late => match counts.lost.checked_sub(1) {
                Some(lost) => (counts.lost, counts.late) = (lost, counts.late + 1),
                None => self.replies_after_record += 1,
            },
            State::Duplicate => counts.duplicate += 1,
            State::SendFailed => counts.send_failed += 1,
            State::Sent => {}
        }
        if sample.state != State::Received {
            return;
        }
        if let Some(remote) = &sample.remote {
            self.one_clock = Some(remote.same_clock && self.one_clock != Some(false));
        }
        let delays = Delays::of(sample, bridge, near);
        for metric in RollupMetric::ALL {
            let delay = match metric {
                RollupMetric::Rtt => delays.rtt,
                RollupMetric::RttKernel => delays.rtt_kernel,
                RollupMetric::OneWayForward => delays.forward_plus_offset,
                RollupMetric::OneWayBackward => delays.backward_minus_offset,
            };
            if let Some(delay) = delay {
                // A difference of more than an hour is not a delay, but two unrelated clocks.
                interval.delays[usize::from(metric.code())].record(delay);
            }
        }
    }

    /// Marks the intervals from `from` to `to` as those in which CLOCK_REALTIME was stepped.
    pub fn note_step(&mut self, from: Instant<Monotonic>, to: Instant<Monotonic>) {
        let (from, to) = (self.number(from).max(self.next), self.number(to));
        if from > to {
            return;
        }
        // Later probes of the same interval are affected as well.
        interval_of(&mut self.open, to);
        let is_affected = |(number, _): &&mut (i64, Interval)| (from..=to).contains(number);
        self.open.iter_mut().filter(is_affected).for_each(|(_, of)| of.was_stepped = true);
    }

    /// Rolls up all intervals whose probes are decided: those that end at or before `settled`. The
    /// caller has recorded all samples of probes intended before `settled`.
    pub fn settle(
        &mut self,
        settled: Instant<Monotonic>,
        clocks: &NodeClocks,
        out: &mut impl FnMut(Rollup),
    ) {
        self.roll_up_before(self.number(settled), clocks, out);
    }

    /// Rolls up all intervals at the end of the stream.
    pub fn finish(&mut self, clocks: &NodeClocks, out: &mut impl FnMut(Rollup)) {
        let last = self.open.last().map(|(number, _)| number + 1);
        self.roll_up_before(last.unwrap_or(self.next), clocks, out);
        self.roll_up_long(i64::MAX, clocks, out);
    }

    /// Replies that arrived after their interval was rolled up. Their probes count as lost, or were
    /// answered before.
    pub const fn replies_after_record(&self) -> u64 {
        self.replies_after_record
    }

    /// Probes that were decided after their interval was rolled up, and are in no roll-up: 0 unless
    /// [`Self::settle`] was called too early.
    pub const fn probes_after_record(&self) -> u64 {
        self.probes_after_record
    }

    /// Number of the short interval of a time.
    fn number(&self, at: Instant<Monotonic>) -> i64 {
        // An intended time before the start of the stream would be a defect; it counts in the first.
        ((at - self.origin).0.max(0)) / SHORT_INTERVAL.0
    }

    fn start(&self, number: i64) -> Instant<Monotonic> {
        self.origin.saturating_add(SHORT_INTERVAL.saturating_mul(number))
    }

    fn roll_up_before(&mut self, end: i64, clocks: &NodeClocks, out: &mut impl FnMut(Rollup)) {
        while self.open.first().is_some_and(|(number, _)| *number < end) {
            let (number, mut interval) = self.open.remove(0);
            interval.clock = Some(ClockQuality {
                is_synchronised: clocks.is_synchronised,
                was_stepped: interval.was_stepped,
                is_one_clock: self.one_clock == Some(true),
                bound_ns: clocks.bound_ns,
            });
            let long = number / INTERVALS_PER_LONG;
            self.roll_up_long(long, clocks, out);
            self.long.get_or_insert_with(|| (long, Interval::default())).1.merge(&interval);
            if interval.counts != ProbeCounts::default() {
                out(self.rollup(Level::TenSeconds, self.start(number), interval, clocks));
            }
        }
        self.next = self.next.max(end);
        self.roll_up_long(self.next / INTERVALS_PER_LONG, clocks, out);
    }

    /// Rolls up the long interval if it is before number `end`.
    fn roll_up_long(&mut self, end: i64, clocks: &NodeClocks, out: &mut impl FnMut(Rollup)) {
        let Some((number, interval)) = self.long.take_if(|(number, _)| *number < end) else {
            return;
        };
        if interval.counts != ProbeCounts::default() {
            let start = self.start(number * INTERVALS_PER_LONG);
            out(self.rollup(Level::FiveMinutes, start, interval, clocks));
        }
    }

    fn rollup(
        &self,
        level: Level,
        start: Instant<Monotonic>,
        interval: Interval,
        clocks: &NodeClocks,
    ) -> Rollup {
        let delays = RollupMetric::ALL.into_iter().zip(interval.delays);
        Rollup {
            level,
            stream: self.stream.clone(),
            schedule_version: self.schedule_version,
            start_wall_ns: snapped(clocks.wall_at(start)),
            start_boot_ns: clocks.boot_at(start),
            duration_ns: level.interval().map_or(0, |interval| interval.0 as u64),
            counts: interval.counts,
            delays: delays.filter(|(_, delays)| delays.count() > 0).collect(),
            clock: interval.clock.unwrap_or_default(),
        }
    }
}

/// The multiple of [`SHORT_INTERVAL`] that a time is within [`SNAP_DISTANCE`] of, otherwise the time.
const fn snapped(wall_ns: i64) -> i64 {
    let beyond =
        wall_ns.saturating_add(SNAP_DISTANCE.0).rem_euclid(SHORT_INTERVAL.0) - SNAP_DISTANCE.0;
    if beyond <= SNAP_DISTANCE.0 { wall_ns.saturating_sub(beyond) } else { wall_ns }
}

/// The interval of a number; a new one if it has no probes yet.
fn interval_of(open: &mut Vec<(i64, Interval)>, number: i64) -> &mut Interval {
    let at = open.partition_point(|(before, _)| *before < number);
    if open.get(at).is_none_or(|(found, _)| *found != number) {
        open.insert(at, (number, Interval::default()));
    }
    &mut open[at].1
}

impl Interval {
    fn merge(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        for (ours, theirs) in self.delays.iter_mut().zip(&other.delays) {
            ours.merge(theirs);
        }
        match (&mut self.clock, &other.clock) {
            (Some(ours), Some(theirs)) => ours.merge(theirs),
            (ours, theirs) => *ours = ours.or(*theirs),
        }
    }
}

/// Finds steps of CLOCK_REALTIME between successive pairings.
#[derive(Clone, Copy, Debug)]
pub struct StepWatch {
    last: Pairing,
    steps: u64,
}

/// A step of CLOCK_REALTIME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStep {
    /// Time before the step.
    pub after: Instant<Monotonic>,
    /// Time after it.
    pub before: Instant<Monotonic>,
    /// Time to which the clock was set.
    pub to: Instant<Realtime>,
    /// How far it moved.
    pub by: Nanos,
}

impl StepWatch {
    /// Starts at a pairing.
    pub const fn new(start: Pairing) -> Self {
        Self { last: start, steps: 0 }
    }

    /// Compares the next pairing with the last one.
    pub fn update(&mut self, now: Pairing) -> Option<ClockStep> {
        let before = std::mem::replace(&mut self.last, now);
        let by = before.step_until(&now)?;
        self.steps += 1;
        Some(ClockStep { after: before.mono, before: now.mono, to: now.real, by })
    }

    /// The last pairing.
    pub const fn last(&self) -> &Pairing {
        &self.last
    }

    /// Number of steps since the start.
    pub const fn steps(&self) -> u64 {
        self.steps
    }
}

#[cfg(test)]
mod tests;
