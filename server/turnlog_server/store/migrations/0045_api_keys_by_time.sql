CREATE INDEX IF NOT EXISTS api_keys_by_time ON api_keys (workspace_id, create_time DESC, api_key_id DESC)
