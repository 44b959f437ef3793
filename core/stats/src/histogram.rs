//! Coarse histogram of a distribution: a few bins for a terminal.

use dwell_units::Nanos;

use crate::distribution::Distribution;

/// One bin: values from `from` up to, but not including, `to`; the last bin includes `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// Lower edge.
    pub from: Nanos,
    /// Upper edge.
    pub to: Nanos,
    /// Number of values in the bin.
    pub count: u64,
}

/// At most `rows` bins from the smallest to the largest value. Edges are in equal ratios, so that a
/// long tail leaves room for the body, or in equal steps if a value is not positive. There are
/// fewer bins if the values span fewer nanoseconds, and none for an empty distribution.
pub fn bins(distribution: &Distribution, rows: usize) -> Vec<Bin> {
    let (Some(min), Some(max)) = (distribution.min(), distribution.max()) else {
        return Vec::new();
    };
    let edges = edges(min.0, max.0, rows.max(1));
    let mut counts = vec![0; edges.len() - 1];
    distribution.for_each(|value, n| {
        // Index of the first edge above the value; the maximum belongs to the last bin.
        let above = edges.partition_point(|&edge| edge <= value.0);
        counts[above.clamp(1, edges.len() - 1) - 1] += n;
    });
    let pairs = edges.windows(2);
    pairs
        .zip(counts)
        .map(|(edge, count)| Bin { from: Nanos(edge[0]), to: Nanos(edge[1]), count })
        .collect()
}

/// At least two non-decreasing edges; strictly increasing unless all values are equal.
fn edges(min: i64, max: i64, rows: usize) -> Vec<i64> {
    let (low, high) = (min as f64, max as f64);
    let between = (1..rows).map(|row| {
        let share = row as f64 / rows as f64;
        let edge =
            if min > 0 { low * (high / low).powf(share) } else { low + (high - low) * share };
        // Rounding may move an edge past an end.
        (edge.round() as i64).clamp(min, max)
    });
    let mut edges: Vec<_> = std::iter::once(min).chain(between).collect();
    edges.dedup();
    if edges.last() != Some(&max) || edges.len() == 1 {
        edges.push(max);
    }
    edges
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[i64]) -> Distribution {
        let mut distribution = Distribution::new();
        values.iter().for_each(|&value| distribution.record(Nanos(value)));
        distribution
    }

    #[test]
    fn edges_of_positive_values_rise_in_equal_ratios() {
        assert_eq!(edges(1_000, 8_000, 3), [1_000, 2_000, 4_000, 8_000]);
        assert_eq!(edges(-30, 60, 3), [-30, 0, 30, 60]);
        assert_eq!(edges(5, 7, 12), [5, 6, 7]);
        assert_eq!(edges(5, 5, 12), [5, 5]);
    }

    #[test]
    fn no_values_have_no_bins_and_one_value_has_one() {
        assert_eq!(bins(&Distribution::new(), 12), []);
        assert_eq!(bins(&of(&[5]), 12), [Bin { from: Nanos(5), to: Nanos(5), count: 1 }]);
    }

    proptest! {
        #[test]
        fn each_value_is_counted_in_the_bin_that_holds_it(
            values in proptest::collection::vec(
                prop_oneof![9 => -1_000..100_000_i64, 1 => any::<i64>()], 1..200,
            ),
            rows in 1..14_usize,
        ) {
            let bins = bins(&of(&values), rows);
            prop_assert!(bins.len() <= rows);
            prop_assert!(bins.windows(2).all(|pair| pair[0].to == pair[1].from));
            for (i, bin) in bins.iter().enumerate() {
                let last = i + 1 == bins.len();
                let naive = values
                    .iter()
                    .filter(|&&v| v >= bin.from.0 && (v < bin.to.0 || last && v == bin.to.0))
                    .count();
                prop_assert_eq!(bin.count, naive as u64);
            }
        }
    }
}
