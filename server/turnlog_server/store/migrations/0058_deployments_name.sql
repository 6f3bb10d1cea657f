CREATE UNIQUE INDEX IF NOT EXISTS deployments_name ON deployments (workspace_id, name)
