//! A transaction of the database.

use std::collections::{BTreeMap, BTreeSet};

use dwell_rollup::{BootId, Incarnation, Name, Stream};
use rusqlite::types::Type;
use rusqlite::{OptionalExtension, Row as SqlRow, Transaction, params};
use sha2::{Digest, Sha256};

use super::rows;
use crate::clock::MAX_LEAD_NS;
use crate::dating::ClockPairing;
use crate::error::HubError;
use crate::incarnation::{IncarnationState, Source};
use crate::period::{Horizons, Partition, Resolution};
use crate::row::{NodeId, RecordKey, Row, StreamId};
use crate::store::{
    AppliedSchedule, Counts, HubTransaction, SentStream, Span, StatusPoint, StoredBadRecord,
    StoredNode, StoredStatus, TextKind, UndatedRecord,
};
use crate::window::{Window, WindowFigures};

const INCARNATION_COLUMNS: &str = "receipts, dropped, boot_id, first_wall_ns, last_wall_ns, \
                                   first_boot_ns, last_boot_ns";

const STATUS_COLUMNS: &str = "node_id, incarnation, sequence, wall_ns, arrival_ns, body";

const BAD_COLUMNS: &str = "id, node_id, first_arrival_ns, arrivals, version, reason, raw";

/// Number of bytes that a bad record counts at least, so that small ones are limited in number.
const MIN_BAD_CHARGE: i64 = 256;

/// A transaction. It is rolled back when it is dropped.
pub(super) struct SqliteTransaction<'a> {
    db: Transaction<'a>,
}

impl<'a> SqliteTransaction<'a> {
    pub(super) const fn of(db: Transaction<'a>) -> Self {
        Self { db }
    }

    fn node_id(&self, name: &Name) -> Result<Option<NodeId>, HubError> {
        let mut select = self.db.prepare_cached("SELECT id FROM nodes WHERE name = ?1")?;
        Ok(select.query_row([name.as_str()], |row| row.get(0).map(NodeId)).optional()?)
    }
}

/// A stored text that has another type in memory.
fn parsed<T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    row: &SqlRow<'_>,
    column: usize,
) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    text.parse().map_err(|error: T::Err| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
    })
}

fn boot_id(row: &SqlRow<'_>, column: usize) -> rusqlite::Result<BootId> {
    row.get(column).map(BootId)
}

fn key(row: &SqlRow<'_>, column: usize) -> rusqlite::Result<RecordKey> {
    Ok(RecordKey {
        incarnation: Incarnation(row.get::<_, i64>(column)? as u64),
        sequence: row.get::<_, i64>(column + 1)? as u64,
    })
}

fn state(row: &SqlRow<'_>, column: usize) -> rusqlite::Result<IncarnationState> {
    let range = |first: usize| -> rusqlite::Result<Option<(i64, i64)>> {
        let (first, last) = (row.get::<_, Option<i64>>(first)?, row.get(first + 1)?);
        Ok(first.zip(last))
    };
    Ok(IncarnationState {
        receipts: parsed(row, column)?,
        dropped: parsed(row, column + 1)?,
        boot_id: boot_id(row, column + 2)?,
        wall_ns: range(column + 3)?,
        boot_ns: range(column + 5)?,
    })
}

fn status(row: &SqlRow<'_>) -> rusqlite::Result<StoredStatus> {
    let body: String = row.get(5)?;
    let status = serde_json::from_str(&body).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(5, Type::Text, Box::new(error))
    })?;
    Ok(StoredStatus {
        node: NodeId(row.get(0)?),
        key: key(row, 1)?,
        wall_ns: row.get(3)?,
        arrival_ns: row.get(4)?,
        status,
    })
}

fn status_point(row: &SqlRow<'_>) -> rusqlite::Result<StatusPoint> {
    let pauses = match row.get_ref(3)?.as_str_or_null()? {
        Some(json) => serde_json::from_str(json).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(3, Type::Text, Box::new(error))
        })?,
        None => Vec::new(),
    };
    Ok(StatusPoint {
        wall_ns: row.get(0)?,
        schedule_version: row.get::<_, i64>(1)? as u64,
        clock_bound_ns: row.get::<_, Option<i64>>(2)?.map(|bound| bound as u64),
        pauses,
    })
}

