//! Why the running hub collects nothing from a node, kept in its database for `dwell hub nodes`.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use dwell_hub::HubError;
use dwell_hub::store::{HubStore, TextKind};
use dwell_rollup::Name;

/// Removes the faults of these nodes, which a killed or stopped hub left; `None` for all nodes.
pub(super) fn clear(
    store: &mut dyn HubStore,
    nodes: Option<&BTreeSet<String>>,
) -> Result<(), HubError> {
    let mut transaction = store.begin()?;
    for node in transaction.texts(TextKind::CollectionFault)?.into_keys() {
        if nodes.is_none_or(|nodes| nodes.contains(&node)) {
            transaction.set_text(TextKind::CollectionFault, &node, None)?;
        }
    }
    transaction.commit()
}

/// Makes a node known to the database, also before its first record.
pub(super) fn add_node(store: &Mutex<dyn HubStore + Send>, node: &Name) -> Result<(), HubError> {
    let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
    let mut transaction = store.begin()?;
    transaction.add_nodes(std::slice::from_ref(node))?;
    transaction.commit()
}

/// Stores the fault of a node; `None` removes it.
pub(super) fn set(
    store: &Mutex<dyn HubStore + Send>,
    node: &Name,
    fault: Option<&str>,
) -> Result<(), HubError> {
    let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
    let mut transaction = store.begin()?;
    transaction.set_text(TextKind::CollectionFault, node.as_str(), fault)?;
    transaction.commit()
}
