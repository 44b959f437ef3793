//! Fields of `dwell.summary/1` that the benchmarks need. Other fields are ignored; the complete
//! schema is tested elsewhere.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// A summary, as far as needed here.
#[derive(Clone, Debug, Deserialize)]
pub struct Summary {
    schema: String,
    metrics: BTreeMap<String, RoundTrips>,
}

/// Distribution of delays in nanoseconds, usually round-trip times; `None` if the count does not
/// support the figure.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct RoundTrips {
    /// Number of values.
    pub count: u64,
    /// Minimum.
    pub min: Option<f64>,
    /// Mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p99_9: Option<f64>,
    /// Maximum.
    pub max: Option<f64>,
}

impl Summary {
    /// Parses the object that a dwell command prints with `--json`.
    pub fn parse(text: &str) -> Result<Self> {
        let summary: Self = serde_json::from_str(text).context("dwell printed no JSON summary")?;
        let schema = &summary.schema;
        ensure!(schema == "dwell.summary/1", "schema is {schema}, not dwell.summary/1");
        Ok(summary)
    }

    /// Returns the round trips as the program saw them.
    pub fn round_trips(&self) -> Result<&RoundTrips> {
        self.metrics.get("rtt_ns").context("the summary has no rtt_ns: no reply arrived")
    }

    /// Returns the processing time of a relay, both directions together.
    pub fn processing(&self) -> Result<&RoundTrips> {
        self.metrics
            .get("processing_ns")
            .context("the summary has no processing_ns: no packet was relayed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: &str = r#"{
        "schema": "dwell.summary/1", "kind": "ping", "packets": {"sent": 10, "received": 9},
        "metrics": {"rtt_ns": {"count": 9, "min": 3, "mean": 4.5, "stddev": 1.0, "p50": 4,
            "p90": null, "p95": null, "p99": null, "p99_9": null, "max": 9}},
        "trust": {"ring_dropped": 0, "warnings": [{"code": "steal", "text": "one"}]}}"#;

    #[test]
    fn unsupported_percentile_is_none() {
        let summary = Summary::parse(PING).unwrap();
        let round_trips = summary.round_trips().unwrap();
        assert_eq!((round_trips.p50, round_trips.p99), (Some(4.0), None));
    }

    #[test]
    fn another_schema_is_refused() {
        let error = Summary::parse(&PING.replace("summary/1", "summary/2")).unwrap_err();
        assert!(error.to_string().contains("dwell.summary/2"), "{error}");
    }
}
