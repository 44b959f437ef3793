//! The result, `dwell.range/1`.

use dwell_record::{TrustWarning, Warning};
use dwell_stats::range::{
    Distance, Estimate, Estimator, RANGE_CONFIDENCE, RangeRtts, Settings, metres,
};
use serde::Serialize;

use super::SEED;
use super::args::NamedSpeed;
use super::calibration::Calibration;
use super::print::time;
use super::source::{Measured, Source, SourceKind};
use crate::environment;

/// Step from which timestamps are too coarse, in picoseconds.
const COARSE_PS: f64 = 1e6;

/// Ratio of the spread to that of the calibration from which conditions have changed.
const SPREAD_CHANGE: f64 = 2.0;

/// A distance, described by `docs/schema/dwell.range-1.schema.json`. Unavailable values are null.
#[derive(Debug, Serialize)]
pub(super) struct RangeResult {
    schema: &'static str,
    dwell: &'static str,
    pub(super) target: String,
    pub(super) source: Source,
    pub(super) medium: MediumRecord,
    pub(super) confidence: f64,
    pub(super) rtts: RttFigures,
    pub(super) resolution: Option<Span>,
    /// Upper bound of the distance without calibration.
    pub(super) bound_m: Option<f64>,
    /// Estimator of `distance`.
    pub(super) estimator: &'static str,
    pub(super) distance: Option<DistanceRecord>,
    pub(super) estimates: Vec<EstimateRecord>,
    pub(super) calibration: Option<CalibrationRecord>,
    pub(super) warnings: Vec<TrustWarning>,
}

