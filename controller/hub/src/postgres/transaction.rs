//! A transaction of the database.

use std::collections::{BTreeMap, BTreeSet};

use dwell_rollup::{BootId, Incarnation, Name, Stream};
use sha2::{Digest, Sha256};

use super::columns::{
    BAD_COLUMNS, INCARNATION_COLUMNS, STATUS_COLUMNS, StreamColumns, all, bad, boot_id, key,
    limited, node_numbers, parsed, state, status,
};
use super::connection::Connection;
use super::locks;
use super::nodes::LockedNodes;
use super::rows;
use crate::dating::ClockPairing;
use crate::error::HubError;
use crate::incarnation::{IncarnationState, Source};
use crate::period::{DAY_NS, Horizons, Partition, Resolution, SECOND_NS};
use crate::row::{NodeId, RecordKey, Row, StreamId};
use crate::store::{
    AppliedSchedule, Counts, HubTransaction, SentStream, Span, StatusPoint, StoredBadRecord,
    StoredNode, StoredStatus, TextKind, UndatedRecord,
};
use crate::window::{Window, WindowFigures};

/// Number of bytes that a bad record counts at least, so that small ones are limited in number.
const MIN_BAD_CHARGE: i64 = 256;

/// Age at which the stored time of a hub is replaced, so that hubs do not wait for each other's commits
/// in each transaction.
const CLOCK_INTERVAL_NS: u64 = 60 * SECOND_NS as u64;

/// A transaction. It is rolled back when it is dropped.
pub(super) struct PostgresTransaction<'a> {
    db: &'a mut Connection,
    partitions: &'a mut BTreeSet<Partition>,
    is_reader: bool,
    is_committed: bool,
    nodes: LockedNodes,
    /// The stored time of a hub, if it was read.
    clock: Option<i64>,
}

impl<'a> PostgresTransaction<'a> {
    pub(super) fn new(
        db: &'a mut Connection,
        partitions: &'a mut BTreeSet<Partition>,
        is_reader: bool,
    ) -> Self {
        let nodes = LockedNodes::default();
        Self { db, partitions, is_reader, is_committed: false, nodes, clock: None }
    }

    fn create(&mut self, partition: Partition) -> Result<(), HubError> {
        if !self.partitions.contains(&partition) {
            rows::create(self.db, partition)?;
            self.partitions.insert(partition);
        }
        Ok(())
    }

    /// Returns the numbers of streams that exist.
    fn stream_ids(
        &mut self,
        streams: &[(NodeId, Stream)],
    ) -> Result<Vec<Option<StreamId>>, HubError> {
        let StreamColumns { nodes, reflectors, protocols, entries } = StreamColumns::of(streams);
        let rows = self.db.query(
            "SELECT streams.id
             FROM unnest($1::int8[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
             AS wanted (node_id, reflector, protocol, entry, number)
             LEFT JOIN streams ON streams.node_id = wanted.node_id
             AND streams.reflector = wanted.reflector AND streams.protocol = wanted.protocol
             AND streams.entry = wanted.entry
             ORDER BY wanted.number",
            &[&nodes, &reflectors, &protocols, &entries],
        )?;
        let ids = rows.iter().map(|row| Ok(row.try_get::<_, Option<i64>>(0)?.map(StreamId)));
        ids.collect()
    }
}

impl Drop for PostgresTransaction<'_> {
    fn drop(&mut self) {
        if !self.is_committed {
            self.db.rollback();
            // Those that it created do not exist.
            self.partitions.clear();
        }
    }
}

impl HubTransaction for PostgresTransaction<'_> {
    fn commit(mut self: Box<Self>) -> Result<(), HubError> {
        self.nodes.flush(self.db)?;
        self.db.commit()?;
        self.is_committed = true;
        Ok(())
    }

    fn clock(&mut self) -> Result<Option<i64>, HubError> {
        let rows = self.db.query("SELECT now_ns FROM clock", &[])?;
        self.clock = rows.first().map(|row| row.try_get(0)).transpose()?;
        Ok(self.clock)
    }

    fn set_clock(&mut self, now_ns: i64) -> Result<(), HubError> {
        if self.clock.is_some_and(|stored| now_ns.abs_diff(stored) < CLOCK_INTERVAL_NS) {
            return Ok(());
        }
        self.db.execute(
            "INSERT INTO clock (id, now_ns) VALUES (1, $1)
             ON CONFLICT (id) DO UPDATE SET now_ns = excluded.now_ns",
            &[&now_ns],
        )?;
        self.clock = Some(now_ns);
        Ok(())
    }

