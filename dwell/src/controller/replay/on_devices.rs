//! Plans of labs, rewritten for devices.

use dwell_plan::{Source, expand};
use toml::{Table, Value};

/// Returns a plan whose lab's nodes are roles for devices of the same names. Links, routing and quotas
/// belong to labs and are left out, also as axes.
pub(super) fn rewritten(text: &str) -> Result<String, String> {
    let source = Source::parse(text).map_err(|error| error.to_string())?;
    let expansion = expand(&source, 0).map_err(|error| error.to_string())?;
    let names = expansion.plan().topology.node_names().ok_or("the plan names no nodes")?;
    let roles = names.into_iter().map(Value::String).collect();
    let mut plan: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let topology = Table::from_iter([("roles".to_owned(), Value::Array(roles))]);
    plan.insert("topology".to_owned(), Value::Table(topology));
    if let Some(matrix) = plan.get_mut("matrix").and_then(Value::as_table_mut) {
        matrix.retain(|axis, _| !axis.starts_with("topology."));
    }
    Ok(plan.to_string())
}
