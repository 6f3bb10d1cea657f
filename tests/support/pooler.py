"""PgBouncer before PostgreSQL."""

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
from psycopg.conninfo import conninfo_to_dict, make_conninfo

CONFIG = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
unix_socket_dir = {folder}
listen_port = 6432
auth_type = any
pool_mode = {mode}
server_round_robin = {round_robin}
default_pool_size = {size}
ignore_startup_parameters = {ignored}
logfile = {folder}/log
pidfile = {folder}/pid
"""


@contextmanager
def pgbouncer(
    dsn: str, mode: str, *, size: int = 8, round_robin: int = 0, ignored: str = "extra_float_digits"
) -> Iterator[str]:
    """PgBouncer before a database; yields the way through it. size: its connections to the database."""
    given = conninfo_to_dict(dsn)
    folder = Path(tempfile.mkdtemp(prefix="tlb-", dir="/tmp"))
    values = {**given, "folder": folder, "mode": mode, "size": size}
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
