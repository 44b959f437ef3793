//! Model of a relaying node, its links and its neighbours, as `dwell fit` writes it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::delay_fit::{DelayFit, Range};
use crate::error::PredictError;
use crate::quantile_function::QuantileFunction;

/// Bytes of Ethernet, IPv4 and UDP headers that a link transmits with a payload.
pub(crate) const HEADER_BYTES: f64 = 42.0;

/// Least share of its capacity that a node has for relaying beside a load, because the scheduler
/// divides a processor equally between a relay and one other thread.
const MIN_RELAY_SHARE: f64 = 0.5;

/// Largest number in a model: 11 days in nanoseconds.
const MAX_NUMBER: f64 = 1e15;

/// Smallest and largest capacity of a node, in processors.
const MIN_CAPACITY: f64 = 1e-6;
const MAX_CAPACITY: f64 = 1e6;

dwell_units::named! {
    /// Measurement that the cost of a packet comes from.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum CostSource {
        /// CPU time of the node's control group against the packet rate.
        Quota = "quota",
        /// Time in the relaying program from receiving to the end of sending: less than the CPU
        /// time, because the receive call is missing.
        Program = "program",
        /// Node delay: the kernel forwards without a program.
        NodeDelay = "node-delay",
        /// Given by the user.
        Given = "given",
    }
}

/// CPU time that a node needs for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Nanoseconds for an empty packet.
    pub base_ns: f64,
    /// Nanoseconds per byte of payload.
    pub ns_per_byte: f64,
    /// Origin.
    pub source: CostSource,
}

impl Cost {
    /// Nanoseconds for a packet of this size.
    pub fn of(&self, size_bytes: f64) -> f64 {
        (self.base_ns + self.ns_per_byte * size_bytes).max(0.0)
    }
}

/// Node delay in one relay mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModeModel {
    /// Engine that relayed.
    pub engine: String,
    /// First timestamp of the node delay.
    pub delay_from: String,
    /// Last timestamp of the node delay.
    pub delay_to: String,
    /// CPU time per packet; `None` if unknown.
    pub cost: Option<Cost>,
    /// Delay by load, the lowest load first; not empty.
    pub levels: Vec<DelayFit>,
}

impl ModeModel {
    /// The levels around a load and the weight of the second; the nearest level twice beyond the
    /// measured loads.
    pub(crate) fn around(&self, load_ratio: f64) -> (&DelayFit, &DelayFit, f64) {
        let next = self.levels.partition_point(|level| level.load_ratio < load_ratio);
        let last = self.levels.len() - 1;
        let (low, high) = (&self.levels[next.saturating_sub(1)], &self.levels[next.min(last)]);
        let width = high.load_ratio - low.load_ratio;
        let weight = if width > 0.0 { (load_ratio - low.load_ratio) / width } else { 0.0 };
        (low, high, weight.clamp(0.0, 1.0))
    }

    /// Distribution of the node delay in nanoseconds. Between two measured loads, quantiles are
    /// interpolated; beyond them, the nearest one is used.
    pub fn delay(&self, size_bytes: f64, rate_pps: f64, load_ratio: f64) -> QuantileFunction {
        let (low, high, weight) = self.around(load_ratio);
        let delay = low.delay(size_bytes, rate_pps);
        if weight == 0.0 {
            return delay;
        }
        delay.blended(&high.delay(size_bytes, rate_pps), weight)
    }

    /// Share of packets that the node loses at this load.
    pub fn loss_ratio(&self, load_ratio: f64) -> f64 {
        let (low, high, weight) = self.around(load_ratio);
        (1.0 - weight) * low.loss_ratio + weight * high.loss_ratio
    }

    /// Sizes, rates and loads that were measured.
    pub fn ranges(&self) -> [(&'static str, Range); 3] {
        let of = |range: fn(&DelayFit) -> Range| {
            let ends = self.levels.iter().flat_map(|level| [range(level).min, range(level).max]);
            Range::of(ends).unwrap_or(Range { min: 0.0, max: 0.0 })
        };
        let load = |level: &DelayFit| Range { min: level.load_ratio, max: level.load_ratio };
        [
            ("size_bytes", of(|level| level.size_bytes)),
            ("rate_pps", of(|level| level.rate_pps)),
            ("load_ratio", of(load)),
        ]
    }

    /// Number of packets in the distribution at this load.
    pub(crate) fn packets(&self, load_ratio: f64) -> usize {
        let (low, high, _) = self.around(load_ratio);
        low.packets.min(high.packets)
    }
}

/// Delay of a link beyond its transmission time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkModel {
    /// Header bytes counted in the transmission time, besides the payload.
    pub header_bytes: f64,
    /// Delay minus transmission time.
    pub excess: DelayFit,
}

