//! What the experiments read of a `dwell.summary/1` object. Fields they do not need are ignored:
//! the schema of the whole is proven elsewhere.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// A summary, as far as it matters here.
#[derive(Clone, Debug, Deserialize)]
pub struct Summary {
    schema: String,
    metrics: BTreeMap<String, RoundTrips>,
}

/// A distribution of delays in nanoseconds, most often round-trip times; `None` where the count supports no figure.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct RoundTrips {
    /// How many.
    pub count: u64,
    /// The shortest.
    pub min: Option<f64>,
    /// Their mean.
    pub mean: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// One in a hundred is longer.
    pub p99: Option<f64>,
    /// One in a thousand is longer.
    pub p99_9: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
}

impl Summary {
    /// Reads the one object that a command of dwell prints with `--json`.
    pub fn parse(text: &str) -> Result<Self> {
        let summary: Self =
            serde_json::from_str(text).context("dwell printed no summary object")?;
        let schema = &summary.schema;
        ensure!(schema == "dwell.summary/1", "schema is {schema}, not dwell.summary/1");
        Ok(summary)
    }

    /// Round trips as the program saw them.
    pub fn round_trips(&self) -> Result<&RoundTrips> {
        self.metrics.get("rtt_ns").context("the summary has no rtt_ns: no reply came")
    }

    /// How long a relay had packets in its program, both ways together.
    pub fn processing(&self) -> Result<&RoundTrips> {
        self.metrics
            .get("processing_ns")
            .context("the summary has no processing_ns: nothing passed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: &str = r#"{
        "schema": "dwell.summary/1", "kind": "ping", "packets": {"sent": 10, "received": 9},
        "metrics": {"rtt_ns": {"count": 9, "min": 3, "mean": 4.5, "stddev": 1.0, "p50": 4,
            "p90": null, "p95": null, "p99": null, "p99_9": null, "max": 9}},
        "trust": {"ring_dropped": 0, "warnings": ["one"]}}"#;

    #[test]
    fn what_a_count_does_not_support_stays_absent() {
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
