CREATE INDEX IF NOT EXISTS subjects_by_time ON subjects (workspace_id, kind, create_time DESC, subject_id DESC)
