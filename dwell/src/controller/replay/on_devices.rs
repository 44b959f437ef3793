//! Plans of labs, rewritten for devices.

use dwell_plan::{Source, expand};
use toml::{Table, Value};

/// Returns a plan whose lab's nodes are roles for devices of the same names. Links, routing and quotas
/// belong to labs and are left out, also as axes, with the constraints about them.
pub(super) fn rewritten(text: &str) -> Result<String, String> {
    let source = Source::parse(text).map_err(|error| error.to_string())?;
    let expansion = expand(&source, 0).map_err(|error| error.to_string())?;
    let names = expansion.plan().topology.node_names().ok_or("the plan names no nodes")?;
    let roles = names.into_iter().map(Value::String).collect();
    let mut plan: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let topology = Table::from_iter([("roles".to_owned(), Value::Array(roles))]);
    plan.insert("topology".to_owned(), Value::Table(topology));
    if let Some(matrix) = plan.get_mut("matrix").and_then(Value::as_table_mut) {
        matrix.retain(|axis, _| !is_of_lab(axis));
    }
    if let Some(constraints) = plan.get_mut("constraint").and_then(Value::as_array_mut) {
        constraints.retain(|constraint| !is_about_lab(constraint));
    }
    Ok(plan.to_string())
}

fn is_of_lab(axis: &str) -> bool {
    axis.starts_with("topology.")
}

/// Whether a constraint applies to levels of an axis that only labs have.
fn is_about_lab(constraint: &Value) -> bool {
    let when = constraint.get("when").and_then(Value::as_table);
    when.is_some_and(|when| when.keys().any(|axis| is_of_lab(axis)))
}
