"""The README's first session, line by line as a newcomer types it, against a real server in a copy of this tree."""

import asyncio
import re
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.embedded import open_ground
from support.server_process import CLEAN, server

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
NOT_SOURCE = shutil.ignore_patterns(".*", "__pycache__", "node_modules")
MARK = "-- next line --"
SECONDS = 60


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    """The project's own source, without what it was built with; `.venv` is the one that runs the tests."""
    with open_ground() as ground:
        copy = ground / "turnlog"
        shutil.copytree(ROOT, copy, ignore=NOT_SOURCE)
        (copy / ".venv").symlink_to(sys.prefix)
        yield copy


@pytest.fixture(scope="module")
async def address(tree: Path) -> AsyncIterator[str]:
    """What `make run` starts, on a free port."""
    arguments = ("dev", "--with-runner", "--listen", "127.0.0.1:0", "--no-embedded-fsync")
    async with server(*arguments, cwd=tree) as dev:
        yield await dev.ready()


async def typed(blocks: list[str], address: str, tree: Path) -> None:
    """Types every command of the blocks into one shell, and looks at what each printed."""
    told = [each for block in blocks for each in commands(block)]
    script = "".join(f"{line}\necho '{MARK}'\n" for line, _ in told).replace("127.0.0.1:7777", address)
    shell = await asyncio.create_subprocess_exec(
        "bash", "-e", "-o", "pipefail", "-c", script, cwd=tree, env=CLEAN | {"HOME": str(tree), "LANG": "C.UTF-8"},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(SECONDS):
            raw, _ = await shell.communicate()
    finally:
        if shell.returncode is None:
            shell.kill()
    said = raw.decode().split(f"{MARK}\n")
    assert shell.returncode == 0, f"{told[len(said) - 1][0]}\nended with {shell.returncode}\n{said[-1]}"
    for (line, shown), printed in zip(told, said, strict=False):
        assert re.search(pattern(shown), printed, re.DOTALL), f"{line}\nprinted\n{printed}"


def commands(block: str) -> list[tuple[str, str]]:
    """Each command with the lines below it, which are what it prints."""
    first, *others = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert not first
    return [(line, shown) for line, _, shown in (each.partition("\n") for each in others)]


def pattern(shown: str) -> str:
    """What is shown, in order; `…` stands for anything, and a space for any number of them."""
    return r"\s+".join(re.escape(word).replace("…", ".*") for word in shown.split())


def test_the_first_session_is_there() -> None:
    assert len(BLOCKS) >= 5
    assert sum("grpcurl" in block for block in BLOCKS) >= 3
    assert "127.0.0.1:7777" in README


@pytest.mark.rule("R13a", "R17")
async def test_the_first_session_by_the_command_line(address: str, tree: Path) -> None:
    await typed([block for block in BLOCKS if "grpcurl" not in block], address, tree)


@pytest.mark.rule("R17")
@pytest.mark.system("grpcurl")
async def test_the_first_session_by_hand(address: str, tree: Path) -> None:
    await typed(BLOCKS, address, tree)
