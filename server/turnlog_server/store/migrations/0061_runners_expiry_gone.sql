-- `runners_live` has taken its place.
DROP INDEX IF EXISTS runners_expiry
