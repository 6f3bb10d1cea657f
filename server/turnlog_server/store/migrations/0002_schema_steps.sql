-- Which steps of this folder the database has seen. breaking: servers that do not know the step must not serve.
CREATE TABLE IF NOT EXISTS schema_steps (
    number INT8 NOT NULL,
    name TEXT NOT NULL,
    breaking BOOL NOT NULL,
    applied_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT schema_steps_pkey PRIMARY KEY (number)
)
