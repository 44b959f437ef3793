//! Rows and their partitions. Each resolution is a table, each partition one of its parts.

use dwell_rollup::{ClockQuality, DelayRollup, Incarnation, ProbeCounts, RollupMetric};
use postgres::Row as SqlRow;
use postgres::types::ToSql;

use super::connection::{Connection, LOCK_TIMEOUT};
use super::locks;
use crate::error::HubError;
use crate::period::{Horizons, Partition, Resolution};
use crate::row::{RecordKey, Row, StreamId};
use crate::store::Span;

const COLUMNS: &str = "stream_id, start_ns, incarnation, sequence, duration_ns, schedule_version, sent, \
                       received, lost, late, duplicate, reordered, send_failed, clock_synchronised, \
                       clock_stepped, one_clock, clock_bound_ns, rtt_ns, rtt_kernel_ns, \
                       one_way_forward_ns, one_way_backward_ns";

/// Types of the columns, each with its number of columns.
const COLUMN_TYPES: [(&str, usize); 4] =
    [("int8", NUMBERS), ("bool", 3), ("int8", 1), ("bytea", RollupMetric::ALL.len())];

/// Columns of numbers before those of flags.
const NUMBERS: usize = 13;

/// First column with delays, in the order of [`RollupMetric::ALL`].
const FIRST_DELAYS: usize = 17;

/// Time to wait for the readers of rows before partitions are dropped. Hubs and new readers wait as long.
const DROP_TIMEOUT: &str = "2s";

/// What to do with a row whose key is there.
#[derive(Clone, Copy)]
enum OnConflict {
    Keep,
    Replace,
}

fn table(resolution: Resolution) -> String {
    format!("rows_{}", resolution.name())
}

/// Returns the statement that locks the tables of all resolutions, in one order.
pub(super) fn lock_tables(mode: &str) -> String {
    let tables = Resolution::ALL.map(table).join(", ");
    format!("LOCK TABLE ONLY {tables} IN {mode} MODE")
}

/// Adds rows. Those that are there stay.
pub(super) fn add(
    db: &mut Connection,
    resolution: Resolution,
    rows: &[Row],
) -> Result<(), HubError> {
    insert(db, resolution, &rows.iter().collect::<Vec<_>>(), OnConflict::Keep)
}

/// Adds rows, replacing those that are there.
pub(super) fn replace(
    db: &mut Connection,
    resolution: Resolution,
    rows: &[&Row],
) -> Result<(), HubError> {
    insert(db, resolution, rows, OnConflict::Replace)
}

fn insert(
    db: &mut Connection,
    resolution: Resolution,
    rows: &[&Row],
    on_conflict: OnConflict,
) -> Result<(), HubError> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut numbers: [Vec<i64>; NUMBERS] = Default::default();
    let mut flags: [Vec<bool>; 3] = Default::default();
    let mut bounds: Vec<Option<i64>> = Vec::new();
    let mut delays: [Vec<Option<Vec<u8>>>; RollupMetric::ALL.len()] = Default::default();
    for row in rows {
        let ProbeCounts { sent, received, lost, late, duplicate, reordered, send_failed } =
            row.counts;
        let ClockQuality { is_synchronised, was_stepped, is_one_clock, bound_ns } = row.clock;
        let values = [
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
        ];
        numbers.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
        let values = [is_synchronised, was_stepped, is_one_clock];
        flags.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
        bounds.push(bound_ns.map(|bound| bound as i64));
        for (column, metric) in delays.iter_mut().zip(RollupMetric::ALL) {
            column.push(row.delays(metric).map(DelayRollup::to_bytes));
        }
    }
    let mut params: Vec<&(dyn ToSql + Sync)> = Vec::new();
    numbers.iter().for_each(|column| params.push(column));
    flags.iter().for_each(|column| params.push(column));
    params.push(&bounds);
    delays.iter().for_each(|column| params.push(column));
    let types = COLUMN_TYPES.iter().flat_map(|(of, count)| std::iter::repeat_n(of, *count));
    let types = (1..).zip(types).map(|(number, of)| format!("${number}::{of}[]"));
    let types = types.collect::<Vec<_>>().join(", ");
    let on_conflict = match on_conflict {
        OnConflict::Keep => "DO NOTHING".to_owned(),
        OnConflict::Replace => {
            let changed = COLUMNS.split(", ").skip(4);
            let changed: Vec<_> = changed.map(|it| format!("{it} = excluded.{it}")).collect();
            let key = "(stream_id, start_ns, incarnation, sequence)";
            format!("{key} DO UPDATE SET {}", changed.join(", "))
        }
    };
    let table = table(resolution);
    let sql = format!(
        "INSERT INTO {table} ({COLUMNS}) SELECT * FROM unnest({types}) ON CONFLICT {on_conflict}"
    );
    db.execute(&sql, &params)?;
    Ok(())
}

