//! Roll-ups: counts and delay distributions of the probes of one stream in one interval.

use dwell_stats::Metric;
use dwell_units::Nanos;

use crate::bytes::{Reader, put_i64, put_name, put_unsigned};
use crate::delay_rollup::DelayRollup;
use crate::name::Name;

dwell_units::named! {
    /// Resolution of stored results. A node writes the first three; a hub computes the last two.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Level {
        /// Every probe.
        Samples = "samples",
        /// Roll-ups of 10 s.
        TenSeconds = "10s",
        /// Roll-ups of 5 min.
        FiveMinutes = "5m",
        /// Roll-ups of an hour.
        Hour = "1h",
        /// Roll-ups of a day (UTC).
        Day = "1d",
    }
}

impl Level {
    /// Length of an interval; `None` for samples.
    pub const fn interval(self) -> Option<Nanos> {
        match self {
            Self::Samples => None,
            Self::TenSeconds => Some(Nanos::from_secs(10)),
            Self::FiveMinutes => Some(Nanos::from_secs(300)),
            Self::Hour => Some(Nanos::from_secs(3_600)),
            Self::Day => Some(Nanos::from_secs(86_400)),
        }
    }

    /// Number in records: the position in [`Self::ALL`].
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// One schedule entry of one node. The sender is the node of the record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    /// Node that reflects the probes.
    pub reflector: Name,
    /// Scheme of the target, such as `stamp`.
    pub protocol: Name,
    /// Name of the schedule entry.
    pub entry: Name,
}

/// Number of probes by outcome. `sent = received + lost + late`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounts {
    /// Probes sent.
    pub sent: u64,
    /// Answered within the time-out.
    pub received: u64,
    /// Not answered before the record was written.
    pub lost: u64,
    /// Answered after the time-out, before the record was written.
    pub late: u64,
    /// Extra replies; not probes.
    pub duplicate: u64,
    /// Received after the reply to a later probe: a subset of `received`.
    pub reordered: u64,
    /// The send call failed: not part of `sent`.
    pub send_failed: u64,
}

impl ProbeCounts {
    /// Adds the counts of another interval.
    pub fn add(&mut self, other: &Self) {
        for (ours, theirs) in self.fields_mut().into_iter().zip(other.fields()) {
            *ours = ours.saturating_add(theirs);
        }
    }

    /// Number of probes that the schedule made due: sent, or failed to be sent.
    pub const fn due(&self) -> u64 {
        self.sent.saturating_add(self.send_failed)
    }

    /// Whether the states are disjoint and complete.
    pub fn is_consistent(&self) -> bool {
        let decided = self.received.checked_add(self.lost).and_then(|n| n.checked_add(self.late));
        decided == Some(self.sent) && self.reordered <= self.received
    }

    /// Whether a stream can have these counts in an interval of this length. Sums of possible counts
    /// overflow in no database and no histogram.
    pub fn is_possible(&self, duration_ns: u64) -> bool {
        let max_probes = duration_ns / MIN_PROBE_INTERVAL_NS + EXTRA_PROBES;
        self.due() <= max_probes && self.duplicate <= MAX_DUPLICATES
    }

    const fn fields(&self) -> [u64; 7] {
        let Self { sent, received, lost, late, duplicate, reordered, send_failed } = *self;
        [sent, received, lost, late, duplicate, reordered, send_failed]
    }

    const fn fields_mut(&mut self) -> [&mut u64; 7] {
        let Self { sent, received, lost, late, duplicate, reordered, send_failed } = self;
        [sent, received, lost, late, duplicate, reordered, send_failed]
    }
}

dwell_units::named! {
    /// Delay that roll-ups contain, if its timestamps exist.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum RollupMetric {
        /// See [`Metric::Rtt`].
        Rtt = "rtt_ns",
        /// See [`Metric::RttKernel`].
        RttKernel = "rtt_kernel_ns",
        /// T2 minus the send timestamp. Includes the offset of the reflector's clock from that of the
        /// sender unless [`ClockQuality::is_one_clock`].
        OneWayForward = "one_way_forward_ns",
        /// Receive timestamp minus T3. Includes the same offset, negated.
        OneWayBackward = "one_way_backward_ns",
    }
}

impl RollupMetric {
    /// The metric of a measurement with the same name.
    pub fn metric(self) -> Metric {
        match self {
            Self::Rtt => Metric::Rtt,
            Self::RttKernel => Metric::RttKernel,
            Self::OneWayForward => Metric::OneWayForward,
            Self::OneWayBackward => Metric::OneWayBackward,
        }
    }

    /// Number in records: the position in [`Self::ALL`].
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether values may include the offset of two clocks.
    pub const fn is_one_way(self) -> bool {
        matches!(self, Self::OneWayForward | Self::OneWayBackward)
    }
}

/// State of the sender's CLOCK_REALTIME during an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockQuality {
    /// Whether a daemon had declared the clock synchronised when the record was written.
    pub is_synchronised: bool,
    /// Whether the clock was stepped during the interval. Delays of the affected probes are missing;
    /// their counts are not.
    pub was_stepped: bool,
    /// Whether the reflector reads the same clock, so that one-way delays have no offset.
    pub is_one_clock: bool,
    /// Maximum error against UTC in nanoseconds, as declared by the daemon; `None` if the clock is not
    /// synchronised. Bounds the error of one-way delays together with that of the reflector.
    pub bound_ns: Option<u64>,
}

