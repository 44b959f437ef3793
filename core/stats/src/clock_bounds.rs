//! Bounds of the offset and rate between two clocks, from exchanges of a request and an answer.
//!
//! The bounds assume no symmetry of the two delays, which cannot be observed (Gurewitz and Sidi
//! 2001). An exchange only shows that the remote clock was read after the request was sent and
//! before the answer was received. These constraints are exact. Between exchanges, the rate of the
//! remote clock relative to the local one must lie in a range, so each constraint limits the offset
//! at any other time too.

use std::fmt;

use dwell_units::{Instant, Nanos, Pairing, Realtime};

/// Maximum difference of the rates of two clocks, each at most 500 ppm off.
const MAX_RATE_DIFFERENCE: f64 = 1_000e-6;

/// Maximum frequency correction of a clock by a daemon, relative to CLOCK_MONOTONIC_RAW: that of
/// adjtimex(2). Daemons that change the tick exceed it; then there are no bounds.
const MAX_STEERING: f64 = 500e-6;

/// Change of the frequency correction during a trial up to which a clock counts as unsteered.
const MAX_STEERING_CHANGE: f64 = 0.25e-6;

/// Maximum change of the difference of the rates of two unsteered clocks during a trial, mostly by
/// temperature.
const MAX_WANDER: f64 = 2e-6;

/// Tolerance for the resolution of a clock and for rounding, in nanoseconds.
const CLOCK_RESOLUTION: f64 = 2.0;

/// Clocks of one machine, read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// CLOCK_REALTIME.
    pub real: Instant<Realtime>,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC, which a step changes.
    over_monotonic: Nanos,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC_RAW, which a step or a daemon changes.
    over_raw: Nanos,
    /// Width of the interval in which all were read.
    width: Nanos,
}

impl ClockReading {
    /// Returns a reading from values in nanoseconds; `None` if they cannot be times of clocks.
    pub fn new(realtime: i64, monotonic: i64, raw: i64, width: i64) -> Option<Self> {
        // Differences of two readings must not overflow.
        let is_time = |nanos: i64| (0..i64::MAX / 4).contains(&nanos);
        if ![realtime, monotonic, raw, width].into_iter().all(is_time) {
            return None;
        }
        Some(Self {
            real: Instant::from_nanos(realtime),
            over_monotonic: Nanos(realtime - monotonic),
            over_raw: Nanos(realtime - raw),
            width: Nanos(width),
        })
    }

    /// Returns the reading at a time between two readings, or shortly before or after both, by
    /// interpolation.
    pub fn between(before: &Self, after: &Self, real: Instant<Realtime>) -> Self {
        let (elapsed, of) = ((real - before.real).0 as f64, (after.real - before.real).0 as f64);
        let share = if of > 0.0 { elapsed / of } else { 0.0 };
        let at =
            |before: Nanos, after: Nanos| before.saturating_add(scaled((after - before).0, share));
        Self {
            real,
            over_monotonic: at(before.over_monotonic, after.over_monotonic),
            over_raw: at(before.over_raw, after.over_raw),
            width: before.width.max(after.width),
        }
    }

    /// Returns the size of a step of CLOCK_REALTIME between this reading and a later one.
    fn step_until(&self, later: &Self) -> Option<Nanos> {
        let moved = (later.over_monotonic - self.over_monotonic).abs();
        (moved > Pairing::STEP_THRESHOLD + self.width + later.width).then_some(moved)
    }

    /// Returns the mean frequency correction between this reading and a later one, and its error;
    /// `None` if no time passed between them.
    fn steering_until(&self, later: &Self) -> Option<(f64, f64)> {
        let corrected = later.over_raw - self.over_raw;
        let elapsed = (later.real - self.real - corrected).0 as f64;
        let width = (self.width + later.width).0 as f64 + CLOCK_RESOLUTION;
        (elapsed > 0.0).then(|| (corrected.0 as f64 / elapsed, width / elapsed))
    }
}

/// A request to read a remote clock, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockExchange {
    /// Local time before the request was sent.
    pub sent: Instant<Realtime>,
    /// The remote clock.
    pub remote: ClockReading,
    /// The local clock after the answer was received.
    pub received: ClockReading,
}

impl ClockExchange {
    /// Round-trip time.
    pub fn round_trip(&self) -> Nanos {
        self.received.real - self.sent
    }

