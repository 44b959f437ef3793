//! Columns of the database, and values of rows in them.

use crate::error::HubError;
use crate::incarnation::IncarnationState;
use crate::row::{NodeId, RecordKey};
use crate::store::{StoredBadRecord, StoredStatus};
use dwell_rollup::{BootId, Incarnation, Stream};
use postgres::Row as SqlRow;

/// Columns that [`state`] reads.
pub(super) const INCARNATION_COLUMNS: &str = "receipts, dropped, boot_id, first_wall_ns, last_wall_ns, \
                                   first_boot_ns, last_boot_ns";

/// Columns that [`status`] reads.
pub(super) const STATUS_COLUMNS: &str = "node_id, incarnation, sequence, wall_ns, arrival_ns, body";

/// Columns that [`bad`] reads.
pub(super) const BAD_COLUMNS: &str =
    "id, node_id, first_arrival_ns, arrivals, version, reason, raw";

/// Streams by column.
pub(super) struct StreamColumns<'a> {
    pub(super) nodes: Vec<i64>,
    pub(super) reflectors: Vec<&'a str>,
    pub(super) protocols: Vec<&'a str>,
    pub(super) entries: Vec<&'a str>,
}

impl<'a> StreamColumns<'a> {
    pub(super) fn of(streams: impl IntoIterator<Item = &'a (NodeId, Stream)>) -> Self {
        let mut columns = Self {
            nodes: Vec::new(),
            reflectors: Vec::new(),
            protocols: Vec::new(),
            entries: Vec::new(),
        };
        for (node, Stream { reflector, protocol, entry }) in streams {
            columns.nodes.push(node.0);
            columns.reflectors.push(reflector.as_str());
            columns.protocols.push(protocol.as_str());
            columns.entries.push(entry.as_str());
        }
        columns
    }
}

/// A stored text that has another type in memory.
pub(super) fn parsed<T: std::str::FromStr<Err: std::error::Error>>(
    row: &SqlRow,
    column: usize,
    what: &'static str,
) -> Result<T, HubError> {
    let text: &str = row.try_get(column)?;
    text.parse().map_err(|error: T::Err| HubError::stored(what, error))
}

pub(super) fn boot_id(row: &SqlRow, column: usize) -> Result<BootId, HubError> {
    let bytes: &[u8] = row.try_get(column)?;
    bytes.try_into().map(BootId).map_err(|error| HubError::stored("boot id", error))
}

pub(super) fn key(row: &SqlRow, column: usize) -> Result<RecordKey, HubError> {
    Ok(RecordKey {
        incarnation: Incarnation(row.try_get::<_, i64>(column)? as u64),
        sequence: row.try_get::<_, i64>(column + 1)? as u64,
    })
}

pub(super) fn state(row: &SqlRow, column: usize) -> Result<IncarnationState, HubError> {
    let range = |first: usize| -> Result<Option<(i64, i64)>, HubError> {
        let (first, last): (Option<i64>, _) = (row.try_get(first)?, row.try_get(first + 1)?);
        Ok(first.zip(last))
    };
    Ok(IncarnationState {
        receipts: parsed(row, column, "set of receipts")?,
        dropped: parsed(row, column + 1, "set of dropped records")?,
        boot_id: boot_id(row, column + 2)?,
        wall_ns: range(column + 3)?,
        boot_ns: range(column + 5)?,
    })
}

pub(super) fn status(row: &SqlRow) -> Result<StoredStatus, HubError> {
    let body: &str = row.try_get(5)?;
    Ok(StoredStatus {
        node: NodeId(row.try_get(0)?),
        key: key(row, 1)?,
        wall_ns: row.try_get(3)?,
        arrival_ns: row.try_get(4)?,
        status: serde_json::from_str(body).map_err(|error| HubError::stored("status", error))?,
    })
}

pub(super) fn bad(row: &SqlRow) -> Result<StoredBadRecord, HubError> {
    Ok(StoredBadRecord {
        id: row.try_get(0)?,
        node: NodeId(row.try_get(1)?),
        arrival_ns: row.try_get(2)?,
        arrivals: row.try_get::<_, i64>(3)? as u64,
        version: row.try_get::<_, Option<i32>>(4)?.map(|version| version as u8),
        reason: row.try_get(5)?,
        raw: row.try_get(6)?,
    })
}

pub(super) fn all<T>(
    rows: &[SqlRow],
    convert: impl Fn(&SqlRow) -> Result<T, HubError>,
) -> Result<Vec<T>, HubError> {
    rows.iter().map(convert).collect()
}

/// Numbers of nodes.
pub(super) fn node_numbers(nodes: &[NodeId]) -> Vec<i64> {
    nodes.iter().map(|node| node.0).collect()
}

/// Converts a limit of rows.
pub(super) fn limited(limit: u64) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