/// Model of a node, of the links beside it and of the ends of the path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeModel {
    /// Name and version of the schema.
    pub schema: String,
    /// Version of dwell that wrote it.
    pub dwell: String,
    /// Run.
    pub run: String,
    /// Plan of the run.
    pub plan: String,
    /// Node that relayed.
    pub node: String,
    /// Levels of axes to which the run was restricted.
    pub conditions: BTreeMap<String, String>,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// Share of a processor that the node has for everything.
    pub capacity_ratio: f64,
    /// Delay by relay mode.
    pub modes: BTreeMap<String, ModeModel>,
    /// Links beside the node; `None` without link delays.
    pub link: Option<LinkModel>,
    /// Sender, from the program to its link; `None` if unknown.
    pub sender: Option<DelayFit>,
    /// Receiver, from its link to the program; `None` if unknown.
    pub receiver: Option<DelayFit>,
    /// Remarks on the fit.
    pub notes: Vec<String>,
}

impl NodeModel {
    /// Name and version of the schema.
    pub const SCHEMA: &'static str = "dwell.node-model/1";

    /// Parses a model.
    ///
    /// # Errors
    /// The text is no model, has another version, or a mode without levels.
    pub fn parse(text: &str, name: &str) -> Result<Self, PredictError> {
        let wrong = |message: String| PredictError::Model { name: name.to_owned(), message };
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let schema = value.get("schema").and_then(serde_json::Value::as_str).unwrap_or_default();
        if schema != Self::SCHEMA {
            let message = format!("its schema is '{schema}', not {}", Self::SCHEMA);
            return Err(wrong(message));
        }
        if let Some(place) = absurd_number(&value) {
            return Err(wrong(format!("{} is beyond 1e15", place.trim_start_matches('.'))));
        }
        let model: Self =
            serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
        let levels = model.modes.values().flat_map(|mode| &mode.levels);
        let excess = model.link.as_ref().map(|link| &link.excess);
        let others = [model.sender.as_ref(), model.receiver.as_ref(), excess];
        if let Some(what) = levels.chain(others.into_iter().flatten()).find_map(impossible) {
            return Err(wrong(what.into()));
        }
        if let Some((mode, _)) = model.modes.iter().find(|(_, mode)| mode.levels.is_empty()) {
            return Err(wrong(format!("mode {mode} has no levels")));
        }
        let is_sorted = |mode: &ModeModel| mode.levels.is_sorted_by_key(|level| level.load_ratio);
        if model.modes.is_empty() || !model.modes.values().all(is_sorted) {
            return Err(wrong("it has no modes, or loads in disorder".into()));
        }
        if !(MIN_CAPACITY..=MAX_CAPACITY).contains(&model.capacity_ratio) {
            let message =
                format!("its capacity_ratio is not from {MIN_CAPACITY} to {MAX_CAPACITY}");
            return Err(wrong(message));
        }
        if let Some(link) = model.link.as_ref().filter(|link| link.header_bytes != HEADER_BYTES) {
            let message = format!("its header_bytes are {}, not {HEADER_BYTES}", link.header_bytes);
            return Err(wrong(message));
        }
        Ok(model)
    }
}

/// Share of its capacity that a node has for relaying beside a load.
pub(crate) fn relay_share(load_ratio: f64) -> f64 {
    (1.0 - load_ratio).max(MIN_RELAY_SHARE)
}

/// Path of the first number of a model that is no time, size, rate or count of a measurement.
fn absurd_number(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::Number(number) => {
            number.as_f64().is_none_or(|it| it.abs() > MAX_NUMBER).then(String::new)
        }
        serde_json::Value::Array(values) => values
            .iter()
            .enumerate()
            .find_map(|(i, value)| Some(format!("[{i}]{}", absurd_number(value)?))),
        serde_json::Value::Object(fields) => fields
            .iter()
            .find_map(|(name, value)| Some(format!(".{name}{}", absurd_number(value)?))),
        _ => None,
    }
}

