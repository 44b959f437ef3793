-- Times are integers in nanoseconds: *_wall_ns, *_arrival_ns and start_ns since 1970, *_boot_ns since the
-- boot. Incarnations are 64-bit numbers, stored as signed integers.

CREATE TABLE nodes (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    last_arrival_ns INTEGER,
    stored INTEGER NOT NULL DEFAULT 0,
    duplicates INTEGER NOT NULL DEFAULT 0,
    expired INTEGER NOT NULL DEFAULT 0,
    bad INTEGER NOT NULL DEFAULT 0,
    unrequested INTEGER NOT NULL DEFAULT 0
) STRICT;

-- `receipts` is the set of committed sequence numbers, like 1-5,7. It outlives the rows. `dropped` is the set
-- of those that the node dropped.
CREATE TABLE incarnations (
    node_id INTEGER NOT NULL REFERENCES nodes (id),
    incarnation INTEGER NOT NULL,
    receipts TEXT NOT NULL,
    dropped TEXT NOT NULL,
    boot_id BLOB NOT NULL,
    first_wall_ns INTEGER,
    last_wall_ns INTEGER,
    first_boot_ns INTEGER,
    last_boot_ns INTEGER,
    PRIMARY KEY (node_id, incarnation)
) STRICT, WITHOUT ROWID;

CREATE TABLE streams (
    id INTEGER PRIMARY KEY,
    node_id INTEGER NOT NULL REFERENCES nodes (id),
    reflector TEXT NOT NULL,
    protocol TEXT NOT NULL,
    entry TEXT NOT NULL,
    UNIQUE (node_id, reflector, protocol, entry)
) STRICT;

-- The rows of a partition are in a table of their own, rows_RESOLUTION_YYYYMMDD.
CREATE TABLE partitions (
    resolution TEXT NOT NULL,
    start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    PRIMARY KEY (resolution, start_ns)
) STRICT, WITHOUT ROWID;

-- Rows of partitions that end at or before `ns` are dropped and no longer accepted.
CREATE TABLE horizons (
    resolution TEXT PRIMARY KEY,
    ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- CLOCK_REALTIME and CLOCK_BOOTTIME at one instant, while CLOCK_REALTIME was plausible.
CREATE TABLE pairings (
    node_id INTEGER NOT NULL REFERENCES nodes (id),
    boot_id BLOB NOT NULL,
    boot_ns INTEGER NOT NULL,
    wall_ns INTEGER NOT NULL,
    arrival_ns INTEGER NOT NULL,
    PRIMARY KEY (node_id, boot_id, boot_ns, wall_ns)
) STRICT, WITHOUT ROWID;

-- Records whose own time is implausible. `dated_ns` is the time by a pairing of the same boot.
CREATE TABLE undated (
    node_id INTEGER NOT NULL REFERENCES nodes (id),
    incarnation INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    boot_id BLOB NOT NULL,
    arrival_ns INTEGER NOT NULL,
    dated_ns INTEGER,
    record BLOB NOT NULL,
    PRIMARY KEY (node_id, incarnation, sequence)
) STRICT, WITHOUT ROWID;

CREATE INDEX undated_by_boot ON undated (node_id, boot_id);
CREATE INDEX undated_by_arrival ON undated (arrival_ns);

-- `body` is the status as JSON.
CREATE TABLE statuses (
    node_id INTEGER NOT NULL REFERENCES nodes (id),
    wall_ns INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    arrival_ns INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (node_id, wall_ns, incarnation, sequence)
) STRICT, WITHOUT ROWID;

CREATE INDEX statuses_by_time ON statuses (wall_ns);

-- Bytes that are no record, each kept once. `version` is that of a record of an unknown version, which is
-- stored when this dwell knows it.
CREATE TABLE bad_records (
    id INTEGER PRIMARY KEY,
    node_id INTEGER NOT NULL REFERENCES nodes (id),
    digest BLOB NOT NULL,
    first_arrival_ns INTEGER NOT NULL,
    last_arrival_ns INTEGER NOT NULL,
    arrivals INTEGER NOT NULL,
    version INTEGER,
    reason TEXT NOT NULL,
    raw BLOB NOT NULL,
    UNIQUE (node_id, digest)
) STRICT;

CREATE INDEX bad_records_by_version ON bad_records (version) WHERE version IS NOT NULL;

CREATE TABLE schedules (
    version INTEGER PRIMARY KEY,
    applied_ns INTEGER NOT NULL,
    author TEXT NOT NULL,
    text TEXT NOT NULL
) STRICT;

-- The part of a node, as JSON in the form that the node reads.
CREATE TABLE node_schedules (
    version INTEGER NOT NULL REFERENCES schedules (version),
    node TEXT NOT NULL,
    json TEXT NOT NULL,
    PRIMARY KEY (version, node)
) STRICT, WITHOUT ROWID;