    /// Whether the exchange permits that the remote clocks are the local ones: they show the same time,
    /// and the same differences between each other.
    pub fn permits_equal_clocks(&self) -> bool {
        let (remote, local) = (&self.remote, &self.received);
        let corrected = (local.over_raw - remote.over_raw).abs().0 as f64;
        let max_corrected = (remote.width + local.width).0 as f64
            + CLOCK_RESOLUTION
            + MAX_STEERING * self.round_trip().0 as f64;
        (self.sent..=local.real).contains(&remote.real)
            && remote.step_until(local).is_none()
            && corrected <= max_corrected
    }

    /// Greatest possible lead of the remote clock when the request was sent.
    fn high(&self) -> Nanos {
        self.remote.real - self.sent
    }

    /// Least possible lead of the remote clock when the answer was received.
    fn low(&self) -> Nanos {
        self.remote.real - self.received.real
    }
}

/// Lead of one clock over another as a function of time: a line, and how far the lead can be from
/// it. The default is two clocks that are one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockRelation {
    /// Time on the first clock at which the lead is `offset`.
    pub at: Instant<Realtime>,
    /// Second clock minus first clock.
    pub offset: Nanos,
    /// Rate of the second clock relative to the first, minus 1.
    pub rate: f64,
    /// Bound of the difference between the actual lead and the line.
    pub error: Nanos,
}

impl Default for ClockRelation {
    fn default() -> Self {
        Self { at: Instant::from_nanos(0), offset: Nanos::ZERO, rate: 0.0, error: Nanos::ZERO }
    }
}

impl ClockRelation {
    /// Returns the lead at this time of the first clock.
    pub fn lead_at(&self, at: Instant<Realtime>) -> Nanos {
        let elapsed = at.as_nanos().saturating_sub(self.at.as_nanos());
        self.offset.saturating_add(scaled(elapsed, self.rate))
    }

    /// Returns the delay of a packet that departed at `start` of the first clock and arrived
    /// `difference` later by the second clock. It is at most [`Self::error`] off.
    pub fn delay(&self, difference: Nanos, start: Instant<Realtime>) -> Nanos {
        let delay = difference.0.saturating_sub(self.lead_at(start).0);
        Nanos(delay).saturating_add(scaled(delay, -self.rate / (1.0 + self.rate)))
    }

    /// Returns the relation of clock `b` to clock `a` from the relation of each to one reference.
    pub fn between(a: &Self, b: &Self) -> Self {
        let lead = a.lead_at(b.at);
        let rate = (1.0 + b.rate) / (1.0 + a.rate);
        // An error of the first clock also shifts the time at which the second is read.
        let error = (b.error.0 as f64 + a.error.0 as f64 * rate.max(1.0)) * rate.recip().max(1.0);
        Self {
            at: b.at.saturating_add(lead),
            offset: Nanos(b.offset.0.saturating_sub(lead.0)),
            rate: rate - 1.0,
            error: Nanos(error.ceil() as i64),
        }
    }
}

fn scaled(nanos: i64, factor: f64) -> Nanos {
    Nanos((nanos as f64 * factor).round() as i64)
}

/// Assumption on the rates of two clocks that bounds rest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateAssumption {
    /// No daemon changed the frequency of either clock, so the difference of their rates changed by at
    /// most 2 ppm.
    Steady,
    /// The rates of both clocks, with the corrections by daemons, differed by at most 1,000 ppm. The
    /// corrections were at most 500 ppm each; the rates of the oscillators cannot be checked alone.
    Bounded,
}

/// Relation of a remote clock to the local one, from the first exchange to the last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockBounds {
    /// The relation; its first clock is the local one.
    pub relation: ClockRelation,
    /// Bound of the difference between the actual mean rate and that of the relation.
    pub rate_error: f64,
    /// Shortest round trip of an exchange.
    pub min_round_trip: Nanos,
    /// Number of exchanges.
    pub exchanges: usize,
    /// Assumption that the bounds rest on.
    pub assumption: RateAssumption,
}

/// Reason why there are no bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockFault {
    /// No exchange.
    NoExchange,
    /// A clock was stepped.
    Stepped {
        /// Whether it is the local clock.
        local: bool,
        /// Size of the step.
        by: Nanos,
    },
    /// The exchanges contradict each other, or a daemon corrected a clock by more than 500 ppm.
    Unsteady,
}

