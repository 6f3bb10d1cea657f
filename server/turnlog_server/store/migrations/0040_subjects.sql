-- Principals and service accounts: whom a key speaks for, with the one role in the workspace; '' is none.
CREATE TABLE IF NOT EXISTS subjects (
  subject_id TEXT NOT NULL,
  workspace_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  display_name TEXT NOT NULL,
  role TEXT NOT NULL,
  create_time INT8 NOT NULL,
  CONSTRAINT subjects_pkey PRIMARY KEY (subject_id),
  CONSTRAINT subjects_kind CHECK (kind IN ('PRINCIPAL', 'SERVICE_ACCOUNT')),
  CONSTRAINT subjects_role CHECK (role IN ('', 'VIEWER', 'CONTRIBUTOR', 'PUBLISHER', 'MANAGER', 'RUNNER'))
)
