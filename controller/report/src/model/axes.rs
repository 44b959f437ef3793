//! Axes with a meaning of their own.

/// Axis of the relay modes.
pub const RELAY: &str = "relay";

/// Axis of the link rate.
pub(crate) const LINK_RATE: &str = "topology.link.rate";

/// Readable name of an axis: `link rate` for `topology.link.rate`.
pub fn axis_words(axis: &str) -> &str {
    if axis == LINK_RATE { "link rate" } else { axis }
}
