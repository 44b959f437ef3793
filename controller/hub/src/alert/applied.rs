//! The applied alert rules.

use serde::{Deserialize, Serialize};

use super::lease::lock;
use crate::error::HubError;
use crate::store::{HubStore, HubTransaction, TextKind};

/// Applied alert rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedRules {
    /// Time of their application in nanoseconds since 1970.
    pub applied_ns: i64,
    /// Who applied them, as `USER@HOST`.
    pub author: String,
    /// The file.
    pub text: String,
}

/// Returns the applied rules; `None` if none were applied.
///
/// # Errors
/// The database failed.
pub fn applied_rules(
    transaction: &mut dyn HubTransaction,
) -> Result<Option<AppliedRules>, HubError> {
    let text = transaction.texts(TextKind::AlertRules)?.remove("");
    let applied = text.map(|text| serde_json::from_str(&text)).transpose();
    applied.map_err(|error| HubError::stored("alert rules", error))
}

/// Applies rules, which replace the previous ones. They were checked before.
///
/// # Errors
/// The database failed.
pub fn apply_rules(store: &mut dyn HubStore, applied: &AppliedRules) -> Result<(), HubError> {
    let text =
        serde_json::to_string(applied).map_err(|error| HubError::stored("alert rules", error))?;
    let mut transaction = store.begin()?;
    lock(&mut *transaction)?;
    transaction.set_text(TextKind::AlertRules, "", Some(&text))?;
    transaction.commit()
}
