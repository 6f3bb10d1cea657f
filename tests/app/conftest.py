"""Fixtures of the tests of processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.embedded import open_ground


@pytest.fixture
def ground() -> Iterator[Path]:
    """A working folder that PostgreSQL's user can reach, also where we are root."""
    with open_ground() as folder:
        yield folder
