"""The README's first session, line by line as a newcomer types it, against a real server in a copy of this tree."""

import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.console import blocks_of, typed
from support.embedded import open_ground
from support.server_process import server

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = blocks_of(README)
NOT_SOURCE = shutil.ignore_patterns(".*", "__pycache__", "node_modules")


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
