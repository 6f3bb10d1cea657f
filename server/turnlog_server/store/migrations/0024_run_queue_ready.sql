CREATE INDEX IF NOT EXISTS run_queue_ready ON run_queue (workspace_id, pool, harness_profile_id, shard, ready_at, session_id) WHERE state = 'READY'
