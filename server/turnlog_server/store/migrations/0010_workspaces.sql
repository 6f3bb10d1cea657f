CREATE TABLE IF NOT EXISTS workspaces (
  workspace_id TEXT NOT NULL,
  name TEXT NOT NULL,
  max_concurrent_runs INT8 NULL,
  create_time TIMESTAMPTZ NOT NULL DEFAULT now(),
  CONSTRAINT workspaces_pkey PRIMARY KEY (workspace_id)
)