    fn add_nodes(&mut self, names: &[Name]) -> Result<Vec<NodeId>, HubError> {
        self.nodes.add(self.db, names)
    }

    fn nodes(&mut self) -> Result<Vec<StoredNode>, HubError> {
        self.nodes.flush(self.db)?;
        let rows = self.db.query(
            "SELECT id, name, last_arrival_ns, stored, duplicates, expired, bad, unrequested,
             coalesce(waiting.count, 0)
             FROM nodes LEFT JOIN
             (SELECT node_id, count(*) FROM undated WHERE dated_ns IS NULL GROUP BY node_id) AS waiting
             ON waiting.node_id = nodes.id ORDER BY name",
            &[],
        )?;
        all(&rows, |row| {
            let count = |column: usize| row.try_get::<_, i64>(column).map(|count| count as u64);
            Ok(StoredNode {
                id: NodeId(row.try_get(0)?),
                name: parsed(row, 1, "name")?,
                last_arrival_ns: row.try_get(2)?,
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
        })
    }

    fn count(&mut self, node: NodeId, counts: &Counts, arrival_ns: i64) -> Result<(), HubError> {
        self.nodes.lock(self.db, node)?.count(counts, arrival_ns);
        Ok(())
    }

    fn add_streams(
        &mut self,
        streams: &[(NodeId, Stream)],
        limit: u64,
    ) -> Result<Vec<Option<StreamId>>, HubError> {
        if streams.is_empty() {
            return Ok(Vec::new());
        }
        let ids = self.stream_ids(streams)?;
        let missing = streams.iter().zip(&ids).filter(|(_, id)| id.is_none());
        let mut missing: Vec<&(NodeId, Stream)> = missing.map(|(stream, _)| stream).collect();
        if missing.is_empty() {
            return Ok(ids);
        }
        let nodes: BTreeSet<i64> = missing.iter().map(|(node, _)| node.0).collect();
        let nodes: Vec<i64> = nodes.into_iter().collect();
        let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
        for row in self.db.query(
            "SELECT node_id, count(*) FROM streams WHERE node_id = ANY ($1) GROUP BY node_id",
            &[&nodes],
        )? {
            counts.insert(row.try_get(0)?, row.try_get::<_, i64>(1)? as u64);
        }
        missing.retain(|(node, _)| {
            let count = counts.entry(node.0).or_default();
            *count += 1;
            *count <= limit
        });
        let StreamColumns { nodes, reflectors, protocols, entries } = StreamColumns::of(missing);
        self.db.execute(
            "INSERT INTO streams (node_id, reflector, protocol, entry)
             SELECT * FROM unnest($1::int8[], $2::text[], $3::text[], $4::text[])",
            &[&nodes, &reflectors, &protocols, &entries],
        )?;
        self.stream_ids(streams)
    }

    fn note_streams(&mut self, last: &[(StreamId, i64)]) -> Result<(), HubError> {
        if last.is_empty() {
            return Ok(());
        }
        // The end of the day, so that a stream is changed once a day. Streams are removed by whole days.
        let end_of_day = |at_ns: i64| Resolution::Day.floor(at_ns).saturating_add(DAY_NS - 1);
        let (ids, ends): (Vec<i64>, Vec<i64>) =
            last.iter().map(|(stream, at_ns)| (stream.0, end_of_day(*at_ns))).unzip();
        self.db.execute(
            "UPDATE streams SET last_ns = noted.last_ns
             FROM unnest($1::int8[], $2::int8[]) AS noted (id, last_ns)
             WHERE streams.id = noted.id AND streams.last_ns < noted.last_ns",
            &[&ids, &ends],
        )?;
        Ok(())
    }

    fn remove_streams(&mut self, before_ns: i64) -> Result<(), HubError> {
        self.db.execute("DELETE FROM streams WHERE last_ns < $1", &[&before_ns])?;
        Ok(())
    }

    fn streams(&mut self, sender: Option<&Name>) -> Result<Vec<SentStream>, HubError> {
        let rows = self.db.query(
            "SELECT streams.id, name, reflector, protocol, entry
             FROM streams JOIN nodes ON nodes.id = node_id
             WHERE $1::text IS NULL OR name = $1 ORDER BY name, reflector, protocol, entry",
            &[&sender.map(Name::as_str)],
        )?;
        all(&rows, |row| {
            let stream = Stream {
                reflector: parsed(row, 2, "name")?,
                protocol: parsed(row, 3, "name")?,
                entry: parsed(row, 4, "name")?,
            };
            let (id, sender) = (StreamId(row.try_get(0)?), parsed(row, 1, "name")?);
            Ok(SentStream { id, sender, stream })
        })
    }

    fn incarnations(&mut self, sources: &[Source]) -> Result<Vec<IncarnationState>, HubError> {
        let nodes: Vec<i64> = sources.iter().map(|source| source.node.0).collect();
        let incarnations: Vec<i64> =
            sources.iter().map(|source| source.incarnation.0 as i64).collect();
        let rows = self.db.query(
            &format!(
                "SELECT {INCARNATION_COLUMNS}
                 FROM unnest($1::int8[], $2::int8[]) WITH ORDINALITY
                 AS wanted (node_id, incarnation, number)
                 LEFT JOIN incarnations ON incarnations.node_id = wanted.node_id
                 AND incarnations.incarnation = wanted.incarnation
                 ORDER BY wanted.number"
            ),
            &[&nodes, &incarnations],
        )?;
        all(&rows, |row| {
            let is_stored = row.try_get::<_, Option<&str>>(0)?.is_some();
            if is_stored { state(row, 0) } else { Ok(IncarnationState::default()) }
        })
    }

    fn admit_incarnation(&mut self, node: NodeId, day: i64, limit: u64) -> Result<bool, HubError> {
        Ok(self.nodes.lock(self.db, node)?.admit_incarnation(day, limit))
    }

    fn set_incarnations(&mut self, states: &[(Source, IncarnationState)]) -> Result<(), HubError> {
        if states.is_empty() {
            return Ok(());
        }
        let numbers = |value: &dyn Fn(&Source, &IncarnationState) -> Option<i64>| {
            states.iter().map(|(source, state)| value(source, state)).collect::<Vec<_>>()
        };
        let texts = |value: &dyn Fn(&IncarnationState) -> String| {
            states.iter().map(|(_, state)| value(state)).collect::<Vec<_>>()
        };
        let boots: Vec<&[u8]> = states.iter().map(|(_, state)| &state.boot_id.0[..]).collect();
        self.db.execute(
            &format!(
                "INSERT INTO incarnations (node_id, incarnation, {INCARNATION_COLUMNS})
                 SELECT * FROM unnest($1::int8[], $2::int8[], $3::text[], $4::text[], $5::bytea[],
                 $6::int8[], $7::int8[], $8::int8[], $9::int8[])
                 ON CONFLICT (node_id, incarnation) DO UPDATE SET
                 receipts = excluded.receipts, dropped = excluded.dropped,
                 boot_id = excluded.boot_id, first_wall_ns = excluded.first_wall_ns,
                 last_wall_ns = excluded.last_wall_ns, first_boot_ns = excluded.first_boot_ns,
                 last_boot_ns = excluded.last_boot_ns"
            ),
            &[
                &numbers(&|source, _| Some(source.node.0)),
                &numbers(&|source, _| Some(source.incarnation.0 as i64)),
                &texts(&|state| state.receipts.to_string()),
                &texts(&|state| state.dropped.to_string()),
                &boots,
                &numbers(&|_, state| state.wall_ns.map(|(first, _)| first)),
                &numbers(&|_, state| state.wall_ns.map(|(_, last)| last)),
                &numbers(&|_, state| state.boot_ns.map(|(first, _)| first)),
                &numbers(&|_, state| state.boot_ns.map(|(_, last)| last)),
            ],
        )?;
        Ok(())
    }

    fn incarnations_of_nodes(
        &mut self,
        nodes: &[NodeId],
    ) -> Result<BTreeMap<NodeId, Vec<(Incarnation, IncarnationState)>>, HubError> {
        let rows = self.db.query(
            &format!(
                "SELECT node_id, incarnation, {INCARNATION_COLUMNS} FROM incarnations
                 WHERE node_id = ANY ($1) ORDER BY node_id, incarnation"
            ),
            &[&node_numbers(nodes)],
        )?;
        let mut states: BTreeMap<NodeId, Vec<_>> = BTreeMap::new();
        for row in &rows {
            let of = (Incarnation(row.try_get::<_, i64>(1)? as u64), state(row, 2)?);
            states.entry(NodeId(row.try_get(0)?)).or_default().push(of);
        }
        Ok(states)
    }

    fn add_rows(&mut self, partition: Partition, rows: &[Row]) -> Result<(), HubError> {
        self.create(partition)?;
        rows::add(self.db, partition.resolution, rows)
    }

    fn remove_rows(
        &mut self,
        partition: Partition,
        rows: &[(StreamId, i64, RecordKey)],
    ) -> Result<(), HubError> {
        rows::remove(self.db, partition.resolution, rows)
    }

    fn set_computed(
        &mut self,
        resolution: Resolution,
        rows: &[(StreamId, i64, Option<Row>)],
    ) -> Result<(), HubError> {
        let (mut computed, mut removed) = (Vec::new(), Vec::new());
        for (stream, start_ns, row) in rows {
            match row {
                Some(row) => computed.push(row),
                None => removed.push((*stream, *start_ns, RecordKey::COMPUTED)),
            }
        }
        let partitions = computed.iter().map(|row| resolution.partition(row.start_ns));
        for partition in partitions.collect::<BTreeSet<_>>() {
            self.create(partition)?;
        }
        rows::replace(self.db, resolution, &computed)?;
        rows::remove(self.db, resolution, &removed)
    }

    fn rows(&mut self, resolution: Resolution, spans: &[Span]) -> Result<Vec<Vec<Row>>, HubError> {
        rows::read(self.db, resolution, spans)
    }

    fn set_windows(
        &mut self,
        windows: &[(StreamId, Window, Option<WindowFigures>)],
    ) -> Result<(), HubError> {
        let (mut names, mut ids, mut figures) = (Vec::new(), Vec::new(), Vec::new());
        let (mut removed_names, mut removed_ids) = (Vec::new(), Vec::new());
        for (stream, window, found) in windows {
            match found {
                Some(found) => {
                    names.push(window.name());
                    ids.push(stream.0);
                    figures.push(found.to_json());
                }
                None => {
                    removed_names.push(window.name());
                    removed_ids.push(stream.0);
                }
            }
        }
        if !names.is_empty() {
            self.db.execute(
                "INSERT INTO windows (name, stream_id, figures)
                 SELECT * FROM unnest($1::text[], $2::int8[], $3::text[])
                 ON CONFLICT (name, stream_id) DO UPDATE SET figures = excluded.figures",
                &[&names, &ids, &figures],
            )?;
        }
        if !removed_names.is_empty() {
            self.db.execute(
                "DELETE FROM windows USING unnest($1::text[], $2::int8[]) AS removed (name, stream_id)
                 WHERE windows.name = removed.name AND windows.stream_id = removed.stream_id",
                &[&removed_names, &removed_ids],
            )?;
        }
        Ok(())
    }

    fn windows(
        &mut self,
        window: Window,
        streams: Option<&[StreamId]>,
    ) -> Result<Vec<(StreamId, WindowFigures)>, HubError> {
        let ids: Option<Vec<i64>> =
            streams.map(|streams| streams.iter().map(|stream| stream.0).collect());
        let rows = self.db.query(
            "SELECT stream_id, figures FROM windows
             WHERE name = $1 AND ($2::int8[] IS NULL OR stream_id = ANY ($2)) ORDER BY stream_id",
            &[&window.name(), &ids],
        )?;
        let found =
            all(&rows, |row| Ok((row.try_get::<_, i64>(0)?, row.try_get::<_, String>(1)?)))?;
        let figures = found.into_iter();
        figures.map(|(id, json)| Ok((StreamId(id), WindowFigures::from_json(&json)?))).collect()
    }

    fn horizons(&mut self) -> Result<Horizons, HubError> {
        if !self.is_reader {
            self.db.batch(&locks::shared(locks::RECORDS))?;
        }
        rows::horizons(self.db)
    }

    fn drop_expired(
        &mut self,
        horizons: &Horizons,
    ) -> Result<(Horizons, Vec<Partition>), HubError> {
        let (horizons, dropped) = rows::drop_expired(self.db, horizons)?;
        self.partitions.retain(|partition| !dropped.contains(partition));
        Ok((horizons, dropped))
    }

    fn add_pairings(
        &mut self,
        pairings: &[(NodeId, BootId, ClockPairing)],
        arrival_ns: i64,
    ) -> Result<(), HubError> {
        for (node, boot, pairing) in pairings {
            self.db.execute(
                "INSERT INTO pairings
                 (node_id, boot_id, boot_ns, wall_ns, arrival_ns, is_synchronised)
                 VALUES ($1, $2, $3, $4, $5, $6)
                 ON CONFLICT (node_id, boot_id, boot_ns, wall_ns) DO UPDATE
                 SET is_synchronised = pairings.is_synchronised OR excluded.is_synchronised",
                &[
                    &node.0,
                    &&boot.0[..],
                    &pairing.boot_ns,
                    &pairing.wall_ns,
                    &arrival_ns,
                    &pairing.is_synchronised,
                ],
            )?;
        }
        Ok(())
    }

    fn pairings(&mut self, node: NodeId, boot: BootId) -> Result<Vec<ClockPairing>, HubError> {
        let rows = self.db.query(
            "SELECT boot_ns, wall_ns, is_synchronised FROM pairings
             WHERE node_id = $1 AND boot_id = $2",
            &[&node.0, &&boot.0[..]],
        )?;
        all(&rows, |row| {
            Ok(ClockPairing {
                boot_ns: row.try_get(0)?,
                wall_ns: row.try_get(1)?,
                is_synchronised: row.try_get(2)?,
            })
        })
    }

    fn admit_undated(&mut self, node: NodeId, bytes: u64, limit: u64) -> Result<bool, HubError> {
        Ok(self.nodes.lock(self.db, node)?.admit_undated(bytes, limit))
    }

    fn set_undated(&mut self, records: &[UndatedRecord]) -> Result<(), HubError> {
        if records.is_empty() {
            return Ok(());
        }
        let numbers = |value: &dyn Fn(&UndatedRecord) -> Option<i64>| {
            records.iter().map(value).collect::<Vec<_>>()
        };
        let boots: Vec<&[u8]> = records.iter().map(|record| &record.boot_id.0[..]).collect();
        let raw: Vec<&[u8]> = records.iter().map(|record| &record.raw[..]).collect();
        self.db.execute(
            "INSERT INTO undated
             (node_id, incarnation, sequence, boot_id, arrival_ns, measured_boot_ns, own_ns, dated_ns,
             record)
             SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::bytea[], $5::int8[],
             $6::int8[], $7::int8[], $8::int8[], $9::bytea[])
             ON CONFLICT (node_id, incarnation, sequence) DO UPDATE SET dated_ns = excluded.dated_ns",
            &[
                &numbers(&|record| Some(record.node.0)),
                &numbers(&|record| Some(record.key.incarnation.0 as i64)),
                &numbers(&|record| Some(record.key.sequence as i64)),
                &boots,
                &numbers(&|record| Some(record.arrival_ns)),
                &numbers(&|record| Some(record.measured_boot_ns)),
                &numbers(&|record| record.own_ns),
                &numbers(&|record| record.dated_ns),
                &raw,
            ],
        )?;
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
        // No record has sequence number 0.
        let (from_ns, incarnation, sequence) = after.map_or((from_ns, i64::MIN, 0), |(at, key)| {
            (at, key.incarnation.0 as i64, key.sequence as i64)
        });
        let rows = self.db.query(
            "SELECT incarnation, sequence, boot_id, arrival_ns, measured_boot_ns, own_ns, dated_ns,
             record FROM undated
             WHERE node_id = $1 AND boot_id = $2 AND measured_boot_ns < $3
             AND (measured_boot_ns, incarnation, sequence) > ($4, $5, $6)
             ORDER BY measured_boot_ns, incarnation, sequence LIMIT $7",
            &[&node.0, &&boot.0[..], &to_ns, &from_ns, &incarnation, &sequence, &limited(limit)],
        )?;
        all(&rows, |row| {
            Ok(UndatedRecord {
                node,
                key: key(row, 0)?,
                boot_id: boot_id(row, 2)?,
                arrival_ns: row.try_get(3)?,
                measured_boot_ns: row.try_get(4)?,
                own_ns: row.try_get(5)?,
                dated_ns: row.try_get(6)?,
                raw: row.try_get(7)?,
            })
        })
    }

    fn add_statuses(&mut self, statuses: &[StoredStatus]) -> Result<(), HubError> {
        if statuses.is_empty() {
            return Ok(());
        }
        let numbers =
            |value: &dyn Fn(&StoredStatus) -> i64| statuses.iter().map(value).collect::<Vec<i64>>();
        let bodies = statuses.iter().map(|stored| serde_json::to_string(&stored.status));
        let bodies: Vec<String> =
            bodies.collect::<Result<_, _>>().map_err(|error| HubError::stored("status", error))?;
        let bounds = statuses.iter().map(|stored| stored.status.clock_bound_ns);
        let bounds: Vec<Option<i64>> = bounds.map(|bound| bound.map(|ns| ns as i64)).collect();
        let pauses = statuses.iter().map(|stored| {
            let pauses = StatusPoint::pauses_of(&stored.status, stored.wall_ns);
            (!pauses.is_empty()).then(|| serde_json::to_string(&pauses)).transpose()
        });
        let pauses: Vec<Option<String>> =
            pauses.collect::<Result<_, _>>().map_err(|error| HubError::stored("status", error))?;
        self.db.execute(
            &format!(
                "INSERT INTO statuses
                 ({STATUS_COLUMNS}, schedule_version, clock_bound_ns, pauses)
                 SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[],
                 $6::text[], $7::int8[], $8::int8[], $9::text[]) ON CONFLICT DO NOTHING"
            ),
            &[
                &numbers(&|stored| stored.node.0),
                &numbers(&|stored| stored.key.incarnation.0 as i64),
                &numbers(&|stored| stored.key.sequence as i64),
                &numbers(&|stored| stored.wall_ns),
                &numbers(&|stored| stored.arrival_ns),
                &bodies,
                &numbers(&|stored| stored.status.schedule_version as i64),
                &bounds,
                &pauses,
            ],
        )?;
        Ok(())
    }

