CREATE TABLE IF NOT EXISTS run_attempts (
  session_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  attempt_no INT8 NOT NULL,
  attempt TEXT NOT NULL,
  CONSTRAINT run_attempts_pkey PRIMARY KEY (session_id, run_id, attempt_no)
) WITH (fillfactor = 80)
