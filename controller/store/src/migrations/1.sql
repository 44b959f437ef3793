CREATE TABLE plans (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    title TEXT,
    -- As it was read. Settings of the command line are in runs.settings.
    text TEXT NOT NULL,
    UNIQUE (name, text)
) STRICT;

CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    -- The run's name, such as 20261121-1.
    run TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL CHECK (kind IN ('run', 'import')),
    plan_id INTEGER REFERENCES plans (id),
    name TEXT NOT NULL,
    title TEXT,
    state TEXT NOT NULL CHECK (state IN ('running', 'finished', 'stopped')),
    -- RFC 3339, UTC.
    started TEXT NOT NULL,
    finished TEXT,
    -- JSON: settings of the command line, as PATH=VALUE.
    settings TEXT NOT NULL,
    seed INTEGER NOT NULL,
    -- JSON: the axes of the matrix.
    axes TEXT NOT NULL,
    -- The lab that the runner created for it.
    lab TEXT,
    dwell TEXT NOT NULL
) STRICT;

CREATE TABLE nodes (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    node TEXT NOT NULL,
    dwell TEXT NOT NULL,
    UNIQUE (run_id, node)
) STRICT;

CREATE TABLE trials (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    cell INTEGER NOT NULL,
    repetition INTEGER NOT NULL,
    -- Position in the order of execution, from 1.
    position INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('planned', 'running', 'finished', 'failed')),
    reason TEXT,
    -- JSON: value by axis.
    parameters TEXT NOT NULL,
    started TEXT,
    finished TEXT,
    -- Time of the first sample, in nanoseconds since the epoch.
    first_ns INTEGER,
    -- Rows in the sample file; null if there is none.
    samples INTEGER,
    -- CRC-32 of that file.
    samples_crc32 INTEGER,
    UNIQUE (run_id, number)
) STRICT;
CREATE INDEX trials_by_position ON trials (run_id, position);

CREATE TABLE environments (
    id INTEGER PRIMARY KEY,
    -- JSON, as in a summary.
    environment TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE summaries (
    id INTEGER PRIMARY KEY,
    trial_id INTEGER NOT NULL REFERENCES trials (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('measurement', 'load', 'server', 'witness')),
    node TEXT NOT NULL,
    environment_id INTEGER REFERENCES environments (id),
    -- JSON, dwell.summary/1.
    summary TEXT NOT NULL
) STRICT;
CREATE INDEX summaries_by_trial ON summaries (trial_id);

-- One metric of one trial, for views.
CREATE TABLE series (
    id INTEGER PRIMARY KEY,
    trial_id INTEGER NOT NULL REFERENCES trials (id) ON DELETE CASCADE,
    metric TEXT NOT NULL,
    -- HdrHistogram V2 of all values, three digits; values below zero are in `below`.
    histogram BLOB NOT NULL,
    below BLOB,
    -- JSON: samples to draw.
    points TEXT NOT NULL,
    -- JSON: results of the Hampel filter.
    hampel TEXT,
    UNIQUE (trial_id, metric)
) STRICT;

-- Time bins of a series.
CREATE TABLE bins (
    series_id INTEGER NOT NULL REFERENCES series (id) ON DELETE CASCADE,
    bin INTEGER NOT NULL,
    from_ns INTEGER NOT NULL,
    to_ns INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    min_ns INTEGER,
    max_ns INTEGER,
    -- HdrHistogram V2, two digits; mergeable.
    histogram BLOB NOT NULL,
    PRIMARY KEY (series_id, bin)
) STRICT, WITHOUT ROWID;

CREATE TABLE notes (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    at TEXT NOT NULL,
    note TEXT NOT NULL
) STRICT;
