CREATE INDEX IF NOT EXISTS run_queue_held ON run_queue (runner_id, session_id) WHERE state = 'HELD'
