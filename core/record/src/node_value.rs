//! Names of values about single nodes.

/// The name of a quota value in [`crate::Summary::values`]: `quota_NODE_asked_ratio`,
/// `quota_NODE_burnt_ratio` or `quota_NODE_throttled_ns`. The node's name is in lower case, with
/// underscores for all other characters except digits.
pub fn quota_value(node: &str, quantity: &str) -> String {
    format!("quota_{}_{quantity}", plain(node))
}

/// The name of a value about the clock of a node, such as `clock_NODE_offset_ns`. The node's name is
/// changed as in [`quota_value`].
pub fn clock_value(node: &str, quantity: &str) -> String {
    format!("clock_{}_{quantity}", plain(node))
}

/// The name of the clock bound of a delay between machines: `end_to_end_error_ns` of `end_to_end_ns`.
pub fn clock_error_value(metric: &str) -> String {
    format!("{}_error_ns", metric.strip_suffix("_ns").unwrap_or(metric))
}

fn plain(node: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric();
    node.chars().map(|c| if fits(c) { c.to_ascii_lowercase() } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_name_is_sanitised_in_value_names() {
        assert_eq!(quota_value("Node-2", "burnt_ratio"), "quota_node_2_burnt_ratio");
        assert_eq!(clock_value("Node-2", "offset_ns"), "clock_node_2_offset_ns");
        assert_eq!(clock_error_value("link_in_ns"), "link_in_error_ns");
    }
}
