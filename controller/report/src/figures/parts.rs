//! Components of the end-to-end delay, each with one name and one colour in every figure.

use serde_json::{Value, json};

pub(super) const SENDER: &str = "at the sender";
pub(super) const LINK_IN: &str = "link to the node";
pub(super) const NODE: &str = "node as a whole";
pub(super) const LINK_OUT: &str = "link from the node";
pub(super) const LINKS: &str = "links together";
/// Remainder of the whole without its known components.
pub(super) const UNSTAMPED: &str = "not stamped";

/// In packet order; the theme has as many colours.
const ALL: [&str; 11] = [
    SENDER,
    LINK_IN,
    "queueing on arrival",
    "processing",
    "queueing on departure",
    "queueing discipline",
    NODE,
    LINK_OUT,
    LINKS,
    "at the receiver",
    UNSTAMPED,
];

/// Name of the component that a metric measures.
pub(super) fn name(metric: &str) -> &'static str {
    match metric {
        "sender_out_ns" => SENDER,
        "link_in_ns" => LINK_IN,
        "queueing_in_ns" => ALL[2],
        "processing_ns" => ALL[3],
        "queueing_out_ns" => ALL[4],
        "qdisc_ns" => ALL[5],
        "node_delay_ns" | "node_delay_driver_ns" | "node_delay_netfilter_ns" => NODE,
        "link_out_ns" => LINK_OUT,
        "link_delay_ns" => LINKS,
        "receiver_in_ns" => ALL[9],
        _ => UNSTAMPED,
    }
}

/// Components for which `has` is true, in packet order.
pub(super) fn present(has: impl Fn(&str) -> bool) -> Vec<&'static str> {
    ALL.into_iter().filter(|part| has(part)).collect()
}

/// Colour channel. The scale contains all components, so that a colour does not depend on the
/// others present; the legend lists those present.
pub(super) fn colour(present: &[&str]) -> Value {
    json!({
        "field": "group", "type": "nominal", "title": null, "sort": null,
        "scale": {"domain": ALL, "range": "ordinal"},
        "legend": {"values": present, "columns": 4}
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn theme_has_one_colour_per_component() {
        for config in [crate::figures::theme::light(), crate::figures::theme::dark()] {
            let colours = config["range"]["ordinal"].as_array().unwrap();
            assert_eq!(colours.len(), ALL.len());
        }
    }

    #[test]
    fn component_colour_is_independent_of_others() {
        let (one, other) = (colour(&[LINK_IN]), colour(&[SENDER, LINK_IN, UNSTAMPED]));
        assert_eq!(one["scale"], other["scale"]);
    }
}
