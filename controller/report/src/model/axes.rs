//! Axes with a meaning of their own.

use crate::model::run::RunData;

/// Axis of the relay modes.
pub(crate) const RELAY: &str = "relay";

/// Axis of the link rate.
pub(crate) const LINK_RATE: &str = "topology.link.rate";

/// Relay modes of a run; empty without that axis.
pub(crate) fn modes(run: &RunData) -> &[String] {
    let axis = run.axes.iter().find(|axis| axis.name == RELAY);
    axis.map_or(&[], |axis| &axis.values)
}

/// Readable name of an axis: `link rate` for `topology.link.rate`.
pub(crate) fn axis_words(axis: &str) -> &str {
    if axis == LINK_RATE { "link rate" } else { axis }
}