    fn remove_statuses(&mut self, statuses: &[(NodeId, i64, RecordKey)]) -> Result<(), HubError> {
        for (node, wall_ns, key) in statuses {
            let (incarnation, sequence) = (key.incarnation.0 as i64, key.sequence as i64);
            self.db.execute(
                "DELETE FROM statuses
                 WHERE node_id = $1 AND wall_ns = $2 AND incarnation = $3 AND sequence = $4",
                &[&node.0, wall_ns, &incarnation, &sequence],
            )?;
        }
        Ok(())
    }

    fn statuses(
        &mut self,
        node: NodeId,
        from_ns: i64,
        to_ns: i64,
    ) -> Result<Vec<StoredStatus>, HubError> {
        let rows = self.db.query(
            &format!(
                "SELECT {STATUS_COLUMNS} FROM statuses
                 WHERE node_id = $1 AND wall_ns >= $2 AND wall_ns < $3
                 ORDER BY wall_ns, incarnation, sequence"
            ),
            &[&node.0, &from_ns, &to_ns],
        )?;
        all(&rows, status)
    }

    fn status_histories(
        &mut self,
        nodes: &[NodeId],
        from_ns: i64,
        to_ns: i64,
    ) -> Result<BTreeMap<NodeId, Vec<StatusPoint>>, HubError> {
        // One row per node: to decode 26,000 takes longer than to read them.
        let rows = self.db.query(
            "SELECT node_id, array_agg(wall_ns), array_agg(schedule_version),
             array_agg(clock_bound_ns) FROM statuses
             WHERE node_id = ANY ($1) AND wall_ns >= $2 AND wall_ns < $3 GROUP BY node_id",
            &[&node_numbers(nodes), &from_ns, &to_ns],
        )?;
        let mut histories = BTreeMap::new();
        for row in &rows {
            let (times, versions): (Vec<i64>, Vec<i64>) = (row.try_get(1)?, row.try_get(2)?);
            let bounds: Vec<Option<i64>> = row.try_get(3)?;
            let points = times.into_iter().zip(versions).zip(bounds);
            let mut points: Vec<StatusPoint> = points
                .map(|((wall_ns, version), bound)| StatusPoint {
                    wall_ns,
                    schedule_version: version as u64,
                    clock_bound_ns: bound.map(|ns| ns as u64),
                    pauses: Vec::new(),
                })
                .collect();
            points.sort_by_key(|point| point.wall_ns);
            histories.insert(NodeId(row.try_get(0)?), points);
        }
        let rows = self.db.query(
            "SELECT node_id, wall_ns, pauses FROM statuses
             WHERE node_id = ANY ($1) AND wall_ns >= $2 AND wall_ns < $3 AND pauses IS NOT NULL",
            &[&node_numbers(nodes), &from_ns, &to_ns],
        )?;
        for row in &rows {
            let (wall_ns, json): (i64, &str) = (row.try_get(1)?, row.try_get(2)?);
            let pauses: Vec<(i64, i64)> =
                serde_json::from_str(json).map_err(|error| HubError::stored("pauses", error))?;
            let Some(points) = histories.get_mut(&NodeId(row.try_get(0)?)) else { continue };
            let at = points.partition_point(|point| point.wall_ns < wall_ns);
            points.get_mut(at).into_iter().for_each(|point| point.pauses.extend(&pauses));
        }
        Ok(histories)
    }

