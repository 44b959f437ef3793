//! Advisory locks of a transaction. They are taken in this order, before the rows of nodes, so that no two
//! transactions wait for each other.

/// First number of all locks: `dwhb`.
const CLASS: i32 = 0x6477_6862;

/// Shared by all transactions that change the database. A migration has it alone.
pub(super) const MIGRATION: i32 = 1;

/// Shared by transactions that store records. One that drops partitions, or stores kept records, has it
/// alone.
pub(super) const RECORDS: i32 = 2;

/// Of a transaction that creates a partition. It holds the rows of nodes already, and asks for no other
/// lock after this one.
pub(super) const PARTITIONS: i32 = 3;

/// Of a transaction that adds a schedule.
pub(super) const SCHEDULES: i32 = 4;

/// Returns the statement that takes a lock alone.
pub(super) fn exclusive(lock: i32) -> String {
    format!("SELECT pg_advisory_xact_lock({CLASS}, {lock})")
}

/// Returns the statement that takes a lock with others.
pub(super) fn shared(lock: i32) -> String {
    format!("SELECT pg_advisory_xact_lock_shared({CLASS}, {lock})")
}