impl fmt::Display for ClockFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoExchange => f.write_str("no exchange with it succeeded"),
            Self::Stepped { local: true, by } => {
                write!(f, "the controller's clock was stepped by {by}")
            }
            Self::Stepped { local: false, by } => write!(f, "it was stepped by {by}"),
            Self::Unsteady => {
                f.write_str("its rate and the controller's differed by more than 1,000 ppm")
            }
        }
    }
}

impl ClockBounds {
    /// Computes the bounds from exchanges in any order.
    ///
    /// # Errors
    /// There is no exchange, or the exchanges contradict each other.
    pub fn of(exchanges: &[ClockExchange]) -> Result<Self, ClockFault> {
        let mut sorted = exchanges.to_vec();
        sorted.sort_by_key(|exchange| exchange.received.real);
        let round_trips = sorted.iter().map(ClockExchange::round_trip);
        let min_round_trip = round_trips.min().ok_or(ClockFault::NoExchange)?;
        find_fault(&sorted)?;
        if min_round_trip < Nanos::ZERO {
            return Err(ClockFault::Stepped { local: true, by: min_round_trip.abs() });
        }
        let constraints = Constraints::of(&sorted);
        constraints.check()?;
        let bounded = constraints.line();
        let steady = steering_deviation(&sorted).map(|steered| constraints.steady_line(steered));
        let steady = steady.filter(|line| {
            line.error < bounded.error && constraints.all.iter().all(|it| line.permits(it))
        });
        let (line, assumption) = match steady {
            Some(line) => (line, RateAssumption::Steady),
            None => (bounded, RateAssumption::Bounded),
        };
        let (relation, rate_error) = (constraints.relation(&line), line.rate_error);
        let exchanges = sorted.len();
        Ok(Self { relation, rate_error, min_round_trip, exchanges, assumption })
    }
}

/// Clocks of an exchange: whether local, and the reading.
type ClockOf = (bool, fn(&ClockExchange) -> ClockReading);

const CLOCKS: [ClockOf; 2] =
    [(true, |exchange| exchange.received), (false, |exchange| exchange.remote)];

/// Finds a step of either clock, or a correction that is too fast. Compares each reading with the one
/// before and with the narrowest one before, because a wide reading hides steps.
fn find_fault(sorted: &[ClockExchange]) -> Result<(), ClockFault> {
    for (local, clock) in CLOCKS {
        let mut readings = sorted.iter().map(clock);
        let Some(mut before) = readings.next() else { continue };
        let mut narrowest = before;
        for reading in readings {
            for earlier in [before, narrowest] {
                if let Some(by) = earlier.step_until(&reading) {
                    return Err(ClockFault::Stepped { local, by });
                }
                let steering = earlier.steering_until(&reading);
                if steering.is_some_and(|(mean, error)| mean.abs() > MAX_STEERING + error) {
                    return Err(ClockFault::Unsteady);
                }
            }
            before = reading;
            if reading.width < narrowest.width {
                narrowest = reading;
            }
        }
    }
    Ok(())
}

/// Returns how far the corrections by daemons may have moved the clocks away from a constant rate, in
/// nanoseconds; `None` if a daemon changed a frequency, or if the readings cannot exclude it.
fn steering_deviation(sorted: &[ClockExchange]) -> Option<f64> {
    CLOCKS.into_iter().map(|(_, clock)| deviation_of(clock, sorted)).sum()
}

/// Returns the deviation of one clock. In a gap between two readings, one change of the frequency can
/// hide only as far as the frequency before or after the gap is uncertain.
fn deviation_of(
    clock: fn(&ClockExchange) -> ClockReading,
    sorted: &[ClockExchange],
) -> Option<f64> {
    let (first, last) = (clock(sorted.first()?), clock(sorted.last()?));
    let (mean, mean_error) = first.steering_until(&last)?;
    let mut deviation = 0.0_f64;
    for pair in sorted.windows(2) {
        let (from, to) = (clock(&pair[0]), clock(&pair[1]));
        let parts = [(&first, &from), (&from, &to), (&to, &last)];
        let [before, during, after] = parts.map(|(from, to)| from.steering_until(to));
        for (part, error) in [before, during, after].into_iter().flatten() {
            if (part - mean).abs() > MAX_STEERING_CHANGE + error + mean_error {
                return None;
            }
        }
        let uncertain = |part: Option<(f64, f64)>| part.map_or(f64::INFINITY, |(_, error)| error);
        let gap = (to.real - from.real).0 as f64;
        if gap > 0.0 {
            let known = uncertain(before).min(uncertain(after)) + MAX_STEERING_CHANGE;
            deviation = deviation.max(known * gap);
        }
    }
    deviation.is_finite().then_some(deviation)
}

