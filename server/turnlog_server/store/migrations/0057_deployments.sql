CREATE TABLE IF NOT EXISTS deployments (
  agent_deployment_id TEXT NOT NULL,
  workspace_id TEXT NOT NULL,
  name TEXT NOT NULL,
  current_revision_number INT8 NOT NULL,
  create_time INT8 NOT NULL,
  CONSTRAINT deployments_pkey PRIMARY KEY (agent_deployment_id)
)
