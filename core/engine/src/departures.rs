//! Departure patterns: packet pairs and trains (Mok 2015), Poisson trains, and gaps replayed from a
//! trace. All departure times are computed before the first packet is sent (pre-dispatch in Mok
//! 2015), so the sender only waits and sends.

mod gaps;
mod lead_in;

use std::ops::Range;

use dwell_units::Nanos;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use thiserror::Error;

pub use gaps::{GapsLineError, read_gaps};
pub use lead_in::{LEAD_IN_PACKETS, lead_in, lead_in_duration, lead_in_len};

use crate::schedule::{Gaps, Schedule};

/// Maximum number of packets in a pattern; their departure times take 80 MB.
pub const MAX_PACKETS: usize = 10_000_000;

/// Maximum duration of a pattern.
pub const MAX_DURATION: Nanos = Nanos::from_secs(24 * 3_600);

/// Default minimum pause between trains. It outlasts a stall of the sender and drains the queue of
/// a virtual link or a network card. A slower link needs a pause long enough to drain its own
/// queue.
pub const DEFAULT_PAUSE: Nanos = Nanos::from_millis(10);

/// Seed of the random pauses. No result depends on it.
const PAUSE_SEED: u64 = 1;

/// A pattern of packet trains separated by pauses.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Packet pairs (Mok 2015): two packets back to back, due at the same time.
    Pair {
        /// Number of pairs.
        pairs: u32,
        /// Time from one pair to the next; 1 ms in Mok 2015.
        gap: Nanos,
    },
    /// Packet trains at a constant rate (Mok 2015).
    Train {
        /// Packets per train; 50 in Mok 2015.
        count: u32,
        /// Number of trains.
        repeat: u32,
        /// Gap between packets in nanoseconds. Fractions are kept.
        gap: f64,
        /// Minimum pause from the last packet of a train to the first of the next. A uniformly
        /// random time of up to the same length is added. `None`: [`default_pause`].
        pause: Option<Nanos>,
    },
    /// Trains with exponentially distributed gaps (a Poisson process).
    Poisson {
        /// Packets per train.
        count: u32,
        /// Number of trains. Each has its own gaps.
        repeat: u32,
        /// Mean gap in nanoseconds.
        mean: f64,
        /// Seed of the gaps.
        seed: u64,
        /// As for [`Pattern::Train`].
        pause: Option<Nanos>,
    },
    /// Gaps replayed from a trace.
    Replay {
        /// Gaps between packets. A train has one packet more than gaps.
        gaps: Vec<Nanos>,
        /// Number of repetitions.
        repeat: u32,
        /// As for [`Pattern::Train`].
        pause: Option<Nanos>,
    },
}

/// Departure times of a pattern. Packets are numbered in order of departure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departures {
    at: Vec<Nanos>,
    trains: Vec<Range<usize>>,
}

/// Error of a pattern without valid departures. The message follows "invalid pattern: ".
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum PatternError {
    /// The pattern contains no packet.
    #[error("no packets; the count must be 1 or more")]
    Empty,
    /// A train of one packet has no gap.
    #[error("a train of {0} packet has no gap; the count must be 2 or more")]
    SinglePacket(u32),
    /// More than [`MAX_PACKETS`] packets.
    #[error("{0} packets; at most {MAX_PACKETS} are allowed")]
    TooMany(u128),
    /// The last packet would leave more than [`MAX_DURATION`] after the start.
    #[error("the pattern would take more than {MAX_DURATION}")]
    TooLong,
    /// A gap is negative or not finite.
    #[error("gap is {0} ns; it must be at least 0")]
    Gap(f64),
    /// A pause is negative.
    #[error("pause is {0}; it must be at least 0s")]
    Pause(Nanos),
}

/// Returns the default pause between trains with a mean gap of `gap` nanoseconds:
/// [`DEFAULT_PAUSE`], and at least one gap.
pub fn default_pause(gap: f64) -> Nanos {
    DEFAULT_PAUSE.max(Nanos(gap.ceil() as i64))
}

/// Returns the mean pause for a minimum of `pause`.
pub fn mean_pause(pause: Nanos) -> Nanos {
    pause.saturating_add(Nanos(pause.0 / 2))
}

