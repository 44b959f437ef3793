//! Pacing on absolute schedules (DESIGN section 4): sleep until shortly before a departure, then
//! spin. Shared by all timing loops; each decides itself what it does meanwhile.

mod fine;

pub use crate::clock::sleep_until;

use crate::clock::monotonic;
use dwell_units::{Instant, Monotonic, Nanos};
use fine::Fine;

/// Sleep until this long before a departure, then spin: a sleeping thread is woken 50 to 100 us
/// late, and a spinning one is not.
pub const SPIN: Nanos = Nanos::from_micros(150);

/// Nobody else's processor matters so shortly before a departure.
const NEAR: Nanos = Nanos::from_micros(2);

/// Never asleep for longer than this, so that a stop is obeyed.
pub const NAP: Nanos = Nanos::from_millis(100);

/// How a timing loop waits for a departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Never sleep.
    Spin,
    /// Sleep, then spin: departures are punctual, and most of the CPU is free if they are rare.
    SleepSpin,
    /// Sleep, then send what has become due meanwhile: only the mean rate is right, and the CPU is
    /// free.
    CatchUp,
}

/// What to do until a departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It is due.
    Due,
    /// Look at the clock again at once.
    Spin,
    /// Sleep until then, and look again.
    Sleep(Instant<Monotonic>),
}

impl Manner {
    /// What to do at `now` until a departure at `due`.
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

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spin => "open-loop, spin",
            Self::SleepSpin => "open-loop, sleep-spin",
            Self::CatchUp => "sleep, then catch up",
        }
    }
}

/// From now on [`wait`] is exact to some nanoseconds in this thread, where a look at the clock takes some tens of
/// them. Counts 200,000 turns: to be called before a schedule begins, on the processor that will keep it.
pub fn measure() {
    Fine::measure();
}

/// Waits until `due`; returns the time then, or `None` once there is a `stop`, at which is looked between
/// two looks at the clock. A sleep never outlasts one.
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
            // The hint takes some tens of nanoseconds, by which a departure would be late.
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
            // Counting is as exact as the processor's clock rate is constant.
            assert!(monotonic() >= due - Nanos(500), "{manner:?}");
            let past = wait(manner, due, || true);
            assert!(past.is_some(), "{manner:?}: what is due is not stopped");
            let far = monotonic() + Nanos::from_secs(3_600);
            assert_eq!(wait(manner, far, || true), None, "{manner:?}");
        }
    }
}
