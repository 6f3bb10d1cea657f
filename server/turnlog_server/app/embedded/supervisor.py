"""Start PostgreSQL in a folder, know when it is ready and when it has died, stop it."""

import asyncio
import errno
import os
from collections.abc import Mapping
from pathlib import Path

from .binaries import Binaries, binaries_find
from .cluster import Cluster, Postmaster
from .place import Place
from .processes import Child, EmbeddedError, spawn

_POLL = 0.01


class EmbeddedPostgres:
    """A running PostgreSQL that belongs to this process.

    dsn: libpq conninfo, by Unix socket; the same after a restart in the same folder.
    log: where PostgreSQL writes what it has to say.
    data: its data folder.
    """

    def __init__(self, place: Place, cluster: Cluster, binaries: Binaries, child: Child, ready: Postmaster) -> None:
        self.dsn = ready.dsn
        self.log = place.log
        self.data = cluster.folder
        self.binaries = binaries.folder
        self.version = binaries.version
        self.pid = child.pid
        self._place = place
        self._child = child
        self._socket = Path(ready.socket)
        self._stopping = asyncio.Lock()
        self._wanted = True
        self._released = False

    @classmethod
    async def start(
        cls,
        data_root: Path,
        *,
        binaries: Path | None = None,
        fsync: bool = True,
        settings: Mapping[str, str] = {},
    ) -> "EmbeddedPostgres":
        """PostgreSQL on this folder, ready for connections; made new where there is none.

        Waits as long as recovery takes; when cancelled, nothing stays behind. `settings` override ours. Without
        `fsync` a power cut loses data: for tests.
        """
        if os.name != "posix":
            raise EmbeddedError(
                "The embedded PostgreSQL runs on Linux and macOS: give a running server by --database-url."
            )
        try:
            place = await Place.claim(data_root)
            try:
                return await cls._start(place, binaries, fsync, settings)
            except BaseException:
                place.release()
                raise
        except OSError as error:
            raise EmbeddedError(_explained(error, data_root)) from error

    @classmethod
    async def _start(
        cls, place: Place, asked: Path | None, fsync: bool, settings: Mapping[str, str]
    ) -> "EmbeddedPostgres":
        binaries = await binaries_find(asked, place.account, place.home)
        cluster = Cluster(place.home, place.account)
        await cluster.prepare(binaries, fsync=fsync)
        # Only now is nobody left who could still listen in it.
        socket = await place.socket_folder()
        argv = [str(binaries.folder / "postgres"), *cluster.arguments(socket, settings, fsync=fsync)]
        with place.log_open() as log:
            offset = log.seek(0, os.SEEK_END)
            child = spawn(argv, place.account, stdin=None, output=log)
        try:
            ready = await _ready(cluster, child, place, offset)
        except BaseException:
            await child.shut_down()
            raise
        return cls(place, cluster, binaries, child, ready)

    async def stop(self) -> None:
        """Fast shutdown, and the folder is free again. Needed after it died by itself, too, before the next start."""
        self._wanted = False
        async with self._stopping:
            if self._released:
                return
            await self._child.shut_down()
            self._place.socket_remove(self._socket)
            self._place.release()
            self._released = True

    async def exited(self) -> int:
        """The exit code (negative for a signal), once PostgreSQL has died without being asked.

        After `stop` there is nothing to tell: it waits until it is cancelled.
        """
        code = await self._child.wait()
        if not self._wanted or code is None:
            await asyncio.get_running_loop().create_future()
        return code or 0


async def _ready(cluster: Cluster, child: Child, place: Place, offset: int) -> Postmaster:
    """Its pid in the file is ours, and its eighth line says so: an answer on the socket could be somebody else's."""
    while child.running:
        seen = cluster.postmaster()
        if seen is not None and seen.pid == child.pid and seen.state == "ready":
            return seen
        await child.wait(_POLL)
    code = await child.wait()
    said = place.log_since(offset)
    causes = [line for line in said.splitlines() if "FATAL:" in line or "PANIC:" in line]
    cause = causes[-1].split(":  ", 1)[-1] if causes else "it gave no reason"
    raise EmbeddedError(
        f"PostgreSQL ended with {code} while it started: {cause}. "
        f"Mend that and start again; its log, {place.log}, ends with:\n{said}"
    )


def _explained(error: OSError, data_root: Path) -> str:
    what = f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror or error)
    advice = {
        errno.ENOSPC: "free space on that disk",
        errno.EDQUOT: "free space on that disk",
        errno.EROFS: "choose a data folder on a disk that can be written",
        errno.EACCES: "let this user write there, or choose another data folder",
        errno.EPERM: "let this user write there, or choose another data folder",
        errno.ENOLCK: "choose a data folder on a local disk: this file system has no locks",
        errno.ENOTSUP: "choose a data folder on a local disk: this file system has no locks",
    }.get(error.errno or 0, "mend that, or choose another data folder")
    return f"The embedded PostgreSQL cannot use the data folder {data_root} ({what}): {advice}, then start again."
