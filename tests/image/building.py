"""Builds the image where there is neither an engine nor a registry of images, and runs it: buildah in a chroot."""

import asyncio
import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import psutil

ROOT: Final = Path(__file__).resolve().parents[2]
IMAGE: Final = "localhost/turnlog"
SUITE: Final = "trixie"
"""The Debian that the official images of Python are made from."""
PACKAGES: Final = "python3,python3-venv,ca-certificates"
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DATA: Final = "/var/lib/turnlog"
START_SECONDS: Final = 120
# What of this machine's configuration of pip a build needs to find packages.
PIP: Final = ("index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout")


class Workshop:
    """Images and containers in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = ("buildah", "--root", str(folder / "images"), "--runroot", str(folder / "run"))

    def buildah(self, *arguments: str) -> str:
        """What it says; what goes wrong is an error with all that was said."""
        return _said(*self._own, *arguments)

    def base(self) -> str:
        """An image with Python: TURNLOG_IMAGE_BASE, or a Debian that is made here."""
        if given := os.environ.get("TURNLOG_IMAGE_BASE"):
            return given
        root = self._folder / "debian"
        _said("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root))
        container = self.buildah("from", "scratch")
        self.buildah("add", "--quiet", container, str(root), "/")
        self.buildah("config", "--env", f"PATH={PATH}", container)
        self.buildah("commit", "--quiet", "--rm", container, "localhost/base")
        _said("rm", "--recursive", "--one-file-system", str(root))
        return "localhost/base"

    def build(self, base: str) -> None:
        """The Dockerfile as it is, with this machine's way to packages as secrets of the build."""
        secrets = []
        for name, content in _pip_secrets().items():
            file = self._folder / name
            file.write_bytes(content)
            secrets += ["--secret", f"id={name},src={file}"]
        self.buildah(
            "build", "--isolation", "chroot", "--format", "docker", *secrets, "--build-arg", f"BASE={base}",
            "--build-arg", "VERSION=1.2.3", "--build-arg", "REVISION=abc", "--tag", IMAGE, str(ROOT),
        )  # fmt: skip

    def config(self) -> dict[str, Any]:
        """What the image says of itself."""
        return json.loads(self.buildah("inspect", "--type", "image", IMAGE))["Docker"]["config"]

    @contextlib.contextmanager
    def mounted(self) -> Iterator[Path]:
        """The files of the image."""
        container = self.buildah("from", IMAGE)
        try:
            yield Path(self.buildah("mount", container))
        finally:
            self.buildah("rm", container)

    @asynccontextmanager
    async def running(self, data: Path, *command: str, **options: Any) -> AsyncIterator["Container"]:
        """A container with its data here and the network of this machine, until the block ends."""
        container = Container(self._own, self.buildah("from", IMAGE), self.config(), data, **options)
        try:
            await container.start(*command)
            yield container
        finally:
            await container.close()
            self.buildah("rm", container.name)

    def close(self) -> None:
        """Nothing stays mounted, so that the folder can be deleted."""
        self.buildah("rm", "--all")
        self.buildah("rmi", "--all", "--force")


class Container:
    """The image's own entrypoint, user and environment; `environment` comes on top."""

    def __init__(
        self,
        buildah: tuple[str, ...],
        name: str,
        config: dict[str, Any],
        data: Path,
        environment: dict[str, str] | None = None,
        entrypoint: list[str] | None = None,
    ) -> None:
        self.name = name
        self._config = config
        self._entrypoint = entrypoint or config["Entrypoint"]
        self._run = [
            *buildah, "run", "--isolation", "chroot", "--volume", f"{data}:{DATA}",
            *(word for pair in (environment or {}).items() for word in ("--env", "=".join(pair))),
            name, "--",
        ]  # fmt: skip
        self.out: list[str] = []

    async def start(self, *command: str) -> None:
        """Starts what the image starts; without a command, the image's own."""
        said = [*self._entrypoint, *(command or self._config["Cmd"])]
        self._process = await asyncio.create_subprocess_exec(
            *self._run, *said, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout
        async for line in self._process.stdout:
            self.out.append(line.decode().rstrip())

    async def run(self, *command: str) -> tuple[int, str]:
        """A command in the container: its exit code and what it said."""
        process = await asyncio.create_subprocess_exec(
            *self._run, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await process.communicate()
        return process.returncode or 0, said.decode()

    async def until_healthy(self) -> None:
        """Asks as an engine does, by the image's own health check, until it says yes."""
        kind, *command = self._config["Healthcheck"]["Test"]
        assert kind == "CMD"
        async with asyncio.timeout(START_SECONDS):
            while True:
                code, _ = await self.run(*command)
                if code == 0:
                    return
                assert self._process.returncode is None, "\n".join(self.out)
                await asyncio.sleep(0.5)

    def main(self) -> psutil.Process:
        """The first process of the container, which an engine would signal."""
        program = Path(self._entrypoint[0]).name
        for process in psutil.Process(self._process.pid).children(recursive=True):
            words = process.cmdline()
            if len(words) > 1 and words[0].endswith("python3") and Path(words[1]).name == program:
                return process
        raise AssertionError("it does not run:\n" + "\n".join(self.out))

    async def ends(self) -> int:
        """How it ended."""
        async with asyncio.timeout(START_SECONDS):
            code = await self._process.wait()
            await self._reading
            return code

    async def close(self) -> None:
        """Is gone afterwards."""
        if self._process.returncode is None:
            with contextlib.suppress(AssertionError, psutil.NoSuchProcess):
                self.main().kill()
            await self.ends()


def _said(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{shlex.join(command)}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout.strip()


def _pip_secrets() -> dict[str, bytes]:
    """pip's configuration on this machine, environment included, and the certificates that it trusts."""
    listed = _said(sys.executable, "-m", "pip", "config", "list")
    pairs = (line.partition("=") for line in listed.splitlines())
    options = {name.rpartition(".")[2]: shlex.split(value)[0] for name, _, value in pairs if value}
    lines = [f"{name} = {options[name]}" for name in PIP if name in options]
    secrets = {}
    if "cert" in options:
        lines.append("cert = /run/secrets/ca")
        secrets["ca"] = Path(options["cert"]).read_bytes()
    return secrets | {"pip": "\n".join(["[global]", *lines, ""]).encode()}