/// Removes rows.
pub(super) fn remove(
    db: &mut Connection,
    resolution: Resolution,
    rows: &[(StreamId, i64, RecordKey)],
) -> Result<(), HubError> {
    if rows.is_empty() {
        return Ok(());
    }
    let streams: Vec<i64> = rows.iter().map(|(stream, ..)| stream.0).collect();
    let starts: Vec<i64> = rows.iter().map(|(_, start_ns, _)| *start_ns).collect();
    let keys = rows.iter().map(|(.., key)| (key.incarnation.0 as i64, key.sequence as i64));
    let (incarnations, sequences): (Vec<i64>, Vec<i64>) = keys.unzip();
    let table = table(resolution);
    let sql = format!(
        "DELETE FROM {table} USING unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[])
         AS removed (stream_id, start_ns, incarnation, sequence)
         WHERE {table}.stream_id = removed.stream_id AND {table}.start_ns = removed.start_ns
         AND {table}.incarnation = removed.incarnation AND {table}.sequence = removed.sequence
         AND {table}.start_ns BETWEEN $5 AND $6"
    );
    let (first, last) = (starts.iter().min(), starts.iter().max());
    db.execute(&sql, &[&streams, &starts, &incarnations, &sequences, &first, &last])?;
    Ok(())
}

/// Creates a partition unless it exists.
pub(super) fn create(db: &mut Connection, partition: Partition) -> Result<(), HubError> {
    if exists(db, partition)? {
        return Ok(());
    }
    db.batch(&locks::exclusive(locks::PARTITIONS))?;
    if exists(db, partition)? {
        return Ok(());
    }
    let (table, of) = (partition.table(), table(partition.resolution));
    let half = partition.resolution.length_ns() / 2;
    let from_ns = partition.start_ns.saturating_sub(half);
    let to_ns = partition.end_ns.saturating_sub(half);
    // Rows that are computed again and again get room for that.
    let fill = match partition.resolution {
        Resolution::TenSeconds | Resolution::FiveMinutes => 100,
        Resolution::Hour | Resolution::Day => 50,
    };
    // To attach a table does not wait for transactions that use the others; to create a part would.
    db.batch(&format!(
        "CREATE TABLE {table} (LIKE {of} INCLUDING ALL) WITH (fillfactor = {fill});
         ALTER TABLE {of} ATTACH PARTITION {table} FOR VALUES FROM ({from_ns}) TO ({to_ns})"
    ))?;
    db.execute(
        "INSERT INTO partitions (resolution, start_ns, end_ns) VALUES ($1, $2, $3)",
        &[&partition.resolution.name(), &partition.start_ns, &partition.end_ns],
    )?;
    Ok(())
}

fn exists(db: &mut Connection, partition: Partition) -> Result<bool, HubError> {
    let found = db.query(
        "SELECT FROM partitions WHERE resolution = $1 AND start_ns = $2",
        &[&partition.resolution.name(), &partition.start_ns],
    )?;
    Ok(!found.is_empty())
}

