CREATE INDEX IF NOT EXISTS sessions_by_time ON sessions (workspace_id, create_time DESC, session_id DESC)
