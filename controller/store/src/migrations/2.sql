-- JSON: the text of each lab file that the plan names, by its path there. Null for imports, and for
-- runs of version 1, which kept none.
ALTER TABLE runs ADD COLUMN lab_files TEXT;

-- The highest number that a run of a day ever had: no name is given twice, also after a deletion.
CREATE TABLE days (
    -- Such as 20261121.
    day TEXT PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT;

INSERT INTO days (day, last)
SELECT substr(run, 1, 8), max(CAST(substr(run, 10) AS INTEGER)) FROM runs GROUP BY 1;
