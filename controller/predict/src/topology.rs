//! TOML file of a topology: models, nodes, links and flows.
//!
//! ```toml
//! version = 1
//! name = "relay-choice"
//!
//! [models]
//! strong = "strong.json"             # written by `dwell fit`
//! slow = { delay = "200us", ns_per_byte = 10, cost = "50us" }
//!
//! [defaults]
//! link = "strong"                    # model of links that name none
//! ends = "strong"                    # model whose sender and receiver all flows have
//!
//! [nodes]
//! robot = {}                         # without a model, a node relays nothing
//! relay = { model = "strong", mode = "translate", load = "20%" }
//! base = {}
//!
//! [[links]]
//! between = ["robot", "relay"]
//! rate = "10Mbit/s"
//!
//! [[links]]
//! between = ["relay", "base"]
//! rate = "10Mbit/s"
//! delay = "1ms"
//!
//! [[flows]]
//! from = "robot"
//! to = "base"
//! size = "700B"
//! rate = "200pps"
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use dwell_units::{BitRate, Bytes, Nanos, Rate, Ratio};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::error::PredictError;
use crate::network::{Flow, InlineModel, Link, MAX_ELEMENTS, Network, NetworkBuilder, Relay};
use crate::node_model::{LinkModel, NodeModel};
use crate::quantile_function::QuantileFunction;

/// Mode of relays that name none.
const DEFAULT_MODE: &str = "route";

/// Relay modes.
const MODES: [&str; 4] = ["route", "translate", "encrypt", "decrypt"];

/// Longest UDP payload over IPv4.
const MAX_PAYLOAD: u64 = 65_507;

/// A topology file, before its models are read.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopologyFile {
    version: u32,
    name: Option<String>,
    #[serde(default)]
    models: BTreeMap<String, ModelEntry>,
    #[serde(default)]
    defaults: Defaults,
    nodes: BTreeMap<String, NodeEntry>,
    #[serde(default)]
    links: Vec<LinkEntry>,
    #[serde(default)]
    flows: Vec<FlowEntry>,
}

/// Models of links and ends that name none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Defaults {
    link: Option<ModelEntry>,
    ends: Option<ModelEntry>,
}

/// A model: the name of one under `[models]`, a file, or numbers.
#[derive(Clone, Debug, PartialEq)]
enum ModelEntry {
    Named(String),
    Inline(Box<InlineEntry>),
}

