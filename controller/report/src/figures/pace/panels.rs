//! Panels and channels that figures of senders share.

use serde_json::{Value, json};

use crate::analysis::paced::PacedTrial;

/// Sizes of IP packets in ascending order.
pub(super) fn sizes<'a>(trials: impl Iterator<Item = &'a PacedTrial<'a>>) -> Vec<u64> {
    let mut sizes: Vec<u64> = trials.map(|paced| paced.sender.ip_size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Colour channel of engines, which outnumber the series colours: it uses those of delay
/// components.
pub(super) fn engine_colours(engines: &[String]) -> Value {
    json!({
        "field": "group", "type": "nominal", "title": null, "sort": null,
        "scale": {"domain": engines, "range": "ordinal"}
    })
}

/// Shape channel of engines.
pub(super) fn engine_shapes(engines: &[String]) -> Value {
    json!({
        "field": "group", "type": "nominal", "title": null, "sort": null,
        "scale": {"domain": engines, "range": "symbol"}
    })
}

/// Stacked panels; the first has the legend for all.
pub(super) fn stacked(panels: Vec<Value>) -> Value {
    let scales = json!({"color": "independent", "shape": "independent"});
    json!({"vconcat": panels, "spacing": 24, "resolve": {"scale": scales}})
}
