"""What a soak runs on: one database, two replicas, two runners. One of each lives through it, the other is killed."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

import psycopg
from support.postgres import PostgresServer, postgres_running
from support.real_runner import start_runner
from support.replicas import Live, Space, live_replica, make_space
from support.server_process import CLEAN, SCRIPT

CAPACITY = "8"
CUT = """
SELECT count(pg_terminate_backend(pid)) FROM (
  SELECT pid FROM pg_stat_activity
  WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name <> 'soak' AND random() < %s
) chosen
"""


def free_address() -> str:
    """Where a replica can come back to."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class World:
    """`replica` and `runner` are never touched. `mortal` is the replica that comes and goes, at one address."""

    def __init__(self, folder: Path, postgres: PostgresServer, dsn: str, replica: Live, space: Space) -> None:
        self.folder = folder
        self.postgres = postgres
        self.dsn = dsn
        self.replica = replica
        self.space = space
        self.mortal_address = free_address()
        self._mortal = AsyncExitStack()

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path) -> AsyncIterator[Self]:
        """All of it, until the block ends."""
        async with postgres_running() as postgres:
            dsn = postgres.database_create()
            async with live_replica(dsn, "--migrate") as replica:
                world = cls(folder, postgres, dsn, replica, await make_space(replica))
                try:
                    await world._start()
                    yield world
                finally:
                    await world._stop()

    @property
    def addresses(self) -> tuple[str, str]:
        return self.replica.address, self.mortal_address

    async def _start(self) -> None:
        await self.start_mortal()
        self.runner = await self._runner("runner", self.replica.address)
        self.mortal_runner = await self._runner("mortal-runner", self.mortal_address)

    async def _stop(self) -> None:
        for process in (self.runner, self.mortal_runner):
            if process.returncode is None:
                process.kill()
                await process.wait()
        await self._mortal.aclose()

    async def start_mortal(self) -> None:
        """The other replica, where it was before."""
        self.mortal = await self._mortal.enter_async_context(live_replica(self.dsn, listen=self.mortal_address))

    async def _runner(self, name: str, address: str) -> asyncio.subprocess.Process:
        harness = f"{self.space.harness}=echo"
        return await start_runner(
            address, self.space.runner_key, self.folder / name, harness, "--capacity", CAPACITY
        )

    async def end_mortal(self, number: signal.Signals) -> int:
        """Ends the replica that may be ended, and starts it again; how it ended."""
        self.mortal.kill(number)
        code = await self.mortal.process.wait()
        await self._mortal.aclose()
        self._mortal = AsyncExitStack()
        await self.start_mortal()
        return code

    async def end_runner(self, number: signal.Signals) -> int:
        """The same for its runner."""
        self.mortal_runner.send_signal(number)
        code = await self.mortal_runner.wait()
        self.mortal_runner = await self._runner("mortal-runner", self.mortal_address)
        return code

    def cut_connections(self, share: float) -> int:
        """The database ends so many of the connections to it; how many."""
        with psycopg.connect(self.dsn, autocommit=True, application_name="soak") as conn:
            row = conn.execute(CUT, (share,)).fetchone()
        return row[0] if row else 0

    async def check(self) -> tuple[int, str]:
        """Folds every log again, which takes as long as there are logs; its exit code and what it said."""
        process = await asyncio.create_subprocess_exec(
            str(SCRIPT), "check", "--replay", "--database-url", self.dsn,
            env=CLEAN, cwd=self.folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await process.communicate()
        return process.returncode or 0, said.decode()
