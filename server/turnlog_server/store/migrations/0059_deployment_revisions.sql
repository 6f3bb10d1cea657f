CREATE TABLE IF NOT EXISTS deployment_revisions (
  agent_deployment_id TEXT NOT NULL,
  revision_number INT8 NOT NULL,
  workspace_id TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  agent_version_number INT8 NOT NULL,
  harness_profile_id TEXT NOT NULL,
  sandbox_profile_id TEXT NOT NULL,
  runner_pool TEXT NOT NULL,
  model_route TEXT NOT NULL,
  create_time INT8 NOT NULL,
  CONSTRAINT deployment_revisions_pkey PRIMARY KEY (agent_deployment_id, revision_number),
  CONSTRAINT deployment_revisions_number CHECK (revision_number > 0)
)
