//! Departure schedules: the send times of a flow's packets, computed ahead and reproducible by
//! seed.

use std::fmt;
use std::str::FromStr;

use dwell_units::Nanos;
use rand::SeedableRng;
use rand_distr::{Distribution as _, Exp1, Pareto};
use rand_xoshiro::Xoshiro256PlusPlus;
use thiserror::Error;

/// Distribution of the gaps between departures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gaps {
    /// Constant.
    Constant,
    /// Exponential, so that departures are a Poisson process.
    Poisson,
    /// Pareto with this shape (Mok 2015): bursts and long pauses.
    Pareto(f64),
}

/// Error in the name of a distribution.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GapsError {
    /// Unknown distribution.
    #[error("unknown distribution '{0}'; use constant, poisson or pareto(SHAPE), like pareto(1.5)")]
    Unknown(String),
    /// The mean would be infinite.
    #[error("'{0}': the shape of a Pareto distribution must be above 1, or its mean is infinite")]
    Shape(String),
}

impl FromStr for Gaps {
    type Err = GapsError;

    fn from_str(text: &str) -> Result<Self, GapsError> {
        let shape = |text: &str| text.strip_prefix("pareto(")?.strip_suffix(')')?.parse().ok();
        match text {
            "constant" => Ok(Self::Constant),
            "poisson" => Ok(Self::Poisson),
            _ => match shape(text) {
                Some(shape) if shape > 1.0 && f64::is_finite(shape) => Ok(Self::Pareto(shape)),
                Some(_) => Err(GapsError::Shape(text.to_owned())),
                None => Err(GapsError::Unknown(text.to_owned())),
            },
        }
    }
}

impl fmt::Display for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant => f.write_str("constant"),
            Self::Poisson => f.write_str("poisson"),
            Self::Pareto(shape) => write!(f, "pareto({shape})"),
        }
    }
}

/// Departure times of one flow, relative to its start. An endless iterator.
#[derive(Clone, Debug)]
pub struct Schedule {
    gaps: Gaps,
    /// Nanoseconds.
    mean: f64,
    rng: Xoshiro256PlusPlus,
    sent: u64,
    phase: f64,
    at: f64,
}

/// Returns the scale of a Pareto distribution: its mean is scale * shape / (shape - 1).
fn pareto_scale(shape: f64, mean: f64) -> f64 {
    mean * (shape - 1.0) / shape
}

impl Gaps {
    /// Shape and scale of Pareto gaps with this mean; `None` for other distributions. The scale is
    /// the shortest gap.
    pub fn pareto(&self, mean: f64) -> Option<(f64, f64)> {
        match self {
            Self::Pareto(shape) => Some((*shape, pareto_scale(*shape, mean))),
            _ => None,
        }
    }
}

impl Schedule {
    /// Creates a schedule whose gaps have this mean in nanoseconds; the first departure is at
    /// `phase`.
    pub fn new(gaps: Gaps, mean: f64, phase: Nanos, seed: u64) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let phase = phase.0 as f64;
        Self { gaps, mean, rng, sent: 0, phase, at: phase }
    }

    fn gap(&mut self) -> f64 {
        match self.gaps {
            Gaps::Constant => self.mean,
            Gaps::Poisson => {
                let unit: f64 = Exp1.sample(&mut self.rng);
                unit * self.mean
            }
            Gaps::Pareto(shape) => {
                let scale = pareto_scale(shape, self.mean);
                Pareto::new(scale, shape).map_or(self.mean, |pareto| pareto.sample(&mut self.rng))
            }
        }
    }
}

impl Iterator for Schedule {
    type Item = Nanos;

    /// Returns the next departure. Fractions of a nanosecond are kept, so that the rate does not
    /// drift.
    fn next(&mut self) -> Option<Nanos> {
        self.at = match self.gaps {
            // Multiplied, because the rounding errors of a sum would accumulate.
            Gaps::Constant => self.phase + self.sent as f64 * self.mean,
            _ if self.sent == 0 => self.phase,
            _ => self.at + self.gap(),
        };
        self.sent += 1;
        Some(Nanos(self.at.round() as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_gap_matches_the_request() {
        for (gaps, tolerance) in
            [(Gaps::Constant, 1e-9), (Gaps::Poisson, 0.02), (Gaps::Pareto(2.5), 0.02)]
        {
            let last = Schedule::new(gaps, 46_080.3, Nanos::ZERO, 42).nth(200_000).unwrap();
            let mean = last.0 as f64 / 200_000.0;
            assert!((mean / 46_080.3 - 1.0).abs() <= tolerance, "{gaps}: {mean}");
        }
    }

    #[test]
    fn same_seed_gives_same_departures() {
        let take = |seed| -> Vec<_> {
            Schedule::new(Gaps::Pareto(1.5), 1e6, Nanos(7), seed).take(100).collect()
        };
        assert_eq!(take(1), take(1));
        assert_ne!(take(1), take(2));
        assert_eq!(take(1)[0], Nanos(7));
    }

    #[test]
    fn distributions_are_parsed_and_printed() {
        for text in ["constant", "poisson", "pareto(1.5)"] {
            assert_eq!(text.parse::<Gaps>().unwrap().to_string(), text);
        }
        assert!("pareto(1)".parse::<Gaps>().unwrap_err().to_string().contains("above 1"));
        assert!("weibull".parse::<Gaps>().unwrap_err().to_string().contains("unknown"));
    }
}
