CREATE TABLE IF NOT EXISTS session_states (
  session_id TEXT NOT NULL,
  status TEXT NOT NULL,
  state TEXT NOT NULL,
  CONSTRAINT session_states_pkey PRIMARY KEY (session_id)
) WITH (fillfactor = 70)
