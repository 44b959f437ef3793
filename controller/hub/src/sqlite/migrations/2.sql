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

-- Whether a daemon had declared CLOCK_REALTIME synchronised.
ALTER TABLE pairings ADD COLUMN is_synchronised INTEGER NOT NULL DEFAULT 0;

-- Measured time on CLOCK_BOOTTIME, and the record's own one on CLOCK_REALTIME if it is plausible.
ALTER TABLE undated ADD COLUMN measured_boot_ns INTEGER;
ALTER TABLE undated ADD COLUMN own_ns INTEGER;

DROP INDEX undated_by_boot;
CREATE INDEX undated_by_boot_time ON undated (node_id, boot_id, measured_boot_ns, incarnation, sequence);

-- Bytes of the records of a node in `undated`.
ALTER TABLE nodes ADD COLUMN undated_bytes INTEGER NOT NULL DEFAULT 0;

UPDATE nodes SET undated_bytes =
    (SELECT coalesce(sum(length(record)), 0) FROM undated WHERE node_id = nodes.id);
