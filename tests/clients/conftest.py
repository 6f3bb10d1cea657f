"""Fixtures of the client's tests."""

from collections.abc import AsyncIterator

import pytest
from scripted import ScriptedServer, serve


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedServer]:
    """A real gRPC server that answers as the test says."""
    async with serve() as server:
        yield server
