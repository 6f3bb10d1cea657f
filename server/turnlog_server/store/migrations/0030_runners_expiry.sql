CREATE INDEX IF NOT EXISTS runners_expiry ON runners (lease_expires_at)