/// A constraint of the lead of the remote clock at one time.
#[derive(Clone, Copy, Debug)]
struct Constraint {
    /// Local time in nanoseconds after the origin.
    at: f64,
    /// Lead in nanoseconds above that of the origin.
    lead: f64,
    /// Whether the lead is at most this, otherwise at least this.
    is_high: bool,
}

/// The constraints of all exchanges, in time order, relative to an origin: floating-point numbers
/// hold small differences exactly to less than a nanosecond.
#[derive(Clone, Debug)]
struct Constraints {
    all: Vec<Constraint>,
    origin: Instant<Realtime>,
    lead: Nanos,
}

/// Interval of the lead at one time.
#[derive(Clone, Copy, Debug)]
struct Knot {
    at: f64,
    /// Greatest lead by the constraints up to this time, and by those from this time on.
    high: [f64; 2],
    /// Least lead likewise.
    low: [f64; 2],
}

impl Knot {
    fn high(&self) -> f64 {
        self.high[0].min(self.high[1])
    }

    fn low(&self) -> f64 {
        self.low[0].max(self.low[1])
    }
}

impl Constraints {
    /// `sorted` is not empty.
    fn of(sorted: &[ClockExchange]) -> Self {
        let (origin, lead) = (sorted[0].sent, sorted[0].high());
        let relative = |at: Instant<Realtime>, bound: Nanos, is_high| Constraint {
            at: (at - origin).0 as f64,
            lead: (bound - lead).0 as f64,
            is_high,
        };
        let mut all: Vec<Constraint> = sorted
            .iter()
            .flat_map(|exchange| {
                [
                    relative(exchange.sent, exchange.high(), true),
                    relative(exchange.received.real, exchange.low(), false),
                ]
            })
            .collect();
        all.sort_by(|a, b| a.at.total_cmp(&b.at));
        Self { all, origin, lead }
    }

    /// Checks whether a clock whose rate is at most [`MAX_RATE_DIFFERENCE`] off fulfils all constraints.
    fn check(&self) -> Result<(), ClockFault> {
        let excess = |knot: Knot| knot.low() - knot.high();
        let excess = self.knots().into_iter().map(excess).fold(0.0, f64::max);
        if excess > CLOCK_RESOLUTION {
            return Err(ClockFault::Unsteady);
        }
        Ok(())
    }

    /// Returns the interval of the lead at the time of each constraint, for a clock whose rate is at
    /// most [`MAX_RATE_DIFFERENCE`] off.
    fn knots(&self) -> Vec<Knot> {
        let (none_high, none_low) = ([f64::INFINITY; 2], [f64::NEG_INFINITY; 2]);
        let mut knots: Vec<Knot> = self
            .all
            .iter()
            .map(|c| Knot {
                at: c.at,
                high: if c.is_high { [c.lead; 2] } else { none_high },
                low: if c.is_high { none_low } else { [c.lead; 2] },
            })
            .collect();
        for at in 1..knots.len() {
            let before = knots[at - 1];
            let knot = &mut knots[at];
            let elapsed = knot.at - before.at;
            knot.high[0] = knot.high[0].min(before.high[0] + MAX_RATE_DIFFERENCE * elapsed);
            knot.low[0] = knot.low[0].max(before.low[0] - MAX_RATE_DIFFERENCE * elapsed);
        }
        for at in (1..knots.len()).rev() {
            let after = knots[at];
            let knot = &mut knots[at - 1];
            let elapsed = after.at - knot.at;
            knot.high[1] = knot.high[1].min(after.high[1] + MAX_RATE_DIFFERENCE * elapsed);
            knot.low[1] = knot.low[1].max(after.low[1] - MAX_RATE_DIFFERENCE * elapsed);
        }
        knots
    }

