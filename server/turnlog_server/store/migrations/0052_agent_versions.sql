-- content is JSON text, so that every character of the instructions can be kept; content_bytes is its size in UTF-8.
CREATE TABLE IF NOT EXISTS agent_versions (
  agent_id TEXT NOT NULL,
  version_number INT8 NOT NULL,
  workspace_id TEXT NOT NULL,
  content TEXT NOT NULL,
  content_bytes INT8 NOT NULL,
  create_time INT8 NOT NULL,
  CONSTRAINT agent_versions_pkey PRIMARY KEY (agent_id, version_number),
  CONSTRAINT agent_versions_number CHECK (version_number > 0)
)
