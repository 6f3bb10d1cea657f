CREATE INDEX IF NOT EXISTS runs_by_seq ON runs (session_id, trigger_seq)