impl Pattern {
    /// Returns the number of trains and the packets per train. A pair is a train of two.
    pub fn shape(&self) -> (u32, usize) {
        match self {
            Self::Pair { pairs, .. } => (*pairs, 2),
            Self::Train { count, repeat, .. } | Self::Poisson { count, repeat, .. } => {
                (*repeat, *count as usize)
            }
            Self::Replay { gaps, repeat, .. } => (*repeat, gaps.len() + 1),
        }
    }

    /// Returns the mean gap within a train in nanoseconds; 0 for pairs.
    pub fn mean_gap(&self) -> f64 {
        match self {
            Self::Pair { .. } => 0.0,
            Self::Train { gap, .. } => *gap,
            Self::Poisson { mean, .. } => *mean,
            Self::Replay { gaps, .. } => {
                let sum: i128 = gaps.iter().map(|gap| i128::from(gap.0)).sum();
                sum as f64 / gaps.len().max(1) as f64
            }
        }
    }

    /// Number of lead-in packets before each train (see [`lead_in`]).
    pub fn lead_in_len(&self) -> usize {
        lead_in_len(self.shape().1, self.mean_gap())
    }

    /// Minimum pause from the last packet of a train to the first of the next, or from one pair to
    /// the next.
    pub fn pause(&self) -> Nanos {
        match self {
            Self::Pair { gap, .. } => *gap,
            Self::Train { pause, .. }
            | Self::Poisson { pause, .. }
            | Self::Replay { pause, .. } => pause.unwrap_or_else(|| default_pause(self.mean_gap())),
        }
    }

    /// Computes the departure times of all packets.
    ///
    /// Pauses are random, because trains at a constant interval could run in step with a periodic
    /// event such as a timer tick, and would then sample a single phase of it (RFC 2330, section
    /// 11.1). Of 60 trains with gaps of 160 us, either all met a tick of 4 ms at every 25th packet,
    /// or none did.
    pub fn departures(&self) -> Result<Departures, PatternError> {
        self.check()?;
        let (repeat, count) = self.shape();
        let pause = self.pause();
        let mut at = Vec::with_capacity(repeat as usize * count);
        let mut trains = Vec::with_capacity(repeat as usize);
        let mut start = Nanos::ZERO;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(PAUSE_SEED);
        for train in 0..repeat {
            let first = at.len();
            self.append(train, start, &mut at);
            trains.push(first..at.len());
            let last = at[at.len() - 1];
            // Checked after each train, so that the sums cannot overflow.
            if last > MAX_DURATION {
                return Err(PatternError::TooLong);
            }
            let more = match self {
                Self::Pair { .. } => Nanos::ZERO,
                _ => Nanos(random.random_range(0..=pause.0)),
            };
            start = last.saturating_add(pause).saturating_add(more);
        }
        Ok(Departures { at, trains })
    }

    fn check(&self) -> Result<(), PatternError> {
        let (repeat, count) = self.shape();
        match count {
            _ if repeat == 0 => return Err(PatternError::Empty),
            0 => return Err(PatternError::Empty),
            1 => return Err(PatternError::SinglePacket(1)),
            _ => {}
        }
        let packets = u128::from(repeat) * count as u128;
        if packets > MAX_PACKETS as u128 {
            return Err(PatternError::TooMany(packets));
        }
        let mean = self.mean_gap();
        if !(mean.is_finite() && mean >= 0.0) {
            return Err(PatternError::Gap(mean));
        }
        if let Self::Replay { gaps, .. } = self
            && let Some(gap) = gaps.iter().find(|gap| **gap < Nanos::ZERO)
        {
            return Err(PatternError::Gap(gap.0 as f64));
        }
        match self.pause() {
            pause if pause < Nanos::ZERO => Err(PatternError::Pause(pause)),
            _ => Ok(()),
        }
    }

