//! Busy-waiting for the last moment before a departure. A clock read takes tens of nanoseconds, so
//! a loop that only reads the clock is late by up to that much, and gaps vary. The time left after
//! the last read is therefore spent by counting.

use std::cell::Cell;
use std::hint::black_box;

use dwell_units::Nanos;

use crate::clock::monotonic;

/// Turns of a calibration run, which take some microseconds.
const CALIBRATION_TURNS: u32 = 10_000;

/// Number of calibration runs; the shortest counts.
const CALIBRATION_RUNS: usize = 20;

/// Number of clock reads per calibration; the median counts.
const CLOCK_READS: usize = 101;

/// Remaining time, in clock reads, below which counting takes over: few reads then overshoot the
/// departure.
const MAX_CLOCK_READS_LEFT: f64 = 1.5;

/// Maximum time spent by counting, however long clock reads take: counting is only as precise as
/// the CPU frequency is constant.
const MAX_COUNTED: Nanos = Nanos::from_micros(1);

thread_local! {
    // Of this thread's CPU at its current frequency.
    static CALIBRATION: Cell<Option<Calibration>> = const { Cell::new(None) };
}

/// Calibration of this CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calibration {
    turns_per_nano: f64,
    within: Nanos,
}

impl Calibration {
    /// Calibrates by counting 200,000 turns.
    pub(super) fn measure() {
        let fastest = (0..CALIBRATION_RUNS).map(|_| count_timed()).min().unwrap_or(Nanos(1));
        let mut reads = [Nanos::ZERO; CLOCK_READS];
        let mut before = monotonic();
        for read in &mut reads {
            let now = monotonic();
            (*read, before) = (now - before, now);
        }
        CALIBRATION.set(Some(Self::of(fastest, reads)));
    }

    fn of(counting: Nanos, mut reads: [Nanos; CLOCK_READS]) -> Self {
        reads.sort_unstable();
        let within =
            Nanos((reads[CLOCK_READS / 2].0 as f64 * MAX_CLOCK_READS_LEFT) as i64).min(MAX_COUNTED);
        Self { turns_per_nano: f64::from(CALIBRATION_TURNS) / counting.0.max(1) as f64, within }
    }

    /// Spends `left` by counting if another clock read would be too coarse. Returns whether it did;
    /// always `false` before [`Self::measure`] has run on this thread.
    pub(super) fn spend(left: Nanos) -> bool {
        let Some(calibration) = CALIBRATION.get().filter(|known| left <= known.within) else {
            return false;
        };
        count((left.0 as f64 * calibration.turns_per_nano) as u32);
        true
    }
}

fn count_timed() -> Nanos {
    let begun = monotonic();
    count(black_box(CALIBRATION_TURNS));
    monotonic() - begun
}

#[inline(never)]
fn count(turns: u32) {
    for turn in 0..turns {
        black_box(turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_below_clock_resolution_is_counted() {
        let reads = |nanos| [Nanos(nanos); CLOCK_READS];
        let calibration = Calibration::of(Nanos(20_000), reads(40));
        assert_eq!((calibration.turns_per_nano, calibration.within), (0.5, Nanos(60)));
        assert_eq!(Calibration::of(Nanos(0), reads(9_000)).within, MAX_COUNTED);
        Calibration::measure();
        assert!(!Calibration::spend(MAX_COUNTED + Nanos(1)));
        assert!(Calibration::spend(Nanos::ZERO));
    }

    #[test]
    fn calibrated_counting_takes_expected_time() {
        Calibration::measure();
        let calibration = CALIBRATION.get().unwrap();
        // Half of them may be interrupted.
        let mut times: Vec<_> = (0..101)
            .map(|_| {
                let begun = monotonic();
                count((20_000.0 * calibration.turns_per_nano) as u32);
                (monotonic() - begun).0
            })
            .collect();
        times.sort_unstable();
        println!("20 us by counting: {} to {} ns", times[0], times[100]);
        assert!((10_000..40_000).contains(&times[20]), "{} ns", times[20]);
    }
}
