//! Durations and instants in integer nanoseconds. The clock is part of an instant's type, so that
//! subtracting a CLOCK_MONOTONIC reading from a CLOCK_REALTIME timestamp does not compile:
//!
//! ```compile_fail
//! use dwell_units::{Instant, Monotonic, Realtime};
//! let stamp = Instant::<Realtime>::from_nanos(5);
//! let schedule = Instant::<Monotonic>::from_nanos(3);
//! let nonsense = stamp - schedule;
//! ```
//!
//! Only a measured [`Pairing`] converts between two clocks.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};

/// A signed duration in nanoseconds, up to 292 years.
///
/// ```
/// use dwell_units::Nanos;
///
/// let timeout: Nanos = "1.5ms".parse()?;
/// assert_eq!(timeout, Nanos::from_micros(1_500));
/// assert_eq!((timeout + Nanos(250)).to_string(), "1500.25us");
/// # Ok::<(), dwell_units::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub i64);

impl Nanos {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// Longest duration; means "never" where a limit is expected.
    pub const MAX: Self = Self(i64::MAX);

    /// `n` microseconds.
    pub const fn from_micros(n: i64) -> Self {
        Self(n * 1_000)
    }

    /// `n` milliseconds.
    pub const fn from_millis(n: i64) -> Self {
        Self(n * 1_000_000)
    }

    /// `n` seconds.
    pub const fn from_secs(n: i64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// Converts floating-point seconds, rounded to the nearest nanosecond. Saturates; NaN becomes
    /// zero. For interfaces that use floating-point seconds, such as ping's `-i`.
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self((seconds * 1e9).round() as i64)
    }

    /// Floating-point seconds, for printing and external interfaces; exact up to 2^53 ns (104
    /// days).
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Floating-point microseconds, for printing.
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Absolute value; saturates.
    pub const fn abs(self) -> Self {
        Self(self.0.saturating_abs())
    }

    /// Saturating sum.
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Saturating product.
    pub const fn saturating_mul(self, factor: i64) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    /// Whether this is above zero.
    pub const fn is_positive(self) -> bool {
        self.0 > 0
    }

    /// Converts to [`std::time::Duration`]; negative becomes zero.
    pub fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl SubAssign for Nanos {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl Neg for Nanos {
    type Output = Self;
    fn neg(self) -> Self {
        Self(-self.0)
    }
}

/// A clock at the type level. Implemented by uninhabited types.
pub trait Clock: Copy + Ord + std::hash::Hash + fmt::Debug + 'static {
    /// Name used by the kernel, for results and messages.
    const NAME: &'static str;
}

/// CLOCK_REALTIME: the clock of all packet timestamps by programs and the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Realtime {}

/// CLOCK_MONOTONIC: the clock of all schedules and time-outs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Monotonic {}

/// The hardware clock of a network card (PHC): free-running, or disciplined to TAI or UTC by
/// another program. Only timestamps of one card are comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Card {}

impl Clock for Card {
    const NAME: &'static str = "PHC";
}

impl Clock for Realtime {
    const NAME: &'static str = "CLOCK_REALTIME";
}

impl Clock for Monotonic {
    const NAME: &'static str = "CLOCK_MONOTONIC";
}

/// A point on clock `C`, in nanoseconds since that clock's epoch.
///
/// ```
/// use dwell_units::{Instant, Nanos, Realtime};
///
/// let sent = Instant::<Realtime>::from_parts(1_700_000_000, 999_999_900);
/// let received = sent + Nanos::from_micros(12);
/// assert_eq!(received - sent, Nanos(12_000));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant<C: Clock>(i64, PhantomData<C>);

impl<C: Clock> Instant<C> {
    /// Zero of the clock.
    pub const EPOCH: Self = Self::from_nanos(0);

    /// The instant `nanos` after the clock's epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos, PhantomData)
    }

    /// The instant of a `timespec`; `nsec` may exceed a second.
    pub const fn from_parts(sec: i64, nsec: i64) -> Self {
        Self::from_nanos(sec * 1_000_000_000 + nsec)
    }