impl ClockQuality {
    /// Adds the state during another interval: what holds for both.
    pub fn merge(&mut self, other: &Self) {
        *self = Self {
            is_synchronised: self.is_synchronised && other.is_synchronised,
            was_stepped: self.was_stepped || other.was_stepped,
            is_one_clock: self.is_one_clock && other.is_one_clock,
            bound_ns: self.bound_ns.zip(other.bound_ns).map(|(a, b)| a.max(b)),
        };
    }
}

/// Outcome of the probes of one stream whose intended send times are in one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollup {
    /// [`Level::TenSeconds`] or [`Level::FiveMinutes`] in records.
    pub level: Level,
    /// The stream.
    pub stream: Stream,
    /// Version of the schedule that the probes follow; 0 for an entry of the node's configuration.
    pub schedule_version: u64,
    /// Start of the interval on CLOCK_REALTIME, as computed when the record was written.
    pub start_wall_ns: i64,
    /// Start of the interval on CLOCK_BOOTTIME.
    pub start_boot_ns: i64,
    /// Length of the interval; that of its level.
    pub duration_ns: u64,
    /// Number of probes by outcome.
    pub counts: ProbeCounts,
    /// Delays of received probes, in ascending order of the metric; none is empty.
    pub delays: Vec<(RollupMetric, DelayRollup)>,
    /// The clock of the sender.
    pub clock: ClockQuality,
}

/// Shortest interval between the probes of a stream.
const MIN_PROBE_INTERVAL_NS: u64 = 1_000_000;

/// Number of probes by which an interval may exceed its length: those of a fault or another clock rate.
const EXTRA_PROBES: u64 = 1_000;

/// Maximum number of extra replies in an interval.
const MAX_DUPLICATES: u64 = u32::MAX as u64;

const SYNCHRONISED: u8 = 1;
const STEPPED: u8 = 1 << 1;
const ONE_CLOCK: u8 = 1 << 2;
const BOUND: u8 = 1 << 3;

impl Rollup {
    /// Delays of a metric.
    pub fn delays(&self, metric: RollupMetric) -> Option<&DelayRollup> {
        self.delays.iter().find(|(of, _)| *of == metric).map(|(_, delays)| delays)
    }

    /// Appends the encoding.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.level.code());
        self.stream.encode(out);
        put_unsigned(out, self.schedule_version);
        put_i64(out, self.start_wall_ns);
        put_i64(out, self.start_boot_ns);
        put_unsigned(out, self.duration_ns);
        self.counts.fields().into_iter().for_each(|count| put_unsigned(out, count));
        let ClockQuality { is_synchronised, was_stepped, is_one_clock, bound_ns } = self.clock;
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        out.push(
            bit(is_synchronised, SYNCHRONISED)
                | bit(was_stepped, STEPPED)
                | bit(is_one_clock, ONE_CLOCK)
                | bit(bound_ns.is_some(), BOUND),
        );
        if let Some(bound_ns) = bound_ns {
            put_unsigned(out, bound_ns);
        }
        out.push(self.delays.len() as u8);
        for (metric, delays) in &self.delays {
            out.push(metric.code());
            delays.encode(out);
        }
    }

    /// Decodes a roll-up; `None` for bytes that are not a consistent one.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let level = *Level::ALL.get(usize::from(reader.byte()?))?;
        let stream = Stream::decode(reader)?;
        let schedule_version = reader.unsigned()?;
        let (start_wall_ns, start_boot_ns) = (reader.i64()?, reader.i64()?);
        let duration_ns = reader.unsigned()?;
        let mut counts = ProbeCounts::default();
        for field in counts.fields_mut() {
            *field = reader.unsigned()?;
        }
        let flags = reader.byte()?;
        let has = |bit: u8| flags & bit != 0;
        let clock = ClockQuality {
            is_synchronised: has(SYNCHRONISED),
            was_stepped: has(STEPPED),
            is_one_clock: has(ONE_CLOCK),
            bound_ns: if has(BOUND) { Some(reader.unsigned()?) } else { None },
        };
        let mut delays: Vec<(RollupMetric, DelayRollup)> = Vec::new();
        for _ in 0..reader.byte()? {
            let metric = *RollupMetric::ALL.get(usize::from(reader.byte()?))?;
            let decoded = DelayRollup::decode(reader)?;
            let is_next = delays.last().is_none_or(|(before, _)| *before < metric);
            if !is_next || decoded.count() == 0 || decoded.count() > counts.received {
                return None;
            }
            delays.push((metric, decoded));
        }
        let is_of_node = matches!(level, Level::TenSeconds | Level::FiveMinutes);
        let is_known = flags < BOUND << 1;
        let is_whole = level.interval().is_some_and(|interval| interval.0 as u64 == duration_ns);
        let is_sound = counts.is_consistent() && counts.is_possible(duration_ns);
        (is_of_node && is_known && is_whole && is_sound).then_some(Self {
            level,
            stream,
            schedule_version,
            start_wall_ns,
            start_boot_ns,
            duration_ns,
            counts,
            delays,
            clock,
        })
    }
}

impl Stream {
    /// Appends the encoding.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_name(out, &self.reflector);
        put_name(out, &self.protocol);
        put_name(out, &self.entry);
    }

    /// Decodes a stream.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self { reflector: reader.name()?, protocol: reader.name()?, entry: reader.name()? })
    }
}