    fn last_statuses(
        &mut self,
        nodes: &[NodeId],
    ) -> Result<BTreeMap<NodeId, StoredStatus>, HubError> {
        let rows = self.db.query(
            &format!(
                "SELECT last.* FROM unnest($1::int8[]) AS wanted (id), LATERAL
                 (SELECT {STATUS_COLUMNS} FROM statuses WHERE node_id = wanted.id
                 ORDER BY wall_ns DESC, incarnation, sequence DESC LIMIT 1) AS last"
            ),
            &[&node_numbers(nodes)],
        )?;
        let statuses = all(&rows, status)?.into_iter();
        Ok(statuses.map(|status| (status.node, status)).collect())
    }

    fn keep_bad(&mut self, bad: &StoredBadRecord, limit: u64) -> Result<bool, HubError> {
        let digest: [u8; 32] = Sha256::digest(&bad.raw).into();
        let again = self.db.execute(
            "UPDATE bad_records SET arrivals = arrivals + 1,
             first_arrival_ns = least(first_arrival_ns, $3),
             last_arrival_ns = greatest(last_arrival_ns, $3)
             WHERE node_id = $1 AND digest = $2",
            &[&bad.node.0, &&digest[..], &bad.arrival_ns],
        )?;
        if again > 0 {
            return Ok(true);
        }
        let charge = (bad.raw.len() as i64).max(MIN_BAD_CHARGE);
        if !self.nodes.lock(self.db, bad.node)?.admit_bad(charge, limit) {
            return Ok(false);
        }
        // A text cannot contain NUL, and the reason may quote the record.
        let reason = bad.reason.replace('\0', "\u{fffd}");
        self.db.execute(
            "INSERT INTO bad_records
             (node_id, digest, first_arrival_ns, last_arrival_ns, arrivals, version, reason, raw)
             VALUES ($1, $2, $3, $3, 1, $4, $5, $6)",
            &[
                &bad.node.0,
                &&digest[..],
                &bad.arrival_ns,
                &bad.version.map(i32::from),
                &reason,
                &bad.raw,
            ],
        )?;
        Ok(true)
    }

