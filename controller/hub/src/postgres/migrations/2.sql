-- What coverage needs of a status, so that a range of 90 days decodes no bodies. `pauses` is a JSON array of
-- [from, to] in nanoseconds since 1970, or NULL without any.
ALTER TABLE statuses
    ADD COLUMN schedule_version bigint NOT NULL DEFAULT 0,
    ADD COLUMN clock_bound_ns bigint,
    ADD COLUMN pauses text;

-- Functions of JSON refuse an escaped NUL character, so it is left out here. A pause began at most 15 days
-- before its status, and ended with it.
WITH bodies AS MATERIALIZED (
    SELECT node_id, wall_ns, incarnation, sequence,
        regexp_replace(body, '(?<!\\)((\\\\)*)\\u0000', '\1', 'g')::json AS body
    FROM statuses
), pauses AS (
    SELECT node_id, wall_ns, incarnation, sequence,
        greatest((pause ->> 'from_wall_ns')::bigint, wall_ns - 1296000000000000) AS from_ns,
        least((pause ->> 'to_wall_ns')::bigint, wall_ns) AS to_ns
    FROM bodies, json_array_elements(coalesce(body -> 'pauses', '[]')) AS pause
    UNION ALL
    SELECT node_id, wall_ns, incarnation, sequence,
        greatest((body #>> '{pause,since_wall_ns}')::bigint, wall_ns - 1296000000000000), wall_ns
    FROM bodies WHERE body #>> '{pause,since_wall_ns}' IS NOT NULL
), spans AS (
    SELECT node_id, wall_ns, incarnation, sequence,
        json_agg(json_build_array(from_ns, to_ns))::text AS pauses
    FROM pauses WHERE from_ns < to_ns GROUP BY node_id, wall_ns, incarnation, sequence
)
UPDATE statuses SET
    schedule_version =
        least(coalesce((bodies.body ->> 'schedule_version')::numeric, 0), 9223372036854775807),
    -- least() ignores NULL.
    clock_bound_ns = CASE WHEN bodies.body ->> 'clock_bound_ns' IS NOT NULL
        THEN least((bodies.body ->> 'clock_bound_ns')::numeric, 9223372036854775807) END,
    pauses = spans.pauses
FROM bodies LEFT JOIN spans USING (node_id, wall_ns, incarnation, sequence)
WHERE statuses.node_id = bodies.node_id AND statuses.wall_ns = bodies.wall_ns
    AND statuses.incarnation = bodies.incarnation AND statuses.sequence = bodies.sequence;

-- Pauses are too long for an index, and few statuses have some.
CREATE INDEX status_history ON statuses (node_id, wall_ns) INCLUDE (schedule_version, clock_bound_ns);
CREATE INDEX status_pauses ON statuses (node_id, wall_ns) WHERE pauses IS NOT NULL;
