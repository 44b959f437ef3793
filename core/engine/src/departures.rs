//! Patterns of departures: pairs and trains of packets (S2.4, S2.5), and gaps replayed from a trace.
//! All instants are computed before the first packet leaves (S2.3: pre-dispatch), so that a sender
//! only waits and sends.

mod gaps;
mod leads;

use std::ops::Range;

use dwell_units::Nanos;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use thiserror::Error;

pub use gaps::{GapsLineError, read_gaps};
pub use leads::{LEADS, lead_time, leads, leads_of};

use crate::schedule::{Gaps, Schedule};

/// So many packets a pattern has at most; their instants take 80 MB.
pub const MOST_PACKETS: usize = 10_000_000;

/// So long a pattern takes at most.
pub const LONGEST: Nanos = Nanos::from_secs(24 * 3_600);

/// The least pause between trains unless told: what a sender was held up by has passed, and so has
/// what a virtual link or a card's queue still held. A slower link needs a longer one, until its
/// queue has drained.
pub const PAUSE: Nanos = Nanos::from_millis(10);

/// What the lengths of pauses are drawn by: no result depends on it.
const PAUSES: u64 = 1;

/// When packets are to leave, in short trains with pauses between them.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Packet pairs, S2.4: two packets back to back, both due at the same instant.
    Pair {
        /// How many pairs.
        pairs: u32,
        /// From one pair to the next; S2 has 1 ms.
        gap: Nanos,
    },
    /// Packet trains at a constant rate, S2.5.
    Train {
        /// Packets of a train; S2 has 50.
        count: u32,
        /// How many trains.
        repeat: u32,
        /// Between packets, in nanoseconds; fractions are kept.
        gap: f64,
        /// From the last packet of a train to the first of the next, at least; up to as much is added, evenly
        /// drawn. `None`: [`default_pause`].
        pause: Option<Nanos>,
    },
    /// Packets as by a Poisson process.
    Poisson {
        /// Packets of a train.
        count: u32,
        /// How many trains, each of other gaps.
        repeat: u32,
        /// Mean gap in nanoseconds.
        mean: f64,
        /// What the gaps are drawn by.
        seed: u64,
        /// As for [`Pattern::Train`].
        pause: Option<Nanos>,
    },
    /// Gaps that somebody else had.
    Replay {
        /// Between packets; a train has one packet more.
        gaps: Vec<Nanos>,
        /// How often they are replayed.
        repeat: u32,
        /// As for [`Pattern::Train`].
        pause: Option<Nanos>,
    },
}

/// The departures of a pattern. Packets are numbered in the order in which they are due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departures {
    at: Vec<Nanos>,
    trains: Vec<Range<usize>>,
}

/// Why a pattern has no departures. The text reads after "invalid pattern: ".
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum PatternError {
    /// Nothing would be sent.
    #[error("no packet at all; give a count of 1 or more")]
    Empty,
    /// A gap between two packets needs two.
    #[error("a train of {0} packet has no gap; give 2 or more")]
    Single(u32),
    /// More than [`MOST_PACKETS`].
    #[error("{0} packets; at most {MOST_PACKETS} in one go")]
    TooMany(u128),
    /// Later than [`LONGEST`] after the start.
    #[error("it would take more than {LONGEST}")]
    TooLong,
    /// A gap that is no time.
    #[error("a gap of {0} ns; give one that is 0 or more")]
    Gap(f64),
    /// A pause that is no time.
    #[error("a pause of {0}; give one that is 0 or more")]
    Pause(Nanos),
}

/// The pause between trains of this mean gap in nanoseconds: [`PAUSE`], and at least one gap.
pub fn default_pause(gap: f64) -> Nanos {
    PAUSE.max(Nanos(gap.ceil() as i64))
}

/// How long the pauses are on average that are at least this long.
pub fn mean_pause(pause: Nanos) -> Nanos {
    pause.saturating_add(Nanos(pause.0 / 2))
}

impl Pattern {
    /// How many trains, and how many packets each of them has; a pair is a train of two.
    pub fn shape(&self) -> (u32, usize) {
        match self {
            Self::Pair { pairs, .. } => (*pairs, 2),
            Self::Train { count, repeat, .. } | Self::Poisson { count, repeat, .. } => {
                (*repeat, *count as usize)
            }
            Self::Replay { gaps, repeat, .. } => (*repeat, gaps.len() + 1),
        }
    }

    /// The gap between packets of a train that is kept on average, in nanoseconds: 0 in pairs.
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

    /// How many packets lead each train ([`leads`]).
    pub fn leads(&self) -> usize {
        leads_of(self.shape().1, self.mean_gap())
    }

    /// From the last packet of a train to the first of the next, at least; from one pair to the next.
    pub fn pause(&self) -> Nanos {
        match self {
            Self::Pair { gap, .. } => *gap,
            Self::Train { pause, .. }
            | Self::Poisson { pause, .. }
            | Self::Replay { pause, .. } => pause.unwrap_or_else(|| default_pause(self.mean_gap())),
        }
    }