/// A model in numbers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct InlineEntry {
    #[serde(default)]
    delay: Nanos,
    #[serde(default)]
    ns_per_byte: f64,
    /// Variation: quantiles of what is added to the delay, such as `{ p50 = "1ms", p95 = "4ms" }`.
    #[serde(default)]
    quantiles: BTreeMap<String, Nanos>,
    cost: Option<Nanos>,
    capacity: Option<Ratio>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeEntry {
    model: Option<ModelEntry>,
    mode: Option<String>,
    load: Option<Ratio>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkEntry {
    between: [String; 2],
    rate: Option<BitRate>,
    delay: Option<Nanos>,
    loss: Option<Ratio>,
    model: Option<ModelEntry>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowEntry {
    name: Option<String>,
    from: String,
    to: String,
    size: Bytes,
    rate: Rate,
    #[serde(default)]
    path: Vec<String>,
}

impl<'de> Deserialize<'de> for ModelEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entry;
        impl<'de> Visitor<'de> for Entry {
            type Value = ModelEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a model: a name, a file, or a table like { delay = \"200us\" }")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ModelEntry, E> {
                if text.is_empty() {
                    return Err(E::custom("the name of a model is empty"));
                }
                Ok(ModelEntry::Named(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelEntry, A::Error> {
                let entry = InlineEntry::deserialize(MapAccessDeserializer::new(map))?;
                entry.check().map_err(A::Error::custom)?;
                Ok(ModelEntry::Inline(Box::new(entry)))
            }
        }
        deserializer.deserialize_any(Entry)
    }
}

impl InlineEntry {
    fn check(&self) -> Result<(), String> {
        let is_negative = |time: Nanos| time.0 < 0;
        if is_negative(self.delay) || self.cost.is_some_and(is_negative) {
            return Err("delay and cost of a model are at least 0".into());
        }
        if !(0.0..1e9).contains(&self.ns_per_byte) {
            return Err("ns_per_byte of a model is between 0 and 1e9".into());
        }
        if self.capacity.is_some_and(|share| share == Ratio::ZERO) {
            return Err("capacity of a model is above 0%".into());
        }
        self.residual().map(drop)
    }

    /// Variation around the delay; `None` if it is constant.
    fn residual(&self) -> Result<Option<QuantileFunction>, String> {
        if self.quantiles.is_empty() {
            return Ok(None);
        }
        let probability = |name: &str| {
            let percent: Option<f64> =
                name.strip_prefix('p').and_then(|p| p.replace('_', ".").parse().ok());
            percent.filter(|percent| (0.0..=100.0).contains(percent)).map(|percent| percent / 100.0)
        };
        let mut points = Vec::new();
        for (name, value) in &self.quantiles {
            let Some(p) = probability(name) else {
                return Err(format!("'{name}' is no quantile; write p50, p95 or p99_9"));
            };
            points.push((p, value.0 as f64));
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if points[0].0 > 0.0 {
            points.insert(0, (0.0, 0.0));
        }
        let last = points[points.len() - 1];
        if last.0 < 1.0 {
            return Err("quantiles of a model need p100, the largest value".into());
        }
        QuantileFunction::try_from(points).map(Some)
    }

    fn model(&self) -> InlineModel {
        InlineModel {
            delay_ns: self.delay.0 as f64,
            ns_per_byte: self.ns_per_byte,
            // Checked when the file was read.
            residual_ns: self.residual().unwrap_or_default(),
            cost_ns: self.cost.map(|cost| cost.0 as f64),
            capacity_ratio: self.capacity.map_or(1.0, Ratio::as_f64),
        }
    }
}

/// A model that was found.
enum Found<'m> {
    Fitted(&'m NodeModel),
    Inline(InlineModel),
}

/// Name of a model, and its link delays.
type NamedLink = (String, Arc<LinkModel>);

/// Models by name or file.
struct Models<'m> {
    entries: &'m BTreeMap<String, ModelEntry>,
    files: &'m BTreeMap<String, NodeModel>,
}

impl<'m> Models<'m> {
    /// The model of an entry, with its name.
    fn find(&self, entry: &ModelEntry) -> Result<(String, Found<'m>), String> {
        match entry {
            ModelEntry::Inline(inline) => Ok(("inline".into(), Found::Inline(inline.model()))),
            ModelEntry::Named(name) => match self.entries.get(name) {
                Some(ModelEntry::Inline(inline)) => {
                    Ok((name.clone(), Found::Inline(inline.model())))
                }
                Some(ModelEntry::Named(file)) => Ok((name.clone(), self.file(file)?)),
                None => Ok((name.clone(), self.file(name)?)),
            },
        }
    }

    /// A relay of this model without load.
    fn relay(&self, entry: &ModelEntry, mode: &str) -> Result<Relay, String> {
        match self.find(entry)? {
            (name, Found::Inline(inline)) => Ok(inline.relay(&name, mode)),
            (name, Found::Fitted(fitted)) => {
                Relay::of(&name, fitted, mode).map_err(|error| error.to_string())
            }
        }
    }

    /// Delays of a link of this model.
    fn link(&self, entry: &ModelEntry) -> Result<NamedLink, String> {
        match self.find(entry)? {
            (name, Found::Inline(inline)) => Ok((name, Arc::new(inline.link()))),
            (name, Found::Fitted(fitted)) => match &fitted.link {
                Some(link) => Ok((name, Arc::new(link.clone()))),
                None => Err(format!("model '{name}' has no link: its run has no link delays")),
            },
        }
    }

    fn file(&self, file: &str) -> Result<Found<'m>, String> {
        let model = self.files.get(file).ok_or_else(|| format!("there is no model '{file}'"))?;
        Ok(Found::Fitted(model))
    }
}

impl TopologyFile {
    /// Parses a file.
    ///
    /// # Errors
    /// The text is no topology; the error has the line.
    pub fn parse(text: &str) -> Result<Self, PredictError> {
        let file: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
            PredictError::topology(format!("line {line}"), error.message())
        })?;
        file.checked()
    }

    /// Parses a file with the same fields as JSON, which is quicker for large topologies.
    ///
    /// # Errors
    /// The text is no topology; the error has the line.
    pub fn parse_json(text: &str) -> Result<Self, PredictError> {
        let file: Self = serde_json::from_str(text).map_err(|error| {
            PredictError::topology(format!("line {}", error.line()), error.to_string())
        })?;
        file.checked()
    }

    fn checked(self) -> Result<Self, PredictError> {
        if self.version != 1 {
            let message = format!("version {} is not supported; write 1", self.version);
            return Err(PredictError::topology("version", message));
        }
        Ok(self)
    }

    /// Name of the topology.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Names of the model files, which the caller reads.
    pub fn model_files(&self) -> BTreeSet<String> {
        let of_nodes = self.nodes.values().filter_map(|node| node.model.as_ref());
        let of_links = self.links.iter().filter_map(|link| link.model.as_ref());
        let defaults = self.defaults.link.iter().chain(&self.defaults.ends);
        let used = of_nodes.chain(of_links).chain(defaults);
        let unnamed = used.filter_map(|entry| match entry {
            ModelEntry::Named(name) if !self.models.contains_key(name) => Some(name),
            _ => None,
        });
        let named = self.models.values().filter_map(|entry| match entry {
            ModelEntry::Named(file) => Some(file),
            ModelEntry::Inline(_) => None,
        });
        unnamed.chain(named).cloned().collect()
    }

    /// The network, with these models by file.
    ///
    /// # Errors
    /// An unknown node or model, a loop, a double link, or a flow that is impossible to place.
    pub fn network(&self, files: &BTreeMap<String, NodeModel>) -> Result<Network, PredictError> {
        if self.nodes.is_empty() || self.nodes.len().max(self.links.len()) > MAX_ELEMENTS {
            let message = format!("give 1 to {MAX_ELEMENTS} nodes and at most as many links");
            return Err(PredictError::topology("nodes", message));
        }
        if self.flows.is_empty() {
            return Err(PredictError::topology("flows", "give at least one [[flows]]"));
        }
        let models = Models { entries: &self.models, files };
        let mut builder = NetworkBuilder::default();
        self.add_nodes(&mut builder, &models)?;
        self.add_links(&mut builder, &models)?;
        self.add_ends(&mut builder, &models)?;
        for (i, flow) in self.flows.iter().enumerate() {
            let wrong = |message: String| PredictError::topology(format!("flows[{i}]"), message);
            builder.flow(flow.flow(i, &builder).map_err(wrong)?);
        }
        builder.build()
    }

    fn add_nodes(
        &self,
        builder: &mut NetworkBuilder,
        models: &Models<'_>,
    ) -> Result<(), PredictError> {
        // Nodes with the same entry share a kind of relay, those with the same model its delays.
        let mut kinds: HashMap<(&str, &str, u32), u32> = HashMap::new();
        let mut idle: HashMap<(&str, &str), Relay> = HashMap::new();
        for (name, node) in &self.nodes {
            let wrong = |message: String| PredictError::topology(format!("nodes.{name}"), message);
            let Some(entry) = &node.model else {
                if node.mode.is_some() || node.load.is_some() {
                    return Err(wrong("a node with a mode or a load needs a model".into()));
                }
                builder.node(name, None)?;
                continue;
            };
            let mode = node.mode.as_deref().unwrap_or(DEFAULT_MODE);
            if !MODES.contains(&mode) {
                let known = MODES.join(", ");
                return Err(wrong(format!("unknown mode '{mode}'; known are {known}")));
            }
            let load = node.load.unwrap_or(Ratio::ZERO);
            let ModelEntry::Named(model) = entry else {
                let relay = models.relay(entry, mode).map_err(wrong)?.beside(load.as_f64());
                let kind = builder.relay(relay);
                builder.node(name, Some(kind))?;
                continue;
            };
            let model = model.as_str();
            let kind = match kinds.get(&(model, mode, load.ppm())) {
                Some(kind) => *kind,
                None => {
                    let relay = match idle.get(&(model, mode)) {
                        Some(relay) => relay,
                        None => {
                            let relay = models.relay(entry, mode).map_err(wrong)?;
                            idle.entry((model, mode)).or_insert(relay)
                        }
                    };
                    let kind = builder.relay(relay.beside(load.as_f64()));
                    kinds.insert((model, mode, load.ppm()), kind);
                    kind
                }
            };
            builder.node(name, Some(kind))?;
        }
        Ok(())
    }

    fn add_links(
        &self,
        builder: &mut NetworkBuilder,
        models: &Models<'_>,
    ) -> Result<(), PredictError> {
        // Links with the same properties share a kind, those with the same model its delays.
        type Key<'t> = (Option<BitRate>, Option<Nanos>, Option<Ratio>, Option<&'t str>);
        let mut kinds: HashMap<Key<'_>, u32> = HashMap::new();
        let mut by_name: HashMap<&str, NamedLink> = HashMap::new();
        for (i, link) in self.links.iter().enumerate() {
            let wrong = |message: String| PredictError::topology(format!("links[{i}]"), message);
            let mut ends = [0; 2];
            for (end, name) in ends.iter_mut().zip(&link.between) {
                *end = builder
                    .find(name)
                    .ok_or_else(|| wrong(format!("there is no node '{name}'")))?;
            }
            let entry = link.model.as_ref().or(self.defaults.link.as_ref());
            let name = match entry {
                Some(ModelEntry::Named(name)) => Some(name.as_str()),
                _ => None,
            };
            let has_key = name.is_some() || entry.is_none();
            let key = (link.rate, link.delay, link.loss, name);
            let kind = match kinds.get(&key).filter(|_| has_key) {
                Some(kind) => *kind,
                None => {
                    let model = match (entry, name.and_then(|name| by_name.get(name))) {
                        (None, _) => None,
                        (_, Some(known)) => Some(known.clone()),
                        (Some(entry), None) => Some(models.link(entry).map_err(wrong)?),
                    };
                    if let Some((name, model)) = name.zip(model.as_ref()) {
                        by_name.entry(name).or_insert_with(|| model.clone());
                    }
                    let kind = builder.link_kind(link.kind(model).map_err(wrong)?);
                    if has_key {
                        kinds.insert(key, kind);
                    }
                    kind
                }
            };
            builder.link(ends[0], ends[1], kind)?;
        }
        Ok(())
    }

    fn add_ends(
        &self,
        builder: &mut NetworkBuilder,
        models: &Models<'_>,
    ) -> Result<(), PredictError> {
        let Some(entry) = &self.defaults.ends else { return Ok(()) };
        let wrong = |message: String| PredictError::topology("defaults.ends", message);
        match models.find(entry).map_err(wrong)? {
            (_, Found::Fitted(model)) => builder.ends(model.sender.clone(), model.receiver.clone()),
            (_, Found::Inline(_)) => {
                return Err(wrong("the ends need a model of dwell fit".into()));
            }
        }
        Ok(())
    }
}

