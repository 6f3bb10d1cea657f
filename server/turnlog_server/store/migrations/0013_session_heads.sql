CREATE TABLE IF NOT EXISTS session_heads (
  session_id TEXT NOT NULL,
  head_seq INT8 NOT NULL,
  CONSTRAINT session_heads_pkey PRIMARY KEY (session_id)
) WITH (fillfactor = 70)
