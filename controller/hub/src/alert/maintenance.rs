//! Announced maintenance of nodes: no alert fires about them.

use std::collections::BTreeMap;

use dwell_rollup::Name;
use serde::{Deserialize, Serialize};

use crate::error::HubError;
use crate::period::DAY_NS;
use crate::spans::TimeSpan;
use crate::store::{HubStore, HubTransaction, TextKind};

/// Time for which past maintenance is remembered: the longest time that a condition looks back, and a
/// day.
const MEMORY_NS: i64 = 2 * DAY_NS;

/// Maximum number of remembered times of maintenance of a node.
const MAX_REMEMBERED: usize = 100;

/// A time of maintenance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maintenance {
    /// Start in nanoseconds since 1970.
    pub from_ns: i64,
    /// End in nanoseconds since 1970.
    pub to_ns: i64,
    /// Reason, for a person.
    pub reason: String,
    /// Who announced it, as `USER@HOST`.
    pub author: String,
}

impl Maintenance {
    /// The span.
    pub(super) const fn span(&self) -> TimeSpan {
        (self.from_ns, self.to_ns)
    }

    /// Whether it is at this time.
    pub const fn is_at(&self, now_ns: i64) -> bool {
        self.from_ns <= now_ns && now_ns < self.to_ns
    }
}

/// Returns announced and recent maintenance by node, in the order of announcement.
///
/// # Errors
/// The database failed.
pub fn maintenance(
    transaction: &mut dyn HubTransaction,
) -> Result<BTreeMap<Name, Vec<Maintenance>>, HubError> {
    let texts = transaction.texts(TextKind::Maintenance)?;
    let parsed = texts.iter().map(|(node, text)| {
        let node = node.parse().map_err(|error| HubError::stored("maintenance", error))?;
        let of =
            serde_json::from_str(text).map_err(|error| HubError::stored("maintenance", error))?;
        Ok((node, of))
    });
    parsed.collect()
}

/// Announces maintenance of a node. Maintenance that lasts ends at its start.
///
/// # Errors
/// The database failed.
pub fn announce(
    store: &mut dyn HubStore,
    node: &Name,
    announced: Maintenance,
) -> Result<(), HubError> {
    change(store, node, announced.from_ns, Some(announced)).map(|_| ())
}

/// Ends maintenance of a node. Returns whether there was any.
///
/// # Errors
/// The database failed.
pub fn end(store: &mut dyn HubStore, node: &Name, now_ns: i64) -> Result<bool, HubError> {
    change(store, node, now_ns, None)
}

fn change(
    store: &mut dyn HubStore,
    node: &Name,
    at_ns: i64,
    announced: Option<Maintenance>,
) -> Result<bool, HubError> {
    let mut transaction = store.begin()?;
    super::lease::lock(&mut *transaction)?;
    let mut of = maintenance(&mut *transaction)?.remove(node).unwrap_or_default();
    let mut was_active = false;
    for known in of.iter_mut().filter(|known| known.is_at(at_ns)) {
        known.to_ns = at_ns;
        was_active = true;
    }
    of.extend(announced);
    of.retain(|known| known.from_ns < known.to_ns && known.to_ns > at_ns.saturating_sub(MEMORY_NS));
    let surplus = of.len().saturating_sub(MAX_REMEMBERED);
    of.drain(..surplus);
    let text =
        serde_json::to_string(&of).map_err(|error| HubError::stored("maintenance", error))?;
    let text = (!of.is_empty()).then_some(text);
    transaction.set_text(TextKind::Maintenance, node.as_str(), text.as_deref())?;
    transaction.commit()?;
    Ok(was_active)
}
