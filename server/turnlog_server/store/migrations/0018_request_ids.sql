CREATE TABLE IF NOT EXISTS request_ids (
  scope TEXT NOT NULL,
  caller TEXT NOT NULL,
  method TEXT NOT NULL,
  request_id TEXT NOT NULL,
  fingerprint BYTEA NOT NULL,
  resource_id TEXT NOT NULL,
  seq INT8 NOT NULL,
  event_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  accept_time TIMESTAMPTZ NOT NULL DEFAULT now(),
  CONSTRAINT request_ids_pkey PRIMARY KEY (scope, caller, method, request_id)
)
