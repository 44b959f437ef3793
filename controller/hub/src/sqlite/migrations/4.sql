-- Figures of the last hour and the last 24 h of each stream, as JSON. Computed when a row of 5 min arrives.
CREATE TABLE windows (
    window TEXT NOT NULL,
    stream_id INTEGER NOT NULL REFERENCES streams (id) ON DELETE CASCADE,
    figures TEXT NOT NULL,
    PRIMARY KEY (window, stream_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX windows_by_stream ON windows (stream_id);

-- What coverage needs of a status, so that a range of 90 days decodes no bodies. `pauses` is a JSON array of
-- [from, to] in nanoseconds since 1970, or NULL without any.
ALTER TABLE statuses ADD COLUMN schedule_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE statuses ADD COLUMN clock_bound_ns INTEGER;
ALTER TABLE statuses ADD COLUMN pauses TEXT;

UPDATE statuses SET
    schedule_version = coalesce(body ->> '$.schedule_version', 0),
    clock_bound_ns = body ->> '$.clock_bound_ns';

UPDATE statuses SET pauses = (
    SELECT json_group_array(json(span)) FROM (
        SELECT json_array(value ->> '$.from_wall_ns', value ->> '$.to_wall_ns') AS span
        FROM json_each(statuses.body, '$.pauses')
        UNION ALL
        SELECT json_array(statuses.body ->> '$.pause.since_wall_ns', statuses.wall_ns)
        WHERE statuses.body ->> '$.pause' IS NOT NULL
    )
) WHERE body ->> '$.pause' IS NOT NULL OR json_array_length(body, '$.pauses') > 0;

CREATE INDEX status_history ON statuses (node_id, wall_ns, schedule_version, clock_bound_ns, pauses);
