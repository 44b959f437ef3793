//! A straight line through points by least squares, with what is known of it.

use std::collections::BTreeMap;

/// y = a + b x, fitted by ordinary least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) intercept: f64,
    pub(crate) slope: f64,
    /// Half the width of the 95 % interval of the slope (Student's t).
    pub(crate) slope_half: f64,
    /// Share of the variance of y, within groups, that the line explains; 1 where y does not vary.
    pub(crate) r_squared: f64,
    mean_x: f64,
    sum_xx: f64,
    /// Standard deviation of the residuals, times the quantile of Student's t.
    t_times_s: f64,
    n: f64,
}

/// An observation: which group it belongs to, x and y.
pub(crate) type Observed = (usize, f64, f64);

impl Line {
    /// The line through these points when every group may lie higher or lower than the others by
    /// a constant of its own (of one group: plain least squares), and the points with that constant
    /// taken out. `None` when too few points remain per group, or none of them varies in x.
    pub(crate) fn through(points: &[Observed]) -> Option<(Self, Vec<(f64, f64)>)> {
        let mut groups: BTreeMap<usize, (f64, f64, f64)> = BTreeMap::new();
        for (group, x, y) in points {
            let sums = groups.entry(*group).or_default();
            *sums = (sums.0 + 1.0, sums.1 + x, sums.2 + y);
        }
        let degrees = points.len().checked_sub(groups.len() + 1).filter(|degrees| *degrees > 0)?;
        let means: BTreeMap<usize, (f64, f64)> =
            groups.into_iter().map(|(group, (n, x, y))| (group, (x / n, y / n))).collect();
        let n = points.len() as f64;
        let mean_x = points.iter().map(|(_, x, _)| x).sum::<f64>() / n;
        let mean_y = points.iter().map(|(_, _, y)| y).sum::<f64>() / n;
        let inner = |(group, x, y): &Observed| {
            let (x_mean, y_mean) = means[group];
            (x - x_mean, y - y_mean)
        };
        let (mut sum_xx, mut sum_yy, mut sum_xy) = (0.0, 0.0, 0.0);
        for (dx, dy) in points.iter().map(inner) {
            sum_xx += dx * dx;
            sum_yy += dy * dy;
            sum_xy += dx * dy;
        }
        if sum_xx <= 0.0 || !(sum_xx + sum_yy + sum_xy).is_finite() {
            return None;
        }
        let slope = sum_xy / sum_xx;
        let intercept = mean_y - slope * mean_x;
        let residuals: f64 =
            points.iter().map(inner).map(|(dx, dy)| (dy - slope * dx).powi(2)).sum();
        let t_times_s = student_t(degrees) * (residuals / degrees as f64).sqrt();
        let r_squared = if sum_yy > 0.0 { 1.0 - residuals / sum_yy } else { 1.0 };
        let slope_half = t_times_s / sum_xx.sqrt();
        let line = Self { intercept, slope, slope_half, r_squared, mean_x, sum_xx, t_times_s, n };
        let adjusted = |point: &Observed| {
            let (dx, dy) = inner(point);
            (point.1, line.at(point.1) + dy - slope * dx)
        };
        Some((line, points.iter().map(adjusted).collect()))
    }

    pub(crate) fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }

    /// Half the width of the 95 % interval of the line itself at x.
    pub(crate) fn half_at(&self, x: f64) -> f64 {
        self.t_times_s * (1.0 / self.n + (x - self.mean_x).powi(2) / self.sum_xx).sqrt()
    }
}

/// The 97.5 % quantile of Student's t: tabulated where its expansion in 1/df is poor (Abramowitz
/// and Stegun 26.7.5, four terms).
fn student_t(df: usize) -> f64 {
    const Z: f64 = 1.959_963_985;
    match df {
        0 => f64::INFINITY,
        1 => 12.706_205,
        2 => 4.302_653,
        3 => 3.182_446,
        4 => 2.776_445,
        5 => 2.570_582,
        6 => 2.446_912,
        7 => 2.364_624,
        8 => 2.306_004,
        df => {
            let v = df as f64;
            let z = |power| Z.powi(power);
            Z + (z(3) + Z) / (4.0 * v)
                + (5.0 * z(5) + 16.0 * z(3) + 3.0 * Z) / (96.0 * v.powi(2))
                + (3.0 * z(7) + 19.0 * z(5) + 17.0 * z(3) - 15.0 * Z) / (384.0 * v.powi(3))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantile_of_student_agrees_with_printed_tables() {
        for (df, t) in
            [(1, 12.706), (4, 2.776), (5, 2.571), (8, 2.306), (9, 2.262), (30, 2.042), (120, 1.980)]
        {
            assert!((student_t(df) - t).abs() < 1e-3, "{df} degrees: {}", student_t(df));
        }
    }

    #[test]
    fn a_line_is_found_with_its_interval() {
        // By hand: residuals square to 2.4, so s = sqrt(0.8); half = 3.18245 s / sqrt(10).
        let points = [(0, 1.0, 2.0), (0, 2.0, 4.0), (0, 3.0, 5.0), (0, 4.0, 4.0), (0, 5.0, 5.0)];
        let (line, adjusted) = Line::through(&points).unwrap();
        assert!((line.intercept - 2.2).abs() < 1e-9 && (line.slope - 0.6).abs() < 1e-9);
        assert!((line.r_squared - 0.6).abs() < 1e-9);
        assert!((line.slope_half - 0.900_13).abs() < 1e-4, "{}", line.slope_half);
        for ((_, _, y), (_, same)) in points.iter().zip(&adjusted) {
            assert!((y - same).abs() < 1e-9);
        }
    }

    #[test]
    fn groups_that_lie_apart_do_not_hide_a_slope_they_share() {
        // Two groups 1,000 apart, one measured where x is high: plain least squares sees -200.
        let points = [
            (0, 1.0, 1_001.0),
            (0, 2.0, 1_002.1),
            (0, 3.0, 1_002.9),
            (1, 6.0, 6.0),
            (1, 7.0, 7.1),
            (1, 8.0, 7.9),
        ];
        let (line, adjusted) = Line::through(&points).unwrap();
        assert!((line.slope - 0.95).abs() < 1e-9, "{}", line.slope);
        assert!(line.slope_half < 0.3);
        assert!(adjusted.iter().all(|(x, y)| (y - line.at(*x)).abs() < 0.2));
    }

    #[test]
    fn points_that_allow_no_line_give_none() {
        assert_eq!(Line::through(&[(0, 1.0, 2.0), (0, 2.0, 3.0)]), None);
        assert_eq!(Line::through(&[(0, 1.0, 2.0), (0, 1.0, 3.0), (0, 1.0, 4.0)]), None);
        assert_eq!(Line::through(&[(0, 1.0, f64::NAN), (0, 2.0, 3.0), (0, 3.0, 4.0)]), None);
    }
}
