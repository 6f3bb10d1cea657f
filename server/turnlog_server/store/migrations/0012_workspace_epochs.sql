CREATE TABLE IF NOT EXISTS workspace_epochs (
  workspace_id TEXT NOT NULL,
  acl_epoch INT8 NOT NULL,
  CONSTRAINT workspace_epochs_pkey PRIMARY KEY (workspace_id)
) WITH (fillfactor = 70)
