//! From messages to rows and receipts, in one transaction. The final state does not depend on the order
//! in which records arrive, nor on how often.

use std::collections::BTreeSet;

use crate::batch::{Batch, Committed, Rules};
use crate::clock::check_clock;
use crate::error::HubError;
use crate::period::{DAY_NS, Horizons, Partition, Resolution, Retention};
use crate::store::HubStore;
use crate::verify::{Delivery, verify};

/// Time after which a dated record and the pairings that date it are no longer needed: none that is
/// older arrives.
const DATING_NS: i64 = 16 * DAY_NS;

/// Number of records of unknown versions that are read in one transaction.
const UNKNOWN_BATCH: u64 = 100;

/// Stores the records of messages and their receipts.
///
/// # Errors
/// The database failed, or the clock is implausible. Nothing was stored, no record is bad, and the
/// carrier delivers all again.
pub fn ingest(
    store: &mut dyn HubStore,
    deliveries: &[Delivery<'_>],
    rules: &Rules,
) -> Result<Committed, HubError> {
    // Verified before the transaction, so that other hubs do not wait for it.
    let verified: Vec<_> =
        deliveries.iter().map(|delivery| (delivery, verify(delivery, rules.decode))).collect();
    let mut transaction = store.begin()?;
    // Messages of a carrier may arrive together. The clock is plausible in between.
    let arrivals: BTreeSet<i64> = deliveries.iter().map(|delivery| delivery.arrival_ns).collect();
    let last = arrivals.last().filter(|_| arrivals.len() > 1);
    for arrival_ns in arrivals.first().into_iter().chain(last) {
        check_clock(&mut *transaction, *arrival_ns)?;
    }
    let mut batch = Batch::new(&mut *transaction, rules)?;
    batch.number_nodes(deliveries.iter().map(|delivery| delivery.node))?;
    for (delivery, parts) in verified {
        batch.add(delivery, parts)?;
    }
    let committed = batch.finish()?;
    transaction.commit()?;
    Ok(committed)
}

/// Stores kept records of versions that this dwell knows now. Those without a place stay kept, and so does a
/// second one with the same identity, which may be kept without a receipt. Returns the number of the others.
///
/// # Errors
/// The database failed. A later call continues.
pub fn store_unknown_versions(store: &mut dyn HubStore, rules: &Rules) -> Result<u64, HubError> {
    let (mut stored, mut after, mut taken) = (0, 0, BTreeSet::new());
    loop {
        let mut transaction = store.begin()?;
        let kept = transaction.unknown_versions(after, UNKNOWN_BATCH)?;
        let nodes = transaction.nodes()?;
        let Some(last) = kept.last() else { return Ok(stored) };
        after = last.id;
        let mut decoded = Vec::new();
        for bad in kept {
            let node = nodes.iter().find(|node| node.id == bad.node);
            if let (Some(node), Ok(record)) = (node, (rules.decode)(&bad.raw))
                && taken.insert((bad.node, record.identity.incarnation, record.identity.sequence))
            {
                decoded.push((node.name.clone(), bad, record));
            }
        }
        let mut batch = Batch::new(&mut *transaction, rules)?;
        batch.number_nodes(decoded.iter().map(|(node, ..)| node))?;
        for (node, bad, record) in decoded {
            batch.add_held(&node, bad, record)?;
        }
        let counts = batch.finish()?.counts;
        stored += counts.values().map(|of| of.stored + of.expired + of.unrequested).sum::<u64>();
        transaction.commit()?;
    }
}

/// Drops what is older than its retention. Returns the dropped partitions.
///
/// # Errors
/// The database failed, or the clock is implausible. Nothing was dropped.
pub fn expire(
    store: &mut dyn HubStore,
    retention: &Retention,
    now_ns: i64,
) -> Result<Vec<Partition>, HubError> {
    let mut transaction = store.begin()?;
    check_clock(&mut *transaction, now_ns)?;
    let mut horizons = Horizons::default();
    horizons.raise_all(retention, now_ns);
    let (horizons, dropped) = transaction.drop_expired(&horizons)?;
    // The whole last partition of rows of a day has expired.
    let last_day = Resolution::Day.partition(horizons.of(Resolution::Day));
    transaction.remove_streams(last_day.start_ns)?;
    let statuses = horizons.of(Resolution::FiveMinutes);
    transaction.remove_old(statuses, now_ns.saturating_sub(DATING_NS), statuses)?;
    transaction.commit()?;
    Ok(dropped)
}
