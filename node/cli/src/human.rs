//! Result values as text: a label, the amount and its unit. JSON has the exact numbers.

use std::collections::BTreeMap;
use std::io::{self, Write};

use dwell_record::{Scalar, Trust};

/// Prints one row per value. Omits zero and unknown values, except those named in `always`.
pub(crate) fn print_values(
    out: &mut impl Write,
    values: &BTreeMap<String, Option<Scalar>>,
    always: &[&str],
) -> io::Result<()> {
    for (name, value) in values {
        let number = match value {
            Some(Scalar::Count(count)) => *count as f64,
            Some(Scalar::Real(real)) => *real,
            None => f64::NAN,
        };
        let is_nonzero = number.is_finite() && number != 0.0;
        if is_nonzero || always.contains(&name.as_str()) {
            writeln!(out, "{:28}{}", label(name), amount(name, number))?;
        }
    }
    Ok(())
}

/// Prints the warnings of a result, one per row.
pub(crate) fn print_warnings(out: &mut impl Write, trust: &Trust) -> io::Result<()> {
    trust.warnings.iter().try_for_each(|warning| writeln!(out, "note: {warning}"))
}

/// The name of a value in words, without its unit.
fn label(name: &str) -> String {
    let bare = match name {
        "rate_pps" => "packet_rate",
        _ => ["_bps", "_pps", "_ns", "_ratio", "_bytes"]
            .iter()
            .find_map(|unit| name.strip_suffix(unit))
            .unwrap_or(name),
    };
    bare.replace('_', " ")
}

/// A value with the unit given by the suffix of its name.
pub(crate) fn amount(name: &str, value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    if name.ends_with("_bps") {
        bit_rate(value)
    } else if name.ends_with("_pps") {
        format!("{} packets/s", digits(value))
    } else if name.ends_with("_ns") {
        time(value)
    } else if name.ends_with("_ratio") {
        format!("{} %", digits(value * 100.0))
    } else if name.contains("_bytes") {
        scaled(value, 1e3, &["B", "kB", "MB", "GB", "TB"])
    } else {
        // Counts are printed exactly.
        format!("{value:.0}")
    }
}

/// A bit rate, like 1.61 Mbit/s.
pub(crate) fn bit_rate(bps: f64) -> String {
    scaled(bps, 1e3, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// A time in ns, like 2.0 s or 153 us.
pub(crate) fn time(ns: f64) -> String {
    if ns.abs() >= 1e9 {
        return format!("{:.1} s", ns / 1e9);
    }
    scaled(ns, 1e3, &["ns", "us", "ms", "s"])
}

/// Three significant digits in the largest of `units` in which the amount is 1 or more. Each unit
/// is `step` times its predecessor.
fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    for larger in units {
        // 999.6 would round to 1000.
        if value.abs() < step - 0.5 {
            break;
        }
        value /= step;
        unit = larger;
    }
    format!("{} {unit}", digits(value))
}

/// Three significant digits; whole numbers below 1,000 exactly.
fn digits(value: f64) -> String {
    let size = value.abs();
    if value.fract() == 0.0 && size < 1e3 || size >= 99.95 {
        format!("{value:.0}")
    } else if size >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_the_unit_of_their_name_and_three_digits() {
        for (name, value, text) in [
            ("payload_rate_bps", 1_612_345.0, "1.61 Mbit/s"),
            ("rate_bps", 999_700.0, "1.00 Mbit/s"),
            ("rate_bps", 100e6, "100 Mbit/s"),
            ("duration_ns", 2e9, "2.0 s"),
            ("jitter_rfc3550_ns", 1_613.0, "1.61 us"),
            ("jitter_rfc3550_ns", 999_999_999.0, "1.00 s"),
            ("payload_bytes", 403_200.0, "403 kB"),
            ("payload_bytes_forward", 999.0, "999 B"),
            ("loss_ratio", 0.0123, "1.23 %"),
            ("rate_pps", 144.06, "144 packets/s"),
            ("packets", 1_234_567.0, "1234567"),
            ("nlr", f64::NAN, "-"),
        ] {
            assert_eq!(amount(name, value), text, "{name} {value}");
        }
    }

    #[test]
    fn zero_and_unknown_rows_are_left_out_unless_required() {
        let values: BTreeMap<String, Option<Scalar>> = [
            ("lost", Some(Scalar::Count(0))),
            ("packets", Some(Scalar::Count(0))),
            ("jitter_rfc3550_ns", None),
            ("payload_rate_bps", Some(Scalar::Real(1.61e6))),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let mut text = Vec::new();
        print_values(&mut text, &values, &["packets"]).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("packets                     0\n"), "{text}");
        assert!(text.contains("payload rate                1.61 Mbit/s\n"), "{text}");
    }
}
