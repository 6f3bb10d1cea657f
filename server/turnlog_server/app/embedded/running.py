"""The embedded PostgreSQL that another process runs in a folder."""

import os
from pathlib import Path

from .cluster import Cluster
from .place import folder_lock
from .processes import EmbeddedError


def running_dsn(data_root: Path) -> str | None:
    """How to connect to it, None where none runs. Nothing is locked: it may be gone a moment later."""
    root = data_root.expanduser().absolute()
    try:
        home = Path((root / "postgres.path").read_text().strip())
    except (FileNotFoundError, NotADirectoryError):
        home = root
    try:
        seen = Cluster(home, None).postmaster()
    except (PermissionError, NotADirectoryError):
        return None  # another user's, or no folder at all: starting it explains that
    return seen.dsn if seen is not None and seen.state == "ready" and _alive(seen.pid) else None


def require_free(data_root: Path) -> None:
    """Raises EmbeddedError, which names the process, where a server works in the folder. Nothing stays locked."""
    root = data_root.expanduser().absolute()
    try:
        if (root / "postgres.lock").exists():
            os.close(folder_lock(root, root))
    except EmbeddedError:
        raise
    except OSError:
        return  # starting it explains that


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