    /// The instants at which its packets are due. Where trains began at a constant interval, all of them could
    /// be in step with something periodic, as a machine's timer ticks are, and tell nothing but how that one phase
    /// is (RFC 2330, 11.1): 60 trains of 160 us gaps all met a tick of 4 ms every 25th packet, or none did.
    pub fn departures(&self) -> Result<Departures, PatternError> {
        self.check()?;
        let (repeat, count) = self.shape();
        let pause = self.pause();
        let mut at = Vec::with_capacity(repeat as usize * count);
        let mut trains = Vec::with_capacity(repeat as usize);
        let mut start = Nanos::ZERO;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(PAUSES);
        for train in 0..repeat {
            let first = at.len();
            self.append(train, start, &mut at);
            trains.push(first..at.len());
            let last = at[at.len() - 1];
            // Checked train by train: sums of what is below the limit do not overflow.
            if last > LONGEST {
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
            1 => return Err(PatternError::Single(1)),
            _ => {}
        }
        let packets = u128::from(repeat) * count as u128;
        if packets > MOST_PACKETS as u128 {
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

    /// The departures of one train that starts at `start`.
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
    /// When each packet is due, after the start of the pattern; never falls.
    pub fn at(&self) -> &[Nanos] {
        &self.at
    }

    /// The numbers of each train's packets, in order and without holes.
    pub fn trains(&self) -> &[Range<usize>] {
        &self.trains
    }

    /// When the packets of each train are due.
    pub fn by_train(&self) -> impl Iterator<Item = &[Nanos]> {
        self.trains.iter().map(|train| &self.at[train.clone()])
    }

    /// From the first departure to the last.
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
    fn the_pairs_of_s2_are_due_two_by_two_every_millisecond() {
        let pairs = Pattern::Pair { pairs: 25, gap: Nanos::from_millis(1) }.departures().unwrap();
        assert_eq!((pairs.at().len(), pairs.trains().len()), (50, 25));
        for (n, pair) in pairs.by_train().enumerate() {
            assert_eq!(pair, [Nanos::from_millis(n as i64); 2]);
        }
    }

    #[test]
    fn a_rate_does_not_drift_over_a_train_of_a_million_packets() {
        // 576 B at 7 Mbit/s: 658285.714... ns.
        let gap = 576.0 * 8e9 / 7e6;
        let departures = train(1_000_001, 1, gap).departures().unwrap();
        assert_eq!(departures.duration(), Nanos(658_285_714_286));
    }

    #[test]
    fn trains_are_apart_by_the_pause_and_at_least_by_a_gap() {
        let fast = train(3, 2, 1_600.0).departures().unwrap();
        let start = fast.at()[3].0;
        assert!((PAUSE.0..=2 * PAUSE.0).contains(&(start - 2 * 1_600)), "{start}");
        assert_eq!(fast.at()[2..], [3_200, start, start + 1_600, start + 3_200].map(Nanos));
        assert_eq!(fast.trains(), [0..3, 3..6]);
        assert_eq!(train(2, 2, 12_112_000.0).pause(), Nanos(12_112_000));
        let told = Pattern::Train { count: 2, repeat: 2, gap: 10.0, pause: Some(Nanos::ZERO) };
        assert_eq!(told.departures().unwrap().at(), [0, 10, 10, 20].map(Nanos));
    }

    #[test]
    fn trains_keep_in_step_with_nothing_that_is_periodic() {
        const TICK: i64 = 4_000_000;
        // 41 packets every 160 us and 9.6 ms are four ticks: with constant pauses, all trains begin at one
        // instant between two of them.
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
    fn poisson_trains_are_those_of_their_seed_and_each_has_other_gaps() {
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
    fn replayed_gaps_are_the_gaps_of_every_train() {
        let gaps = [5, 0, 70].map(Nanos).to_vec();
        let pattern = Pattern::Replay { gaps, repeat: 2, pause: Some(Nanos::ZERO) };
        let at = [0, 5, 5, 75, 75, 80, 80, 150].map(Nanos);
        assert_eq!(pattern.departures().unwrap().at(), at);
        assert_eq!(pattern.mean_gap(), 25.0);
    }

    #[test]
    fn patterns_without_sense_or_bounds_are_refused_before_memory_is_taken() {
        let replay = |gaps: Vec<i64>| Pattern::Replay {
            gaps: gaps.into_iter().map(Nanos).collect(),
            repeat: 1,
            pause: None,
        };
        for (pattern, error) in [
            (train(0, 1, 1.0), PatternError::Empty),
            (train(50, 0, 1.0), PatternError::Empty),
            (train(1, 9, 1.0), PatternError::Single(1)),
            (replay(vec![]), PatternError::Single(1)),
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
        assert_eq!(words, "10000002 packets; at most 10000000 in one go");
    }

    proptest! {
        #[test]
        fn constant_trains_are_those_of_exact_fractions(
            count in 2..200_u32, repeat in 1..5_u32, size in 44..1_515_u32,
            mbit in 1..1_001_u32, pause in 0..1_000_000_i64,
        ) {
            // The gap as a fraction of nanoseconds: size x 8,000 / mbit.
            let gap = f64::from(size) * 8_000.0 / f64::from(mbit);
            let pattern = Pattern::Train { count, repeat, gap, pause: Some(Nanos(pause)) };
            let departures = pattern.departures().unwrap();
            let mut least = 0;
            for train in departures.by_train() {
                let start = train[0].0;
                prop_assert!(start == 0 || (least..=least + pause).contains(&start), "{start}");
                for (n, at) in train.iter().enumerate() {
                    let exact = i128::from(size) * 8_000 * n as i128;
                    let off = i128::from(at.0 - start) * i128::from(mbit) - exact;
                    // Half a nanosecond, and what floating point adds.
                    prop_assert!(off.abs() * 1_000 <= i128::from(mbit) * 501, "{n}: {off}");
                }
                least = train[train.len() - 1].0 + pause;
            }
            prop_assert!(departures.at().is_sorted());
        }
    }
}
