CREATE TABLE IF NOT EXISTS run_queue (
  session_id TEXT NOT NULL,
  workspace_id TEXT NOT NULL,
  pool TEXT NOT NULL,
  harness_profile_id TEXT NOT NULL,
  shard INT8 NOT NULL,
  run_id TEXT NOT NULL,
  attempt_no INT8 NOT NULL,
  state TEXT NOT NULL,
  ready_at TIMESTAMPTZ NOT NULL DEFAULT now(),
  runner_id TEXT NOT NULL DEFAULT '',
  runner_epoch INT8 NOT NULL DEFAULT 0,
  offered_until TIMESTAMPTZ NULL,
  CONSTRAINT run_queue_pkey PRIMARY KEY (session_id),
  CONSTRAINT run_queue_state CHECK (state IN ('READY', 'HELD', 'GONE'))
) WITH (fillfactor = 70)
