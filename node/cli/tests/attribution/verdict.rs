//! Whether a part rose as it should have.
//!
//! Nothing is assumed of the noise but that it lengthens and shortens differences alike: where the
//! median of all possible cycles lies is told by order statistics (the sign test's interval).

use std::fmt;

use crate::ways::Took;

/// How often at most the median of all cycles is above the interval that is shown, and how often
/// below; what five cycles can tell.
const USUALLY: f64 = 0.035;

/// The same for a verdict that fails a test: even where all is noise, one of the parts, holds and
/// modes that `make test` judges is wrong in hundreds of its runs only.
const SURELY: f64 = 1e-5;

/// The most that is no wonder, however busy the machine ([`Rise::wonder`]).
const MOST_WONDER: i64 = 8_000;

/// Half of the shortest time that packets are held: a part that is surely nearer than this to where
/// it should be has not got another's time.
const FAR: i64 = 10_000;

/// The rise of one part where packets were held.
#[derive(Clone, Debug)]
pub(crate) struct Rise {
    expected: i64,
    medians: Differences,
    deciles: Differences,
}

/// By how much the rounds that held were longer, one of each cycle, in nanoseconds.
#[derive(Clone, Debug, Default)]
struct Differences {
    /// The rounds without holding.
    bases: Vec<i64>,
    seen: Vec<i64>,
}

/// See [`Rise::judge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    Right,
    Wrong,
    CannotTell,
}

impl Rise {
    /// Of a part that should rise by this time; by none if packets are held elsewhere.
    pub(crate) fn expected(expected: i64) -> Self {
        Self { expected, medians: Differences::default(), deciles: Differences::default() }
    }

    /// Takes a cycle's round without holding and the one that held.
    pub(crate) fn note(&mut self, base: Took, held: Took) {
        self.medians.note(base.median, held.median);
        self.deciles.note(base.decile, held.decile);
    }

    /// Right where the whole interval of the medians is within the limit; wrong where none of one, of
    /// the medians and of the first deciles, is within what this machine does by itself that noise can
    /// hardly ever move.
    pub(crate) fn judge(&self) -> Judged {
        let limit = self.limit();
        let right = interval(&self.medians.seen, USUALLY)
            .is_some_and(|(low, high)| !self.falls_by(low, limit) && !self.rises_by(high, limit));
        let is_beyond = |differences: &Differences| {
            interval(&differences.seen, SURELY)
                .is_some_and(|interval| self.is_beyond(differences, interval))
        };
        match (right, is_beyond(&self.medians) && is_beyond(&self.deciles)) {
            (true, _) => Judged::Right,
            (false, true) => Judged::Wrong,
            (false, false) => Judged::CannotTell,
        }
    }

    /// Whether more cycles would hardly change what a test says: nothing as long as packets are
    /// held is missing or too much.
    pub(crate) fn is_settled(&self) -> bool {
        let far = self.limit().max(FAR);
        let is_near = interval(&self.medians.seen, USUALLY)
            .is_some_and(|(low, high)| !self.falls_by(low, far) && !self.rises_by(high, far));
        self.judge() == Judged::Wrong || is_near && !self.seems_wrong()
    }

    /// Whether what was seen most is wrong, and more cycles may make it sure.
    pub(crate) fn leans_to_wrong(&self) -> bool {
        self.judge() != Judged::Wrong && self.seems_wrong()
    }

    /// Whether the median of the cycles seen is within the limit.
    pub(crate) fn median_is_within(&self) -> bool {
        let (median, limit) = (self.medians.middle(), self.limit());
        !self.falls_by(median, limit) && !self.rises_by(median, limit)
    }

    /// Within 2 us or 5 % where it was held; elsewhere by less than 2 us.
    fn limit(&self) -> i64 {
        (self.expected / 20).max(2_000)
    }

    fn seems_wrong(&self) -> bool {
        [&self.medians, &self.deciles].into_iter().all(|differences| {
            let middle = differences.middle();
            self.is_beyond(differences, (middle, middle))
        })
    }

    /// Whether all of an interval is beyond what is no wonder.
    fn is_beyond(&self, differences: &Differences, (low, high): (i64, i64)) -> bool {
        let wonder = differences.wonder().max(self.limit());
        self.rises_by(low, wonder) || self.falls_by(high, wonder)
    }

    fn rises_by(&self, rise: i64, limit: i64) -> bool {
        rise - self.expected >= limit
    }

    /// Only what was held can be missing: who spins for a packet keeps the machine awake, and other
    /// parts become shorter.
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

    /// What is no wonder on this machine: by how much rounds differ that hold nothing. A busy
    /// neighbour cools caches, so that a part is longer after a long hold; not by what is held.
    fn wonder(&self) -> i64 {
        let all = || Some((*self.bases.first()?, *self.bases.last()?));
        let (low, high) = interval(&self.bases, SURELY).or_else(all).unwrap_or_default();
        (high - low).min(MOST_WONDER)
    }
}

/// The narrowest pair of order statistics beyond which, on each side, the median of all possible
/// cycles lies with at most this probability; `None` where so few cycles cannot tell.
fn interval(sorted: &[i64], beyond: f64) -> Option<(i64, i64)> {
    let n = sorted.len();
    // That of n cycles k are on one side of it: n over k halves of halves.
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
        if let Some((low, high)) = interval(&self.medians.seen, USUALLY) {
            write!(f, " [{:+.2} {:+.2}]", micros(low), micros(high))?;
        }
        let decile = micros(self.deciles.middle());
        write!(f, " us (the first decile {decile:+.2}) {:?}", self.judge())
    }
}