/// Returns the rows whose middle is in each span.
pub(super) fn read(
    db: &mut Connection,
    resolution: Resolution,
    spans: &[Span],
) -> Result<Vec<Vec<Row>>, HubError> {
    let mut rows: Vec<Vec<Row>> = spans.iter().map(|_| Vec::new()).collect();
    if spans.is_empty() {
        return Ok(rows);
    }
    let half = resolution.length_ns() / 2;
    let column = |value: &dyn Fn(&Span) -> i64| spans.iter().map(value).collect::<Vec<i64>>();
    let streams = column(&|span| span.stream.0);
    let starts = column(&|span| span.from_ns.saturating_sub(half));
    let ends = column(&|span| span.to_ns.saturating_sub(half));
    // The bounds of all spans exclude partitions. OFFSET 0 keeps the look-ups by stream and start apart:
    // a join of all rows would read whole partitions.
    let sql = format!(
        "SELECT found.*, span.number
         FROM unnest($1::int8[], $2::int8[], $3::int8[]) WITH ORDINALITY
         AS span (stream_id, from_ns, to_ns, number)
         CROSS JOIN LATERAL (
             SELECT {COLUMNS} FROM {} AS rows
             WHERE rows.stream_id = span.stream_id
             AND rows.start_ns >= span.from_ns AND rows.start_ns < span.to_ns
             AND rows.start_ns >= $4 AND rows.start_ns < $5
             OFFSET 0
         ) AS found
         ORDER BY span.number, found.start_ns, found.incarnation, found.sequence",
        table(resolution)
    );
    let (first, last) = (starts.iter().min(), ends.iter().max());
    for row in db.query(&sql, &[&streams, &starts, &ends, &first, &last])? {
        let number: i64 = row.try_get(FIRST_DELAYS + RollupMetric::ALL.len())?;
        if let Some(of_span) = rows.get_mut(number as usize - 1) {
            of_span.push(row_of(&row)?);
        }
    }
    Ok(rows)
}

fn row_of(row: &SqlRow) -> Result<Row, HubError> {
    let count = |column: usize| row.try_get::<_, i64>(column).map(|count| count as u64);
    let mut delays = Vec::new();
    for (column, metric) in (FIRST_DELAYS..).zip(RollupMetric::ALL) {
        let Some(bytes) = row.try_get::<_, Option<&[u8]>>(column)? else { continue };
        let decoded = DelayRollup::from_bytes(bytes)
            .ok_or_else(|| HubError::stored("distribution", metric.name()))?;
        delays.push((metric, decoded));
    }
    Ok(Row {
        stream: StreamId(row.try_get(0)?),
        start_ns: row.try_get(1)?,
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
            is_synchronised: row.try_get(13)?,
            was_stepped: row.try_get(14)?,
            is_one_clock: row.try_get(15)?,
            bound_ns: row.try_get::<_, Option<i64>>(16)?.map(|bound| bound as u64),
        },
        delays,
    })
}

/// Returns the stored horizons.
pub(super) fn horizons(db: &mut Connection) -> Result<Horizons, HubError> {
    let mut horizons = Horizons::default();
    for row in db.query("SELECT resolution, ns FROM horizons", &[])? {
        let resolution = Resolution::named(row.try_get(0)?)
            .ok_or_else(|| HubError::stored("horizon", "its resolution is unknown"))?;
        horizons.raise(resolution, row.try_get(1)?);
    }
    Ok(horizons)
}

/// Raises the stored horizons and drops the partitions before them.
pub(super) fn drop_expired(
    db: &mut Connection,
    raised: &Horizons,
) -> Result<(Horizons, Vec<Partition>), HubError> {
    db.batch(&locks::exclusive(locks::RECORDS))?;
    for resolution in Resolution::ALL {
        db.execute(
            "INSERT INTO horizons (resolution, ns) VALUES ($1, $2)
             ON CONFLICT (resolution) DO UPDATE SET ns = greatest(horizons.ns, excluded.ns)",
            &[&resolution.name(), &raised.of(resolution)],
        )?;
    }
    let (horizons, mut dropped) = (horizons(db)?, Vec::new());
    for row in db.query("SELECT resolution, start_ns, end_ns FROM partitions ORDER BY 1, 2", &[])? {
        let Some(resolution) = Resolution::named(row.try_get(0)?) else { continue };
        let partition =
            Partition { resolution, start_ns: row.try_get(1)?, end_ns: row.try_get(2)? };
        if horizons.is_expired(partition) {
            dropped.push(partition);
        }
    }
    if !dropped.is_empty() {
        let tables: Vec<String> = dropped.iter().map(|partition| partition.table()).collect();
        // Readers hold the locks of all tables, so none of them waits for this transaction.
        db.batch(&format!(
            "SET LOCAL lock_timeout = '{DROP_TIMEOUT}'; {}; DROP TABLE {};
             SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'",
            lock_tables("ACCESS EXCLUSIVE"),
            tables.join(", ")
        ))?;
        for partition in &dropped {
            db.execute(
                "DELETE FROM partitions WHERE resolution = $1 AND start_ns = $2",
                &[&partition.resolution.name(), &partition.start_ns],
            )?;
        }
    }
    dropped.sort_unstable();
    Ok((horizons, dropped))
}