fn bad(row: &SqlRow<'_>) -> rusqlite::Result<StoredBadRecord> {
    Ok(StoredBadRecord {
        id: row.get(0)?,
        node: NodeId(row.get(1)?),
        arrival_ns: row.get(2)?,
        arrivals: row.get::<_, i64>(3)? as u64,
        version: row.get(4)?,
        reason: row.get(5)?,
        raw: row.get(6)?,
    })
}

impl HubTransaction for SqliteTransaction<'_> {
    fn commit(self: Box<Self>) -> Result<(), HubError> {
        Ok(self.db.commit()?)
    }

    fn clock(&mut self) -> Result<Option<i64>, HubError> {
        let mut select = self.db.prepare_cached("SELECT now_ns FROM clock")?;
        Ok(select.query_row([], |row| row.get(0)).optional()?)
    }

    fn set_clock(&mut self, now_ns: i64) -> Result<(), HubError> {
        let mut insert =
            self.db.prepare_cached("INSERT OR REPLACE INTO clock (id, now_ns) VALUES (1, ?1)")?;
        insert.execute([now_ns])?;
        Ok(())
    }

    fn add_nodes(&mut self, names: &[Name]) -> Result<Vec<NodeId>, HubError> {
        let mut nodes = Vec::new();
        for name in names {
            let node = match self.node_id(name)? {
                Some(node) => node,
                None => {
                    self.db.execute("INSERT INTO nodes (name) VALUES (?1)", [name.as_str()])?;
                    NodeId(self.db.last_insert_rowid())
                }
            };
            nodes.push(node);
        }
        Ok(nodes)
    }

    fn nodes(&mut self) -> Result<Vec<StoredNode>, HubError> {
        let mut select = self.db.prepare_cached(
            "SELECT id, name, last_arrival_ns, stored, duplicates, expired, bad, unrequested,
             (SELECT count(*) FROM undated WHERE node_id = id AND dated_ns IS NULL)
             FROM nodes ORDER BY name",
        )?;
        let nodes = select.query_map([], |row| {
            let count = |column: usize| row.get::<_, i64>(column).map(|count| count as u64);
            Ok(StoredNode {
                id: NodeId(row.get(0)?),
                name: parsed(row, 1)?,
                last_arrival_ns: row.get(2)?,
                counts: Counts {
                    stored: count(3)?,
                    duplicates: count(4)?,
                    expired: count(5)?,
                    bad: count(6)?,
                    unrequested: count(7)?,
                    deferred: 0,
                },
                undated: count(8)?,
            })
        })?;
        Ok(nodes.collect::<Result<_, _>>()?)
    }

    fn count(&mut self, node: NodeId, counts: &Counts, arrival_ns: i64) -> Result<(), HubError> {
        let Counts { stored, duplicates, expired, bad, unrequested, deferred: _ } = *counts;
        let mut update = self.db.prepare_cached(
            "UPDATE nodes SET stored = stored + ?2, duplicates = duplicates + ?3,
             expired = expired + ?4, bad = bad + ?5, unrequested = unrequested + ?6,
             last_arrival_ns = iif(last_arrival_ns > ?7 + ?8, ?7,
             max(?7, coalesce(last_arrival_ns, ?7))) WHERE id = ?1",
        )?;
        let [stored, duplicates, expired, bad, unrequested] =
            [stored, duplicates, expired, bad, unrequested].map(|count| count as i64);
        update.execute(params![
            node.0,
            stored,
            duplicates,
            expired,
            bad,
            unrequested,
            arrival_ns,
            MAX_LEAD_NS,
        ])?;
        Ok(())
    }

    fn add_streams(
        &mut self,
        streams: &[(NodeId, Stream)],
        limit: u64,
    ) -> Result<Vec<Option<StreamId>>, HubError> {
        let mut select = self.db.prepare_cached(
            "SELECT id FROM streams
             WHERE node_id = ?1 AND reflector = ?2 AND protocol = ?3 AND entry = ?4",
        )?;
        let mut insert = self.db.prepare_cached(
            "INSERT INTO streams (node_id, reflector, protocol, entry)
             SELECT ?1, ?2, ?3, ?4 WHERE (SELECT count(*) FROM streams WHERE node_id = ?1) < ?5",
        )?;
        let mut numbers = Vec::new();
        for (node, Stream { reflector, protocol, entry }) in streams {
            let (reflector, protocol, entry) =
                (reflector.as_str(), protocol.as_str(), entry.as_str());
            let known = select
                .query_row(params![node.0, reflector, protocol, entry], |row| row.get(0))
                .optional()?;
            let number = match known {
                Some(number) => Some(number),
                None => {
                    let limit = limit as i64;
                    let added =
                        insert.execute(params![node.0, reflector, protocol, entry, limit])?;
                    (added == 1).then(|| self.db.last_insert_rowid())
                }
            };
            numbers.push(number.map(StreamId));
        }
        Ok(numbers)
    }

    fn note_streams(&mut self, last: &[(StreamId, i64)]) -> Result<(), HubError> {
        let mut update = self
            .db
            .prepare_cached("UPDATE streams SET last_ns = ?2 WHERE id = ?1 AND last_ns < ?2")?;
        for (stream, last_ns) in last {
            update.execute(params![stream.0, last_ns])?;
        }
        Ok(())
    }

    fn remove_streams(&mut self, before_ns: i64) -> Result<(), HubError> {
        self.db.execute("DELETE FROM streams WHERE last_ns < ?1", [before_ns])?;
        Ok(())
    }

    fn streams(&mut self, sender: Option<&Name>) -> Result<Vec<SentStream>, HubError> {
        let mut select = self.db.prepare_cached(
            "SELECT streams.id, name, reflector, protocol, entry
             FROM streams JOIN nodes ON nodes.id = node_id
             WHERE ?1 IS NULL OR name = ?1 ORDER BY name, reflector, protocol, entry",
        )?;
        let streams = select.query_map([sender.map(Name::as_str)], |row| {
            let stream = Stream {
                reflector: parsed(row, 2)?,
                protocol: parsed(row, 3)?,
                entry: parsed(row, 4)?,
            };
            Ok(SentStream { id: StreamId(row.get(0)?), sender: parsed(row, 1)?, stream })
        })?;
        Ok(streams.collect::<Result<_, _>>()?)
    }

    fn incarnations(&mut self, sources: &[Source]) -> Result<Vec<IncarnationState>, HubError> {
        let mut select = self.db.prepare_cached(&format!(
            "SELECT {INCARNATION_COLUMNS} FROM incarnations WHERE node_id = ?1 AND incarnation = ?2"
        ))?;
        let mut states = Vec::new();
        for source in sources {
            let found = select
                .query_row(params![source.node.0, source.incarnation.0 as i64], |row| {
                    state(row, 0)
                });
            states.push(found.optional()?.unwrap_or_default());
        }
        Ok(states)
    }

    fn admit_incarnation(&mut self, node: NodeId, day: i64, limit: u64) -> Result<bool, HubError> {
        let mut update = self.db.prepare_cached(
            "UPDATE nodes SET incarnation_day = ?2,
             day_incarnations = 1 + iif(incarnation_day = ?2, day_incarnations, 0)
             WHERE id = ?1 AND iif(incarnation_day = ?2, day_incarnations, 0) < ?3",
        )?;
        Ok(update.execute(params![node.0, day, limit as i64])? > 0)
    }

    fn set_incarnations(&mut self, states: &[(Source, IncarnationState)]) -> Result<(), HubError> {
        let mut insert = self.db.prepare_cached(&format!(
            "INSERT OR REPLACE INTO incarnations (node_id, incarnation, {INCARNATION_COLUMNS})
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
        ))?;
        for (source, state) in states {
            let (first_wall, last_wall) = state.wall_ns.unzip();
            let (first_boot, last_boot) = state.boot_ns.unzip();
            insert.execute(params![
                source.node.0,
                source.incarnation.0 as i64,
                state.receipts.to_string(),
                state.dropped.to_string(),
                state.boot_id.0,
                first_wall,
                last_wall,
                first_boot,
                last_boot,
            ])?;
        }
        Ok(())
    }

    fn incarnations_of_nodes(
        &mut self,
        nodes: &[NodeId],
    ) -> Result<BTreeMap<NodeId, Vec<(Incarnation, IncarnationState)>>, HubError> {
        let mut select = self.db.prepare_cached(&format!(
            "SELECT incarnation, {INCARNATION_COLUMNS} FROM incarnations WHERE node_id = ?1"
        ))?;
        let mut states = BTreeMap::new();
        for node in nodes {
            let found = select.query_map([node.0], |row| {
                Ok((Incarnation(row.get::<_, i64>(0)? as u64), state(row, 1)?))
            })?;
            states.insert(*node, found.collect::<Result<_, _>>()?);
        }
        Ok(states)
    }

    fn add_rows(&mut self, partition: Partition, rows: &[Row]) -> Result<(), HubError> {
        rows::add(&self.db, partition, rows)
    }

    fn remove_rows(
        &mut self,
        partition: Partition,
        rows: &[(StreamId, i64, RecordKey)],
    ) -> Result<(), HubError> {
        rows::remove(&self.db, partition, rows)
    }

    fn set_computed(
        &mut self,
        resolution: Resolution,
        rows: &[(StreamId, i64, Option<Row>)],
    ) -> Result<(), HubError> {
        for (stream, start_ns, row) in rows {
            let partition = resolution.partition(*start_ns);
            rows::remove(&self.db, partition, &[(*stream, *start_ns, RecordKey::COMPUTED)])?;
            if let Some(row) = row {
                rows::add(&self.db, partition, std::slice::from_ref(row))?;
            }
        }
        Ok(())
    }

    fn rows(&mut self, resolution: Resolution, spans: &[Span]) -> Result<Vec<Vec<Row>>, HubError> {
        rows::read(&self.db, resolution, spans)
    }

    fn set_windows(
        &mut self,
        windows: &[(StreamId, Window, Option<WindowFigures>)],
    ) -> Result<(), HubError> {
        let mut insert = self.db.prepare_cached(
            "INSERT OR REPLACE INTO windows (window, stream_id, figures) VALUES (?1, ?2, ?3)",
        )?;
        let mut delete =
            self.db.prepare_cached("DELETE FROM windows WHERE window = ?1 AND stream_id = ?2")?;
        for (stream, window, figures) in windows {
            match figures {
                Some(figures) => {
                    insert.execute(params![window.name(), stream.0, figures.to_json()])?
                }
                None => delete.execute(params![window.name(), stream.0])?,
            };
        }
        Ok(())
    }

    fn windows(
        &mut self,
        window: Window,
        streams: Option<&[StreamId]>,
    ) -> Result<Vec<(StreamId, WindowFigures)>, HubError> {
        let Some(streams) = streams else {
            let mut select = self.db.prepare_cached(
                "SELECT stream_id, figures FROM windows WHERE window = ?1 ORDER BY stream_id",
            )?;
            let mut found = select.query([window.name()])?;
            let mut windows = Vec::new();
            while let Some(row) = found.next()? {
                let json = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
                windows.push((StreamId(row.get(0)?), WindowFigures::from_json(json)?));
            }
            return Ok(windows);
        };
        let mut select = self
            .db
            .prepare_cached("SELECT figures FROM windows WHERE window = ?1 AND stream_id = ?2")?;
        let mut windows = Vec::new();
        for stream in streams {
            let found = select.query_row(params![window.name(), stream.0], |row| row.get(0));
            let json: Option<String> = found.optional()?;
            if let Some(json) = json {
                windows.push((*stream, WindowFigures::from_json(&json)?));
            }
        }
        Ok(windows)
    }

    fn horizons(&mut self) -> Result<Horizons, HubError> {
        rows::horizons(&self.db)
    }

    fn drop_expired(
        &mut self,
        horizons: &Horizons,
    ) -> Result<(Horizons, Vec<Partition>), HubError> {
        rows::drop_expired(&self.db, horizons)
    }

    fn add_pairings(
        &mut self,
        pairings: &[(NodeId, BootId, ClockPairing)],
        arrival_ns: i64,
    ) -> Result<(), HubError> {
        let mut insert = self.db.prepare_cached(
            "INSERT INTO pairings (node_id, boot_id, boot_ns, wall_ns, arrival_ns, is_synchronised)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE
             SET is_synchronised = max(is_synchronised, excluded.is_synchronised)",
        )?;
        for (node, boot, pairing) in pairings {
            insert.execute(params![
                node.0,
                boot.0,
                pairing.boot_ns,
                pairing.wall_ns,
                arrival_ns,
                pairing.is_synchronised,
            ])?;
        }
        Ok(())
    }

    fn pairings(&mut self, node: NodeId, boot: BootId) -> Result<Vec<ClockPairing>, HubError> {
        let mut select = self.db.prepare_cached(
            "SELECT boot_ns, wall_ns, is_synchronised FROM pairings
             WHERE node_id = ?1 AND boot_id = ?2",
        )?;
        let pairings = select.query_map(params![node.0, boot.0], |row| {
            Ok(ClockPairing {
                boot_ns: row.get(0)?,
                wall_ns: row.get(1)?,
                is_synchronised: row.get(2)?,
            })
        })?;
        Ok(pairings.collect::<Result<_, _>>()?)
    }

    fn admit_undated(&mut self, node: NodeId, bytes: u64, limit: u64) -> Result<bool, HubError> {
        let mut update = self.db.prepare_cached(
            "UPDATE nodes SET undated_bytes = undated_bytes + ?2
             WHERE id = ?1 AND undated_bytes + ?2 <= ?3",
        )?;
        Ok(update.execute(params![node.0, bytes as i64, limit as i64])? > 0)
    }

    fn set_undated(&mut self, records: &[UndatedRecord]) -> Result<(), HubError> {
        let mut insert = self.db.prepare_cached(
            "INSERT OR REPLACE INTO undated
             (node_id, incarnation, sequence, boot_id, arrival_ns, measured_boot_ns, own_ns, dated_ns,
             record)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        for record in records {
            insert.execute(params![
                record.node.0,
                record.key.incarnation.0 as i64,
                record.key.sequence as i64,
                record.boot_id.0,
                record.arrival_ns,
                record.measured_boot_ns,
                record.own_ns,
                record.dated_ns,
                record.raw,
            ])?;
        }
        Ok(())
    }

    fn undated(
        &mut self,
        (node, boot): (NodeId, BootId),
        from_ns: i64,
        to_ns: i64,
        after: Option<(i64, RecordKey)>,
        limit: u64,
    ) -> Result<Vec<UndatedRecord>, HubError> {
        let mut select = self.db.prepare_cached(
            "SELECT incarnation, sequence, boot_id, arrival_ns, measured_boot_ns, own_ns, dated_ns,
             record FROM undated
             WHERE node_id = ?1 AND boot_id = ?2 AND measured_boot_ns >= ?3 AND measured_boot_ns < ?4
             AND (measured_boot_ns, incarnation, sequence) > (?5, ?6, ?7)
             ORDER BY measured_boot_ns, incarnation, sequence LIMIT ?8",
        )?;
        // No record has sequence number 0.
        let (from_ns, incarnation, sequence) = after.map_or((from_ns, i64::MIN, 0), |(at, key)| {
            (at, key.incarnation.0 as i64, key.sequence as i64)
        });
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let of = (node.0, boot.0, from_ns, to_ns, from_ns, incarnation, sequence, limit);
        let records = select.query_map(of, |row| {
            Ok(UndatedRecord {
                node,
                key: key(row, 0)?,
                boot_id: boot_id(row, 2)?,
                arrival_ns: row.get(3)?,
                measured_boot_ns: row.get(4)?,
                own_ns: row.get(5)?,
                dated_ns: row.get(6)?,
                raw: row.get(7)?,
            })
        })?;
        Ok(records.collect::<Result<_, _>>()?)
    }

    fn add_statuses(&mut self, statuses: &[StoredStatus]) -> Result<(), HubError> {
        let mut insert = self.db.prepare_cached(&format!(
            "INSERT OR IGNORE INTO statuses
             ({STATUS_COLUMNS}, schedule_version, clock_bound_ns, pauses)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
        ))?;
        for stored in statuses {
            let body = serde_json::to_string(&stored.status)
                .map_err(|error| HubError::stored("status", error))?;
            let pauses = StatusPoint::pauses_of(&stored.status, stored.wall_ns);
            let pauses = (!pauses.is_empty()).then(|| serde_json::to_string(&pauses));
            let pauses = pauses.transpose().map_err(|error| HubError::stored("status", error))?;
            insert.execute(params![
                stored.node.0,
                stored.key.incarnation.0 as i64,
                stored.key.sequence as i64,
                stored.wall_ns,
                stored.arrival_ns,
                body,
                stored.status.schedule_version as i64,
                stored.status.clock_bound_ns.map(|bound| bound as i64),
                pauses,
            ])?;
        }
        Ok(())
    }

    fn remove_statuses(&mut self, statuses: &[(NodeId, i64, RecordKey)]) -> Result<(), HubError> {
        let mut delete = self.db.prepare_cached(
            "DELETE FROM statuses
             WHERE node_id = ?1 AND wall_ns = ?2 AND incarnation = ?3 AND sequence = ?4",
        )?;
        for (node, wall_ns, key) in statuses {
            let (incarnation, sequence) = (key.incarnation.0 as i64, key.sequence as i64);
            delete.execute(params![node.0, wall_ns, incarnation, sequence])?;
        }
        Ok(())
    }

    fn statuses(
        &mut self,
        node: NodeId,
        from_ns: i64,
        to_ns: i64,
    ) -> Result<Vec<StoredStatus>, HubError> {
        let mut select = self.db.prepare_cached(&format!(
            "SELECT {STATUS_COLUMNS} FROM statuses
             WHERE node_id = ?1 AND wall_ns >= ?2 AND wall_ns < ?3
             ORDER BY wall_ns, incarnation, sequence"
        ))?;
        let statuses = select.query_map(params![node.0, from_ns, to_ns], status)?;
        Ok(statuses.collect::<Result<_, _>>()?)
    }

    fn status_histories(
        &mut self,
        nodes: &[NodeId],
        from_ns: i64,
        to_ns: i64,
    ) -> Result<BTreeMap<NodeId, Vec<StatusPoint>>, HubError> {
        let mut select = self.db.prepare_cached(
            "SELECT wall_ns, schedule_version, clock_bound_ns, pauses FROM statuses
             INDEXED BY status_history WHERE node_id = ?1 AND wall_ns >= ?2 AND wall_ns < ?3
             ORDER BY wall_ns",
        )?;
        let mut histories = BTreeMap::new();
        for node in nodes {
            let points = select.query_map(params![node.0, from_ns, to_ns], status_point)?;
            histories.insert(*node, points.collect::<Result<_, _>>()?);
        }
        Ok(histories)
    }

    fn last_statuses(
        &mut self,
        nodes: &[NodeId],
    ) -> Result<BTreeMap<NodeId, StoredStatus>, HubError> {
        let mut select = self.db.prepare_cached(&format!(
            "SELECT {STATUS_COLUMNS} FROM statuses WHERE node_id = ?1
             ORDER BY wall_ns DESC, incarnation, sequence DESC LIMIT 1"
        ))?;
        let mut statuses = BTreeMap::new();
        for node in nodes {
            let last = select.query_row([node.0], status).optional()?;
            statuses.extend(last.map(|last| (*node, last)));
        }
        Ok(statuses)
    }

    fn keep_bad(&mut self, bad: &StoredBadRecord, limit: u64) -> Result<bool, HubError> {
        let digest: [u8; 32] = Sha256::digest(&bad.raw).into();
        let again = self.db.execute(
            "UPDATE bad_records SET arrivals = arrivals + 1,
             first_arrival_ns = min(first_arrival_ns, ?3), last_arrival_ns = max(last_arrival_ns, ?3)
             WHERE node_id = ?1 AND digest = ?2",
            params![bad.node.0, digest, bad.arrival_ns],
        )?;
        if again > 0 {
            return Ok(true);
        }
        let charge = (bad.raw.len() as i64).max(MIN_BAD_CHARGE);
        let has_room = self.db.execute(
            "UPDATE nodes SET bad_bytes = bad_bytes + ?2 WHERE id = ?1 AND bad_bytes + ?2 <= ?3",
            params![bad.node.0, charge, limit as i64],
        )?;
        if has_room == 0 {
            return Ok(false);
        }
        self.db.execute(
            "INSERT INTO bad_records
             (node_id, digest, first_arrival_ns, last_arrival_ns, arrivals, version, reason, raw)
             VALUES (?1, ?2, ?3, ?3, 1, ?4, ?5, ?6)",
            params![bad.node.0, digest, bad.arrival_ns, bad.version, bad.reason, bad.raw],
        )?;
        Ok(true)
    }

    fn bad(&mut self, node: Option<NodeId>, limit: u64) -> Result<Vec<StoredBadRecord>, HubError> {
        let mut select = self.db.prepare_cached(&format!(
            "SELECT {BAD_COLUMNS} FROM bad_records WHERE ?1 IS NULL OR node_id = ?1
             ORDER BY last_arrival_ns DESC, id DESC LIMIT ?2"
        ))?;
        let found = select.query_map(params![node.map(|node| node.0), limit as i64], bad)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    fn unknown_versions(
        &mut self,
        after: i64,
        limit: u64,
    ) -> Result<Vec<StoredBadRecord>, HubError> {
        let mut select = self.db.prepare_cached(&format!(
            "SELECT {BAD_COLUMNS} FROM bad_records WHERE version IS NOT NULL AND id > ?1
             ORDER BY id LIMIT ?2"
        ))?;
        let found = select.query_map(params![after, limit as i64], bad)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    fn remove_bad(&mut self, id: i64) -> Result<(), HubError> {
        self.db.execute(
            "UPDATE nodes SET bad_bytes = bad_bytes - freed
             FROM (SELECT node_id, max(length(raw), ?2) AS freed FROM bad_records WHERE id = ?1)
             WHERE nodes.id = node_id",
            [id, MIN_BAD_CHARGE],
        )?;
        self.db.execute("DELETE FROM bad_records WHERE id = ?1", [id])?;
        Ok(())
    }

    fn remove_old(
        &mut self,
        statuses_before_ns: i64,
        dated_before_ns: i64,
        undated_before_ns: i64,
    ) -> Result<(), HubError> {
        self.db.execute("DELETE FROM statuses WHERE wall_ns < ?1", [statuses_before_ns])?;
        self.db.execute("DELETE FROM pairings WHERE arrival_ns < ?1", [dated_before_ns])?;
        let removed = self.db.execute(
            "DELETE FROM undated
             WHERE arrival_ns < iif(dated_ns IS NULL, ?2, max(?1, ?2))",
            params![dated_before_ns, undated_before_ns],
        )?;
        if removed > 0 {
            self.db.execute(
                "UPDATE nodes SET undated_bytes = (SELECT coalesce(sum(length(record)), 0)
                 FROM undated WHERE node_id = nodes.id)",
                [],
            )?;
        }
        let removed = self
            .db
            .execute("DELETE FROM bad_records WHERE last_arrival_ns < ?1", [undated_before_ns])?;
        if removed > 0 {
            self.db.execute(
                "UPDATE nodes SET bad_bytes = (SELECT coalesce(sum(max(length(raw), ?1)), 0)
                 FROM bad_records WHERE node_id = nodes.id)",
                [MIN_BAD_CHARGE],
            )?;
        }
        Ok(())
    }

    fn add_schedule(
        &mut self,
        applied_ns: i64,
        author: &str,
        text: &str,
        parts: &dyn Fn(u64) -> BTreeMap<Name, String>,
    ) -> Result<u64, HubError> {
        let version: i64 = self.db.query_row(
            "INSERT INTO schedules (version, applied_ns, author, text)
             VALUES ((SELECT coalesce(max(version), 0) + 1 FROM schedules), ?1, ?2, ?3)
             RETURNING version",
            params![applied_ns, author, text],
            |row| row.get(0),
        )?;
        let version = version as u64;
        let mut insert = self.db.prepare_cached(
            "INSERT INTO node_schedules (version, node, json) VALUES (?1, ?2, ?3)",
        )?;
        for (node, json) in parts(version) {
            insert.execute(params![version as i64, node.as_str(), json])?;
        }
        Ok(version)
    }

    fn schedules(&mut self) -> Result<Vec<AppliedSchedule>, HubError> {
        let mut select = self.db.prepare_cached(
            "SELECT version, applied_ns, author, text FROM schedules ORDER BY version",
        )?;
        let schedules = select.query_map([], |row| {
            Ok(AppliedSchedule {
                version: row.get::<_, i64>(0)? as u64,
                applied_ns: row.get(1)?,
                author: row.get(2)?,
                text: row.get(3)?,
            })
        })?;
        Ok(schedules.collect::<Result<_, _>>()?)
    }

    fn newest_version(&mut self) -> Result<Option<u64>, HubError> {
        let mut select = self.db.prepare_cached("SELECT max(version) FROM schedules")?;
        let newest: Option<i64> = select.query_row([], |row| row.get(0))?;
        Ok(newest.map(|version| version as u64))
    }

    fn node_schedules(
        &mut self,
        version: u64,
        nodes: Option<&BTreeSet<Name>>,
    ) -> Result<BTreeMap<Name, String>, HubError> {
        let version = version as i64;
        let Some(nodes) = nodes else {
            let mut select = self
                .db
                .prepare_cached("SELECT node, json FROM node_schedules WHERE version = ?1")?;
            let parts = select.query_map([version], |row| Ok((parsed(row, 0)?, row.get(1)?)))?;
            return Ok(parts.collect::<Result<_, _>>()?);
        };
        let mut select = self
            .db
            .prepare_cached("SELECT json FROM node_schedules WHERE version = ?1 AND node = ?2")?;
        let mut parts = BTreeMap::new();
        for node in nodes {
            let part = select.query_row(params![version, node.as_str()], |row| row.get(0));
            parts.extend(part.optional()?.map(|json: String| (node.clone(), json)));
        }
        Ok(parts)
    }

    fn texts(&mut self, kind: TextKind) -> Result<BTreeMap<String, String>, HubError> {
        let mut select = self.db.prepare_cached("SELECT key, text FROM texts WHERE kind = ?1")?;
        let texts = select.query_map([kind.name()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(texts.collect::<Result<_, _>>()?)
    }

    fn set_text(&mut self, kind: TextKind, key: &str, text: Option<&str>) -> Result<(), HubError> {
        match text {
            Some(text) => self
                .db
                .prepare_cached(
                    "INSERT INTO texts (kind, key, text) VALUES (?1, ?2, ?3)
                     ON CONFLICT (kind, key) DO UPDATE SET text = excluded.text",
                )?
                .execute([kind.name(), key, text])?,
            None => self
                .db
                .prepare_cached("DELETE FROM texts WHERE kind = ?1 AND key = ?2")?
                .execute([kind.name(), key])?,
        };
        Ok(())
    }
}
