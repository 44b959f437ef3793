//! The calibration file, `dwell.range-calibration/1`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use dwell_stats::range::{Estimate, Estimator, RangeRtts, SPEED_OF_LIGHT, Settings};
use serde::{Deserialize, Serialize};

use super::SEED;
use super::args::NamedSpeed;
use super::source::{Measured, Request, Source};
use crate::{Failure, environment};

/// Name and version of the format.
const SCHEMA: &str = "dwell.range-calibration/1";

/// Maximum size of a calibration file.
const MAX_FILE_LEN: u64 = 1 << 20;

/// Round trips at a known distance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Calibration {
    pub(super) schema: String,
    /// Build of dwell that measured it.
    pub(super) dwell: String,
    pub(super) target: String,
    pub(super) source: Source,
    /// The known distance.
    pub(super) distance_m: f64,
    /// Propagation speed at the calibration.
    pub(super) metres_per_second: f64,
    /// Number of round trips without outliers.
    pub(super) count: u64,
    /// Number of outliers removed.
    pub(super) outliers: u64,
    /// Step of the timestamps.
    pub(super) resolution_ps: f64,
    /// Interquartile range of the round trips.
    pub(super) quartile_spread_ps: i64,
    /// Values per block of the minimum.
    pub(super) block: u64,
    /// Half width of the kernel of the mode.
    pub(super) kernel_ps: f64,
    pub(super) estimates: Vec<CalibratedEstimate>,
}

/// Round trip at the known distance by one estimator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CalibratedEstimate {
    /// `minimum`, `median` or `mode`.
    pub(super) estimator: String,
    pub(super) rtt_ps: f64,
    /// Ends of the 95 % interval; null with too few round trips.
    pub(super) rtt_low_ps: Option<f64>,
    pub(super) rtt_high_ps: Option<f64>,
}

impl Calibration {
    /// Calibrates with at least one round trip.
    pub(super) fn of(
        measured: &Measured,
        speed: NamedSpeed,
        distance_m: f64,
    ) -> Result<Self, Failure> {
        let rtts = RangeRtts::clean(&measured.rtts_ps, measured.finest_ps).ok_or_else(|| {
            Failure::from(anyhow::anyhow!("no round trip is left without outliers"))
        })?;
        let settings = Settings::of(&rtts);
        let mut estimates = Vec::new();
        for estimator in Estimator::ALL {
            let Some(found) = Estimate::of(&rtts, estimator, settings, SEED) else { continue };
            estimates.push(CalibratedEstimate {
                estimator: estimator.name().to_owned(),
                rtt_ps: found.rtt_ps,
                rtt_low_ps: found.interval_ps.map(|(low, _)| low),
                rtt_high_ps: found.interval_ps.map(|(_, high)| high),
            });
        }
        if estimates.iter().all(|found| found.rtt_low_ps.is_none()) {
            return Err(Failure::from(anyhow::anyhow!(
                "too few round trips for a calibration: {}; measure at least 6, better 1000",
                rtts.values().len()
            )));
        }
        Ok(Self {
            schema: SCHEMA.to_owned(),
            dwell: environment::build().to_owned(),
            target: measured.target.clone(),
            source: measured.source.clone(),
            distance_m,
            metres_per_second: speed.speed.metres_per_second(),
            count: rtts.values().len() as u64,
            outliers: rtts.removed() as u64,
            resolution_ps: rtts.resolution_ps(),
            quartile_spread_ps: rtts.quartile_spread_ps(),
            block: settings.block as u64,
            kernel_ps: settings.kernel_ps,
            estimates,
        })
    }

    /// Reads and checks a file.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let mut text = Vec::new();
        let file =
            File::open(path).with_context(|| format!("cannot read --calibration {shown}"))?;
        file.take(MAX_FILE_LEN)
            .read_to_end(&mut text)
            .with_context(|| format!("cannot read --calibration {shown}"))?;
        Self::parse(&text).map_err(|error| {
            Failure::usage(format!(
                "--calibration {shown}: {error}; write one with 'range calibrate'"
            ))
        })
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        let value: serde_json::Value =
            serde_json::from_slice(text).map_err(|error| format!("not JSON: {error}"))?;
        let schema = value.get("schema").and_then(|schema| schema.as_str()).unwrap_or_default();
        if schema != SCHEMA {
            return Err(format!("'{schema}' is not {SCHEMA}"));
        }
        let found: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        let is_positive = |value: f64| value.is_finite() && value > 0.0;
        let is_consistent = found.distance_m.is_finite()
            && found.distance_m >= 0.0
            && is_positive(found.metres_per_second)
            && found.metres_per_second <= SPEED_OF_LIGHT
            && is_positive(found.resolution_ps)
            && is_positive(found.kernel_ps)
            && found.block > 0
            && found.quartile_spread_ps >= 0
            && found.estimates.iter().all(CalibratedEstimate::is_consistent);
        if is_consistent { Ok(found) } else { Err("a number in it is impossible".to_owned()) }
    }

    pub(super) fn settings(&self) -> Settings {
        let block = usize::try_from(self.block).unwrap_or(usize::MAX);
        Settings { block, kernel_ps: self.kernel_ps }
    }

    /// The round trip by an estimator.
    pub(super) fn estimate(&self, estimator: Estimator) -> Option<Estimate> {
        let found = self.estimates.iter().find(|found| found.estimator == estimator.name())?;
        Some(Estimate {
            rtt_ps: found.rtt_ps,
            interval_ps: found.rtt_low_ps.zip(found.rtt_high_ps),
        })
    }

    /// Refuses a request that cannot fit, before anything is sent.
    pub(super) fn check_request(&self, request: &Request) -> Result<(), Failure> {
        let (ours, theirs) = (self.source.kind.name(), request.kind().name());
        if ours != theirs {
            return Err(mismatch("the source of round trips", ours, theirs));
        }
        if let Request::Ping(target) = request {
            return self.check_protocol(Some(target.scheme.name()));
        }
        Ok(())
    }

    /// Refuses a measurement that this calibration does not fit.
    pub(super) fn check(&self, source: &Source) -> Result<(), Failure> {
        self.check_protocol(source.protocol.as_deref())?;
        let size =
            |bytes: Option<u64>| bytes.map_or("unknown".to_owned(), |b| format!("{b} bytes"));
        if self.source.payload_bytes != source.payload_bytes {
            let (ours, theirs) = (size(self.source.payload_bytes), size(source.payload_bytes));
            return Err(mismatch("the payload size", &ours, &theirs));
        }
        let name = |stamps: &Option<String>| stamps.clone().unwrap_or_else(|| "unknown".into());
        if self.source.stamps != source.stamps {
            let (ours, theirs) = (name(&self.source.stamps), name(&source.stamps));
            return Err(mismatch("the timestamp source", &ours, &theirs));
        }
        Ok(())
    }

    fn check_protocol(&self, protocol: Option<&str>) -> Result<(), Failure> {
        if self.source.protocol.as_deref() == protocol {
            return Ok(());
        }
        let ours = self.source.protocol.as_deref().unwrap_or("none");
        Err(mismatch("the protocol", ours, protocol.unwrap_or("none")))
    }
}

