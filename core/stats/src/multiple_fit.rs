//! Least squares with several variables, such as delay against packet size and packet rate.
//!
//! Intervals assume independent residuals, as in [`crate::grouped_least_squares`].

use crate::fit::Coefficient;
use crate::interval::RealInterval;
use crate::probability::{is_confidence, student_quantile};

/// Smallest pivot of the correlation matrix of the variables. Below it, the variables depend on
/// each other.
const MIN_PIVOT: f64 = 1e-9;

/// Least-squares plane: y = intercept + sum of slope x variable.
#[derive(Clone, Debug, PartialEq)]
pub struct MultipleFit {
    /// Number of points.
    pub count: usize,
    /// y where all variables are 0.
    pub intercept: Coefficient,
    /// y per unit of each variable.
    pub slopes: Vec<Coefficient>,
    /// Share of the variance of y explained by the plane; `None` if y does not vary.
    pub r_squared: Option<f64>,
    /// Standard deviation of the residuals, with n - 1 - (number of variables) degrees of freedom.
    pub residual_stddev: f64,
}

impl MultipleFit {
    /// y of the plane at these variables.
    pub fn at(&self, variables: &[f64]) -> f64 {
        let slopes = self.slopes.iter().zip(variables);
        self.intercept.value + slopes.map(|(slope, x)| slope.value * x).sum::<f64>()
    }
}

/// Least squares of points (variables, y). Without variables, the intercept is the mean.
///
/// `None` without degrees of freedom, if a variable does not vary or depends on the others, if a
/// point is not finite or has another number of variables, or if the confidence is not between 0
/// and 1.
///
/// ```
/// use dwell_stats::multiple_least_squares;
///
/// // Delay in us by packet size in bytes and rate in packets per second.
/// let points = [
///     (vec![100.0, 200.0], 14.1),
///     (vec![500.0, 200.0], 21.9),
///     (vec![100.0, 400.0], 15.9),
///     (vec![500.0, 400.0], 24.1),
/// ];
/// let plane = multiple_least_squares(&points, 0.95).expect("two sizes and two rates");
/// assert!((plane.slopes[0].value - 0.02).abs() < 1e-9);
/// assert!((plane.slopes[1].value - 0.01).abs() < 1e-9);
/// ```
pub fn multiple_least_squares(points: &[(Vec<f64>, f64)], confidence: f64) -> Option<MultipleFit> {
    let variables = points.first()?.0.len();
    let count = points.len();
    let is_usable = |(x, y): &(Vec<f64>, f64)| {
        x.len() == variables && y.is_finite() && x.iter().all(|x| x.is_finite())
    };
    if !points.iter().all(is_usable) || !is_confidence(confidence) {
        return None;
    }
    let freedom = count.checked_sub(variables + 1).filter(|&left| left > 0)? as f64;
    let n = count as f64;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / n;
    let mean = |j: usize| points.iter().map(|(x, _)| x[j]).sum::<f64>() / n;
    let means: Vec<f64> = (0..variables).map(mean).collect();
    let scale = |j: usize| {
        let squares: f64 = points.iter().map(|(x, _)| (x[j] - means[j]).powi(2)).sum();
        squares.sqrt()
    };
    let scales: Vec<f64> = (0..variables).map(scale).collect();
    if scales.iter().any(|scale| *scale <= 0.0 || !scale.is_finite()) {
        return None;
    }
    // Centred variables with unit sum of squares, so that the matrix is one of correlations.
    let scaled = |x: &[f64], j: usize| (x[j] - means[j]) / scales[j];
    let mut correlations = vec![vec![0.0; variables]; variables];
    let mut products = vec![0.0; variables];
    for (x, y) in points {
        for j in 0..variables {
            products[j] += scaled(x, j) * (y - mean_y);
            for (k, correlation) in correlations[j].iter_mut().enumerate() {
                *correlation += scaled(x, j) * scaled(x, k);
            }
        }
    }
    let inverse = inverted(correlations)?;
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let slopes: Vec<f64> =
        (0..variables).map(|j| dot(&inverse[j], &products) / scales[j]).collect();
    let intercept = mean_y - dot(&slopes, &means);
    let (mut left, mut total) = (0.0, 0.0);
    for (x, y) in points {
        left += (y - intercept - dot(&slopes, x)).powi(2);
        total += (y - mean_y).powi(2);
    }
    let residual_stddev = (left / freedom).sqrt();
    let student = student_quantile(0.5 + confidence / 2.0, freedom);
    let coefficient = |value: f64, standard_error: f64| {
        let margin = student * standard_error;
        let interval = RealInterval { low: value - margin, high: value + margin };
        Coefficient { value, standard_error, interval }
    };
    let of_variable = |j: usize| {
        coefficient(slopes[j], residual_stddev * inverse[j][j].max(0.0).sqrt() / scales[j])
    };
    let origin: Vec<f64> = (0..variables).map(|j| means[j] / scales[j]).collect();
    let spread: f64 = (0..variables).map(|j| origin[j] * dot(&inverse[j], &origin)).sum();
    Some(MultipleFit {
        count,
        intercept: coefficient(intercept, residual_stddev * (1.0 / n + spread.max(0.0)).sqrt()),
        slopes: (0..variables).map(of_variable).collect(),
        r_squared: (total > 0.0).then(|| (1.0 - left / total).clamp(0.0, 1.0)),
        residual_stddev,
    })
}

