CREATE UNIQUE INDEX IF NOT EXISTS agents_name ON agents (workspace_id, name)
