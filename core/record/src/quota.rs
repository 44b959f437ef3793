//! Names of values about CPU quotas of nodes.

/// The name of a quota value in [`crate::Summary::values`]: `quota_NODE_asked_ratio`,
/// `quota_NODE_burnt_ratio` or `quota_NODE_throttled_ns`. The node's name is in lower case, with
/// underscores for all other characters except digits.
pub fn quota_value(node: &str, what: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric();
    let plain: String =
        node.chars().map(|c| if fits(c) { c.to_ascii_lowercase() } else { '_' }).collect();
    format!("quota_{plain}_{what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_any_name_makes_the_name_of_a_value() {
        assert_eq!(quota_value("Node-2", "burnt_ratio"), "quota_node_2_burnt_ratio");
    }
}
