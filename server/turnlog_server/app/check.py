"""`turnlog-server check`: what is wrong, and the command that mends it. Each look is a function of its own."""

import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from turnlog_server.app.certificates import CertificateFiles
from turnlog_server.app.database import COMMAND_POOL, database_address
from turnlog_server.app.embedded import EmbeddedError, running_dsn
from turnlog_server.app.logs import cleaned
from turnlog_server.app.settings import Settings, SettingsError
from turnlog_server.domain.refusals import Refusal
from turnlog_server.store.connections import psql
from turnlog_server.store.database import Database
from turnlog_server.store.errors import StoreSetupError
from turnlog_server.store.migrate import schema_require, schema_status
from turnlog_server.store.sessions import Sessions

CERTIFICATE_DAYS = 14
CLOCK_SECONDS = 5.0
DISK_BYTES = 1 << 30
MIGRATE = "turnlog-server migrate"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look saw. mend: what to do about it, where it is not as it should be."""

    name: str
    ok: bool
    says: str
    mend: str = ""


async def check(settings: Settings) -> AsyncIterator[Finding]:
    """Every finding, good and bad, as it comes."""
    yield transport(settings)
    if (files := CertificateFiles.of(settings)) is not None:
        yield certificate(files, datetime.now(UTC))
    if settings.dsn is None:
        if not settings.data_dir.expanduser().exists():
            yield Finding("folder", True, f"{settings.data_dir} is not there yet; the first start makes it")
            return
        yield disk(settings)
        yield folder(settings)
    async with _opened(settings) as database:
        if isinstance(database, Finding):
            yield database
            return
        yield Finding("database", True, f"{database.dialect.name} answers")
        yield await schema(database)
        yield await clock(database)


def transport(settings: Settings) -> Finding:
    """Whether what is sent can be read on the way."""
    try:
        settings.require_safe_transport()
    except SettingsError as error:
        return Finding("transport", False, "plaintext would be served to other machines", str(error))
    return Finding("transport", True, f"{settings.listen}, {'plaintext' if settings.tls_cert is None else 'TLS'}")


def certificate(files: CertificateFiles, now: datetime) -> Finding:
    """Whether it can be used, and for how long."""
    renew = f"renew it and replace {files.cert} and {files.key}; no restart is needed"
    try:
        files.read()
        days = (files.expiry() - now).days
    except (SettingsError, OSError, ValueError, IndexError) as error:
        return Finding("certificate", False, str(error), "give the PEM files of a certificate and of its key")
    if days < 0:
        return Finding("certificate", False, f"{files.cert} expired {-days} days ago", renew)
    if days < CERTIFICATE_DAYS:
        return Finding("certificate", False, f"{files.cert} expires in {days} days", renew)
    return Finding("certificate", True, f"{files.cert} is good for {days} days")


def disk(settings: Settings) -> Finding:
    """Whether the embedded PostgreSQL has room to write."""
    free = shutil.disk_usage(settings.data_dir.expanduser()).free
    says = f"{free / (1 << 30):.1f} GiB free for {settings.data_dir}"
    mend = "" if free >= DISK_BYTES else "free space on that disk, or move the folder while the server is stopped"
    return Finding("disk", not mend, says, mend)


def folder(settings: Settings) -> Finding:
    """Whether a server works in the folder of the embedded PostgreSQL."""
    if running_dsn(settings.data_dir) is not None:
        return Finding("folder", True, f"PostgreSQL runs in {settings.data_dir}")
    return Finding("folder", True, f"no PostgreSQL runs in {settings.data_dir}; one is started for this check")


async def schema(database: Database) -> Finding:
    """Whether this release can serve on it."""
    have, known = await schema_status(database)
    try:
        await schema_require(database)
    except StoreSetupError as error:
        mend = MIGRATE if have < known else "install the newer release"
        return Finding("schema", False, f"at step {have}, this release knows {known}. {error}", mend)
    return Finding("schema", True, f"at step {have}")


async def clock(database: Database) -> Finding:
    """How far this machine's clock is from the database's."""
    before = time.time()
    stated = await Sessions(database).now() / 1_000_000
    ahead = (before + time.time()) / 2 - stated
    says = f"{abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} the database's"
    mend = "" if abs(ahead) <= CLOCK_SECONDS else "set the clocks of both machines, as by `timedatectl set-ntp true`"
    return Finding("clock", not mend, says, mend)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Database | Finding]:
    """The database, or why there is none."""
    try:
        async with database_address(settings) as dsn:
            try:
                database = await Database.open(dsn, pool_size=COMMAND_POOL, force_dialect=settings.force_dialect)
            except StoreSetupError as error:
                yield Finding("database", False, str(error), "change what it says, or give another --database-url")
                return
            except Refusal as refusal:
                yield _unreachable(settings, dsn, str(refusal.__cause__ or refusal))
                return
            try:
                yield database
            finally:
                await database.close()
    except EmbeddedError as error:
        yield Finding("database", False, "the embedded PostgreSQL does not start", str(error))


def _unreachable(settings: Settings, dsn: str, reason: str) -> Finding:
    """reason: what the driver says, which is on several lines and asks back."""
    lines = [line.strip() for line in cleaned(reason).splitlines()]
    why = " ".join(line for line in lines if line and not line.startswith("Is the server running"))
    if settings.dsn is None:
        mend = f"stop the server and start it again; {settings.data_dir}/postgres.log has what it says itself"
        return Finding("database", False, f"the embedded PostgreSQL does not answer: {why}", mend)
    mend = (
        "it is there and refuses: create the database and the user, or mend --database-url"
        if "FATAL:" in why
        else "start it, as by `systemctl start postgresql`, or mend --database-url"
    )
    return Finding("database", False, f"cannot be reached: {why}", f"{mend}; `{psql(dsn)}` tries it alone")