    /// Returns the mean rate permitted by the bounds at both ends, and its error.
    fn mean_rate(first: &Knot, last: &Knot) -> (f64, f64) {
        let elapsed = last.at - first.at;
        let (mut slowest, mut fastest) = (-MAX_RATE_DIFFERENCE, MAX_RATE_DIFFERENCE);
        if elapsed > 0.0 {
            slowest = slowest.max((last.low() - first.high()) / elapsed);
            fastest = fastest.min((last.high() - first.low()) / elapsed);
        }
        (slowest.midpoint(fastest), (fastest - slowest) / 2.0)
    }

    /// Returns a line through the middle of the bounds, which hold for any clock whose rate is at most
    /// [`MAX_RATE_DIFFERENCE`] off.
    fn line(&self) -> Line {
        const RATE: f64 = MAX_RATE_DIFFERENCE;
        let knots = self.knots();
        let (first, last) = (knots[0], knots[knots.len() - 1]);
        let (rate, rate_error) = Self::mean_rate(&first, &last);
        let middle = first.at.midpoint(last.at);
        let line = |at: f64| rate * (at - middle);
        let (mut above, mut below) = (f64::NEG_INFINITY, f64::INFINITY);
        let mut admit = |at: f64, low: f64, high: f64| {
            above = above.max(high - line(at));
            below = below.min(low - line(at));
        };
        knots.iter().for_each(|knot| admit(knot.at, knot.low(), knot.high()));
        for pair in knots.windows(2) {
            // Between two knots the bound rises by the constraints before and falls by those after.
            let (before, after) = (pair[0], pair[1]);
            let gap = after.at - before.at;
            let crossing = |difference: f64| (gap.midpoint(difference / RATE)).clamp(0.0, gap);
            let peak = crossing(after.high[1] - before.high[0]);
            let trough = crossing(before.low[0] - after.low[1]);
            let high = |x: f64| (before.high[0] + RATE * x).min(after.high[1] + RATE * (gap - x));
            let low = |x: f64| (before.low[0] - RATE * x).max(after.low[1] - RATE * (gap - x));
            for x in [peak, trough] {
                admit(before.at + x, low(x), high(x));
            }
        }
        Line { middle, lead: above.midpoint(below), rate, rate_error, error: (above - below) / 2.0 }
    }

    /// Returns a line for clocks whose rates differ from their mean difference by at most
    /// [`MAX_WANDER`], and whose lead deviates from a straight line by at most `steered` nanoseconds
    /// because of daemons. Between the ends, the lead is as well known as at the ends but for that.
    fn steady_line(&self, steered: f64) -> Line {
        let knots = self.knots();
        let (first, last) = (knots[0], knots[knots.len() - 1]);
        let elapsed = last.at - first.at;
        let (mean, mean_error) = Self::mean_rate(&first, &last);
        let center = |knot: &Knot| knot.low().midpoint(knot.high());
        let half_width = |knot: &Knot| (knot.high() - knot.low()) / 2.0;
        let rate = if elapsed > 0.0 { (center(&last) - center(&first)) / elapsed } else { mean };
        Line {
            middle: first.at.midpoint(last.at),
            lead: center(&first).midpoint(center(&last)),
            rate,
            rate_error: mean_error + (rate - mean).abs(),
            error: half_width(&first).max(half_width(&last)) + MAX_WANDER * elapsed + steered,
        }
    }

    fn relation(&self, line: &Line) -> ClockRelation {
        ClockRelation {
            at: self.origin.saturating_add(Nanos(line.middle.round() as i64)),
            offset: self.lead.saturating_add(Nanos(line.lead.round() as i64)),
            rate: line.rate,
            error: Nanos((line.error + CLOCK_RESOLUTION).ceil() as i64),
        }
    }
}

/// Lead as a line, in the numbers of [`Constraints`].
#[derive(Clone, Copy, Debug)]
struct Line {
    middle: f64,
    /// Lead in the middle.
    lead: f64,
    rate: f64,
    rate_error: f64,
    error: f64,
}

impl Line {
    /// Whether a lead within the error of the line fulfils the constraint.
    fn permits(&self, constraint: &Constraint) -> bool {
        let lead = self.lead + self.rate * (constraint.at - self.middle);
        if constraint.is_high {
            lead - self.error <= constraint.lead
        } else {
            lead + self.error >= constraint.lead
        }
    }
}

#[cfg(test)]
mod tests;
