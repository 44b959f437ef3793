-- JSON: what a later process needs to find the nodes of a run, or to remove what a dead runner left.
-- Null for imports.
ALTER TABLE runs RENAME COLUMN lab TO fleet;
UPDATE runs SET fleet = json_object('lab', fleet) WHERE fleet IS NOT NULL;
-- Runs whose runner was killed before it named its lab.
UPDATE runs SET fleet = json_object('lab', 'run-' || lower(hex(randomblob(4))))
WHERE fleet IS NULL AND kind = 'run';

-- Name of the clock domain: nodes with equal names have the same CLOCK_REALTIME. All runs so far used
-- labs, whose nodes have the controller's clock.
ALTER TABLE nodes ADD COLUMN clock TEXT;
UPDATE nodes SET clock = 'controller';
