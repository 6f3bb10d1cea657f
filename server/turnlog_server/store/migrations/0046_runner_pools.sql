CREATE TABLE IF NOT EXISTS runner_pools (
  workspace_id TEXT NOT NULL,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  create_time INT8 NOT NULL,
  CONSTRAINT runner_pools_pkey PRIMARY KEY (workspace_id, name)
)