/// What makes a fit impossible.
fn impossible(fit: &DelayFit) -> Option<&'static str> {
    let is_ordered = |range: Range| 0.0 <= range.min && range.min <= range.max;
    match fit {
        _ if !(0.0..=1.0).contains(&fit.load_ratio) => Some("a load_ratio is not from 0 to 1"),
        _ if !(0.0..=1.0).contains(&fit.loss_ratio) => Some("a loss_ratio is not from 0 to 1"),
        _ if fit.trial_sd_ns.is_some_and(|sd| sd < 0.0) => Some("a trial_sd_ns is negative"),
        _ if !is_ordered(fit.size_bytes) => Some("a range size_bytes is in disorder"),
        _ if !is_ordered(fit.rate_pps) => Some("a range rate_pps is in disorder"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delay_fit::Estimate;

    pub(crate) fn level(load_ratio: f64, intercept: f64) -> DelayFit {
        DelayFit {
            load_ratio,
            trials: 3,
            packets: 600,
            size_bytes: Range { min: 100.0, max: 1_400.0 },
            rate_pps: Range { min: 200.0, max: 1_200.0 },
            intercept_ns: Estimate::exact(intercept),
            ns_per_byte: None,
            ns_per_pps: None,
            r_squared: None,
            loss_ratio: load_ratio / 10.0,
            trial_sd_ns: Some(10.0),
            residual_ns: QuantileFunction::constant(0.0),
        }
    }

    #[test]
    fn delay_between_two_loads_is_interpolated() {
        let mode = ModeModel {
            engine: "socket".into(),
            delay_from: "rx_kernel".into(),
            delay_to: "tx_kernel".into(),
            cost: None,
            levels: vec![level(0.0, 100.0), level(0.5, 300.0), level(0.9, 700.0)],
        };
        let at = |load| mode.delay(500.0, 500.0, load).mean();
        for (load, mean) in [(0.0, 100.0), (0.25, 200.0), (0.5, 300.0), (0.7, 500.0), (1.0, 700.0)]
        {
            assert!((at(load) - mean).abs() < 1e-6, "{load}: {}", at(load));
        }
        assert!((mode.loss_ratio(0.25) - 0.025).abs() < 1e-9);
        let ranges = mode.ranges();
        assert_eq!(ranges[2], ("load_ratio", Range { min: 0.0, max: 0.9 }));
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let mode = ModeModel {
            engine: "socket".into(),
            delay_from: "rx_kernel".into(),
            delay_to: "tx_kernel".into(),
            cost: None,
            levels: vec![level(0.0, 100.0)],
        };
        let model = NodeModel {
            schema: NodeModel::SCHEMA.into(),
            dwell: String::new(),
            run: String::new(),
            plan: String::new(),
            node: String::new(),
            conditions: BTreeMap::new(),
            confidence: 0.95,
            capacity_ratio: 1.0,
            modes: [("route".to_owned(), mode)].into(),
            link: Some(LinkModel { header_bytes: HEADER_BYTES, excess: level(0.0, 1.0) }),
            sender: None,
            receiver: None,
            notes: Vec::new(),
        };
        let text = serde_json::to_string(&model).unwrap();
        assert_eq!(NodeModel::parse(&text, "m"), Ok(model));
        for (from, to, words) in [
            ("\"capacity_ratio\":1.0", "\"capacity_ratio\":1e-300", "capacity_ratio"),
            ("\"capacity_ratio\":1.0", "\"capacity_ratio\":1e14", "capacity_ratio"),
            ("\"header_bytes\":42.0", "\"header_bytes\":28.0", "header_bytes are 28, not 42"),
            ("\"loss_ratio\":0.0", "\"loss_ratio\":1.5", "loss_ratio"),
            ("\"trial_sd_ns\":10.0", "\"trial_sd_ns\":-1.0", "trial_sd_ns"),
            ("\"min\":100.0", "\"min\":9100.0", "size_bytes is in disorder"),
            ("\"min\":200.0", "\"min\":-200.0", "rate_pps is in disorder"),
        ] {
            // The last one is in the link.
            let at = text.rfind(from).unwrap();
            let mut wrong = text.clone();
            wrong.replace_range(at..at + from.len(), to);
            let error = NodeModel::parse(&wrong, "m").unwrap_err().to_string();
            assert!(error.contains(words), "{to}: {error}");
        }
    }

    #[test]
    fn other_files_are_no_models() {
        for (text, words) in [
            ("", "EOF"),
            ("{}", "schema is ''"),
            (r#"{"schema":"dwell.node-model/2"}"#, "not dwell.node-model/1"),
            (r#"{"schema":"dwell.node-model/1"}"#, "missing field"),
            (r#"{"schema":"dwell.node-model/1","a":[{"b":1e16}]}"#, "a[0].b is beyond 1e15"),
        ] {
            let error = NodeModel::parse(text, "m.json").unwrap_err().to_string();
            assert!(error.contains("m.json") && error.contains(words), "{error}");
        }
    }
}
