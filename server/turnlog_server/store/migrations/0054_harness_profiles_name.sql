CREATE UNIQUE INDEX IF NOT EXISTS harness_profiles_name ON harness_profiles (workspace_id, name)
