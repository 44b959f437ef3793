//! Pacing on absolute schedules: sleep until shortly before a departure, then spin. Shared by all
//! timing loops; each decides what it does while it waits.

mod fine;

pub use crate::clock::sleep_until;

use crate::clock::monotonic;
use dwell_units::{Instant, Monotonic, Nanos};
use fine::Fine;

/// Time before a departure at which sleeping ends and spinning begins: a sleeping thread wakes 50
/// to 100 us late.
pub const SPIN: Nanos = Nanos::from_micros(150);

/// Time before a departure from which on spinning omits the hint that yields CPU resources.
const NEAR: Nanos = Nanos::from_micros(2);

/// Maximum length of a sleep, so that a stop takes effect.
pub const NAP: Nanos = Nanos::from_millis(100);

/// How a timing loop waits for a departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Never sleep.
    Spin,
    /// Sleep, then spin: departures are punctual, and most of the CPU is free if they are rare.
    SleepSpin,
    /// Sleep, then send everything that is due: only the mean rate is right, and the CPU is free.
    CatchUp,
}

/// What to do until a departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Depart: it is due.
    Due,
    /// Read the clock again at once.
    Spin,
    /// Sleep until then, and read the clock again.
    Sleep(Instant<Monotonic>),
}

impl Manner {
    /// Decides what to do at `now` until a departure at `due`.
    pub fn rest(self, now: Instant<Monotonic>, due: Instant<Monotonic>) -> Rest {
        let awake = match self {
            Self::Spin => now,
            Self::SleepSpin => due - SPIN,
            Self::CatchUp => due,
        };
        if due <= now {
            Rest::Due
        } else if awake <= now {
            Rest::Spin
        } else {
            Rest::Sleep(awake.min(now + NAP))
        }
    }

    /// Name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spin => "open-loop, spin",
            Self::SleepSpin => "open-loop, sleep-spin",
            Self::CatchUp => "sleep, then catch up",
        }
    }
}

/// Calibrates [`wait`] for this thread, so that it is exact to some nanoseconds; a clock read alone
/// takes tens of nanoseconds. Counts 200,000 turns: call it before a schedule begins, on the CPU
/// that will keep it.
pub fn measure() {
    Fine::measure();
}

/// Waits until `due`; returns the time then, or `None` if `stop` returns true, which is checked
/// between clock reads. A sleep lasts at most [`NAP`].
pub fn wait(
    manner: Manner,
    due: Instant<Monotonic>,
    mut stop: impl FnMut() -> bool,
) -> Option<Instant<Monotonic>> {
    loop {
        let now = monotonic();
        match manner.rest(now, due) {
            Rest::Due => return Some(now),
            Rest::Spin if Fine::spend(due - now) => return Some(due),
            // The hint takes tens of nanoseconds and would delay the departure.
            Rest::Spin if due - now < NEAR => {}
            Rest::Spin => std::hint::spin_loop(),
            Rest::Sleep(until) => sleep_until(until),
        }
        if stop() {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_departure_is_slept_for_then_spun_for_and_no_sleep_outlasts_a_stop() {
        let due = Instant::from_nanos(1_000_000_000);
        let before = |micros| due - Nanos::from_micros(micros);
        assert_eq!(Manner::SleepSpin.rest(due, due), Rest::Due);
        assert_eq!(Manner::SleepSpin.rest(before(150), due), Rest::Spin);
        assert_eq!(Manner::SleepSpin.rest(before(1_000), due), Rest::Sleep(before(150)));
        assert_eq!(Manner::CatchUp.rest(before(150), due), Rest::Sleep(due));
        assert_eq!(Manner::Spin.rest(before(9_000), due), Rest::Spin);
        let early = before(900_000);
        assert_eq!(Manner::SleepSpin.rest(early, due), Rest::Sleep(early + NAP));
    }

    #[test]
    fn waiting_ends_when_it_is_due_and_never_before_or_at_a_stop() {
        measure();
        for manner in [Manner::Spin, Manner::SleepSpin, Manner::CatchUp] {
            let due = monotonic() + Nanos::from_millis(1);
            assert!(wait(manner, due, || false).is_some_and(|now| now >= due), "{manner:?}");
            // Counting is only as exact as the CPU frequency is constant.
            assert!(monotonic() >= due - Nanos(500), "{manner:?}");
            let past = wait(manner, due, || true);
            assert!(past.is_some(), "{manner:?}: a due departure is not stopped");
            let far = monotonic() + Nanos::from_secs(3_600);
            assert_eq!(wait(manner, far, || true), None, "{manner:?}");
        }
    }
}