impl CalibratedEstimate {
    fn is_consistent(&self) -> bool {
        let is_finite = |value: Option<f64>| value.is_none_or(f64::is_finite);
        let is_ordered = match (self.rtt_low_ps, self.rtt_high_ps) {
            (Some(low), Some(high)) => low <= self.rtt_ps && self.rtt_ps <= high,
            (None, None) => true,
            _ => false,
        };
        self.rtt_ps.is_finite()
            && is_finite(self.rtt_low_ps)
            && is_ordered
            && is_finite(self.rtt_high_ps)
    }
}

fn mismatch(what: &str, calibrated: &str, measured: &str) -> Failure {
    Failure::usage(format!(
        "--calibration does not fit: {what} was {calibrated} at the calibration and is {measured} now; \
         the delay of the devices depends on it, so calibrate again"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::source::SourceKind;
    use super::*;

    fn calibration() -> Calibration {
        Calibration {
            schema: SCHEMA.into(),
            dwell: "0.2.0".into(),
            target: "icmp://192.0.2.7".into(),
            source: Source {
                kind: SourceKind::Ping,
                protocol: Some("icmp".into()),
                payload_bytes: Some(56),
                stamps: Some("kernel-sw".into()),
            },
            distance_m: 1.0,
            metres_per_second: 2e8,
            count: 100,
            outliers: 0,
            resolution_ps: 1e3,
            quartile_spread_ps: 5_000,
            block: 4,
            kernel_ps: 9e3,
            estimates: vec![CalibratedEstimate {
                estimator: "median".into(),
                rtt_ps: 5e6,
                rtt_low_ps: Some(4e6),
                rtt_high_ps: Some(6e6),
            }],
        }
    }

    #[test]
    fn calibration_survives_json_and_rejects_impossible_numbers() {
        let text = serde_json::to_string(&calibration()).unwrap();
        assert_eq!(Calibration::parse(text.as_bytes()).unwrap(), calibration());
        for (from, to) in [
            (r#""distance_m":1.0"#, r#""distance_m":-1.0"#),
            (r#""metres_per_second":200000000.0"#, r#""metres_per_second":1e300"#),
            (r#""block":4"#, r#""block":0"#),
            (r#""rtt_low_ps":4000000.0"#, r#""rtt_low_ps":7000000.0"#),
            (r#""rtt_low_ps":4000000.0"#, r#""rtt_low_ps":null"#),
            (r#""kernel_ps":9000.0"#, r#""kernel_ps":0.0"#),
            ("range-calibration/1", "range-calibration/2"),
            (r#""count":100"#, r#""count":100,"more":1"#),
        ] {
            let changed = text.replace(from, to);
            assert_ne!(changed, text, "{from}");
            assert!(Calibration::parse(changed.as_bytes()).is_err(), "{to}");
        }
        assert!(Calibration::parse(b"[").is_err() && Calibration::parse(b"{}").is_err());
    }

    #[test]
    fn other_source_protocol_or_size_is_refused() {
        let own = calibration().source;
        assert!(calibration().check(&own).is_ok());
        let others = [
            Source { protocol: Some("stamp".into()), ..own.clone() },
            Source { payload_bytes: Some(57), ..own.clone() },
            Source { stamps: Some("user".into()), ..own },
        ];
        for (other, word) in others.iter().zip(["protocol", "size", "timestamp"]) {
            let refused = calibration().check(other).unwrap_err();
            assert_eq!(refused.exit, crate::Exit::Usage);
            assert!(refused.error.to_string().contains(word), "{}", refused.error);
        }
        let file = Request::Rtts("-".into());
        assert!(calibration().check_request(&file).is_err());
    }
}
