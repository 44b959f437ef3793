//! From which nodes this hub collects, and why it collects nothing from one, kept in its database for
//! `dwell hub nodes` and for alerts that want samples.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use dwell_hub::store::{HubStore, HubTransaction};
use dwell_hub::{Collection, HubError, collections};
use dwell_results::owner;
use dwell_rollup::Name;

/// The collections of one hub.
#[derive(Clone, Debug)]
pub(super) struct OwnCollections {
    hub: String,
}

impl OwnCollections {
    /// Returns those of the hub on this data directory.
    pub(super) fn new(dir: &Path) -> Self {
        let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        Self { hub: format!("{}:{}", owner(), dir.display()) }
    }

    fn of(&self, node: &Name, fault: Option<&str>) -> Collection {
        let fault = fault.map(str::to_owned);
        Collection { node: node.clone(), hub: self.hub.clone(), fault }
    }

    /// Stores from which nodes this hub collects from now on, and removes the faults that it left when
    /// it ended. A hub that is alone on its database removes those of all others.
    pub(super) fn begin(
        &self,
        store: &mut dyn HubStore,
        nodes: &BTreeSet<Name>,
        is_alone: bool,
    ) -> Result<(), HubError> {
        let mut transaction = store.begin()?;
        for known in collections(&mut *transaction)? {
            let is_own = known.hub == self.hub;
            if (is_own && !nodes.contains(&known.node)) || (!is_own && is_alone) {
                known.remove(&mut *transaction)?;
            }
        }
        for node in nodes {
            self.of(node, None).store(&mut *transaction)?;
        }
        transaction.commit()
    }

    /// Removes the faults of this hub, which ends. It collects again when it runs again.
    pub(super) fn end(&self, store: &mut dyn HubStore) -> Result<(), HubError> {
        let mut transaction = store.begin()?;
        for known in collections(&mut *transaction)? {
            if known.hub == self.hub && known.fault.is_some() {
                self.of(&known.node, None).store(&mut *transaction)?;
            }
        }
        transaction.commit()
    }

    /// Adds a node, which the database knows from now on, also before its first record.
    pub(super) fn add(
        &self,
        store: &Mutex<dyn HubStore + Send>,
        node: &Name,
    ) -> Result<(), HubError> {
        change(store, |transaction| {
            transaction.add_nodes(std::slice::from_ref(node))?;
            self.of(node, None).store(transaction)
        })
    }

    /// Removes a node, from which this hub no longer collects.
    pub(super) fn remove(
        &self,
        store: &Mutex<dyn HubStore + Send>,
        node: &Name,
    ) -> Result<(), HubError> {
        change(store, |transaction| self.of(node, None).remove(transaction))
    }

    /// Stores why this hub collects nothing from a node; `None`: it does.
    pub(super) fn set_fault(
        &self,
        store: &Mutex<dyn HubStore + Send>,
        node: &Name,
        fault: Option<&str>,
    ) -> Result<(), HubError> {
        change(store, |transaction| self.of(node, fault).store(transaction))
    }
}

fn change(
    store: &Mutex<dyn HubStore + Send>,
    make: impl FnOnce(&mut dyn HubTransaction) -> Result<(), HubError>,
) -> Result<(), HubError> {
    let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
    let mut transaction = store.begin()?;
    make(&mut *transaction)?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use dwell_hub::SqliteStore;

    use super::*;

    #[test]
    fn hub_leaves_the_faults_of_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let store = Mutex::new(SqliteStore::open(dir.path()).unwrap());
        let [a, b]: [Name; 2] = ["a", "b"].map(|name| name.parse().unwrap());
        let [first, second] =
            ["one", "two"].map(|name| OwnCollections::new(&dir.path().join(name)));
        for hub in [&first, &second] {
            hub.add(&store, &a).unwrap();
            hub.set_fault(&store, &a, Some("no route")).unwrap();
        }
        first.add(&store, &b).unwrap();
        let stored = || collections(&mut *store.lock().unwrap().begin_to_read().unwrap()).unwrap();
        let faults = || {
            let faulty = stored().into_iter().filter(|known| known.fault.is_some());
            faulty.map(|known| known.hub).collect::<Vec<_>>()
        };
        second.end(&mut *store.lock().unwrap()).unwrap();
        assert_eq!(faults(), std::slice::from_ref(&first.hub));
        let nodes = BTreeSet::from([b.clone()]);
        second.begin(&mut *store.lock().unwrap(), &nodes, false).unwrap();
        assert_eq!(faults(), std::slice::from_ref(&first.hub), "it shares the database");
        first.begin(&mut *store.lock().unwrap(), &nodes, true).unwrap();
        let left: Vec<_> = stored().into_iter().map(|known| (known.node, known.hub)).collect();
        assert_eq!(left, [(b, first.hub.clone())], "alone, and without node a");
    }
}
