-- CLOCK_REALTIME of the hub when it last stored or removed records, in one row.
CREATE TABLE clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    now_ns INTEGER NOT NULL
) STRICT;

INSERT INTO clock (id, now_ns)
SELECT 1, last_arrival_ns FROM nodes WHERE last_arrival_ns IS NOT NULL
ORDER BY last_arrival_ns DESC LIMIT 1;
