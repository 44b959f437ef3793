//! Verdict on whether a component rose as expected.
//!
//! Noise is only assumed to be symmetric in differences: order statistics bound the median over all
//! possible cycles (the interval of the sign test).

use std::fmt;

use crate::joined::ComponentTime;

/// Maximum probability, on each side, that the true median is beyond the interval shown; what five
/// cycles allow.
const INTERVAL_TAIL: f64 = 0.035;

/// The same for a verdict that fails a test: pure noise fails one of the components of `make test`
/// once in hundreds of runs.
const VERDICT_TAIL: f64 = 1e-5;

/// Maximum unexplained rise on a busy machine, in nanoseconds ([`Rise::noise_limit`]).
const MAX_NOISE: i64 = 8_000;

/// Half of the shortest hold time, in nanoseconds: a component nearer than this to its expected
/// rise does not contain another's delay.
const HALF_MIN_HOLD: i64 = 10_000;

/// Rise of one component under a hold.
#[derive(Clone, Debug)]
pub(crate) struct Rise {
    expected: i64,
    medians: Differences,
    deciles: Differences,
}

/// Differences between rounds with and without a hold, one per cycle, in nanoseconds.
#[derive(Clone, Debug, Default)]
struct Differences {
    /// Rounds without a hold.
    bases: Vec<i64>,
    seen: Vec<i64>,
}

/// Verdict of [`Rise::judge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RiseVerdict {
    Right,
    Wrong,
    CannotTell,
}

impl Rise {
    /// A component that should rise by `expected`, 0 if packets are held elsewhere.
    pub(crate) fn expected(expected: i64) -> Self {
        Self { expected, medians: Differences::default(), deciles: Differences::default() }
    }

    /// Adds the rounds of a cycle without and with a hold.
    pub(crate) fn note(&mut self, base: ComponentTime, held: ComponentTime) {
        self.medians.note(base.median, held.median);
        self.deciles.note(base.decile, held.decile);
    }

    /// Right if the whole interval of the medians is within the limit. Wrong if the intervals of
    /// both medians and first deciles are beyond what noise on this machine explains.
    pub(crate) fn judge(&self) -> RiseVerdict {
        let limit = self.limit();
        let right = interval(&self.medians.seen, INTERVAL_TAIL)
            .is_some_and(|(low, high)| !self.falls_by(low, limit) && !self.rises_by(high, limit));
        let is_beyond = |differences: &Differences| {
            interval(&differences.seen, VERDICT_TAIL)
                .is_some_and(|interval| self.is_beyond(differences, interval))
        };
        match (right, is_beyond(&self.medians) && is_beyond(&self.deciles)) {
            (true, _) => RiseVerdict::Right,
            (false, true) => RiseVerdict::Wrong,
            (false, false) => RiseVerdict::CannotTell,
        }
    }

    /// Whether more cycles would hardly change the verdict: no delay as long as a hold is missing
    /// or in excess.
    pub(crate) fn is_settled(&self) -> bool {
        let far = self.limit().max(HALF_MIN_HOLD);
        let is_near = interval(&self.medians.seen, INTERVAL_TAIL)
            .is_some_and(|(low, high)| !self.falls_by(low, far) && !self.rises_by(high, far));
        self.judge() == RiseVerdict::Wrong || is_near && !self.seems_wrong()
    }

    /// Whether the observations so far look wrong, and more cycles may confirm it.
    pub(crate) fn may_be_wrong(&self) -> bool {
        self.judge() != RiseVerdict::Wrong && self.seems_wrong()
    }

    /// Whether the median of the cycles is within the limit.
    pub(crate) fn median_is_within(&self) -> bool {
        let (median, limit) = (self.medians.middle(), self.limit());
        !self.falls_by(median, limit) && !self.rises_by(median, limit)
    }

    /// Returns the limit: 2 us, or 5 % of the expected rise if that is more.
    fn limit(&self) -> i64 {
        (self.expected / 20).max(2_000)
    }

    fn seems_wrong(&self) -> bool {
        [&self.medians, &self.deciles].into_iter().all(|differences| {
            let middle = differences.middle();
            self.is_beyond(differences, (middle, middle))
        })
    }

    /// Whether the whole interval is beyond what noise explains.
    fn is_beyond(&self, differences: &Differences, (low, high): (i64, i64)) -> bool {
        let noise_limit = differences.noise_limit().max(self.limit());
        self.rises_by(low, noise_limit) || self.falls_by(high, noise_limit)
    }

    fn rises_by(&self, rise: i64, limit: i64) -> bool {
        rise - self.expected >= limit
    }

    /// Only a hold can be missing: spinning keeps the machine awake, which shortens other
    /// components.
    fn falls_by(&self, rise: i64, limit: i64) -> bool {
        self.expected > 0 && self.expected - rise >= limit
    }
}

impl Differences {
    fn note(&mut self, base: i64, held: i64) {
        self.bases.push(base);
        self.bases.sort_unstable();
        self.seen.push(held - base);
        self.seen.sort_unstable();
    }

    fn middle(&self) -> i64 {
        self.seen[self.seen.len() / 2]
    }

    /// Returns what noise explains on this machine: the spread of rounds without a hold. Other load
    /// cools caches, so that a component may be longer after a long hold, but not by the hold time.
    fn noise_limit(&self) -> i64 {
        let all = || Some((*self.bases.first()?, *self.bases.last()?));
        let (low, high) = interval(&self.bases, VERDICT_TAIL).or_else(all).unwrap_or_default();
        (high - low).min(MAX_NOISE)
    }
}

/// Returns the narrowest pair of order statistics such that the median over all cycles is beyond
/// each with at most this probability; `None` if there are too few cycles.
fn interval(sorted: &[i64], beyond: f64) -> Option<(i64, i64)> {
    let n = sorted.len();
    // Probability that k of n cycles are on one side of the median: binomial with p = 1/2.
    let mut exactly = 0.5_f64.powi(i32::try_from(n).ok()?);
    let mut at_most = exactly;
    let mut cut = None;
    for k in 0..n / 2 {
        if at_most > beyond {
            break;
        }
        cut = Some(k);
        exactly *= (n - k) as f64 / (k + 1) as f64;
        at_most += exactly;
    }
    cut.map(|cut| (sorted[cut], sorted[n - 1 - cut]))
}

impl fmt::Display for Rise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |nanos: i64| nanos as f64 / 1e3;
        write!(f, "{:+.2}", micros(self.medians.middle()))?;
        if let Some((low, high)) = interval(&self.medians.seen, INTERVAL_TAIL) {
            write!(f, " [{:+.2} {:+.2}]", micros(low), micros(high))?;
        }
        let decile = micros(self.deciles.middle());
        write!(f, " us (the first decile {decile:+.2}) {:?}", self.judge())
    }
}
