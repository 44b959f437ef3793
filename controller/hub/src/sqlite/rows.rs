//! Rows and their partitions. Each partition is a table, so retention drops tables.

use dwell_rollup::{ClockQuality, DelayRollup, Incarnation, ProbeCounts, RollupMetric};
use rusqlite::{Connection, OptionalExtension, Row as SqlRow, params};

use crate::error::HubError;
use crate::period::{Horizons, Partition, Resolution};
use crate::row::{RecordKey, Row, StreamId};
use crate::store::Span;

/// Columns of a table of rows; `TABLE` is its name.
const CREATE: &str = "
CREATE TABLE IF NOT EXISTS TABLE (
    stream_id INTEGER NOT NULL,
    start_ns INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    duration_ns INTEGER NOT NULL,
    schedule_version INTEGER NOT NULL,
    sent INTEGER NOT NULL,
    received INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    late INTEGER NOT NULL,
    duplicate INTEGER NOT NULL,
    reordered INTEGER NOT NULL,
    send_failed INTEGER NOT NULL,
    clock_synchronised INTEGER NOT NULL,
    clock_stepped INTEGER NOT NULL,
    one_clock INTEGER NOT NULL,
    clock_bound_ns INTEGER,
    rtt_ns BLOB,
    rtt_kernel_ns BLOB,
    one_way_forward_ns BLOB,
    one_way_backward_ns BLOB,
    PRIMARY KEY (stream_id, start_ns, incarnation, sequence)
) STRICT, WITHOUT ROWID";

const INSERT: &str = "
INSERT OR IGNORE INTO TABLE VALUES
    (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)";

const SELECT: &str = "
SELECT * FROM TABLE WHERE stream_id = ?1 AND start_ns >= ?2 AND start_ns < ?3
ORDER BY start_ns, incarnation, sequence";

const DELETE: &str = "
DELETE FROM TABLE WHERE stream_id = ?1 AND start_ns = ?2 AND incarnation = ?3 AND sequence = ?4";

/// First column with delays, in the order of [`RollupMetric::ALL`].
const FIRST_DELAYS: usize = 17;

fn sql(text: &str, partition: Partition) -> String {
    text.replace("TABLE VALUES", &format!("{} VALUES", partition.table()))
        .replace("EXISTS TABLE", &format!("EXISTS {}", partition.table()))
        .replace("FROM TABLE", &format!("FROM {}", partition.table()))
}

/// Adds rows, creating the partition.
pub(super) fn add(db: &Connection, partition: Partition, rows: &[Row]) -> Result<(), HubError> {
    if rows.is_empty() {
        return Ok(());
    }
    if !exists(db, partition)? {
        db.execute_batch(&sql(CREATE, partition))?;
        db.execute(
            "INSERT OR IGNORE INTO partitions (resolution, start_ns, end_ns) VALUES (?1, ?2, ?3)",
            params![partition.resolution.name(), partition.start_ns, partition.end_ns],
        )?;
    }
    let mut insert = db.prepare_cached(&sql(INSERT, partition))?;
    for row in rows {
        let ProbeCounts { sent, received, lost, late, duplicate, reordered, send_failed } =
            row.counts;
        let ClockQuality { is_synchronised, was_stepped, is_one_clock, bound_ns } = row.clock;
        let delays = RollupMetric::ALL.map(|metric| row.delays(metric).map(DelayRollup::to_bytes));
        let [rtt, rtt_kernel, forward, backward] = delays;
        insert.execute(params![
            row.stream.0,
            row.start_ns,
            row.key.incarnation.0 as i64,
            row.key.sequence as i64,
            row.duration_ns as i64,
            row.schedule_version as i64,
            sent as i64,
            received as i64,
            lost as i64,
            late as i64,
            duplicate as i64,
            reordered as i64,
            send_failed as i64,
            is_synchronised,
            was_stepped,
            is_one_clock,
            bound_ns.map(|bound| bound as i64),
            rtt,
            rtt_kernel,
            forward,
            backward,
        ])?;
    }
    Ok(())
}

/// Removes rows.
pub(super) fn remove(
    db: &Connection,
    partition: Partition,
    rows: &[(StreamId, i64, RecordKey)],
) -> Result<(), HubError> {
    if !exists(db, partition)? {
        return Ok(());
    }
    let mut delete = db.prepare_cached(&sql(DELETE, partition))?;
    for (stream, start_ns, key) in rows {
        delete.execute(params![
            stream.0,
            start_ns,
            key.incarnation.0 as i64,
            key.sequence as i64
        ])?;
    }
    Ok(())
}

fn exists(db: &Connection, partition: Partition) -> Result<bool, HubError> {
    let mut select =
        db.prepare_cached("SELECT 1 FROM partitions WHERE resolution = ?1 AND start_ns = ?2")?;
    Ok(select.exists(params![partition.resolution.name(), partition.start_ns])?)
}

