-- prefix is public, to find a key by; digest is the SHA-256 of the whole secret. Times are microseconds, 0 for none.
CREATE TABLE IF NOT EXISTS api_keys (
  api_key_id TEXT NOT NULL,
  workspace_id TEXT NOT NULL,
  subject_id TEXT NOT NULL,
  display_name TEXT NOT NULL,
  prefix TEXT NOT NULL,
  digest BYTEA NOT NULL,
  runner_pools JSONB NOT NULL,
  create_time INT8 NOT NULL,
  expire_time INT8 NOT NULL,
  revoke_time INT8 NOT NULL,
  rotated_from TEXT NOT NULL,
  CONSTRAINT api_keys_pkey PRIMARY KEY (api_key_id),
  CONSTRAINT api_keys_digest CHECK (length(digest) = 32)
)
