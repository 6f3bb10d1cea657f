CREATE UNIQUE INDEX IF NOT EXISTS api_keys_prefix ON api_keys (prefix)
