"""Clients in other languages, built once for what their sources and the contract are, and kept for the next run.

Each is one program in `tests/clients/<language>`: `probe COMMAND JSON`, with one JSON object as its answer. Code for
the contract is generated beside a copy of the sources under `.cache/clients`, never into the tree.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from google import rpc

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"
CACHE = ROOT / ".cache" / "clients"
IMPORTS = {"buf/validate/validate.proto": PROTO / "vendor" / "buf" / "validate" / "validate.proto"} | {
    f"google/rpc/{name}.proto": Path(rpc.__path__[0], f"{name}.proto") for name in ("status", "error_details")
}


@dataclass(frozen=True)
class Probe:
    """A client that was built: its command line but for the command."""

    language: str
    program: tuple[str, ...]

    async def __call__(self, command: str, timeout: float = 60, **asked: Any) -> Any:
        """Runs one command. An answer with `error` is a call that failed; a probe that fails itself raises."""
        process = await asyncio.create_subprocess_exec(
            *self.program, command, json.dumps(asked), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(timeout):
                answer, said = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, f"{self.language} {command}: {said.decode()[-3000:]}"
        assert b"too_many_pings" not in said, said.decode()[-3000:]
        return json.loads(answer)


def build(language: str) -> Probe:
    """The client of a language, from the cache where nothing changed."""
    sources = _sources(language)
    digest = hashlib.sha256()
    for name, path in sorted(sources.items()):
        digest.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    kept = CACHE / language
    folder = kept / digest.hexdigest()[:16]
    with _alone(language):
        if not (folder / ".built").exists():
            # Others are of other sources. They go first, so that a disk never holds more than one.
            for old in kept.iterdir():
                shutil.rmtree(old)
            for name, path in sources.items():
                copy = folder / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
            BUILDERS[language](folder)
            (folder / ".built").touch()
    return Probe(language, PROGRAMS[language](folder))


def _sources(language: str) -> dict[str, Path]:
    """What it is built from, by its place in the build folder. This file says how, so it counts too."""
    own = ROOT / "tests" / "clients" / language
    listed = {str(path.relative_to(own)): path for path in own.rglob("*") if path.is_file()}
    contract = {str(path.relative_to(PROTO)): path for path in PROTO.glob("turnlog/v1/*.proto")}
    return listed | {f"proto/{name}": path for name, path in (contract | IMPORTS).items()} | {".how": Path(__file__)}


@contextmanager
def _alone(language: str) -> Iterator[None]:
    """Two test runs on one tree build one after the other."""
    (CACHE / language).mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{language}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(folder: Path, *command: str) -> None:
    said = _tried(folder, *command)
    assert not said, f"{' '.join(command)}: {said[-3000:]}"


def _tried(folder: Path, *command: str) -> str:
    """What a command said that failed; nothing of one that went well."""
    # One compiler at a time: a build must not starve the tests that run beside it.
    environment = os.environ | {"GOFLAGS": "-p=1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    return "" if done.returncode == 0 else done.stdout + done.stderr or "nothing"


def _build_go(folder: Path) -> None:
    # The plug-ins are tools of the module, so go.mod pins them too.
    plugins = ("google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/grpc/cmd/protoc-gen-go-grpc")
    _run(folder, "go", "build", "-o", "bin/", *plugins)
    ours = sorted(str(path.relative_to(folder / "proto")) for path in folder.glob("proto/turnlog/**/*.proto"))
    names = [*ours, "buf/validate/validate.proto"]
    packages = [f"M{name}=turnlog.dev/probe/gen/{Path(name).parent}" for name in names]
    options = ",".join(["module=turnlog.dev/probe", *packages])
    _run(
        folder, sys.executable, "-m", "grpc_tools.protoc", "-Iproto", f"-I{files('grpc_tools') / '_proto'}",
        *(f"--plugin=bin/{Path(plugin).name}" for plugin in plugins),
        f"--go_out={options}:.", f"--go-grpc_out={options}:.", *names,
    )  # fmt: skip
    _run(folder, "go", "build", "-o", "bin/probe", ".")


def _build_node(folder: Path) -> None:
    # It reads the contract as it starts, so there is nothing to generate.
    _run(folder, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")


def _build_java(folder: Path) -> None:
    goals = ("compile", "dependency:copy-dependencies", "-DincludeScope=runtime")
    quiet = ("mvn", "--quiet", "--batch-mode")
    # Without the network where all that it needs was fetched before: then it is quicker by far.
    if _tried(folder, *quiet, "--offline", *goals):
        _run(folder, *quiet, *goals)


TOOLS = {"go": ("go",), "node": ("node", "npm"), "java": ("mvn",)}
"""What a language needs on the machine."""
BUILDERS: dict[str, Callable[[Path], None]] = {"go": _build_go, "node": _build_node, "java": _build_java}
PROGRAMS: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "go": lambda folder: (str(folder / "bin" / "probe"),),
    "node": lambda folder: ("node", str(folder / "probe.js")),
    # Compiled once and lightly: the program lives for a second.
    "java": lambda folder: (
        *("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *("-cp", f"{folder}/target/classes:{folder}/target/dependency/*", "dev.turnlog.probe.Probe"),
    ),
}
