-- Devices that the user reaches by SSH.
CREATE TABLE devices (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    -- RFC 3339, UTC.
    added TEXT NOT NULL,
    -- JSON: how the user describes the device.
    description TEXT NOT NULL
) STRICT;

-- Checks of devices, in order. A check has an answer or an error.
CREATE TABLE device_checks (
    id INTEGER PRIMARY KEY,
    device_id INTEGER NOT NULL REFERENCES devices (id) ON DELETE CASCADE,
    -- RFC 3339, UTC.
    at TEXT NOT NULL,
    -- Machine type and kernel release, as by uname(1), and the build of the node that answered.
    arch TEXT,
    kernel TEXT,
    build TEXT,
    -- JSON: the whole answer, with dwell.doctor/1.
    answer TEXT,
    error TEXT,
    CHECK ((answer IS NULL) <> (error IS NULL))
) STRICT;
CREATE INDEX device_checks_by_device ON device_checks (device_id, id);

-- Devices in use by a run. A lease is valid while its process holds runner.lock.
CREATE TABLE leases (
    device_id INTEGER PRIMARY KEY REFERENCES devices (id) ON DELETE CASCADE,
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    -- USER@HOST.
    owner TEXT NOT NULL,
    -- RFC 3339, UTC.
    since TEXT NOT NULL,
    -- Process of the runner.
    pid INTEGER NOT NULL
) STRICT;
CREATE INDEX leases_by_run ON leases (run_id);

-- Who started the run, as USER@HOST. Null for runs of earlier versions.
ALTER TABLE runs ADD COLUMN owner TEXT;

-- The device that a node of a plan was bound to, its destination at that time, the SHA-256 of the
-- node's program, and the machine type. Null for nodes of labs. A device that was removed and added again is
-- another device, so device_id becomes null on removal; the name stays.
ALTER TABLE nodes ADD COLUMN device TEXT;
ALTER TABLE nodes ADD COLUMN device_id INTEGER REFERENCES devices (id) ON DELETE SET NULL;
ALTER TABLE nodes ADD COLUMN destination TEXT;
ALTER TABLE nodes ADD COLUMN program_sha256 TEXT;
ALTER TABLE nodes ADD COLUMN arch TEXT;
CREATE INDEX nodes_by_device ON nodes (device_id);
