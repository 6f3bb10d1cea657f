CREATE UNIQUE INDEX IF NOT EXISTS sandbox_profiles_name ON sandbox_profiles (workspace_id, name)
