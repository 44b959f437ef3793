//! The rows of nodes that a transaction locked. It counts in memory, and writes all counts at once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use dwell_rollup::Name;

use super::connection::Connection;
use crate::clock::MAX_LEAD_NS;
use crate::error::HubError;
use crate::row::NodeId;
use crate::store::Counts;

const COLUMNS: &str = "id, name, bad_bytes, undated_bytes, incarnation_day, day_incarnations";

/// A locked row.
#[derive(Default)]
pub(super) struct LockedNode {
    /// To be added.
    counts: Counts,
    last_arrival_ns: Option<i64>,
    bad_bytes: i64,
    undated_bytes: i64,
    incarnation_day: i64,
    day_incarnations: i64,
    has_changed: bool,
}

impl LockedNode {
    fn of(row: &postgres::Row) -> Result<Self, HubError> {
        Ok(Self {
            bad_bytes: row.try_get(2)?,
            undated_bytes: row.try_get(3)?,
            incarnation_day: row.try_get(4)?,
            day_incarnations: row.try_get(5)?,
            ..Self::default()
        })
    }

    pub(super) fn count(&mut self, counts: &Counts, arrival_ns: i64) {
        self.counts.add(counts);
        self.last_arrival_ns = self.last_arrival_ns.max(Some(arrival_ns));
        self.has_changed = true;
    }

    /// Counts an incarnation that begins to arrive on a day, unless there are `limit`.
    pub(super) fn admit_incarnation(&mut self, day: i64, limit: u64) -> bool {
        let before = if self.incarnation_day == day { self.day_incarnations } else { 0 };
        let is_admitted = (before as u64) < limit;
        if is_admitted {
            (self.incarnation_day, self.day_incarnations) = (day, before + 1);
            self.has_changed = true;
        }
        is_admitted
    }

    /// Counts bytes of undated records, unless there would be more than `limit`.
    pub(super) fn admit_undated(&mut self, bytes: u64, limit: u64) -> bool {
        let is_admitted = self.undated_bytes as u64 + bytes <= limit;
        if is_admitted {
            self.undated_bytes += bytes as i64;
            self.has_changed = true;
        }
        is_admitted
    }

    /// Counts bytes of bad records, unless there would be more than `limit`.
    pub(super) fn admit_bad(&mut self, bytes: i64, limit: u64) -> bool {
        let is_admitted = (self.bad_bytes + bytes) as u64 <= limit;
        if is_admitted {
            self.bad_bytes += bytes;
            self.has_changed = true;
        }
        is_admitted
    }

    /// Subtracts bytes of a bad record that was removed.
    pub(super) fn release_bad(&mut self, bytes: i64) {
        self.bad_bytes -= bytes;
        self.has_changed = true;
    }
}

/// All rows that the transaction locked.
#[derive(Default)]
pub(super) struct LockedNodes(BTreeMap<NodeId, LockedNode>);

impl LockedNodes {
    /// Adds missing nodes, and locks all, both in the order of their names.
    pub(super) fn add(
        &mut self,
        db: &mut Connection,
        names: &[Name],
    ) -> Result<Vec<NodeId>, HubError> {
        let names: Vec<&str> = names.iter().map(Name::as_str).collect();
        // The conflict is with a hub that adds the same node now: this one waits until it has.
        db.execute(
            "INSERT INTO nodes (name)
             SELECT name FROM unnest($1::text[]) AS added (name)
             WHERE NOT EXISTS (SELECT FROM nodes WHERE nodes.name = added.name)
             ORDER BY name COLLATE \"C\" ON CONFLICT DO NOTHING",
            &[&names],
        )?;
        let rows = db.query(
            &format!("SELECT {COLUMNS} FROM nodes WHERE name = ANY ($1) ORDER BY name FOR UPDATE"),
            &[&names],
        )?;
        let mut numbers = BTreeMap::new();
        for row in &rows {
            let node = NodeId(row.try_get(0)?);
            numbers.insert(row.try_get::<_, &str>(1)?, node);
            // One that was locked before has counts that are not written yet.
            if let Entry::Vacant(place) = self.0.entry(node) {
                place.insert(LockedNode::of(row)?);
            }
        }
        let number = |name| numbers.get(name).copied();
        let missing = || HubError::stored("node", "it was removed");
        names.into_iter().map(|name| number(name).ok_or_else(missing)).collect()
    }

    /// Returns a row, locking it.
    pub(super) fn lock(
        &mut self,
        db: &mut Connection,
        node: NodeId,
    ) -> Result<&mut LockedNode, HubError> {
        match self.0.entry(node) {
            Entry::Occupied(locked) => Ok(locked.into_mut()),
            Entry::Vacant(place) => {
                let rows = db.query(
                    &format!("SELECT {COLUMNS} FROM nodes WHERE id = $1 FOR UPDATE"),
                    &[&node.0],
                )?;
                let row = rows.first().ok_or_else(|| HubError::stored("node", "it is missing"))?;
                Ok(place.insert(LockedNode::of(row)?))
            }
        }
    }

    /// Writes all changes.
    pub(super) fn flush(&mut self, db: &mut Connection) -> Result<(), HubError> {
        let changed: Vec<_> = self.0.iter().filter(|(_, node)| node.has_changed).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let column = |value: &dyn Fn(&LockedNode) -> i64| -> Vec<i64> {
            changed.iter().map(|(_, node)| value(node)).collect()
        };
        let ids: Vec<i64> = changed.iter().map(|(id, _)| id.0).collect();
        let last: Vec<Option<i64>> = changed.iter().map(|(_, node)| node.last_arrival_ns).collect();
        db.execute(
            "UPDATE nodes SET
             last_arrival_ns = CASE WHEN nodes.last_arrival_ns > changed.last_arrival_ns + $12
             THEN changed.last_arrival_ns
             ELSE greatest(nodes.last_arrival_ns, changed.last_arrival_ns) END,
             stored = nodes.stored + changed.stored,
             duplicates = nodes.duplicates + changed.duplicates,
             expired = nodes.expired + changed.expired,
             bad = nodes.bad + changed.bad,
             unrequested = nodes.unrequested + changed.unrequested,
             bad_bytes = changed.bad_bytes,
             undated_bytes = changed.undated_bytes,
             incarnation_day = changed.incarnation_day,
             day_incarnations = changed.day_incarnations
             FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[],
             $7::int8[], $8::int8[], $9::int8[], $10::int8[], $11::int8[])
             AS changed (id, last_arrival_ns, stored, duplicates, expired, bad, unrequested, bad_bytes,
             undated_bytes, incarnation_day, day_incarnations)
             WHERE nodes.id = changed.id",
            &[
                &ids,
                &last,
                &column(&|node| node.counts.stored as i64),
                &column(&|node| node.counts.duplicates as i64),
                &column(&|node| node.counts.expired as i64),
                &column(&|node| node.counts.bad as i64),
                &column(&|node| node.counts.unrequested as i64),
                &column(&|node| node.bad_bytes),
                &column(&|node| node.undated_bytes),
                &column(&|node| node.incarnation_day),
                &column(&|node| node.day_incarnations),
                &MAX_LEAD_NS,
            ],
        )?;
        for node in self.0.values_mut() {
            (node.counts, node.last_arrival_ns, node.has_changed) =
                (Counts::default(), None, false);
        }
        Ok(())
    }

    /// Forgets all rows, which other statements changed.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}