    fn bad(&mut self, node: Option<NodeId>, limit: u64) -> Result<Vec<StoredBadRecord>, HubError> {
        let rows = self.db.query(
            &format!(
                "SELECT {BAD_COLUMNS} FROM bad_records WHERE $1::int8 IS NULL OR node_id = $1
                 ORDER BY last_arrival_ns DESC, id DESC LIMIT $2"
            ),
            &[&node.map(|node| node.0), &limited(limit)],
        )?;
        all(&rows, bad)
    }

    fn unknown_versions(
        &mut self,
        after: i64,
        limit: u64,
    ) -> Result<Vec<StoredBadRecord>, HubError> {
        self.db.batch(&locks::exclusive(locks::RECORDS))?;
        let rows = self.db.query(
            &format!(
                "SELECT {BAD_COLUMNS} FROM bad_records WHERE version IS NOT NULL AND id > $1
                 ORDER BY id LIMIT $2"
            ),
            &[&after, &limited(limit)],
        )?;
        all(&rows, bad)
    }

    fn remove_bad(&mut self, id: i64) -> Result<(), HubError> {
        let removed = self.db.query(
            "DELETE FROM bad_records WHERE id = $1 RETURNING node_id, length(raw)",
            &[&id],
        )?;
        for row in removed {
            let charge = i64::from(row.try_get::<_, i32>(1)?).max(MIN_BAD_CHARGE);
            self.nodes.lock(self.db, NodeId(row.try_get(0)?))?.release_bad(charge);
        }
        Ok(())
    }

