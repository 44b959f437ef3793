//! Fuzz targets for `dwell predict`: any text as a topology, TOML or JSON, and as a model of a node,
//! must give an error or a prediction with possible numbers. Shared by the libFuzzer targets and the
//! smoke test of `controller/predict`.

use std::collections::BTreeMap;

use dwell_predict::{NodeModel, Prediction, Request, TopologyFile, predict};

/// A model for topologies that name files.
const MODEL: &str = include_str!("../corpus/model/strong.json");

/// A topology for models, with one relay.
const TOPOLOGY: &str = r#"
version = 1
models = { m = "m.json" }
defaults = { link = "m", ends = "m" }
nodes = { a = {}, b = { model = "m", mode = "MODE", load = "50%" }, c = {} }
links = [{ between = ["a", "b"], rate = "10Mbit/s" }, { between = ["b", "c"] }]
flows = [
    { from = "a", to = "c", size = "1000B", rate = "200pps" },
    { from = "a", to = "c", size = "65507B", rate = "1pps" },
]
"#;

/// Any bytes as a topology.
pub(crate) fn topology(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let parse = if text.starts_with('{') { TopologyFile::parse_json } else { TopologyFile::parse };
    let file = match parse(text) {
        Ok(file) => file,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let model = NodeModel::parse(MODEL, "model").expect("the seed is a model");
    let models: BTreeMap<String, NodeModel> =
        file.model_files().into_iter().map(|name| (name, model.clone())).collect();
    check(&file, &models);
}

/// Any bytes as a model.
pub(crate) fn model(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(model) = NodeModel::parse(text, "model") else { return };
    assert!(!model.text().is_empty());
    for mode in model.modes.keys().filter(|mode| mode.chars().all(char::is_alphabetic)) {
        let file = TopologyFile::parse(&TOPOLOGY.replace("MODE", mode)).expect("it is a topology");
        check(&file, &BTreeMap::from([("m.json".to_owned(), model.clone())]));
    }
}

fn check(file: &TopologyFile, models: &BTreeMap<String, NodeModel>) {
    let network = match file.network(models) {
        Ok(network) => network,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let request = Request { deadline_ns: 5e6, probability: 0.95 };
    let prediction = predict(&network, "input", &request);
    assert_eq!(prediction.flows.len(), network.flows().len());
    assert!(!prediction.text().is_empty());
    check_numbers(&prediction);
}

fn check_numbers(prediction: &Prediction) {
    let paths = prediction.flows.iter().flat_map(|flow| [&flow.chosen, &flow.fewest_hops]);
    for path in paths.flatten() {
        assert!((0.0..=1.0).contains(&path.probability), "{path:?}");
        assert!((0.0..=1.0).contains(&path.loss_ratio), "{path:?}");
        assert!(path.mean_ns >= 0.0 && path.mean_ns.is_finite(), "{path:?}");
        let quantiles = [path.p50_ns, path.p95_ns, path.p99_ns];
        let quantiles: Vec<f64> = quantiles.into_iter().flatten().collect();
        assert!(quantiles.is_sorted() && quantiles.iter().all(|ns| ns.is_finite()), "{path:?}");
        assert!(path.hops + 1 == path.nodes.len(), "{path:?}");
    }
}
