CREATE INDEX IF NOT EXISTS request_ids_by_time ON request_ids (accept_time)
