CREATE UNIQUE INDEX IF NOT EXISTS workspaces_name ON workspaces (name)
