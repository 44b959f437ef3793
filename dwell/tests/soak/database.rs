//! What a hub has stored, read by plain queries.

use std::path::Path;

use dwell_rollup::{Identity, Incarnation, Level, Name, ProbeCounts, Stream};
use postgres::{Client, NoTls, Row};

use crate::comparison::{Content, Entry, Figures, Sequences, Stored};

/// Name of the database.
pub(crate) const DATABASE: &str = "soak";

/// What a hub counts, over all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) stored: i64,
    /// Records that arrived again.
    pub(crate) duplicates: i64,
    /// Records that are expired, bad, kept raw, without a date, or dropped by their node.
    pub(crate) others: i64,
}

/// A connection to the server in a directory, as another client than a hub.
pub(crate) struct Database(Client);

impl Database {
    /// Connects; `None` while the server does not accept connections.
    pub(crate) fn connect(server: &Path) -> Option<Self> {
        let url = format!("postgres://hub@/{DATABASE}?host={}", server.display());
        let mut client = Client::connect(&url, NoTls).ok()?;
        client.batch_execute("SET search_path = dwell_hub").ok()?;
        Some(Self(client))
    }

    fn query(&mut self, sql: &str) -> Vec<Row> {
        self.0.query(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    pub(crate) fn totals(&mut self) -> Totals {
        let sql = "SELECT sum(stored)::bigint, sum(duplicates)::bigint,
                       sum(expired + bad + unrequested)::bigint
                       + (SELECT count(*) FROM bad_records)
                       + (SELECT count(*) FROM undated WHERE dated_ns IS NULL)
                       + (SELECT count(*) FROM incarnations WHERE dropped <> '')
                   FROM nodes";
        let row = &self.query(sql)[0];
        Totals { stored: row.get(0), duplicates: row.get(1), others: row.get(2) }
    }

    pub(crate) fn receipts(&mut self) -> Sequences {
        let sql = "SELECT name, incarnation, receipts FROM incarnations
                   JOIN nodes ON nodes.id = node_id";
        let rows = self.query(sql).into_iter();
        let receipts = rows.map(|row| {
            ((name(&row, 0), incarnation(&row, 1)), row.get::<_, &str>(2).parse().unwrap())
        });
        receipts.collect()
    }

    /// All rows.
    pub(crate) fn stored(&mut self) -> Stored {
        let mut stored = Stored { receipts: self.receipts(), ..Stored::default() };
        for level in [Level::TenSeconds, Level::FiveMinutes] {
            for row in self.rows(level) {
                let identity = Identity {
                    node: name(&row, 0),
                    incarnation: incarnation(&row, 13),
                    sequence: unsigned(&row, 14),
                };
                let content = Content::Rollup {
                    level,
                    stream: stream(&row),
                    schedule_version: unsigned(&row, 15),
                    figures: figures(&row),
                };
                stored.entries.push(Entry { identity, start_ns: row.get(4), content });
            }
        }
        let sql = "SELECT name, incarnation, sequence, wall_ns FROM statuses
                   JOIN nodes ON nodes.id = node_id";
        for row in self.query(sql) {
            let identity = Identity {
                node: name(&row, 0),
                incarnation: incarnation(&row, 1),
                sequence: unsigned(&row, 2),
            };
            let entry = Entry { identity, start_ns: row.get(3), content: Content::Status };
            stored.entries.push(entry);
        }
        for level in [Level::Hour, Level::Day] {
            for row in self.rows(level) {
                let interval = (level, name(&row, 0), stream(&row), row.get(4));
                stored.computed.push((interval, figures(&row)));
            }
        }
        stored
    }

    fn rows(&mut self, level: Level) -> Vec<Row> {
        let sql = format!(
            "SELECT name, reflector, protocol, entry, start_ns, duration_ns, sent, received, lost, late,
                 duplicate, reordered, send_failed, incarnation, sequence, schedule_version
             FROM rows_{} LEFT JOIN streams ON streams.id = stream_id
             LEFT JOIN nodes ON nodes.id = node_id",
            level.name()
        );
        self.query(&sql)
    }
}

fn name(row: &Row, column: usize) -> Name {
    row.get::<_, &str>(column).parse().unwrap()
}

fn unsigned(row: &Row, column: usize) -> u64 {
    row.get::<_, i64>(column).try_into().unwrap()
}

fn incarnation(row: &Row, column: usize) -> Incarnation {
    Incarnation(row.get::<_, i64>(column).cast_unsigned())
}

fn stream(row: &Row) -> Stream {
    Stream { reflector: name(row, 1), protocol: name(row, 2), entry: name(row, 3) }
}

fn figures(row: &Row) -> Figures {
    let counts = ProbeCounts {
        sent: unsigned(row, 6),
        received: unsigned(row, 7),
        lost: unsigned(row, 8),
        late: unsigned(row, 9),
        duplicate: unsigned(row, 10),
        reordered: unsigned(row, 11),
        send_failed: unsigned(row, 12),
    };
    Figures { duration_ns: unsigned(row, 5), counts }
}
