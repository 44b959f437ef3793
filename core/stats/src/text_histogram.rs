//! Text histogram: one line per bin, with a bar of eighth blocks.

use std::fmt::Write;

use dwell_units::Nanos;

use crate::histogram::Bin;

/// Block characters of one to seven eighths.
const EIGHTH_BLOCKS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/// Minimum width of an edge in columns, such as `999.9ms`.
const MIN_EDGE_WIDTH: usize = 7;
/// Maximum extra digits to distinguish two edges: 1 ns among seconds.
const MAX_EXTRA_DIGITS: usize = 9;

/// Renders one line per bin, each ending in a line feed. Lines have at most `width` columns, unless
/// the counts leave less than 10 columns for the bar. A non-empty bin always shows a bar.
///
/// ```
/// use dwell_stats::{Distribution, bins, render};
/// use dwell_units::Nanos;
///
/// let mut delays = Distribution::new();
/// [20, 21, 22, 23, 24, 80].map(|us| delays.record(Nanos::from_micros(us)));
/// let text = render(&bins(&delays, 3), 60);
/// assert_eq!(text.lines().count(), 3);
/// ```
pub fn render(bins: &[Bin], width: usize) -> String {
    let largest = bins.iter().map(|bin| bin.count).max().unwrap_or(0).max(1);
    let digits = largest.to_string().len();
    let labels = labels(bins);
    let edge = labels.iter().flatten().map(String::len).max().unwrap_or(0).max(MIN_EDGE_WIDTH);
    let room = width.saturating_sub(edge + " .. ".len() + edge + 2 + digits + 1).max(10);
    let mut text = String::new();
    for (bin, [from, to]) in bins.iter().zip(&labels) {
        let edges = format!("{from:>edge$} .. {to:>edge$}");
        let eighths = (u128::from(bin.count) * room as u128 * 8).div_ceil(u128::from(largest));
        let (full, part) = (eighths as usize / 8, eighths as usize % 8);
        let mut bar = "█".repeat(full);
        bar.extend(part.checked_sub(1).map(|part| EIGHTH_BLOCKS[part]));
        writeln!(text, "{edges}  {:>digits$} {bar}", bin.count)
            .expect("writing to a String cannot fail");
    }
    text
}

/// Formats both edges of every bin with the fewest digits that distinguish them: bins may be narrow
/// and far from zero.
fn labels(bins: &[Bin]) -> Vec<[String; 2]> {
    let with = |more: usize| -> Vec<[String; 2]> {
        bins.iter().map(|bin| [bin.from, bin.to].map(|edge| short(edge, more))).collect()
    };
    let are_distinct = |labels: &[[String; 2]]| {
        labels.iter().zip(bins).all(|([from, to], bin)| from != to || bin.from == bin.to)
    };
    (0..MAX_EXTRA_DIGITS)
        .map(with)
        .find(|labels| are_distinct(labels))
        .unwrap_or_else(|| with(MAX_EXTRA_DIGITS))
}

/// Formats a time with at most four digits plus `more`, limited to whole nanoseconds.
fn short(time: Nanos, more: usize) -> String {
    let magnitude = time.0.unsigned_abs();
    let sign = if time.0 < 0 { "-" } else { "" };
    let (unit, scale, exact) = match magnitude {
        0..1_000 => return format!("{sign}{magnitude}ns"),
        1_000..1_000_000 => ("us", 1e3, 3),
        1_000_000..1_000_000_000 => ("ms", 1e6, 6),
        _ => ("s", 1e9, 9),
    };
    let value = magnitude as f64 / scale;
    let digits = (usize::from(value < 99.95) + more).min(exact);
    format!("{sign}{value:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bin(from: i64, to: i64, count: u64) -> Bin {
        Bin { from: Nanos(from), to: Nanos(to), count }
    }

    #[test]
    fn histogram_prints_proportional_bars() {
        let bins =
            [bin(950, 28_400, 40), bin(28_400, 1_500_000, 9), bin(1_500_000, 2_000_000_000, 0)];
        let expected = "  950ns ..  28.4us  40 ██████████\n \
                        28.4us ..   1.5ms   9 ██▎\n  \
                        1.5ms ..    2.0s   0 \n";
        assert_eq!(render(&bins, 33), expected);
    }

    #[test]
    fn rare_value_is_visible_and_lines_fit_the_width() {
        let bins = [bin(1, 2, 5_000_000), bin(2, 3, 1)];
        let text = render(&bins, 80);
        assert!(text.lines().nth(1).unwrap().ends_with('▏'), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn narrow_bins_far_from_zero_have_distinct_labels() {
        let edges = [9_998_400, 9_999_100, 10_000_300, 10_000_350];
        let bins: Vec<Bin> = edges.windows(2).map(|edge| bin(edge[0], edge[1], 1)).collect();
        let text = render(&bins, 80);
        let expected =
            [" 9.99840ms ..  9.99910ms", " 9.99910ms .. 10.00030ms", "10.00030ms .. 10.00035ms"];
        assert_eq!(text.lines().map(|line| &line[..24]).collect::<Vec<_>>(), expected, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let seconds = [bin(5_000_000_000, 5_000_000_001, 1)];
        assert!(render(&seconds, 80).starts_with("5.000000000s .. 5.000000001s"));
        // A bin of a single value has equal edges.
        assert!(render(&[bin(5_000_000, 5_000_000, 7)], 80).starts_with("  5.0ms ..   5.0ms"));
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
            assert_eq!(short(Nanos(nanos), 0), text);
        }
    }
}
