-- Of a trial whose state is 'failed': it was not run at all, because what it asks for is not to be had
-- on its node. That is no failure of the run.
ALTER TABLE trials ADD COLUMN not_run INTEGER NOT NULL DEFAULT 0;
