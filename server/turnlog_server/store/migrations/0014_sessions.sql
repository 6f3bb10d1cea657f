CREATE TABLE IF NOT EXISTS sessions (
  session_id TEXT NOT NULL,
  workspace_id TEXT NOT NULL,
  create_time INT8 NOT NULL,
  labels JSONB NOT NULL,
  facts TEXT NOT NULL,
  CONSTRAINT sessions_pkey PRIMARY KEY (session_id)
)
