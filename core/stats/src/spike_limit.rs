//! Limit above which a round-trip delay is a spike: the median plus a number of median absolute
//! deviations.

use dwell_units::Nanos;

use crate::distribution::Distribution;

/// Minimum number of values for a limit.
const MIN_VALUES: u64 = 20;

/// Returns the median plus `deviations` median absolute deviations; `None` below 20 values. If more
/// than half of the values are equal, the mean absolute deviation is used, as in
/// [`Hampel`](crate::Hampel). Both medians are nearest-rank.
///
/// ```
/// use dwell_stats::{Distribution, spike_limit};
/// use dwell_units::Nanos;
///
/// let mut delays = Distribution::new();
/// (0..101).for_each(|n| delays.record(Nanos(1_000 + n)));
/// assert_eq!(spike_limit(&delays, 10), Some(Nanos(1_050 + 10 * 25)));
/// ```
pub fn spike_limit(delays: &Distribution, deviations: i64) -> Option<Nanos> {
    let count = delays.count();
    if count < MIN_VALUES {
        return None;
    }
    let median = delays.ranked(count.div_ceil(2))?;
    let mut distances = Vec::new();
    let mut sum = 0_u128;
    delays.for_each(|value, n| {
        let distance = value.0.abs_diff(median.0);
        sum += u128::from(distance) * u128::from(n);
        distances.push((distance, n));
    });
    distances.sort_unstable();
    let mut below = 0;
    let middle = distances.iter().find(|(_, n)| {
        below += n;
        below >= count.div_ceil(2)
    });
    let deviation = match middle.map_or(0, |(distance, _)| *distance) {
        0 => u64::try_from(sum / u128::from(count)).unwrap_or(u64::MAX),
        deviation => deviation,
    };
    let above = i64::try_from(deviation).unwrap_or(i64::MAX).saturating_mul(deviations);
    Some(median.saturating_add(Nanos(above)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[i64]) -> Distribution {
        let mut delays = Distribution::new();
        values.iter().for_each(|value| delays.record(Nanos(*value)));
        delays
    }

    #[test]
    fn too_few_values_have_no_limit() {
        assert_eq!(spike_limit(&of(&[5; 19]), 10), None);
        assert_eq!(spike_limit(&of(&[5; 20]), 10), Some(Nanos(5)));
    }

    #[test]
    fn equal_values_and_one_spike_use_the_mean_deviation() {
        let mut values = [1_000; 100].to_vec();
        values.push(11_100);
        assert_eq!(spike_limit(&of(&values), 10), Some(Nanos(2_000)));
    }
}
