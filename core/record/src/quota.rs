//! Names of values about CPU quotas of nodes.

/// The name of a quota value in [`crate::Summary::values`]: `quota_NODE_asked_ratio`,
/// `quota_NODE_burnt_ratio` or `quota_NODE_throttled_ns`. The node's name is in lower case, with
/// underscores for all other characters except digits.
pub fn quota_value(node: &str, quantity: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric();
    let plain: String =
        node.chars().map(|c| if fits(c) { c.to_ascii_lowercase() } else { '_' }).collect();
    format!("quota_{plain}_{quantity}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_name_is_sanitised_in_value_names() {
        assert_eq!(quota_value("Node-2", "burnt_ratio"), "quota_node_2_burnt_ratio");
    }
}
