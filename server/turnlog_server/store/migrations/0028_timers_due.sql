CREATE INDEX IF NOT EXISTS timers_due ON timers (shard, due_at, session_id) WHERE due_at > 0
