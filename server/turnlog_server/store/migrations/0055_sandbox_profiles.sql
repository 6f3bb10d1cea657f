CREATE TABLE IF NOT EXISTS sandbox_profiles (
  sandbox_profile_id TEXT NOT NULL,
  workspace_id TEXT NOT NULL,
  name TEXT NOT NULL,
  max_duration_seconds INT8 NOT NULL,
  create_time INT8 NOT NULL,
  CONSTRAINT sandbox_profiles_pkey PRIMARY KEY (sandbox_profile_id)
)
