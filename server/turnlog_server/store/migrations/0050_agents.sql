CREATE TABLE IF NOT EXISTS agents (
  agent_id TEXT NOT NULL,
  workspace_id TEXT NOT NULL,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  latest_version_number INT8 NOT NULL,
  create_time INT8 NOT NULL,
  CONSTRAINT agents_pkey PRIMARY KEY (agent_id)
)
