"""What is answered before a replica is there."""

import asyncio
from typing import Any

import grpc
import pytest
from turnlog_server.app import door


class Gone:
    """A call whose other side left while its status was on its way."""

    async def abort(self, *_: Any) -> None:
        raise grpc.aio.InternalError("Failed to execute a batch")


async def test_a_caller_that_leaves_while_it_is_refused_is_no_fault_of_ours() -> None:
    context: Any = Gone()
    with pytest.raises(asyncio.CancelledError):
        await door._refuse_all(None, context)