    /// Appends the departure times of one train that starts at `start`.
    fn append(&self, train: u32, start: Nanos, at: &mut Vec<Nanos>) {
        match self {
            Self::Pair { .. } => at.extend([start; 2]),
            Self::Train { count, gap, .. } => {
                at.extend(Schedule::new(Gaps::Constant, *gap, start, 0).take(*count as usize));
            }
            Self::Poisson { count, mean, seed, .. } => {
                let seed = seed.wrapping_add(u64::from(train));
                let schedule = Schedule::new(Gaps::Poisson, *mean, start, seed);
                at.extend(schedule.take(*count as usize));
            }
            Self::Replay { gaps, .. } => {
                at.push(start);
                at.extend(gaps.iter().scan(start, |at, gap| {
                    *at = at.saturating_add(*gap);
                    Some(*at)
                }));
            }
        }
    }
}

impl Departures {
    /// Departure time of each packet after the start of the pattern, in ascending order.
    pub fn at(&self) -> &[Nanos] {
        &self.at
    }

    /// Packet numbers of each train. The ranges are contiguous.
    pub fn trains(&self) -> &[Range<usize>] {
        &self.trains
    }

    /// Iterates over the departure times of each train.
    pub fn by_train(&self) -> impl Iterator<Item = &[Nanos]> {
        self.trains.iter().map(|train| &self.at[train.clone()])
    }

