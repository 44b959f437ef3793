//! Pacing on absolute schedules: sleep until shortly before a departure, then spin. Shared by all
//! timing loops; each decides what it does while it waits.

mod busy_wait;

pub use crate::clock::sleep_until;

use crate::clock::monotonic;
use busy_wait::Calibration;
use dwell_units::{Instant, Monotonic, Nanos};

/// Time before a departure at which sleeping ends and spinning begins: a sleeping thread wakes 50
/// to 100 us late.
pub const SPIN_LEAD: Nanos = Nanos::from_micros(150);

/// Time before a departure from which on spinning omits the hint that yields CPU resources.
const TIGHT_SPIN: Nanos = Nanos::from_micros(2);

/// Maximum length of a sleep, so that a stop takes effect.
pub const MAX_SLEEP: Nanos = Nanos::from_millis(100);

/// How a timing loop waits for a departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// Never sleep.
    Spin,
    /// Sleep, then spin: departures are punctual, and most of the CPU is free if they are rare.
    SleepSpin,
    /// Sleep, then send everything that is due: only the mean rate is right, and the CPU is free.
    CatchUp,
}

/// The next step until a departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStep {
    /// Depart: it is due.
    Due,
    /// Read the clock again at once.
    Spin,
    /// Sleep until then, and read the clock again.
    Sleep(Instant<Monotonic>),
}

impl WaitMode {
    /// Decides what to do at `now` until a departure at `due`.
    pub fn rest(self, now: Instant<Monotonic>, due: Instant<Monotonic>) -> WaitStep {
        let awake = match self {
            Self::Spin => now,
            Self::SleepSpin => due - SPIN_LEAD,
            Self::CatchUp => due,
        };
        if due <= now {
            WaitStep::Due
        } else if awake <= now {
            WaitStep::Spin
        } else {
            WaitStep::Sleep(awake.min(now + MAX_SLEEP))
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
    Calibration::measure();
}

/// Waits until `due`; returns the time then, or `None` if `stop` returns true, which is checked
/// between clock reads. A sleep lasts at most [`MAX_SLEEP`].
pub fn wait(
    wait_mode: WaitMode,
    due: Instant<Monotonic>,
    mut stop: impl FnMut() -> bool,
) -> Option<Instant<Monotonic>> {
    loop {
        let now = monotonic();
        match wait_mode.rest(now, due) {
            WaitStep::Due => return Some(now),
            WaitStep::Spin if Calibration::spend(due - now) => return Some(due),
            // The hint takes tens of nanoseconds and would delay the departure.
            WaitStep::Spin if due - now < TIGHT_SPIN => {}
            WaitStep::Spin => std::hint::spin_loop(),
            WaitStep::Sleep(until) => sleep_until(until),
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
    fn pacer_sleeps_then_spins_and_limits_sleep() {
        let due = Instant::from_nanos(1_000_000_000);
        let before = |micros| due - Nanos::from_micros(micros);
        assert_eq!(WaitMode::SleepSpin.rest(due, due), WaitStep::Due);
        assert_eq!(WaitMode::SleepSpin.rest(before(150), due), WaitStep::Spin);
        assert_eq!(WaitMode::SleepSpin.rest(before(1_000), due), WaitStep::Sleep(before(150)));
        assert_eq!(WaitMode::CatchUp.rest(before(150), due), WaitStep::Sleep(due));
        assert_eq!(WaitMode::Spin.rest(before(9_000), due), WaitStep::Spin);
        let early = before(900_000);
        assert_eq!(WaitMode::SleepSpin.rest(early, due), WaitStep::Sleep(early + MAX_SLEEP));
    }

    #[test]
    fn wait_ends_when_due_or_at_stop() {
        measure();
        for wait_mode in [WaitMode::Spin, WaitMode::SleepSpin, WaitMode::CatchUp] {
            let due = monotonic() + Nanos::from_millis(1);
            assert!(wait(wait_mode, due, || false).is_some_and(|now| now >= due), "{wait_mode:?}");
            // Counting is only as exact as the CPU frequency is constant.
            assert!(monotonic() >= due - Nanos(500), "{wait_mode:?}");
            let past = wait(wait_mode, due, || true);
            assert!(past.is_some(), "{wait_mode:?}: a due departure is not stopped");
            let far = monotonic() + Nanos::from_secs(3_600);
            assert_eq!(wait(wait_mode, far, || true), None, "{wait_mode:?}");
        }
    }
}
