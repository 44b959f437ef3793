//! Whether two contestants can be told apart: by how much one exceeds the other at least.

/// One-sided, of 15 cells together 95 % sure: a normal deviate of 1 - 0.05 / 15.
const SURE: f64 = 2.713;

/// By which factor values of `own` exceed those of `other` at least: the lower end of the interval that
/// inverts the rank test of Mann and Whitney over all ratios of one to the other (Hodges and Lehmann
/// 1963). Values of each are independent of one another and at least 1. `None` of so few that they tell
/// nothing.
pub(super) fn at_least(own: &[f64], other: &[f64]) -> Option<f64> {
    let mut ratios: Vec<f64> =
        own.iter().flat_map(|own| other.iter().map(move |other| own / other)).collect();
    ratios.sort_by(f64::total_cmp);
    let (n, m) = (own.len() as f64, other.len() as f64);
    let deviation = (n * m * (n + m + 1.0) / 12.0).sqrt();
    let rank = (n * m / 2.0 - SURE * deviation).floor();
    if rank < 1.0 { None } else { ratios.get(rank as usize - 1).copied() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_is_not_shown_to_be_more_and_what_is_twice_as_much_is() {
        let one: Vec<f64> = (0..20).map(|n| 100.0 * 1.05_f64.powi(n * 7 % 20)).collect();
        let twice: Vec<f64> = one.iter().map(|value| 2.0 * value).collect();
        assert!(at_least(&one, &one).unwrap() < 1.0);
        let shown = at_least(&twice, &one).unwrap();
        assert!(shown > 1.2 && shown < 2.0, "{shown}");
        assert!(at_least(&one, &twice).unwrap() < 0.5);
    }

    #[test]
    fn few_values_show_nothing() {
        assert_eq!(at_least(&[900.0; 3], &[1.0; 3]), None);
        assert_eq!(at_least(&[], &[1.0; 30]), None);
    }
}