/// Inverse of a small symmetric matrix by Gauss-Jordan elimination; `None` if it is singular.
fn inverted(mut matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let size = matrix.len();
    let unit = |i: usize| (0..size).map(|j| f64::from(u8::from(i == j))).collect();
    let mut inverse: Vec<Vec<f64>> = (0..size).map(unit).collect();
    for column in 0..size {
        let largest = (column..size)
            .max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()))?;
        matrix.swap(column, largest);
        inverse.swap(column, largest);
        let pivot = matrix[column][column];
        if pivot.abs() < MIN_PIVOT {
            return None;
        }
        for value in matrix[column].iter_mut().chain(&mut inverse[column]) {
            *value /= pivot;
        }
        for row in (0..size).filter(|row| *row != column) {
            let factor = matrix[row][column];
            for j in 0..size {
                matrix[row][j] -= factor * matrix[column][j];
                inverse[row][j] -= factor * inverse[column][j];
            }
        }
    }
    Some(inverse)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::grouped_least_squares;

    fn close(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= 1e-6 * expected.abs().max(1e-3)
    }

    #[test]
    fn plane_matches_values_computed_by_hand() {
        // Orthogonal design: slopes 2 and 3 about a mean of 10; residuals are +-1, so their squares
        // sum to 4, and s = 2 with one degree of freedom.
        let points = [
            (vec![-1.0, -1.0], 6.0),
            (vec![1.0, -1.0], 8.0),
            (vec![-1.0, 1.0], 10.0),
            (vec![1.0, 1.0], 16.0),
        ];
        let fit = multiple_least_squares(&points, 0.95).unwrap();
        assert!(close(fit.intercept.value, 10.0), "{fit:?}");
        assert!(close(fit.slopes[0].value, 2.0) && close(fit.slopes[1].value, 3.0), "{fit:?}");
        assert!(close(fit.residual_stddev, 2.0), "{fit:?}");
        assert!(close(fit.slopes[0].standard_error, 1.0), "{fit:?}");
        assert!(close(fit.r_squared.unwrap(), 1.0 - 4.0 / 56.0), "{fit:?}");
        // 12.7062 is Student's t with one degree of freedom at 97.5 %.
        assert!((fit.intercept.interval.high - 22.706_2).abs() < 1e-3, "{fit:?}");
        assert!(close(fit.at(&[1.0, 1.0]), 15.0), "{fit:?}");
    }

    #[test]
    fn mean_is_the_fit_without_variables() {
        let points = [(vec![], 1.0), (vec![], 2.0), (vec![], 6.0)];
        let fit = multiple_least_squares(&points, 0.95).unwrap();
        assert!(close(fit.intercept.value, 3.0) && fit.slopes.is_empty(), "{fit:?}");
        assert!(close(fit.intercept.standard_error, (7.0_f64 / 3.0).sqrt()), "{fit:?}");
    }

    #[test]
    fn dependent_or_constant_variables_have_no_fit() {
        let of = |f: fn(f64) -> Vec<f64>| -> Vec<(Vec<f64>, f64)> {
            (0..9).map(|i| (f(f64::from(i)), f64::from(i * i))).collect()
        };
        assert_eq!(multiple_least_squares(&of(|x| vec![x, 2.0 * x + 1.0]), 0.95), None);
        assert_eq!(multiple_least_squares(&of(|_| vec![1.0]), 0.95), None);
        assert_eq!(multiple_least_squares(&of(|x| vec![x, x * x])[..3], 0.95), None);
        assert_eq!(multiple_least_squares(&[], 0.95), None);
        assert_eq!(multiple_least_squares(&of(|x| vec![x]), 1.0), None);
        assert_eq!(multiple_least_squares(&of(|x| vec![1.0 / x]), 0.95), None);
    }

    proptest! {
        #[test]
        fn one_variable_is_the_line_fit(
            points in proptest::collection::vec((-1_000..1_000_i32, -1_000..1_000_i32), 3..40)
        ) {
            let grouped: Vec<_> =
                points.iter().map(|&(x, y)| (0, f64::from(x), f64::from(y))).collect();
            let single: Vec<_> =
                grouped.iter().map(|&(_, x, y)| (vec![x], y)).collect();
            let line = grouped_least_squares(&grouped, 0.9).map(|(line, _)| line);
            let plane = multiple_least_squares(&single, 0.9);
            prop_assert_eq!(line.is_some(), plane.is_some());
            if let (Some(line), Some(plane)) = (line, plane) {
                let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * (1.0 + b.abs());
                prop_assert!(near(plane.slopes[0].value, line.slope.value));
                prop_assert!(near(plane.intercept.value, line.intercept.value));
                prop_assert!(near(plane.intercept.interval.high, line.intercept.interval.high));
                prop_assert!(near(plane.slopes[0].interval.low, line.slope.interval.low));
            }
        }
    }
}
