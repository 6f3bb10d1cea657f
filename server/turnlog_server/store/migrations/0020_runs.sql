CREATE TABLE IF NOT EXISTS runs (
  session_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  trigger_seq INT8 NOT NULL,
  status TEXT NOT NULL,
  run TEXT NOT NULL,
  CONSTRAINT runs_pkey PRIMARY KEY (session_id, run_id)
) WITH (fillfactor = 80)
