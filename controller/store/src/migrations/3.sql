-- 1 for a trial in state 'failed' that was not run because its node does not support it. Such a
-- trial is not a failure of the run.
ALTER TABLE trials ADD COLUMN not_run INTEGER NOT NULL DEFAULT 0;
