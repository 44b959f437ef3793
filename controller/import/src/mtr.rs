//! The JSON of `mtr --json` (0.95; numbers as text, as in 0.92, are accepted): one report per
//! target, with a summary of each hop. It has no samples.

use std::io::BufRead;

use dwell_record::{Figures, Packets, Scalar};
use serde::Deserialize;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess};

use crate::json::{self, Each, Fields, Object, nanos, number};
use crate::sink::Sink;
use crate::{Format, ImportError, ImportWarning, Imported};

pub(crate) fn read(input: &mut dyn BufRead, sink: Sink) -> Result<Imported, ImportError> {
    let mut reports = Reports { sink, targets: Vec::new(), hops: 0 };
    let mut json = serde_json::Deserializer::from_reader(input);
    // With several targets, mtr writes one object after the other.
    let parsed = loop {
        match Object(&mut reports).deserialize(&mut json) {
            Ok(()) if json.end().is_ok() => break Ok(()),
            Ok(()) => {}
            Err(error) => break Err(error),
        }
    };
    parsed.map_err(|error| json::failure(Format::Mtr, error))?;
    reports.finish()
}

struct Reports<'a> {
    sink: Sink<'a>,
    /// Targets so far. Hops belong to the last one.
    targets: Vec<String>,
    hops: u64,
}

/// Maximum number of targets of a file.
const MAX_TARGETS: usize = 1_024;

/// Maximum length of a host name; the rest is dropped.
const MAX_NAME_LEN: usize = 255;

#[derive(Deserialize)]
struct Mtr {
    #[serde(default)]
    dst: String,
    #[serde(default, deserialize_with = "number")]
    tests: Option<f64>,
    #[serde(default, deserialize_with = "number")]
    psize: Option<f64>,
    #[serde(default, deserialize_with = "number")]
    tos: Option<f64>,
}

/// A hop. Times are in milliseconds with three decimals.
#[derive(Deserialize)]
struct Hop {
    #[serde(default, deserialize_with = "number")]
    count: Option<f64>,
    #[serde(default)]
    host: String,
    #[serde(rename = "Loss%", default, deserialize_with = "number")]
    loss: Option<f64>,
    #[serde(rename = "Rcv", default, deserialize_with = "number")]
    received: Option<f64>,
    #[serde(rename = "Snt", default, deserialize_with = "number")]
    sent: Option<f64>,
    #[serde(rename = "Best", default, deserialize_with = "number")]
    best: Option<f64>,
    #[serde(rename = "Avg", default, deserialize_with = "number")]
    mean: Option<f64>,
    #[serde(rename = "Wrst", default, deserialize_with = "number")]
    worst: Option<f64>,
    #[serde(rename = "StDev", default, deserialize_with = "number")]
    stddev: Option<f64>,
}

impl Reports<'_> {
    fn begin(&mut self, mtr: Mtr) {
        if self.targets.len() < MAX_TARGETS {
            self.targets.push(mtr.dst.chars().take(MAX_NAME_LEN).collect());
        }
        let all = [("tests", mtr.tests), ("packet_bytes", mtr.psize), ("tos", mtr.tos)];
        self.sink.parameters(all.map(|(name, value)| (name, value.and_then(count))));
    }

    fn hop(&mut self, hub: &Hop) {
        let Self { sink, targets, hops } = self;
        *hops += 1;
        let target = targets.last().map_or("", String::as_str);
        let hop = hub.count.and_then(count).unwrap_or(*hops);
        let several = if targets.len() > 1 { format!("{target} ") } else { String::new() };
        let host: String = hub.host.chars().take(MAX_NAME_LEN).collect();
        let name = format!("{several}hop {hop} {host}");
        let Some(flow) = sink.flow_to(&name, format!("mtr://{target}")) else {
            sink.skip(*hops, name.as_bytes());
            return;
        };
        match hub.packets() {
            Some((packets, in_transit)) => {
                sink.packets(flow, packets);
                if in_transit {
                    sink.warn_of(flow, ImportWarning::ProbeInTransit);
                }
            }
            None => {
                let why = "loss and probe count contradict each other";
                sink.warn_of(flow, ImportWarning::CountsLeftOut(why));
            }
        }
        if let Some(percent) = hub.loss {
            sink.value(flow, "loss_ratio", Scalar::Real(percent / 100.0));
        }
        let received = hub.packets().map_or(0, |(packets, _)| packets.received);
        if received > 0 {
            let ns = |ms: Option<f64>| ms.and_then(|ms| nanos(ms, 6));
            let figures = Figures {
                count: received,
                min: ns(hub.best),
                mean: ns(hub.mean).map(|ns| ns as f64),
                stddev: ns(hub.stddev).filter(|_| received > 1).map(|ns| ns as f64),
                max: ns(hub.worst),
                ..Figures::default()
            };
            sink.flow_mut(flow).metrics.insert("rtt_ns".to_owned(), figures);
        }
    }

    fn finish(mut self) -> Result<Imported, ImportError> {
        if self.hops > 0 {
            self.sink.warn(ImportWarning::TotalsOnly("mtr", "a summary per hop"));
        }
        if self.hops > 1 {
            self.sink.warn(ImportWarning::RouterLimitsReplies);
        }
        self.sink.finish()
    }
}

