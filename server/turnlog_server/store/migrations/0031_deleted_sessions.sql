-- Sessions that are gone for everyone and whose rows still have to be swept.
CREATE TABLE IF NOT EXISTS deleted_sessions (
  session_id TEXT NOT NULL,
  delete_time TIMESTAMPTZ NOT NULL DEFAULT now(),
  CONSTRAINT deleted_sessions_pkey PRIMARY KEY (session_id)
)
