//! Whether one group of samples is slower than another, and by how much, or that nobody can tell.

use dwell_stats::Quantile;

use crate::group::Group;

/// How a percentile differs between two groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shift {
    /// Their intervals lie apart: from this to that, in nanoseconds.
    Differs {
        /// Of the first group.
        from: i64,
        /// Of the second.
        to: i64,
    },
    /// Their intervals overlap and are narrow: both within a twentieth of each other.
    Same,
    /// Too few samples, or repetitions that spread too far.
    CannotTell,
}

impl Shift {
    /// Compares the percentile of `ppm` parts in a million.
    pub(crate) fn between(first: &Group, second: &Group, ppm: u32) -> Self {
        let quantile = |group: &Group| group.steps.quantile(Quantile::from_ppm(ppm)?);
        let (Some(from), Some(to)) = (quantile(first), quantile(second)) else {
            return Self::CannotTell;
        };
        let (Some(a), Some(b)) = (first.interval(ppm), second.interval(ppm)) else {
            return Self::CannotTell;
        };
        if a.1 < b.0 || b.1 < a.0 {
            return Self::Differs { from, to };
        }
        let (low, high) = (a.0.min(b.0) as f64, a.1.max(b.1) as f64);
        if low > 0.0 && high / low < 1.05 { Self::Same } else { Self::CannotTell }
    }

    /// How far the percentile moved, as the size of a logarithm; zero unless it did.
    pub(crate) fn size(self) -> f64 {
        match self {
            Self::Differs { from, to } if from > 0 && to > 0 => {
                (to as f64 / from as f64).ln().abs()
            }
            Self::Differs { .. } => f64::MAX,
            Self::Same | Self::CannotTell => 0.0,
        }
    }
}

/// Of several groups, the one whose percentile lies farthest from that of the first.
pub(crate) fn farthest<'g, 'a>(
    groups: &'g [Group<'a>],
    ppm: u32,
) -> Option<(&'g Group<'a>, Shift)> {
    let (first, rest) = groups.split_first()?;
    let shifts = rest.iter().map(|group| (group, Shift::between(first, group, ppm)));
    shifts.reduce(|far, next| if next.1.size() > far.1.size() { next } else { far })
}