    fn remove_old(
        &mut self,
        statuses_before_ns: i64,
        dated_before_ns: i64,
        undated_before_ns: i64,
    ) -> Result<(), HubError> {
        self.nodes.flush(self.db)?;
        self.db.execute("DELETE FROM statuses WHERE wall_ns < $1", &[&statuses_before_ns])?;
        self.db.execute("DELETE FROM pairings WHERE arrival_ns < $1", &[&dated_before_ns])?;
        let removed = self.db.execute(
            "DELETE FROM undated WHERE arrival_ns < greatest($1::int8, $2::int8)
             AND (arrival_ns < $2 OR dated_ns IS NOT NULL)",
            &[&dated_before_ns, &undated_before_ns],
        )?;
        if removed > 0 {
            self.db.execute(
                "UPDATE nodes SET undated_bytes = left_over.bytes
                 FROM (SELECT nodes.id, coalesce(sum(length(record)), 0) AS bytes
                 FROM nodes LEFT JOIN undated ON node_id = nodes.id GROUP BY nodes.id) AS left_over
                 WHERE nodes.id = left_over.id AND undated_bytes <> left_over.bytes",
                &[],
            )?;
        }
        let removed = self
            .db
            .execute("DELETE FROM bad_records WHERE last_arrival_ns < $1", &[&undated_before_ns])?;
        if removed > 0 {
            self.db.execute(
                "UPDATE nodes SET bad_bytes = left_over.bytes
                 FROM (SELECT nodes.id, coalesce(sum(greatest(length(raw), $1))
                 FILTER (WHERE raw IS NOT NULL), 0) AS bytes
                 FROM nodes LEFT JOIN bad_records ON node_id = nodes.id GROUP BY nodes.id) AS left_over
                 WHERE nodes.id = left_over.id AND bad_bytes <> left_over.bytes",
                &[&(MIN_BAD_CHARGE as i32)],
            )?;
        }
        self.nodes.forget();
        Ok(())
    }

