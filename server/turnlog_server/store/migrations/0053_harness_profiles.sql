CREATE TABLE IF NOT EXISTS harness_profiles (
  harness_profile_id TEXT NOT NULL,
  workspace_id TEXT NOT NULL,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  create_time INT8 NOT NULL,
  CONSTRAINT harness_profiles_pkey PRIMARY KEY (harness_profile_id)
)
