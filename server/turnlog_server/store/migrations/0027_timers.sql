CREATE TABLE IF NOT EXISTS timers (
  session_id TEXT NOT NULL,
  shard INT8 NOT NULL,
  due_at INT8 NOT NULL,
  CONSTRAINT timers_pkey PRIMARY KEY (session_id)
) WITH (fillfactor = 70)