impl LinkEntry {
    fn kind(&self, model: Option<NamedLink>) -> Result<Link, String> {
        if self.rate == Some(BitRate(0)) || self.delay.is_some_and(|delay| delay.0 < 0) {
            return Err("the rate of a link is above 0, and its delay at least 0".into());
        }
        let (model, excess) = model.unzip();
        Ok(Link {
            rate_bps: self.rate.map(|rate| rate.0 as f64),
            delay_ns: self.delay.map_or(0.0, |delay| delay.0 as f64),
            loss_ratio: self.loss.map_or(0.0, Ratio::as_f64),
            model,
            excess,
        })
    }
}

impl FlowEntry {
    fn flow(&self, number: usize, builder: &NetworkBuilder) -> Result<Flow, String> {
        let node =
            |name: &String| builder.find(name).ok_or_else(|| format!("there is no node '{name}'"));
        let (from, to) = (node(&self.from)?, node(&self.to)?);
        if from == to {
            return Err(format!("it begins and ends at '{}'", self.from));
        }
        if !(1..=MAX_PAYLOAD).contains(&self.size.0) {
            return Err(format!("size {} is not between 1B and {MAX_PAYLOAD}B", self.size));
        }
        let size_bytes = self.size.0 as f64;
        let rate_pps = match self.rate {
            Rate::Packets(rate) => rate.as_f64(),
            Rate::Bits(rate) => rate.0 as f64 / 8.0 / size_bytes,
        };
        if rate_pps <= 0.0 {
            return Err("its rate is 0".into());
        }
        let path = self.path.iter().map(node).collect::<Result<Vec<u32>, String>>()?;
        if let (Some(first), Some(last)) = (path.first(), path.last())
            && (*first != from || *last != to)
        {
            return Err(format!("its path does not lead from '{}' to '{}'", self.from, self.to));
        }
        let name = self.name.clone().unwrap_or_else(|| format!("flow {}", number + 1));
        Ok(Flow { name, from, to, size_bytes, rate_pps, path })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::placement::{Request, predict};

    const TEXT: &str = r#"version = 1
name = "small"

[models]
slow = { delay = "200us", ns_per_byte = 10, cost = "50us", quantiles = { p95 = "1ms", p100 = "4ms" } }

[nodes]
robot = {}
relay = { model = "slow", mode = "translate" }
other = { model = { delay = "1ms" } }
base = {}

[[links]]
between = ["robot", "relay"]
rate = "10Mbit/s"

[[links]]
between = ["relay", "base"]
rate = "10Mbit/s"
delay = "1ms"
loss = "1%"

[[flows]]
from = "robot"
to = "base"
size = "700B"
rate = "200pps"
"#;

    fn read(text: &str) -> Result<Network, PredictError> {
        TopologyFile::parse(text)?.network(&BTreeMap::new())
    }

    #[test]
    fn load_leaves_less_capacity_to_a_relay() {
        for (load, capacity) in [("0%", 1.0), ("20%", 0.8), ("90%", 0.5)] {
            for model in ["\"slow\"", "{ delay = \"1ms\", cost = \"1ms\" }"] {
                let relay = format!("relay = {{ model = {model}, load = \"{load}\", mode");
                let network =
                    read(&TEXT.replace("relay = { model = \"slow\", mode", &relay)).unwrap();
                let relays =
                    (0..network.node_count() as u32).filter_map(|node| network.relay(node));
                let least = relays.map(|relay| relay.capacity_ratio).fold(1.0, f64::min);
                assert_eq!(least, capacity, "{relay}");
            }
        }
    }

    #[test]
    fn file_becomes_a_network() {
        let file = TopologyFile::parse(TEXT).unwrap();
        assert_eq!((file.name(), file.model_files().len()), (Some("small"), 0));
        let network = read(TEXT).unwrap();
        assert_eq!((network.node_count(), network.link_count()), (4, 2));
        let flow = &network.flows()[0];
        assert_eq!((flow.name.as_str(), flow.rate_pps), ("flow 1", 200.0));
        let relay = network.relays().iter().find(|relay| relay.model == "slow").unwrap();
        let delay = relay.delay.delay(1_000.0, 1.0, 0.0);
        assert_eq!(
            (delay.min(), delay.at(0.95), delay.max()),
            (210_000.0, 1_210_000.0, 4_210_000.0)
        );
        let bits = TEXT.replace("200pps", "1.12Mbit/s");
        assert_eq!(read(&bits).unwrap().flows()[0].rate_pps, 200.0);
        let files = TEXT.replace("model = \"slow\"", "model = \"pi.json\"");
        let files = TopologyFile::parse(&files).unwrap().model_files();
        assert_eq!(files.into_iter().collect::<Vec<_>>(), ["pi.json"]);
    }

    #[test]
    fn json_has_the_same_fields() {
        let json = serde_json::to_string(&toml::from_str::<toml::Value>(TEXT).unwrap()).unwrap();
        let file = TopologyFile::parse_json(&json).unwrap();
        let network = file.network(&BTreeMap::new()).unwrap();
        assert_eq!((network.node_count(), network.link_count()), (4, 2));
        assert_eq!(network.flows(), read(TEXT).unwrap().flows());
        for (from, to, words) in
            [("\"version\":1", "\"version\":2", "version 2"), ("}", "", "line 1")]
        {
            let error =
                TopologyFile::parse_json(&json.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (from, to, words) in [
            ("version = 1", "version = 2", "version 2 is not supported"),
            ("rate = \"10Mbit/s\"\n\n", "speed = \"10Mbit/s\"\n\n", "line 15"),
            ("\"robot\", \"relay\"", "\"robot\", \"moon\"", "links[0]: there is no node 'moon'"),
            ("\"robot\", \"relay\"", "\"relay\", \"relay\"", "joins node 'relay' to itself"),
            ("\"robot\", \"relay\"", "\"base\", \"relay\"", "between"),
            ("to = \"base\"", "to = \"moon\"", "flows[0]: there is no node 'moon'"),
            ("to = \"base\"", "to = \"robot\"", "begins and ends at 'robot'"),
            ("\"200pps\"", "\"0pps\"", "rate is 0"),
            ("\"700B\"", "\"70000B\"", "not between 1B and 65507B"),
            ("model = \"slow\"", "model = \"fast\"", "nodes.relay: there is no model 'fast'"),
            ("\"translate\"", "\"nat\"", "unknown mode 'nat'"),
            ("robot = {}", "robot = { load = \"5%\" }", "needs a model"),
            ("p100", "p101", "no quantile"),
            (", p100 = \"4ms\"", "", "need p100"),
            ("p95 = \"1ms\"", "p95 = \"9ms\"", "ascending"),
            (
                "to = \"base\"",
                "to = \"base\"\npath = [\"robot\", \"relay\", \"robot\", \"base\"]",
                "twice",
            ),
            ("to = \"base\"", "to = \"base\"\npath = [\"robot\", \"base\"]", "no such link"),
            ("to = \"base\"", "to = \"base\"\npath = [\"relay\", \"base\"]", "does not lead from"),
        ] {
            let text = TEXT.replacen(from, to, 1);
            assert_ne!(text, TEXT, "{from}");
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(words), "{to}: {error}");
        }
        let error = read(TEXT.split("[[flows]]").next().unwrap()).unwrap_err().to_string();
        assert!(error.contains("at least one [[flows]]"), "{error}");
    }

    proptest! {
        #[test]
        fn damaged_files_end_in_an_error_or_a_prediction(
            start in 0..600_usize,
            length in 0..30_usize,
            insert in "[a-z0-9\"={}\\[\\], .-]{0,12}",
        ) {
            let mut text = TEXT.to_owned();
            let start = start.min(text.len());
            let end = (start + length).min(text.len());
            text.replace_range(start..end, &insert);
            if let Ok(network) = read(&text) {
                let request = Request { deadline_ns: 5e6, probability: 0.95 };
                let prediction = predict(&network, "damaged", &request);
                prop_assert_eq!(prediction.flows.len(), network.flows().len());
                let mut chosen = prediction.flows.iter().flat_map(|flow| &flow.chosen);
                prop_assert!(chosen.all(|path| path.probability.is_finite()));
            }
        }
    }
}
