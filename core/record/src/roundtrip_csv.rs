//! Round-trip CSV of Roedlach/Vock (S4.2), byte for byte: a header, then `%10d,%11.9lf` with the
//! round-trip time in seconds per cycle. A failed cycle is NaN, right-aligned in the same eleven
//! columns.
//!
//! Seconds are formatted from integer nanoseconds, without floating point.

use std::io::Write;

use dwell_units::Nanos;

pub(crate) const HEADER: &[u8] = b"id,roundtrip_time [s]\n";

/// Appends the row of cycle `id`; `None` is a failed cycle.
pub(crate) fn append(out: &mut Vec<u8>, id: u64, round_trip: Option<Nanos>) {
    const INFALLIBLE: &str = "writing to a Vec cannot fail";
    let Some(Nanos(ns)) = round_trip else {
        return writeln!(out, "{id:>10},{:>11}", "NaN").expect(INFALLIBLE);
    };
    let sign = if ns < 0 { "-" } else { "" };
    let (seconds, rest) = (ns.unsigned_abs() / 1_000_000_000, ns.unsigned_abs() % 1_000_000_000);
    // One digit, a point and nine digits fill the eleven columns, so no padding is needed.
    writeln!(out, "{id:>10},{sign}{seconds}.{rest:09}").expect(INFALLIBLE);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: u64, round_trip: Option<i64>) -> String {
        let mut out = Vec::new();
        append(&mut out, id, round_trip.map(Nanos));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rows_match_the_published_file() {
        // The first rows of the published idle measurement, and one of the longest round trips.
        assert_eq!(line(0, Some(5_618_705)), "         0,0.005618705\n");
        assert_eq!(line(1, Some(276_924)), "         1,0.000276924\n");
        assert_eq!(line(49_999, Some(249_729)), "     49999,0.000249729\n");
    }

    #[test]
    fn failed_cycle_is_a_nan_as_wide_as_a_number() {
        assert_eq!(line(3, None), "         3,        NaN\n");
    }

    #[test]
    fn numbers_wider_than_their_columns_are_written_in_full() {
        assert_eq!(line(12_345_678_901, Some(12_000_000_001)), "12345678901,12.000000001\n");
        assert_eq!(line(0, Some(-1)), "         0,-0.000000001\n");
        assert_eq!(line(0, Some(i64::MIN)), "         0,-9223372036.854775808\n");
    }
}
