CREATE TABLE IF NOT EXISTS events (
  session_id TEXT NOT NULL,
  seq INT8 NOT NULL,
  type TEXT NOT NULL,
  body BYTEA NOT NULL,
  CONSTRAINT events_pkey PRIMARY KEY (session_id, seq),
  CONSTRAINT events_seq CHECK (seq > 0),
  CONSTRAINT events_body CHECK (length(body) <= 270336)
)
