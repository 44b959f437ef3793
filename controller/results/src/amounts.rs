//! Formats amounts for people.

use dwell_units::Nanos;

/// Formats bytes in powers of ten with one decimal.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if count < 1_000 {
        return format!("{count}B");
    }
    let mut amount = count as f64;
    let mut unit = "B";
    for larger in UNITS {
        // An amount that would be printed as 1000.0 takes the next unit.
        if amount < 999.95 {
            break;
        }
        amount /= 1e3;
        unit = larger;
    }
    format!("{amount:.1}{unit}")
}

/// Formats a time with the precision of an estimate.
pub fn time(time: Nanos) -> String {
    let seconds = time.0 / 1_000_000_000;
    match seconds {
        0..10 => Nanos(time.0 / 100_000_000 * 100_000_000).to_string(),
        10..120 => format!("{seconds}s"),
        120..7_200 => format!("{} min", (seconds + 30) / 60),
        7_200..172_800 => format!("{:.1} h", seconds as f64 / 3_600.0),
        _ => format!("{:.1} days", seconds as f64 / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_unit_that_keeps_them_short() {
        for (count, text) in [
            (0, "0B"),
            (999, "999B"),
            (1_000, "1.0kB"),
            (58_400, "58.4kB"),
            (999_949, "999.9kB"),
            (999_950, "1.0MB"),
            (138_563_874_000, "138.6GB"),
            (34_106_250 << 10, "34.9GB"),
            (u64::MAX, "18446744.1TB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn time_has_the_precision_of_an_estimate() {
        for (seconds, text) in [(3, "3s"), (90, "90s"), (600, "10 min"), (90_000, "25.0 h")] {
            assert_eq!(time(Nanos::from_secs(seconds)), text);
        }
    }
}
