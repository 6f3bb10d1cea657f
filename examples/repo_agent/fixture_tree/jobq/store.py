"""SQLite: the schema, and the one connection."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
  job_id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  payload TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'waiting',
  attempts INTEGER NOT NULL DEFAULT 0,
  due REAL NOT NULL,
  token TEXT,
  lease_until REAL,
  last_error TEXT
);
CREATE INDEX IF NOT EXISTS jobs_due ON jobs (state, due);
"""


class Store:
    """Holds the file. Threads may share it: one transaction at a time."""

    def __init__(self, path: str) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=10.0, check_same_thread=False)
        self._lock = threading.Lock()
        self.connection.row_factory = sqlite3.Row
        # Readers do not block the writer, and a crash loses nothing that was committed.
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.executescript(SCHEMA)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Takes the write lock at once, so that two claims never see the same job."""
        with self._lock:
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")

    def close(self) -> None:
        """Closes the file."""
        self.connection.close()
