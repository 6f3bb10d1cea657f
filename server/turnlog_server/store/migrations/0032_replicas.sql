-- Which processes serve this database. A replica that is alone sends no hints.
CREATE TABLE IF NOT EXISTS replicas (
  replica_id TEXT NOT NULL,
  expires_at TIMESTAMPTZ NOT NULL,
  CONSTRAINT replicas_pkey PRIMARY KEY (replica_id)
)
