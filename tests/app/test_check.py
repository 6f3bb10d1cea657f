"""`turnlog-server check`: each thing that can be wrong is named, with what mends it."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import psycopg
import pytest
from support.embedded import write
from support.server_process import ran, server
from turnlog_server.app.check import clock, disk
from turnlog_server.app.settings import Settings
from turnlog_server.store.database import Database

DEV = ("dev", "--listen", "127.0.0.1:0", "--no-embedded-fsync")
TURNLOG = Path(sys.executable).with_name("turnlog")


async def findings(*arguments: str, cwd: Path, **environment: str) -> tuple[int, dict[str, dict[str, str]]]:
    code, said = await ran("check", "--json", *arguments, cwd=cwd, **environment)
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return code, {line["name"]: line for line in lines}


async def test_nothing_is_wrong(tmp_path: Path, dsn: str) -> None:
    code, found = await findings(cwd=tmp_path, database_url=dsn)
    assert code == 0
    assert list(found) == ["transport", "database", "schema", "clock"]
    assert all(finding["ok"] for finding in found.values())
    code, said = await ran("check", cwd=tmp_path, database_url=dsn)
    assert code == 0
    assert "ok    schema" in said


async def test_a_database_that_cannot_be_reached(tmp_path: Path) -> None:
    code, found = await findings(cwd=tmp_path, database_url="host=/nowhere dbname=x")
    assert code == 1
    assert found["database"]["says"].startswith("cannot be reached: ")
    assert "/nowhere" in found["database"]["says"]
    assert "start postgresql" in found["database"]["mend"]
    assert "`psql 'host=/nowhere dbname=x'`" in found["database"]["mend"]


async def test_why_a_database_cannot_be_reached_tells_no_secret(tmp_path: Path) -> None:
    address = "postgresql://ada:s3cret@127.0.0.1:1/turnlog"
    code, said = await ran("check", cwd=tmp_path, database_url=address)
    assert code == 1
    assert "port 1 failed: Connection refused" in said
    assert "`psql 'host=127.0.0.1 port=1 user=ada dbname=turnlog'`" in said
    assert "s3cret" not in said
    code, said = await ran("check", "--replay", cwd=tmp_path, database_url=address)
    assert code == 1
    # The line of the log that has the reason.
    assert said.startswith("the database cannot be reached\n")


async def test_a_database_that_is_not_there_on_a_server_that_is(tmp_path: Path, dsn: str) -> None:
    code, found = await findings(cwd=tmp_path, database_url=f"{dsn} dbname=nowhere")
    assert code == 1
    assert 'database "nowhere" does not exist' in found["database"]["says"]
    assert found["database"]["mend"].startswith("it is there and refuses")


async def test_a_schema_that_is_behind(tmp_path: Path, empty_dsn: str) -> None:
    code, found = await findings(cwd=tmp_path, database_url=empty_dsn)
    assert code == 1
    assert found["schema"]["mend"] == "turnlog-server migrate"
    assert (await ran("migrate", cwd=tmp_path, database_url=empty_dsn))[0] == 0
    assert (await findings(cwd=tmp_path, database_url=empty_dsn))[0] == 0


async def test_a_schema_that_is_ahead(tmp_path: Path, dsn: str) -> None:
    write(dsn, "INSERT INTO schema_steps (number, name, breaking, applied_at) VALUES (9999, 'x', true, now())")
    code, found = await findings(cwd=tmp_path, database_url=dsn)
    assert code == 1
    assert found["schema"]["mend"] == "install the newer release"


async def test_plaintext_that_others_could_read(tmp_path: Path, dsn: str) -> None:
    code, found = await findings("--listen", "0.0.0.0:7777", cwd=tmp_path, database_url=dsn)
    assert code == 1
    assert "--insecure" in found["transport"]["mend"]


async def test_a_clock_that_is_off(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await clock(database)).ok
    monkeypatch.setattr("turnlog_server.app.check.time.time", lambda real=time.time: real() + 40)
    finding = await clock(database)
    assert not finding.ok
    assert finding.says == "40.0 s ahead of the database's"


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(data_dir=tmp_path)
    assert disk(settings).ok
    monkeypatch.setattr("turnlog_server.app.check.DISK_BYTES", 1 << 60)
    assert "free space" in disk(settings).mend


async def test_a_folder_that_is_not_there_is_left_alone(tmp_path: Path) -> None:
    code, found = await findings(cwd=tmp_path)
    assert code == 0
    assert "is not there yet" in found["folder"]["says"]
    assert not await asyncio.to_thread(os.listdir, tmp_path)


async def turnlog(*arguments: str, cwd: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        str(TURNLOG),
        *arguments,
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


@pytest.mark.rule("R1", "R32", "R33", "R175")
async def test_what_was_said_survives_a_kill_and_replays(ground: Path) -> None:
    async with server(*DEV, "--with-runner", cwd=ground) as dev:
        await dev.ready()
        assert "hello" in await turnlog("session", "chat", "--new", "hello", cwd=ground)
        code, found = await findings(cwd=ground)
        assert code == 0
        assert "PostgreSQL runs" in found["folder"]["says"]
        await dev.kill()
    code, said = await ran("check", "--replay", cwd=ground)
    assert code == 0, said
    assert said.startswith("1 Sessions, ")
    assert said.endswith(" 0 differences")
    async with server(*DEV, cwd=ground) as dev:
        await dev.ready()
        dsn = f"host={ground}/.turnlog/socket port=5432 dbname=turnlog user=turnlog"
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("UPDATE session_states SET status = 'running'")
            connection.execute("DELETE FROM events WHERE seq = 5")
        code, said = await ran("check", "--replay", "--json", cwd=ground)
        assert code == 1
        named = {json.loads(line)["guarantee"] for line in said.splitlines() if line.startswith("{")}
        assert {"Gapless", "OneCommit"} <= named