    /// Time from the first departure to the last.
    pub fn duration(&self) -> Nanos {
        self.at.last().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn train(count: u32, repeat: u32, gap: f64) -> Pattern {
        Pattern::Train { count, repeat, gap, pause: None }
    }

    #[test]
    fn pairs_are_due_two_by_two_every_millisecond() {
        let pairs = Pattern::Pair { pairs: 25, gap: Nanos::from_millis(1) }.departures().unwrap();
        assert_eq!((pairs.at().len(), pairs.trains().len()), (50, 25));
        for (n, pair) in pairs.by_train().enumerate() {
            assert_eq!(pair, [Nanos::from_millis(n as i64); 2]);
        }
    }

    #[test]
    fn rate_does_not_drift_over_a_million_packets() {
        // 576 B at 7 Mbit/s: 658285.714... ns.
        let gap = 576.0 * 8e9 / 7e6;
        let departures = train(1_000_001, 1, gap).departures().unwrap();
        assert_eq!(departures.duration(), Nanos(658_285_714_286));
    }

    #[test]
    fn trains_are_separated_by_pause_and_at_least_a_gap() {
        let fast = train(3, 2, 1_600.0).departures().unwrap();
        let start = fast.at()[3].0;
        assert!((DEFAULT_PAUSE.0..=2 * DEFAULT_PAUSE.0).contains(&(start - 2 * 1_600)), "{start}");
        assert_eq!(fast.at()[2..], [3_200, start, start + 1_600, start + 3_200].map(Nanos));
        assert_eq!(fast.trains(), [0..3, 3..6]);
        assert_eq!(train(2, 2, 12_112_000.0).pause(), Nanos(12_112_000));
        let explicit = Pattern::Train { count: 2, repeat: 2, gap: 10.0, pause: Some(Nanos::ZERO) };
        assert_eq!(explicit.departures().unwrap().at(), [0, 10, 10, 20].map(Nanos));
    }

    #[test]
    fn trains_do_not_align_with_periodic_events() {
        const TICK: i64 = 4_000_000;
        // A train of 41 packets every 160 us plus a pause of 9.6 ms lasts exactly four ticks. With
        // constant pauses, every train would begin at the same phase of the tick.
        let pause = Some(Nanos(4 * TICK - 40 * 160_000));
        let pattern = Pattern::Train { count: 41, repeat: 200, gap: 160_000.0, pause };
        let departures = pattern.departures().unwrap();
        for period in [TICK, 160_000] {
            let mut tenths = [0; 10];
            for train in departures.by_train() {
                tenths[(train[0].0 % period * 10 / period) as usize] += 1;
            }
            assert!(tenths.iter().all(|n| (8..=36).contains(n)), "{period}: {tenths:?}");
        }
        let mean = departures.duration().0 / 200 - 40 * 160_000;
        let expected = mean_pause(pattern.pause()).0;
        assert!((expected - mean).abs() < expected / 20, "{mean} {expected}");
    }

    #[test]
    fn poisson_trains_differ_and_follow_their_seed() {
        let pattern = |seed| Pattern::Poisson {
            count: 50,
            repeat: 2,
            mean: 1e5,
            seed,
            pause: Some(Nanos::from_secs(1)),
        };
        let departures = pattern(7).departures().unwrap();
        assert_eq!(pattern(7).departures().unwrap(), departures);
        assert_ne!(pattern(8).departures().unwrap(), departures);
        let gaps = |train: &[Nanos]| train.windows(2).map(|w| w[1] - w[0]).collect::<Vec<_>>();
        let [first, second] = [0, 1].map(|n| gaps(departures.by_train().nth(n).unwrap()));
        assert_ne!(first, second);
    }

    #[test]
    fn replayed_gaps_repeat_in_every_train() {
        let gaps = [5, 0, 70].map(Nanos).to_vec();
        let pattern = Pattern::Replay { gaps, repeat: 2, pause: Some(Nanos::ZERO) };
        let at = [0, 5, 5, 75, 75, 80, 80, 150].map(Nanos);
        assert_eq!(pattern.departures().unwrap().at(), at);
        assert_eq!(pattern.mean_gap(), 25.0);
    }

    #[test]
    fn invalid_patterns_are_refused_before_allocation() {
        let replay = |gaps: Vec<i64>| Pattern::Replay {
            gaps: gaps.into_iter().map(Nanos).collect(),
            repeat: 1,
            pause: None,
        };
        for (pattern, error) in [
            (train(0, 1, 1.0), PatternError::Empty),
            (train(50, 0, 1.0), PatternError::Empty),
            (train(1, 9, 1.0), PatternError::SinglePacket(1)),
            (replay(vec![]), PatternError::SinglePacket(1)),
            (Pattern::Pair { pairs: 0, gap: Nanos(1) }, PatternError::Empty),
            (train(u32::MAX, u32::MAX, 1.0), PatternError::TooMany(18_446_744_065_119_617_025)),
            (Pattern::Pair { pairs: 5_000_001, gap: Nanos(1) }, PatternError::TooMany(10_000_002)),
            (train(2, 1, f64::INFINITY), PatternError::Gap(f64::INFINITY)),
            (train(2, 1, -1.0), PatternError::Gap(-1.0)),
            (replay(vec![9, -3]), PatternError::Gap(-3.0)),
            (train(2, 1, 1e300), PatternError::TooLong),
            (replay(vec![i64::MAX; 3]), PatternError::TooLong),
            (Pattern::Pair { pairs: 2, gap: Nanos(-1) }, PatternError::Pause(Nanos(-1))),
            (Pattern::Pair { pairs: 2, gap: Nanos::MAX }, PatternError::TooLong),
        ] {
            assert_eq!(pattern.departures(), Err(error), "{pattern:?}");
        }
        assert!(train(2, 1, f64::NAN).departures().is_err());
        let words = PatternError::TooMany(10_000_002).to_string();
        assert_eq!(words, "10000002 packets; at most 10000000 are allowed");
    }

    proptest! {
        #[test]
        fn constant_trains_match_exact_fractions(
            count in 2..200_u32, repeat in 1..5_u32, size in 44..1_515_u32,
            mbit in 1..1_001_u32, pause in 0..1_000_000_i64,
        ) {
            // Gap in nanoseconds: size * 8,000 / mbit.
            let gap = f64::from(size) * 8_000.0 / f64::from(mbit);
            let pattern = Pattern::Train { count, repeat, gap, pause: Some(Nanos(pause)) };
            let departures = pattern.departures().unwrap();
            let mut earliest = 0;
            for train in departures.by_train() {
                let start = train[0].0;
                prop_assert!(start == 0 || (earliest..=earliest + pause).contains(&start), "{start}");
                for (n, at) in train.iter().enumerate() {
                    let exact = i128::from(size) * 8_000 * n as i128;
                    let off = i128::from(at.0 - start) * i128::from(mbit) - exact;
                    // Half a nanosecond of rounding plus the floating-point error.
                    prop_assert!(off.abs() * 1_000 <= i128::from(mbit) * 501, "{n}: {off}");
                }
                earliest = train[train.len() - 1].0 + pause;
            }
            prop_assert!(departures.at().is_sorted());
        }
    }
}
