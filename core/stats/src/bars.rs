//! A histogram as text: one line per bin, with a bar of eighth blocks.

use std::fmt::Write;

use dwell_units::Nanos;

use crate::histogram::Bin;

/// Eighths of a block, from one to seven.
const PARTS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/// Columns that an edge takes, such as `999.9ms`.
const EDGE: usize = 7;

/// Lines of at most `width` columns (as long as the counts leave room for a bar of ten), each
/// ending in a line feed. A bin that is not empty always shows something.
pub fn render(bins: &[Bin], width: usize) -> String {
    let largest = bins.iter().map(|bin| bin.count).max().unwrap_or(0).max(1);
    let digits = largest.to_string().len();
    let room = width.saturating_sub(EDGE + " .. ".len() + EDGE + 2 + digits + 1).max(10);
    let mut text = String::new();
    for bin in bins {
        let edges = format!("{:>EDGE$} .. {:>EDGE$}", short(bin.from), short(bin.to));
        let eighths = (u128::from(bin.count) * room as u128 * 8).div_ceil(u128::from(largest));
        let (full, part) = (eighths as usize / 8, eighths as usize % 8);
        let mut bar = "█".repeat(full);
        bar.extend(part.checked_sub(1).map(|part| PARTS[part]));
        writeln!(text, "{edges}  {:>digits$} {bar}", bin.count).expect("a string takes any text");
    }
    text
}

/// A time in four digits at most.
fn short(time: Nanos) -> String {
    let magnitude = time.0.unsigned_abs();
    let sign = if time.0 < 0 { "-" } else { "" };
    let (unit, scale) = match magnitude {
        0..1_000 => return format!("{sign}{magnitude}ns"),
        1_000..1_000_000 => ("us", 1e3),
        1_000_000..1_000_000_000 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    let value = magnitude as f64 / scale;
    if value < 99.95 {
        format!("{sign}{value:.1}{unit}")
    } else {
        format!("{sign}{value:.0}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bin(from: i64, to: i64, count: u64) -> Bin {
        Bin { from: Nanos(from), to: Nanos(to), count }
    }

    #[test]
    fn a_histogram_prints_as_bars_in_proportion() {
        let bins =
            [bin(950, 28_400, 40), bin(28_400, 1_500_000, 9), bin(1_500_000, 2_000_000_000, 0)];
        let expected = "  950ns ..  28.4us  40 ██████████\n \
                        28.4us ..   1.5ms   9 ██▎\n  \
                        1.5ms ..    2.0s   0 \n";
        assert_eq!(render(&bins, 33), expected);
    }

    #[test]
    fn one_value_among_millions_still_shows_and_lines_stay_in_their_width() {
        let bins = [bin(1, 2, 5_000_000), bin(2, 3, 1)];
        let text = render(&bins, 80);
        assert!(text.lines().nth(1).unwrap().ends_with('▏'), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn edges_are_short_in_every_unit() {
        let cases = [
            (0, "0ns"),
            (-40, "-40ns"),
            (99_949, "99.9us"),
            (99_950, "100us"),
            (3_250_000, "3.2ms"),
        ];
        for (nanos, text) in cases {
            assert_eq!(short(Nanos(nanos)), text);
        }
    }
}
