//! Bytes of a fleet: in the database per row, and in the log of PostgreSQL per record.

use std::collections::BTreeMap;

use anyhow::Result;
use postgres::Client;
use serde::Serialize;

/// Tables of the hub whose size is shown. The rows of a resolution are in their partitions.
const TABLES: [&str; 9] = [
    "rows_10s",
    "rows_5m",
    "rows_1h",
    "rows_1d",
    "windows",
    "statuses",
    "pairings",
    "incarnations",
    "undated",
];

/// Size of the tables.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct DatabaseCosts {
    /// Rows and bytes with indexes, by table.
    pub(super) tables: BTreeMap<String, TableCost>,
    /// Bytes of the write-ahead log per record.
    pub(super) wal_bytes_per_record: f64,
}

/// Size of a table with its partitions and indexes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct TableCost {
    /// Rows.
    pub(super) rows: u64,
    /// Bytes.
    pub(super) bytes: u64,
}

impl TableCost {
    /// Bytes of a row; `None` without rows.
    pub(super) fn bytes_per_row(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.bytes as f64 / self.rows as f64)
    }
}

/// Position in the write-ahead log in bytes.
pub(super) fn wal_position(client: &mut Client) -> Result<i64> {
    let row = client.query_one("SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint", &[])?;
    Ok(row.get(0))
}

/// Measures the tables after this number of records since a position in the log.
pub(super) fn of_database(
    client: &mut Client,
    wal_before: i64,
    records: u64,
) -> Result<DatabaseCosts> {
    let wal = wal_position(client)? - wal_before;
    let mut tables = BTreeMap::new();
    for table in TABLES {
        // A table without partitions is its own tree.
        let size = format!(
            "SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_partition_tree('dwell_hub.{table}')"
        );
        let mut bytes: Option<i64> = client.query_one(&size, &[])?.get(0);
        if bytes.is_none() {
            let size = format!("SELECT pg_total_relation_size('dwell_hub.{table}')");
            bytes = client.query_one(&size, &[])?.get(0);
        }
        let count = format!("SELECT count(*) FROM dwell_hub.{table}");
        let rows: i64 = client.query_one(&count, &[])?.get(0);
        let (rows, bytes) = (rows.unsigned_abs(), bytes.unwrap_or(0).unsigned_abs());
        tables.insert(table.to_owned(), TableCost { rows, bytes });
    }
    Ok(DatabaseCosts { tables, wal_bytes_per_record: wal as f64 / records.max(1) as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_table_has_no_bytes_per_row() {
        assert_eq!(TableCost { rows: 0, bytes: 8_192 }.bytes_per_row(), None);
        assert_eq!(TableCost { rows: 4, bytes: 8_192 }.bytes_per_row(), Some(2_048.0));
    }
}
