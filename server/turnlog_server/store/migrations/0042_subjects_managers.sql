CREATE INDEX IF NOT EXISTS subjects_managers ON subjects (workspace_id, subject_id) WHERE role = 'MANAGER'
