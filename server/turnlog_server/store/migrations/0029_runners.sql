CREATE TABLE IF NOT EXISTS runners (
  workspace_id TEXT NOT NULL,
  runner_id TEXT NOT NULL,
  instance TEXT NOT NULL,
  epoch INT8 NOT NULL,
  lease_expires_at TIMESTAMPTZ NOT NULL,
  draining BOOL NOT NULL,
  hello TEXT NOT NULL,
  create_time TIMESTAMPTZ NOT NULL DEFAULT now(),
  CONSTRAINT runners_pkey PRIMARY KEY (workspace_id, runner_id)
) WITH (fillfactor = 70)
