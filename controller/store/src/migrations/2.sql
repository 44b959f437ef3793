-- JSON: the text of each lab file named in the plan, by its path there. Null for imports and for
-- runs of version 1, which stored none.
ALTER TABLE runs ADD COLUMN lab_files TEXT;

-- The highest run number of each day: names are not reused, even after a deletion.
CREATE TABLE days (
    -- Such as 20261121.
    day TEXT PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT;

INSERT INTO days (day, last)
SELECT substr(run, 1, 8), max(CAST(substr(run, 10) AS INTEGER)) FROM runs GROUP BY 1;
