"""Gets the programs of the peers, and starts and ends them. What cannot be had is not measured, and said to be so.

All of it stays in `build/peers`: a virtual environment and npm packages of their own, and Debian's packages unpacked,
not installed, so that nothing is started and no rights are needed. Programs that are on the path are used as they are.
"""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

from world import HERE

BUILD = HERE.parent / "build" / "peers"
PEER = HERE / "peer"
DEBIAN = {
    "etcd": ("etcd-server",),
    "nats-server": ("nats-server",),
    "redis-server": ("redis-server", "redis-tools", "libjemalloc2", "liblzf1"),
}
PYTHON = (
    "dbos", "procrastinate", "psycopg[binary,pool]", "restate-sdk", "hypercorn", "aiohttp", "nats-py", "redis[hiredis]",
    "uvloop",
)  # fmt: skip
NODE = ("@restatedev/restate-server",)
RESTATE = "node_modules/@restatedev/restate-server-linux-{}/bin/restate-server"
READY_SECONDS = 60


class Missing(Exception):
    """A peer cannot be measured here; the message says why."""


def python() -> Path:
    """The Python that has the clients of all peers."""
    venv = BUILD / "venv"
    mark = venv / "has.json"
    if not mark.exists() or json.loads(mark.read_text()) != list(PYTHON):
        _installing("the Python clients of the peers")
        _run("the Python clients", sys.executable, "-m", "venv", str(venv))
        _run("the Python clients", str(venv / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", *PYTHON)
        mark.write_text(json.dumps(PYTHON))
    return venv / "bin" / "python"


def restate() -> Path:
    """Restate's server."""
    folder = BUILD / "npm"
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(os.uname().machine, "")
    program = folder / RESTATE.format(machine)
    if not program.exists():
        _find("npm")
        _installing("Restate")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}')
        # Without scripts: the packages need none, and one of them would send statistics.
        _run("Restate", "npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", *NODE)
    if not program.exists():
        raise Missing(f"there is no Restate server for {os.uname().machine}")
    return program


def debian(program: str) -> tuple[str, dict[str, str]]:
    """A program of Debian's, and the environment that it needs."""
    if (found := shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")) is not None:
        return found, {}
    root = BUILD / "debian" / program
    if not root.exists():
        _find("apt-get")
        _installing(program)
        downloads = BUILD / "debian" / f"{program}.downloads"
        downloads.mkdir(parents=True, exist_ok=True)
        _run(program, "apt-get", "download", *DEBIAN[program], cwd=downloads)
        unpacked = root.with_suffix(".unpacking")
        for package in downloads.glob("*.deb"):
            _run(program, "dpkg-deb", "--extract", str(package), str(unpacked))
        unpacked.rename(root)
    libraries = [str(folder) for folder in root.glob("usr/lib/*-linux-gnu*")]
    for folder in ("usr/bin", "usr/sbin"):
        if (root / folder / program).exists():
            return str(root / folder / program), {"LD_LIBRARY_PATH": ":".join(libraries)} if libraries else {}
    raise Missing(f"Debian's packages have no {program}")


def _installing(what: str) -> None:
    print(f"installing {what} into {BUILD}", file=sys.stderr, flush=True)


def _find(program: str) -> None:
    if shutil.which(program) is None:
        raise Missing(f"needs {program}")


def _run(what: str, *command: str, cwd: Path | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no reason was given"]
        raise Missing(f"{what} could not be installed: {last[0]}")


def output(program: str, flag: str, environment: dict[str, str]) -> str:
    """What it prints."""
    return subprocess.run(
        [program, flag], env=os.environ | environment, capture_output=True, text=True, check=False
    ).stdout


def free_port() -> int:
    """One that nothing listens on, for now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@asynccontextmanager
async def running(log: Path, *command: str | Path, port: int, **environment: str) -> AsyncIterator[None]:
    """A server, from when it takes connections until the block ends."""
    with log.open("ab") as said:
        process = await asyncio.create_subprocess_exec(
            *command, env=os.environ | environment, stdin=asyncio.subprocess.DEVNULL, stdout=said, stderr=said,
            cwd=log.parent,
        )  # fmt: skip
    try:
        async with asyncio.timeout(READY_SECONDS):
            while not _listens(port):
                if process.returncode is not None:
                    raise Missing(f"{command[0]} ended at once: {_tail(log)}")
                await asyncio.sleep(0.05)
        yield
    finally:
        await _end(process)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-600:]


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(10):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


class Driver:
    """A driver in the peers' Python: a job in, a report out."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.version = ""

    @classmethod
    @asynccontextmanager
    async def start(cls, log: Path, script: str, *arguments: str) -> AsyncIterator[Self]:
        """Until the block ends."""
        pipe = asyncio.subprocess.PIPE
        with log.open("ab") as said:
            process = await asyncio.create_subprocess_exec(
                python(), PEER / script, *arguments, stdin=pipe, stdout=pipe, stderr=said, cwd=log.parent
            )
        driver = cls(process, log)
        try:
            driver.version = (await driver._line())["version"]
            yield driver
        finally:
            await _end(process)

    async def measure(self, callers: int, seconds: float, *, warmup: float = 0.5, **more: Any) -> dict[str, Any]:
        """One report."""
        assert self._process.stdin is not None
        job: Mapping[str, Any] = {"callers": callers, "seconds": seconds, "warmup": warmup, **more}
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        return await self._line()

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        async with asyncio.timeout(180):
            line = await self._process.stdout.readline()
        if not line:
            raise Missing(f"its driver ended: {_tail(self._log)}")
        return json.loads(line)
