//! Which hubs collect from which nodes over SSH, and why one collects nothing, kept in the database.

use std::collections::BTreeSet;

use dwell_rollup::Name;
use serde::{Deserialize, Serialize};

use crate::error::HubError;
use crate::store::{HubTransaction, TextKind};

/// The collection from a node by a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collection {
    /// The node.
    pub node: Name,
    /// Identity of the hub, which stays the same when it starts again.
    pub hub: String,
    /// Why it collects nothing now.
    pub fault: Option<String>,
}

/// The stored part.
#[derive(Default, Serialize, Deserialize)]
struct Stored {
    fault: Option<String>,
}

impl Collection {
    fn key(&self) -> String {
        format!("{} {}", self.node, self.hub)
    }

    /// Stores it, new or changed.
    ///
    /// # Errors
    /// The database failed.
    pub fn store(&self, transaction: &mut dyn HubTransaction) -> Result<(), HubError> {
        let text = serde_json::to_string(&Stored { fault: self.fault.clone() })
            .map_err(|error| HubError::stored("collection", error))?;
        transaction.set_text(TextKind::Collection, &self.key(), Some(&text))
    }

    /// Removes it.
    ///
    /// # Errors
    /// The database failed.
    pub fn remove(&self, transaction: &mut dyn HubTransaction) -> Result<(), HubError> {
        transaction.set_text(TextKind::Collection, &self.key(), None)
    }
}

/// Returns the collections of all hubs, also of those that do not run now.
///
/// # Errors
/// The database failed.
pub fn collections(transaction: &mut dyn HubTransaction) -> Result<Vec<Collection>, HubError> {
    let stored = |error: &dyn ToString| HubError::stored("collection", error.to_string());
    let texts = transaction.texts(TextKind::Collection)?;
    let parsed = texts.into_iter().map(|(key, text)| {
        let (node, hub) = key.split_once(' ').ok_or_else(|| stored(&"its key has no hub"))?;
        let node = node.parse().map_err(|error: dwell_rollup::NameError| stored(&error))?;
        let Stored { fault } = serde_json::from_str(&text).map_err(|error| stored(&error))?;
        Ok(Collection { node, hub: hub.to_owned(), fault })
    });
    parsed.collect()
}

/// Returns the nodes from which hubs collect over SSH.
///
/// # Errors
/// The database failed.
pub fn collected_nodes(transaction: &mut dyn HubTransaction) -> Result<BTreeSet<Name>, HubError> {
    Ok(collections(transaction)?.into_iter().map(|collection| collection.node).collect())
}
