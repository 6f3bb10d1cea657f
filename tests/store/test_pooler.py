"""Behind a pooler: in session mode like without one, in transaction mode not at all."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from turnlog_server.store.database import Database
from turnlog_server.store.errors import StoreSetupError
from turnlog_server.store.migrate import migrate

pytestmark = [pytest.mark.system("pgbouncer"), pytest.mark.only_on("postgresql", reason="PgBouncer serves PostgreSQL")]

CONFIG = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
unix_socket_dir = {folder}
listen_port = 6432
auth_type = any
pool_mode = {mode}
server_round_robin = {round_robin}
default_pool_size = 8
ignore_startup_parameters = {ignored}
logfile = {folder}/log
pidfile = {folder}/pid
"""


@contextmanager
def pgbouncer(dsn: str, mode: str, *, round_robin: int = 0, ignored: str = "extra_float_digits") -> Iterator[str]:
    """PgBouncer before a database; yields the way through it."""
    given = conninfo_to_dict(dsn)
    folder = Path(tempfile.mkdtemp(prefix="tlb-", dir="/tmp"))
    values = {**given, "folder": folder, "mode": mode}
    (folder / "ini").write_text(CONFIG.format(**values, round_robin=round_robin, ignored=ignored))
    user = None
    if os.geteuid() == 0:  # which it refuses to run as
        user = "postgres"
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    process = subprocess.Popen([shutil.which("pgbouncer") or "", "-q", str(folder / "ini")], user=user)
    through = make_conninfo(dsn, host=str(folder), port=6432)
    try:
        _wait_until_it_answers(process, through)
        yield through
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_it_answers(process: subprocess.Popen[bytes], through: str) -> None:
    until = time.monotonic() + 20
    while True:
        try:
            psycopg.connect(through).close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


@pytest.mark.case(72)
@pytest.mark.parametrize("mode", ["transaction", "statement"])
@pytest.mark.parametrize("round_robin", [0, 1])
async def test_a_pooler_that_mixes_sessions_is_refused(empty_dsn, mode, round_robin):
    with pgbouncer(empty_dsn, mode, round_robin=round_robin) as through:
        with pytest.raises(StoreSetupError, match="session mode"):
            await Database.open(through)
        with pytest.raises(StoreSetupError, match="session mode"):
            await migrate(through)


@pytest.mark.case(72)
async def test_a_pooler_in_session_mode_changes_nothing(empty_dsn):
    with pgbouncer(empty_dsn, "session") as through:
        report = await migrate(through)
        assert report.applied
        database = await Database.open(through, pool_size=2)
        names = ("statement_timeout", "default_transaction_isolation")
        sql = "SELECT current_setting(%s::text), current_setting(%s::text)"
        for _ in range(10):
            assert await database.read("settings", sql, names) == [("5s", "read committed")]
        await database.close()