/// Returns the partitions of a resolution, in ascending order.
fn partitions(db: &Connection, resolution: Resolution) -> Result<Vec<Partition>, HubError> {
    let mut select = db.prepare_cached(
        "SELECT start_ns, end_ns FROM partitions WHERE resolution = ?1 ORDER BY start_ns",
    )?;
    let partition =
        |row: &SqlRow<'_>| Ok(Partition { resolution, start_ns: row.get(0)?, end_ns: row.get(1)? });
    Ok(select.query_map([resolution.name()], partition)?.collect::<Result<_, _>>()?)
}

/// Returns the rows whose middle is in each span.
pub(super) fn read(
    db: &Connection,
    resolution: Resolution,
    spans: &[Span],
) -> Result<Vec<Vec<Row>>, HubError> {
    let partitions = partitions(db, resolution)?;
    let half = resolution.length_ns() / 2;
    let of_span = |span: &Span| {
        let mut rows = Vec::new();
        let starts = (span.from_ns.saturating_sub(half), span.to_ns.saturating_sub(half));
        let touched =
            |partition: &&Partition| partition.start_ns < span.to_ns && starts.0 < partition.end_ns;
        for partition in partitions.iter().filter(touched) {
            let mut select = db.prepare_cached(&sql(SELECT, *partition))?;
            let mut found = select.query(params![span.stream.0, starts.0, starts.1])?;
            while let Some(row) = found.next()? {
                rows.push(row_of(row)?);
            }
        }
        Ok(rows)
    };
    spans.iter().map(of_span).collect()
}

fn row_of(row: &SqlRow<'_>) -> Result<Row, HubError> {
    let count = |column: usize| row.get::<_, i64>(column).map(|count| count as u64);
    let mut delays = Vec::new();
    for (column, metric) in (FIRST_DELAYS..).zip(RollupMetric::ALL) {
        let Some(bytes) = row.get_ref(column)?.as_blob_or_null().map_err(rusqlite::Error::from)?
        else {
            continue;
        };
        let decoded = DelayRollup::from_bytes(bytes)
            .ok_or_else(|| HubError::stored("distribution", metric.name()))?;
        delays.push((metric, decoded));
    }
    Ok(Row {
        stream: StreamId(row.get(0)?),
        start_ns: row.get(1)?,
        key: RecordKey { incarnation: Incarnation(count(2)?), sequence: count(3)? },
        duration_ns: count(4)?,
        schedule_version: count(5)?,
        counts: ProbeCounts {
            sent: count(6)?,
            received: count(7)?,
            lost: count(8)?,
            late: count(9)?,
            duplicate: count(10)?,
            reordered: count(11)?,
            send_failed: count(12)?,
        },
        clock: ClockQuality {
            is_synchronised: row.get(13)?,
            was_stepped: row.get(14)?,
            is_one_clock: row.get(15)?,
            bound_ns: row.get::<_, Option<i64>>(16)?.map(|bound| bound as u64),
        },
        delays,
    })
}

/// Returns the stored horizons.
pub(super) fn horizons(db: &Connection) -> Result<Horizons, HubError> {
    let mut horizons = Horizons::default();
    for resolution in Resolution::ALL {
        let mut select = db.prepare_cached("SELECT ns FROM horizons WHERE resolution = ?1")?;
        if let Some(ns) = select.query_row([resolution.name()], |row| row.get(0)).optional()? {
            horizons.raise(resolution, ns);
        }
    }
    Ok(horizons)
}

/// Raises the stored horizons and drops the partitions before them.
pub(super) fn drop_expired(
    db: &Connection,
    raised: &Horizons,
) -> Result<(Horizons, Vec<Partition>), HubError> {
    for resolution in Resolution::ALL {
        db.execute(
            "INSERT INTO horizons (resolution, ns) VALUES (?1, ?2)
             ON CONFLICT DO UPDATE SET ns = max(ns, excluded.ns)",
            params![resolution.name(), raised.of(resolution)],
        )?;
    }
    let (horizons, mut dropped) = (horizons(db)?, Vec::new());
    for resolution in Resolution::ALL {
        let expired = partitions(db, resolution)?.into_iter();
        for partition in expired.filter(|partition| horizons.is_expired(*partition)) {
            db.flush_prepared_statement_cache();
            db.execute_batch(&format!("DROP TABLE {}", partition.table()))?;
            db.execute(
                "DELETE FROM partitions WHERE resolution = ?1 AND start_ns = ?2",
                params![resolution.name(), partition.start_ns],
            )?;
            dropped.push(partition);
        }
    }
    Ok((horizons, dropped))
}
