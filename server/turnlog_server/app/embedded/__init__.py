"""A PostgreSQL of our own: one folder in, one libpq conninfo out, nothing to install or to look after.

What lives where, for a data root `R`:

    R/postgres.lock     flock, one supervisor a folder: the kernel drops it with the process, however that ends
    R/postgres.log      what PostgreSQL says; the former one is kept as postgres.log.1
    R/postgres.path     only when R is out of reach for the user that PostgreSQL runs as: the folder used as H instead
    H/pgdata            the cluster. It appears by one rename, complete, or not at all
    H/socket            the Unix socket, mode 0700 (a short folder in the temporary directory when the path is too long)
    H/binaries-…        a copy of the binaries, only when that user cannot reach the originals

H is R, but for one case. PostgreSQL refuses to run as root, so as root we run it as `postgres`, or else as `nobody`;
below a private home such as /root that user reaches nothing, and opening other people's folders to everyone is not
ours to do. Then H is a fresh folder below /var/lib/turnlog, R/postgres.path names it, and H/data-root points back.
Deleting R therefore leaves H behind: its `data-root` says whose it was.

Every start expects that the one before it was killed: at the worst moment, and possibly with PostgreSQL still running.
"""

from .processes import EmbeddedError
from .running import require_free, running_dsn
from .supervisor import EmbeddedPostgres

__all__ = ["EmbeddedError", "EmbeddedPostgres", "require_free", "running_dsn"]
