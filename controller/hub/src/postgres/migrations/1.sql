-- Times are in nanoseconds: *_wall_ns, *_arrival_ns, last_ns and start_ns since 1970, *_boot_ns since the
-- boot. Incarnations are 64-bit numbers, stored as signed integers. Names are compared by their bytes, so
-- that all hubs lock nodes in the same order.

-- Every transaction that stores records of a node locks the node's row. Its rows change often and have
-- room for that.
CREATE TABLE nodes (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name text COLLATE "C" NOT NULL UNIQUE,
    last_arrival_ns bigint,
    stored bigint NOT NULL DEFAULT 0,
    duplicates bigint NOT NULL DEFAULT 0,
    expired bigint NOT NULL DEFAULT 0,
    bad bigint NOT NULL DEFAULT 0,
    unrequested bigint NOT NULL DEFAULT 0,
    -- Bytes of the bad records that are kept of a node; each counts as at least 256.
    bad_bytes bigint NOT NULL DEFAULT 0,
    -- Bytes of the records of a node in `undated`.
    undated_bytes bigint NOT NULL DEFAULT 0,
    -- Incarnations that began to arrive on a day, which is in days since 1970.
    incarnation_day bigint NOT NULL DEFAULT 0,
    day_incarnations bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- `receipts` is the set of committed sequence numbers, like 1-5,7. It outlives the rows. `dropped` is the set
-- of those that the node dropped. Both are texts, as in SQLite and on the wire: an int8multirange cannot
-- contain 2^63 - 1, which is a valid sequence number, nor larger numbers that a status may name.
CREATE TABLE incarnations (
    node_id bigint NOT NULL REFERENCES nodes (id),
    incarnation bigint NOT NULL,
    receipts text NOT NULL,
    dropped text NOT NULL,
    boot_id bytea NOT NULL,
    first_wall_ns bigint,
    last_wall_ns bigint,
    first_boot_ns bigint,
    last_boot_ns bigint,
    PRIMARY KEY (node_id, incarnation)
) WITH (fillfactor = 50);

-- `last_ns` is the end of the day of the last row; a stream without rows is removed.
CREATE TABLE streams (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    node_id bigint NOT NULL REFERENCES nodes (id),
    reflector text COLLATE "C" NOT NULL,
    protocol text COLLATE "C" NOT NULL,
    entry text COLLATE "C" NOT NULL,
    last_ns bigint NOT NULL DEFAULT 0,
    UNIQUE (node_id, reflector, protocol, entry)
) WITH (fillfactor = 80);

-- Figures of the last hour and the last 24 h of each stream, as JSON. Computed when a row of 5 min arrives.
CREATE TABLE windows (
    name text NOT NULL,
    stream_id bigint NOT NULL REFERENCES streams (id) ON DELETE CASCADE,
    figures text NOT NULL,
    PRIMARY KEY (name, stream_id)
) WITH (fillfactor = 80);

CREATE INDEX windows_by_stream ON windows (stream_id);

-- Rows by resolution. The partitions are rows_RESOLUTION_YYYYMMDD; their bounds are half an interval before
-- those in `partitions`, because the middle of an interval decides where a row belongs.
CREATE TABLE rows_10s (
    stream_id bigint NOT NULL,
    start_ns bigint NOT NULL,
    incarnation bigint NOT NULL,
    sequence bigint NOT NULL,
    duration_ns bigint NOT NULL,
    schedule_version bigint NOT NULL,
    sent bigint NOT NULL,
    received bigint NOT NULL,
    lost bigint NOT NULL,
    late bigint NOT NULL,
    duplicate bigint NOT NULL,
    reordered bigint NOT NULL,
    send_failed bigint NOT NULL,
    clock_synchronised boolean NOT NULL,
    clock_stepped boolean NOT NULL,
    one_clock boolean NOT NULL,
    clock_bound_ns bigint,
    rtt_ns bytea,
    rtt_kernel_ns bytea,
    one_way_forward_ns bytea,
    one_way_backward_ns bytea,
    PRIMARY KEY (stream_id, start_ns, incarnation, sequence)
) PARTITION BY RANGE (start_ns);

CREATE TABLE rows_5m (LIKE rows_10s INCLUDING ALL) PARTITION BY RANGE (start_ns);
CREATE TABLE rows_1h (LIKE rows_10s INCLUDING ALL) PARTITION BY RANGE (start_ns);
CREATE TABLE rows_1d (LIKE rows_10s INCLUDING ALL) PARTITION BY RANGE (start_ns);

CREATE TABLE partitions (
    resolution text NOT NULL,
    start_ns bigint NOT NULL,
    end_ns bigint NOT NULL,
    PRIMARY KEY (resolution, start_ns)
);

-- Rows of partitions that end at or before `ns` are dropped and no longer accepted.
CREATE TABLE horizons (
    resolution text PRIMARY KEY,
    ns bigint NOT NULL
);

-- CLOCK_REALTIME of a hub when one last stored or removed records, in one row. It is at most a minute old.
CREATE TABLE clock (
    id int PRIMARY KEY CHECK (id = 1),
    now_ns bigint NOT NULL
);

-- CLOCK_REALTIME and CLOCK_BOOTTIME at one instant, while CLOCK_REALTIME was plausible.
CREATE TABLE pairings (
    node_id bigint NOT NULL REFERENCES nodes (id),
    boot_id bytea NOT NULL,
    boot_ns bigint NOT NULL,
    wall_ns bigint NOT NULL,
    arrival_ns bigint NOT NULL,
    is_synchronised boolean NOT NULL,
    PRIMARY KEY (node_id, boot_id, boot_ns, wall_ns)
);

CREATE INDEX pairings_by_arrival ON pairings (arrival_ns);

-- Records whose own time is implausible, or that of a clock that was not synchronised. `dated_ns` is the
-- time by which they are stored, `own_ns` their own one if it is plausible.
CREATE TABLE undated (
    node_id bigint NOT NULL REFERENCES nodes (id),
    incarnation bigint NOT NULL,
    sequence bigint NOT NULL,
    boot_id bytea NOT NULL,
    arrival_ns bigint NOT NULL,
    measured_boot_ns bigint NOT NULL,
    own_ns bigint,
    dated_ns bigint,
    record bytea NOT NULL,
    PRIMARY KEY (node_id, incarnation, sequence)
);

CREATE INDEX undated_by_boot_time ON undated (node_id, boot_id, measured_boot_ns, incarnation, sequence);
CREATE INDEX undated_by_arrival ON undated (arrival_ns);

-- `body` is the status as JSON, in a text: jsonb cannot contain a string with a NUL character.
CREATE TABLE statuses (
    node_id bigint NOT NULL REFERENCES nodes (id),
    wall_ns bigint NOT NULL,
    incarnation bigint NOT NULL,
    sequence bigint NOT NULL,
    arrival_ns bigint NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (node_id, wall_ns, incarnation, sequence)
);

CREATE INDEX statuses_by_time ON statuses (wall_ns);

-- Bytes that are no record, each kept once. `version` is that of a record of an unknown version, which is
-- stored when this dwell knows it.
CREATE TABLE bad_records (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    node_id bigint NOT NULL REFERENCES nodes (id),
    digest bytea NOT NULL,
    first_arrival_ns bigint NOT NULL,
    last_arrival_ns bigint NOT NULL,
    arrivals bigint NOT NULL,
    version int,
    reason text NOT NULL,
    raw bytea NOT NULL,
    UNIQUE (node_id, digest)
);

CREATE INDEX bad_records_by_version ON bad_records (id) WHERE version IS NOT NULL;
CREATE INDEX bad_records_by_arrival ON bad_records (last_arrival_ns);

CREATE TABLE schedules (
    version bigint PRIMARY KEY,
    applied_ns bigint NOT NULL,
    author text NOT NULL,
    text text NOT NULL
);

-- The part of a node, as JSON in the form that the node reads.
CREATE TABLE node_schedules (
    version bigint NOT NULL REFERENCES schedules (version),
    node text COLLATE "C" NOT NULL,
    json text NOT NULL,
    PRIMARY KEY (version, node)
);

-- Small states of parts of the hub, by kind and key: rules and states of alerts, requests for samples.
CREATE TABLE texts (
    kind text NOT NULL,
    key text NOT NULL,
    text text NOT NULL,
    PRIMARY KEY (kind, key)
);