    fn add_schedule(
        &mut self,
        applied_ns: i64,
        author: &str,
        text: &str,
        parts: &dyn Fn(u64) -> BTreeMap<Name, String>,
    ) -> Result<u64, HubError> {
        self.db.batch(&locks::exclusive(locks::SCHEDULES))?;
        let rows = self.db.query(
            "INSERT INTO schedules (version, applied_ns, author, text)
             SELECT coalesce(max(version), 0) + 1, $1, $2, $3 FROM schedules RETURNING version",
            &[&applied_ns, &author, &text],
        )?;
        let version: i64 = rows[0].try_get(0)?;
        let (nodes, texts): (Vec<Name>, Vec<String>) = parts(version as u64).into_iter().unzip();
        let nodes: Vec<&str> = nodes.iter().map(Name::as_str).collect();
        self.db.execute(
            "INSERT INTO node_schedules (version, node, json)
             SELECT $1, * FROM unnest($2::text[], $3::text[])",
            &[&version, &nodes, &texts],
        )?;
        Ok(version as u64)
    }

    fn schedules(&mut self) -> Result<Vec<AppliedSchedule>, HubError> {
        let rows = self.db.query(
            "SELECT version, applied_ns, author, text FROM schedules ORDER BY version",
            &[],
        )?;
        all(&rows, |row| {
            Ok(AppliedSchedule {
                version: row.try_get::<_, i64>(0)? as u64,
                applied_ns: row.try_get(1)?,
                author: row.try_get(2)?,
                text: row.try_get(3)?,
            })
        })
    }