    /// Nanoseconds since the clock's epoch.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Saturating sum, so that "now + never" is never.
    pub const fn saturating_add(self, duration: Nanos) -> Self {
        Self::from_nanos(self.0.saturating_add(duration.0))
    }
}

impl<C: Clock> fmt::Debug for Instant<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}ns", C::NAME, self.0)
    }
}

impl<C: Clock> Sub for Instant<C> {
    type Output = Nanos;
    fn sub(self, earlier: Self) -> Nanos {
        // Wrapping, because instants parsed from packets may have any value.
        Nanos(self.0.wrapping_sub(earlier.0))
    }
}

impl<C: Clock> Add<Nanos> for Instant<C> {
    type Output = Self;
    fn add(self, duration: Nanos) -> Self {
        Self::from_nanos(self.0.wrapping_add(duration.0))
    }
}

impl<C: Clock> Sub<Nanos> for Instant<C> {
    type Output = Self;
    fn sub(self, duration: Nanos) -> Self {
        Self::from_nanos(self.0.wrapping_sub(duration.0))
    }
}

/// The same time on both clocks: bracketed reads, or the tightest of many where precision matters.
///
/// ```
/// use dwell_units::{Instant, Nanos, Pairing};
///
/// let start = Pairing {
///     real: Instant::from_nanos(5_000_000),
///     mono: Instant::from_nanos(1_000),
///     width: Nanos(28),
/// };
/// assert_eq!(start.to_real(Instant::from_nanos(1_250)), Instant::from_nanos(5_000_250));
///
/// let mut end = Pairing { mono: Instant::from_nanos(2_000), ..start };
/// end.real = Instant::from_nanos(9_000_000);
/// assert_eq!(start.step_until(&end), Some(Nanos(3_999_000)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pairing {
    /// Time on CLOCK_REALTIME.
    pub real: Instant<Realtime>,
    /// Time on CLOCK_MONOTONIC.
    pub mono: Instant<Monotonic>,
    /// Width of the bracket: the reads are at most this far apart.
    pub width: Nanos,
}

impl Pairing {
    /// Difference between the offsets of two pairings above which a clock was stepped: both clocks
    /// are slewed alike, and the tightest of many brackets is about 30 ns wide.
    pub const STEP_THRESHOLD: Nanos = Nanos(100);

    /// CLOCK_REALTIME minus CLOCK_MONOTONIC.
    pub fn offset(&self) -> Nanos {
        Nanos(self.real.as_nanos() - self.mono.as_nanos())
    }

    /// Converts a scheduled time to CLOCK_REALTIME. Valid until a clock is stepped.
    pub fn to_real(&self, at: Instant<Monotonic>) -> Instant<Realtime> {
        self.real + (at - self.mono)
    }

    /// Returns how far CLOCK_REALTIME was stepped between this pairing and a `later` one: the
    /// difference of the offsets, if it exceeds both [`Self::STEP_THRESHOLD`] and the sum of the
    /// brackets.
    pub fn step_until(&self, later: &Pairing) -> Option<Nanos> {
        let moved = later.offset() - self.offset();
        let limit = Self::STEP_THRESHOLD.max(self.width + later.width);
        (moved.abs() > limit).then_some(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairing(real: i64, mono: i64) -> Pairing {
        Pairing {
            real: Instant::from_nanos(real),
            mono: Instant::from_nanos(mono),
            width: Nanos(28),
        }
    }

    #[test]
    fn scheduled_time_converts_by_the_measured_offset() {
        let p = pairing(5_000, 1_000);
        assert_eq!(p.to_real(Instant::from_nanos(1_250)), Instant::from_nanos(5_250));
    }

    #[test]
    fn clock_step_is_detected_and_noise_is_not() {
        let start = pairing(5_000, 1_000);
        assert_eq!(start.step_until(&pairing(9_090, 5_000)), None);
        assert_eq!(start.step_until(&pairing(9_101, 5_000)), Some(Nanos(101)));
        assert_eq!(start.step_until(&pairing(8_000, 5_000)), Some(Nanos(-1_000)));
    }

    #[test]
    fn adding_to_never_is_never() {
        let far = Instant::<Monotonic>::from_nanos(7).saturating_add(Nanos::MAX);
        assert_eq!(far.as_nanos(), i64::MAX);
    }
}
