-- Runners that were declared lost, or said goodbye, have no instance and are not looked at again.
CREATE INDEX IF NOT EXISTS runners_expiry ON runners (lease_expires_at) WHERE instance <> ''
