"""The embedded PostgreSQL that another process runs in a folder."""

import os
from pathlib import Path

from .cluster import Cluster


def running_dsn(data_root: Path) -> str | None:
    """How to connect to it, None where none runs. Nothing is locked: it may be gone a moment later."""
    root = data_root.expanduser().absolute()
    try:
        home = Path((root / "postgres.path").read_text().strip())
    except FileNotFoundError:
        home = root
    try:
        seen = Cluster(home, None).postmaster()
    except PermissionError:
        return None  # another user's: starting it explains that
    return seen.dsn if seen is not None and seen.state == "ready" and _alive(seen.pid) else None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
