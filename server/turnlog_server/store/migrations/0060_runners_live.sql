-- Without the time of the lease: a column in an index makes each heartbeat write to all indexes of the table. Who is
-- lost is found by looking at all who are not, and those are no more than there are runners at work.
CREATE INDEX IF NOT EXISTS runners_live ON runners (workspace_id, runner_id) WHERE instance <> ''