impl Hop {
    /// Returns the packet counts, and whether the last probe was still in transit: mtr's percentage
    /// excludes it. `None` if percentage and count contradict each other.
    fn packets(&self) -> Option<(Packets, bool)> {
        let sent = self.sent.and_then(count)?;
        let loss = self.loss.filter(|loss| (0.0..=100.0).contains(loss))? / 100.0;
        // mtr truncates the percentage to three decimals.
        let fits = |sent: u64| {
            let received = ((1.0 - loss) * sent as f64).round();
            let exact = (1.0 - loss - received / (sent as f64).max(1.0)).abs() < 2e-5;
            let stated = self.received.is_none_or(|stated| stated == received);
            (exact && stated).then_some(received as u64)
        };
        let whole = fits(sent).map(|received| (sent, received, false));
        let (sent, received, in_transit) = whole.or_else(|| {
            let settled = sent.checked_sub(1)?;
            Some((settled, fits(settled)?, true))
        })?;
        let lost = sent - received;
        Some((Packets { sent, received, lost, ..Packets::default() }, in_transit))
    }
}

/// Converts a non-negative whole number.
fn count(value: f64) -> Option<u64> {
    ((0.0..1e15).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}

impl Fields for Reports<'_> {
    const OBJECT: &'static str = "the report that mtr writes";

    fn field<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "report" => map.next_value_seed(Object(self))?,
            "mtr" => self.begin(map.next_value()?),
            "hubs" => map.next_value_seed(Each::new(|hub: Hop| self.hop(&hub)))?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(json: &str) -> Option<(u64, u64, u64, bool)> {
        let hub: Hop = serde_json::from_str(json).unwrap();
        hub.packets().map(|(all, in_transit)| (all.sent, all.received, all.lost, in_transit))
    }

    #[test]
    fn mtr_counts_follow_from_percentage_and_sent() {
        assert_eq!(packets(r#"{"Loss%": 66.666, "Snt": 3}"#), Some((3, 1, 2, false)));
        assert_eq!(packets(r#"{"Loss%": "10.0", "Snt": "10"}"#), Some((10, 9, 1, false)));
        // Of 101 probes, 100 are settled and 99 of these were answered.
        assert_eq!(packets(r#"{"Loss%": 1.0, "Snt": 101}"#), Some((100, 99, 1, true)));
        assert_eq!(packets(r#"{"Loss%": 33.333, "Rcv": 2, "Snt": 3}"#), Some((3, 2, 1, false)));
        for contradiction in [
            r#"{"Loss%": 33.333, "Rcv": 3, "Snt": 3}"#,
            r#"{"Loss%": 7.0, "Snt": 10}"#,
            r#"{"Loss%": -1, "Snt": 10}"#,
            r#"{"Loss%": 0, "Snt": 1e300}"#,
            r#"{"Snt": 10}"#,
        ] {
            assert_eq!(packets(contradiction), None, "{contradiction}");
        }
    }
}
