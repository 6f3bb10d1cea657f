"""The data folder: made in one step, recognised, described while it runs."""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .binaries import Binaries
from .processes import Account, EmbeddedError, initdb_into, kill, postgres_in, run, stop_orphan

USER = DATABASE = "turnlog"

_SETTINGS = {
    "cluster_name": "turnlog",
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    # An acknowledged event is on the disk: these two are what "durable" means here.
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "128MB",
    "effective_cache_size": "512MB",
    "maintenance_work_mem": "64MB",
    "max_wal_size": "1GB",
    # Short statements by key: planning for parallel workers or a compiler costs more than it brings, and workers need
    # more /dev/shm than containers give.
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    # Conflicts are answered by the server; a log of them would be long and would hold what users wrote.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}
# fsync on macOS stops at the drive's cache, unless told to go through.
_DARWIN = {"wal_sync_method": "fsync_writethrough"}
_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


@dataclass(frozen=True, slots=True)
class Postmaster:
    """What a running PostgreSQL says of itself in postmaster.pid."""

    pid: int
    port: str
    socket: str
    state: str

    @property
    def dsn(self) -> str:
        """libpq conninfo, by Unix socket."""
        return f"host={_quoted(self.socket)} port={self.port} dbname={DATABASE} user={USER}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """One data folder, `home/pgdata`."""

    home: Path
    account: Account | None

    @property
    def folder(self) -> Path:
        return self.home / "pgdata"

    async def prepare(self, binaries: Binaries, *, fsync: bool) -> None:
        """Bring the folder to where `postgres` can start in it, whatever the start before this one left behind."""
        await self._remove_unfinished()
        if not self._exists():
            await self._create(binaries, fsync)
            return
        self._check_version(binaries)
        await self._stop_former()

    def arguments(self, socket: Path, settings: Mapping[str, str], *, fsync: bool) -> list[str]:
        chosen = _SETTINGS | (_DARWIN if sys.platform == "darwin" else {}) | ({} if fsync else _NOT_DURABLE)
        chosen |= {"unix_socket_directories": '"' + str(socket).replace('"', '""') + '"'} | dict(settings)
        return ["-D", str(self.folder), *(part for name, value in chosen.items() for part in ("-c", f"{name}={value}"))]

    def postmaster(self) -> Postmaster | None:
        """None while there is none, or while it has not yet written all of its eight lines."""
        try:
            lines = (self.folder / "postmaster.pid").read_text().splitlines()
            return Postmaster(abs(int(lines[0])), lines[3].strip(), lines[4].strip(), lines[7].strip())
        except (FileNotFoundError, IndexError, ValueError):
            return None

    def _exists(self) -> bool:
        if not self.folder.exists():
            return False
        if not any(self.folder.iterdir()):
            self.folder.rmdir()
            return False
        if (self.folder / "PG_VERSION").is_file():
            return True
        raise EmbeddedError(
            f"{self.folder} is not a PostgreSQL data folder: it has no PG_VERSION. "
            "Move it away to start empty, or put its backup in its place."
        )

    def _check_version(self, binaries: Binaries) -> None:
        written = (self.folder / "PG_VERSION").read_text().strip()
        if written != str(binaries.major):
            raise EmbeddedError(
                f"{self.folder} was written by PostgreSQL {written}, and the programs in {binaries.folder} are "
                f"{binaries.version}. Start with --postgres-bin of a PostgreSQL {written} (then pg_dump, and restore "
                f"into a new data folder), or run it elsewhere and point --database-url at it."
            )

    async def _create(self, binaries: Binaries, fsync: bool) -> None:
        """Beside its place, then one rename: a kill in the middle leaves a folder that the next start throws away."""
        fresh = self._fresh()
        try:
            options = ["-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--data-checksums", "--no-instructions"]
            if binaries.major >= 17:
                options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
            if not fsync:
                options += ["--no-sync"]
            await self._tool([str(binaries.folder / "initdb"), "-D", str(fresh), *options])
            # In single-user mode, so that the database is there before anybody can see the cluster.
            options = ["-c", f"fsync={'on' if fsync else 'off'}", "postgres"]
            await self._tool(
                [str(binaries.folder / "postgres"), "--single", "-D", str(fresh), *options],
                stdin=f"CREATE DATABASE {DATABASE};\n",
            )
            fresh.rename(self.folder)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        if fsync:
            _sync(self.home)

    async def _tool(self, argv: list[str], *, stdin: str = "") -> None:
        code, said = await run(argv, self.account, stdin=stdin.encode())
        wrong = [line for line in said.splitlines() if "error:" in line or "ERROR:" in line or "FATAL:" in line]
        # Single-user mode reports a failed statement in words only.
        if code != 0 or wrong:
            why = " ".join(wrong) or said[-500:] or "no reason given"
            raise EmbeddedError(
                f"A new database could not be made in {self.home}: {Path(argv[0]).name} ended with {code}: {why}. "
                "Nothing is left of the attempt: mend that and start again."
            )

    def _fresh(self) -> Path:
        # initdb itself sets the mode that it wants, 0700, on a folder that exists; mkdtemp's is the same.
        fresh = Path(tempfile.mkdtemp(prefix="pgdata-new-", dir=self.home))
        if self.account is not None:
            self.account.give(fresh)
        return fresh

    async def _remove_unfinished(self) -> None:
        for path in _unfinished(self.home):
            # A killed supervisor's initdb may still be at work, and would fill again what we empty.
            while processes := initdb_into(path):
                await kill(processes)
            shutil.rmtree(path)

    async def _stop_former(self) -> None:
        pid_file = self.folder / "postmaster.pid"
        former = _first_number(pid_file)
        if former is None:
            return
        await stop_orphan(self.folder, former)
        # Nobody works here any more, so the number has gone to a stranger (a container restarts its count). PostgreSQL
        # would take the stranger for its own kind and refuse; a number that nobody has it clears by itself, with care.
        if pid_file.exists() and not postgres_in(self.folder) and _is_taken(former):
            pid_file.unlink()


def _unfinished(home: Path) -> list[Path]:
    return [*home.glob("pgdata-new-*"), *home.glob("binaries-new-*")]


def _first_number(path: Path) -> int | None:
    try:
        return abs(int(path.read_text().split("\n", 1)[0]))
    except FileNotFoundError:
        return None
    except ValueError:
        return 0  # killed between creating and filling it


def _is_taken(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