#[derive(Debug, Serialize)]
pub(super) struct MediumRecord {
    pub(super) name: Option<&'static str>,
    pub(super) metres_per_second: f64,
    pub(super) tolerance: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct RttFigures {
    /// Number of round trips without outliers.
    pub(super) count: u64,
    pub(super) outliers: u64,
    pub(super) invalid: u64,
    pub(super) wrapped: u64,
    pub(super) min_ps: Option<i64>,
    pub(super) max_ps: Option<i64>,
    /// Largest minus smallest round trip.
    pub(super) spread: Option<Span>,
}

/// A difference of round trips, and the distance that it equals.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Span {
    pub(super) rtt_ps: f64,
    pub(super) distance_m: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct DistanceRecord {
    pub(super) metres: f64,
    /// Longer side of the interval.
    pub(super) error: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct EstimateRecord {
    pub(super) estimator: &'static str,
    pub(super) rtt_ps: f64,
    pub(super) rtt_low_ps: Option<f64>,
    pub(super) rtt_high_ps: Option<f64>,
    /// Half the round trip in metres, with the delay of the devices in it.
    pub(super) uncalibrated: Option<DistanceRecord>,
    pub(super) distance: Option<DistanceRecord>,
}

#[derive(Debug, Serialize)]
pub(super) struct CalibrationRecord {
    pub(super) target: String,
    pub(super) distance_m: f64,
    pub(super) count: u64,
}

impl From<Distance> for DistanceRecord {
    fn from(found: Distance) -> Self {
        let Distance { metres, low, high } = found;
        Self { metres, error: found.error(), low, high }
    }
}

impl RangeResult {
    /// Computes the result.
    pub(super) fn of(
        measured: &Measured,
        speed: NamedSpeed,
        estimator: Estimator,
        calibration: Option<&Calibration>,
    ) -> Self {
        let cleaned = RangeRtts::clean(&measured.rtts_ps, measured.finest_ps);
        let span = |ps: f64| Span { rtt_ps: ps, distance_m: speed.speed.metres(ps) };
        let rtts = RttFigures {
            count: cleaned.as_ref().map_or(0, |rtts| rtts.values().len() as u64),
            outliers: cleaned.as_ref().map_or(0, |rtts| rtts.removed() as u64),
            invalid: measured.invalid,
            wrapped: measured.wrapped,
            min_ps: cleaned.as_ref().map(RangeRtts::minimum_ps),
            max_ps: cleaned.as_ref().and_then(|rtts| rtts.values().iter().copied().max()),
            spread: cleaned.as_ref().map(|rtts| span(rtts.spread_ps() as f64)),
        };
        let estimates = match &cleaned {
            Some(rtts) => estimates(rtts, speed, calibration),
            None => Vec::new(),
        };
        let chosen = estimates.iter().find(|found| found.estimator == estimator.name());
        let mut result = Self {
            schema: "dwell.range/1",
            dwell: environment::build(),
            target: measured.target.clone(),
            source: measured.source.clone(),
            medium: MediumRecord {
                name: speed.medium,
                metres_per_second: speed.speed.metres_per_second(),
                tolerance: speed.speed.tolerance(),
            },
            confidence: RANGE_CONFIDENCE,
            rtts,
            resolution: cleaned.as_ref().map(|rtts| span(rtts.resolution_ps())),
            bound_m: cleaned.as_ref().map(|rtts| rtts.bound_metres(speed.speed)),
            estimator: estimator.name(),
            distance: chosen.and_then(|found| found.distance),
            estimates,
            calibration: calibration.map(|calibration| CalibrationRecord {
                target: calibration.target.clone(),
                distance_m: calibration.distance_m,
                count: calibration.count,
            }),
            warnings: measured.warnings.clone(),
        };
        if let Some(rtts) = &cleaned {
            let warnings = result.range_warnings(rtts, calibration);
            result.warnings.extend(warnings.into_iter().map(Into::into));
        }
        result
    }

    fn range_warnings(&self, rtts: &RangeRtts, calibration: Option<&Calibration>) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let mut warn_if = |is_true: bool, warning: Warning| {
            if is_true {
                warnings.push(warning);
            }
        };
        let step = self.resolution.map_or(0.0, |step| step.distance_m);
        warn_if(rtts.resolution_ps() >= COARSE_PS, Warning::CoarseTimestamps(metres(step)));
        warn_if(self.rtts.invalid > 0, Warning::InvalidResults(self.rtts.invalid));
        let is_ftm = self.source.kind == SourceKind::Ftm;
        warn_if(is_ftm, Warning::BoundUnproven);
        warn_if(is_ftm && calibration.is_none(), Warning::OffsetUncalibrated);
        let has_interval = self.estimates.iter().any(|found| found.rtt_low_ps.is_some());
        warn_if(!has_interval, Warning::NoInterval);
        let is_negative = self.distance.is_some_and(|found| found.high < 0.0);
        warn_if(is_negative, Warning::NegativeDistance);
        let Some(calibration) = calibration else { return warnings };
        let is_other = self.source.kind == SourceKind::Ping && calibration.target != self.target;
        warn_if(is_other, Warning::OtherDevice(calibration.target.clone()));
        warn_if(self.distance.is_none() && has_interval, Warning::NoDistance(self.estimator));
        let floor = rtts.resolution_ps().max(calibration.resolution_ps);
        let before = (calibration.quartile_spread_ps as f64).max(floor);
        let now = (rtts.quartile_spread_ps() as f64).max(floor);
        let change = now / before;
        warn_if(
            !(1.0 / SPREAD_CHANGE..=SPREAD_CHANGE).contains(&change),
            Warning::SpreadChanged(time(now), time(before)),
        );
        warnings
    }
}

/// All estimators.
fn estimates(
    rtts: &RangeRtts,
    speed: NamedSpeed,
    calibration: Option<&Calibration>,
) -> Vec<EstimateRecord> {
    let settings = calibration.map_or_else(|| Settings::of(rtts), Calibration::settings);
    let of = |estimator| {
        let found = Estimate::of(rtts, estimator, settings, SEED)?;
        let exact = Estimate { rtt_ps: 0.0, interval_ps: Some((0.0, 0.0)) };
        let resolution = rtts.resolution_ps();
        let uncalibrated = Distance::calibrated(&found, &exact, 0.0, resolution, speed.speed);
        let distance = calibration.and_then(|calibration| {
            let resolution = resolution.max(calibration.resolution_ps);
            // The known distance in the time of this medium: only the delay of the devices is kept.
            let known = calibration.distance_m * speed.speed.metres_per_second()
                / calibration.metres_per_second;
            let calibrated = calibration.estimate(estimator)?;
            Distance::calibrated(&found, &calibrated, known, resolution, speed.speed)
        });
        Some(EstimateRecord {
            estimator: estimator.name(),
            rtt_ps: found.rtt_ps,
            rtt_low_ps: found.interval_ps.map(|(low, _)| low),
            rtt_high_ps: found.interval_ps.map(|(_, high)| high),
            uncalibrated: uncalibrated.map(Into::into),
            distance: distance.map(Into::into),
        })
    };
    Estimator::ALL.into_iter().filter_map(of).collect()
}
