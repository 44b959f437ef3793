//! Duty cycle of a CPU burner: the busy time of each period, corrected by the CPU time used so far.

use dwell_units::{Nanos, Ratio};

/// Length of a period. Shorter than a scheduler tick would notice as uneven load, long enough that
/// starting and ending a burn costs little.
pub const BURN_PERIOD: Nanos = Nanos::from_millis(10);

/// Returns the busy time of the period that begins `elapsed` after the start, when `burnt` CPU time
/// was used so far. A thread that was denied the CPU catches up, by at most one whole period at a
/// time.
pub fn burn_time(level: Ratio, elapsed: Nanos, burnt: Nanos) -> Nanos {
    let until = i128::from(elapsed.0 + BURN_PERIOD.0);
    let due = until * i128::from(level.ppm()) / 1_000_000 - i128::from(burnt.0);
    Nanos(due.clamp(0, i128::from(BURN_PERIOD.0)) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates 1,000 periods and returns the achieved load in percent. Each burn takes `overhead`
    /// ns longer than requested; in the periods selected by `denied` the thread gets no CPU time.
    fn level_held(level: u32, overhead: i64, denied: impl Fn(i64) -> bool) -> f64 {
        let level = Ratio::from_ppm(level * 10_000).unwrap();
        let (mut now, mut burnt) = (Nanos::ZERO, Nanos::ZERO);
        for period in 0..1_000 {
            let burn_time = burn_time(level, now, burnt);
            if !denied(period) && burn_time > Nanos::ZERO {
                burnt += Nanos((burn_time.0 + overhead).min(BURN_PERIOD.0));
            }
            now += BURN_PERIOD;
        }
        burnt.0 as f64 / now.0 as f64 * 100.0
    }

    #[test]
    fn level_is_held_within_one_percent_at_any_overhead() {
        for level in [1, 5, 20, 50, 80, 99, 100] {
            for overhead in [0, 50_000, 500_000] {
                let held = level_held(level, overhead, |_| false);
                assert!((held - f64::from(level)).abs() < 1.0, "{level} %: held {held} %");
            }
        }
    }

    #[test]
    fn denied_cpu_time_is_caught_up() {
        let held = level_held(50, 0, |period| period % 4 == 0);
        assert!((held - 50.0).abs() < 1.0, "{held}");
    }
}
