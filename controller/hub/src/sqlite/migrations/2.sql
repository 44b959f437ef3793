-- CLOCK_REALTIME of the hub when it last stored or removed records, in one row.
CREATE TABLE clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    now_ns INTEGER NOT NULL
) STRICT;

INSERT INTO clock (id, now_ns)
SELECT 1, last_arrival_ns FROM nodes WHERE last_arrival_ns IS NOT NULL
ORDER BY last_arrival_ns DESC LIMIT 1;

-- Bytes of the bad records that are kept of a node; each counts as at least 256.
ALTER TABLE nodes ADD COLUMN bad_bytes INTEGER NOT NULL DEFAULT 0;

UPDATE nodes SET bad_bytes =
    (SELECT coalesce(sum(max(length(raw), 256)), 0) FROM bad_records WHERE node_id = nodes.id);

-- Incarnations that began to arrive on a day, which is in days since 1970.
ALTER TABLE nodes ADD COLUMN incarnation_day INTEGER NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN day_incarnations INTEGER NOT NULL DEFAULT 0;

-- Start of the last row of a stream; a stream without rows is removed.
ALTER TABLE streams ADD COLUMN last_ns INTEGER NOT NULL DEFAULT 0;

UPDATE streams SET last_ns = coalesce((SELECT now_ns FROM clock), 0);