    fn newest_version(&mut self) -> Result<Option<u64>, HubError> {
        let rows = self.db.query("SELECT max(version) FROM schedules", &[])?;
        let newest: Option<i64> = rows[0].try_get(0)?;
        Ok(newest.map(|version| version as u64))
    }

    fn node_schedules(
        &mut self,
        version: u64,
        nodes: Option<&BTreeSet<Name>>,
    ) -> Result<BTreeMap<Name, String>, HubError> {
        let nodes: Option<Vec<&str>> = nodes.map(|nodes| nodes.iter().map(Name::as_str).collect());
        let rows = self.db.query(
            "SELECT node, json FROM node_schedules
             WHERE version = $1 AND ($2::text[] IS NULL OR node = ANY ($2))",
            &[&(version as i64), &nodes],
        )?;
        let parts = all(&rows, |row| Ok((parsed(row, 0, "node")?, row.try_get(1)?)))?;
        Ok(parts.into_iter().collect())
    }

    fn texts(&mut self, kind: TextKind) -> Result<BTreeMap<String, String>, HubError> {
        let rows = self.db.query("SELECT key, text FROM texts WHERE kind = $1", &[&kind.name()])?;
        let texts = all(&rows, |row| Ok((row.try_get(0)?, row.try_get(1)?)))?;
        Ok(texts.into_iter().collect())
    }

    fn set_text(&mut self, kind: TextKind, key: &str, text: Option<&str>) -> Result<(), HubError> {
        match text {
            Some(text) => self.db.execute(
                "INSERT INTO texts (kind, key, text) VALUES ($1, $2, $3)
                 ON CONFLICT (kind, key) DO UPDATE SET text = excluded.text",
                &[&kind.name(), &key, &text],
            )?,
            None => self
                .db
                .execute("DELETE FROM texts WHERE kind = $1 AND key = $2", &[&kind.name(), &key])?,
        };
        Ok(())
    }
}
