CREATE INDEX IF NOT EXISTS run_queue_slots ON run_queue (workspace_id, session_id) WHERE state <> 'GONE' AND runner_id <> ''
