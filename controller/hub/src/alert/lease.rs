//! The lease of alerts: of several hubs on one database only one evaluates.

use serde::{Deserialize, Serialize};

use crate::clock::MAX_LEAD_NS;
use crate::error::HubError;
use crate::period::SECOND_NS;
use crate::store::{HubTransaction, TextKind};

/// Time for which a hub holds the lease without renewing it.
pub(super) const LEASE_NS: i64 = 45 * SECOND_NS;

/// Time without an evaluation after which silence counts anew.
const MAX_BREAK_NS: i64 = 120 * SECOND_NS;

const LEASE_KEY: &str = "lease";

const LOCK_KEY: &str = "lock";

/// The hub that evaluates alerts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Identity of the hub.
    pub hub: String,
    /// Last evaluation in nanoseconds since 1970.
    pub evaluated_ns: i64,
    /// End of the lease in nanoseconds since 1970.
    pub until_ns: i64,
    /// Time since which hubs have evaluated without a break, in nanoseconds since 1970.
    pub since_ns: i64,
}

/// Locks the texts of alerts until the end of the transaction. In a database with row locks, another
/// transaction waits here, and reads afterwards what this one stored.
pub(super) fn lock(transaction: &mut dyn HubTransaction) -> Result<(), HubError> {
    transaction.set_text(TextKind::AlertLease, LOCK_KEY, Some(""))
}

/// Returns the lease.
///
/// # Errors
/// The database failed.
pub fn lease(transaction: &mut dyn HubTransaction) -> Result<Option<Lease>, HubError> {
    let mut texts = transaction.texts(TextKind::AlertLease)?;
    let lease = texts.remove(LEASE_KEY).map(|text| serde_json::from_str(&text));
    lease.transpose().map_err(|error| HubError::stored("lease", error))
}

/// Takes or renews the lease for a hub. Returns that of another hub if it is in force.
pub(super) fn take(
    transaction: &mut dyn HubTransaction,
    hub: &str,
    now_ns: i64,
) -> Result<Result<Lease, Lease>, HubError> {
    let known = lease(transaction)?;
    // The clocks of two hubs differ, but a hub whose clock was wrong may have left a much later end.
    let latest_ns = now_ns.saturating_add(MAX_LEAD_NS);
    let in_force = now_ns.saturating_add(1)..=latest_ns.saturating_add(LEASE_NS);
    let is_other = |known: &Lease| known.hub != hub && in_force.contains(&known.until_ns);
    if let Some(other) = known.clone().filter(is_other) {
        return Ok(Err(other));
    }
    let is_continued = |known: &Lease| {
        known.evaluated_ns <= latest_ns && now_ns.saturating_sub(known.evaluated_ns) <= MAX_BREAK_NS
    };
    let taken = Lease {
        hub: hub.to_owned(),
        evaluated_ns: now_ns,
        until_ns: now_ns.saturating_add(LEASE_NS),
        since_ns: known.filter(is_continued).map_or(now_ns, |known| known.since_ns),
    };
    let text = serde_json::to_string(&taken).map_err(|error| HubError::stored("lease", error))?;
    transaction.set_text(TextKind::AlertLease, LEASE_KEY, Some(&text))?;
    Ok(Ok(taken))
}

/// Ends the lease now. Evaluations without a break continue.
pub(super) fn release(transaction: &mut dyn HubTransaction) -> Result<(), HubError> {
    let Some(known) = lease(transaction)? else { return Ok(()) };
    let ended = Lease { until_ns: i64::MIN, ..known };
    let text = serde_json::to_string(&ended).map_err(|error| HubError::stored("lease", error))?;
    transaction.set_text(TextKind::AlertLease, LEASE_KEY, Some(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqliteStore;
    use crate::store::HubStore as _;

    const NOW: i64 = 1_800_000_000 * SECOND_NS;

    #[test]
    fn hub_with_a_clock_a_second_behind_leaves_the_lease() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = SqliteStore::open(dir.path()).unwrap();
        let mut transaction = store.begin().unwrap();
        let mut take = |hub: &str, now_ns| take(&mut *transaction, hub, now_ns).unwrap();
        take("ahead", NOW - 60 * SECOND_NS).unwrap();
        let renewed = take("ahead", NOW).unwrap();
        assert_eq!(renewed.since_ns, NOW - 60 * SECOND_NS);
        assert_eq!(take("behind", NOW - SECOND_NS), Err(renewed));
        // The clock of the holder is set back a little.
        let again = take("ahead", NOW - SECOND_NS).unwrap();
        assert_eq!(again.since_ns, NOW - 60 * SECOND_NS, "silence does not count anew");
        // The lease of a clock that was far ahead is not in force.
        take("ahead", NOW + 3_600 * SECOND_NS).unwrap();
        assert_eq!(take("behind", NOW).unwrap().since_ns, NOW);
    }
}
