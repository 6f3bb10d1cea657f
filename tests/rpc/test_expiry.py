"""Streams of a key that runs out while they are open."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from support.replicas import Refused, Space

SECONDS = 1.5


async def expiring(space: Space, role: str, *pools: str) -> str:
    """A key that runs out by itself."""
    subject = (await space.rpc.call("CreateServiceAccount", display_name="short", role=role)).service_account
    ends = Timestamp()
    ends.FromMilliseconds(int((time.time() + SECONDS) * 1000))
    made = await space.rpc.call(
        "CreateApiKey",
        subject=subject.service_account_id,
        display_name="short",
        expire_time=ends,
        runner_pools=pools,
    )
    return made.secret


async def expired(read: Callable[[], Awaitable[Any]]) -> None:
    """What is open ends with the reason, within two seconds."""

    async def to_the_end() -> None:
        async with asyncio.timeout(SECONDS + 2):
            while True:
                await read()

    with pytest.raises(Refused) as ended:
        await to_the_end()
    assert ended.value.code is grpc.StatusCode.UNAUTHENTICATED
    assert ended.value.reason == "CREDENTIAL_EXPIRED"


async def test_a_follow_ends_with_its_key(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    follow = space.live.rpc(await expiring(space, "ROLE_VIEWER")).stream("FollowEvents", session_id=session_id)
    await follow.until("caught_up")
    await expired(follow.frame)


async def test_a_follow_ends_with_the_overlap_of_its_key(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    subject = (await space.rpc.call("CreateServiceAccount", display_name="long", role="ROLE_VIEWER")).service_account
    made = await space.rpc.call("CreateApiKey", subject=subject.service_account_id, display_name="long")
    follow = space.live.rpc(made.secret).stream("FollowEvents", session_id=session_id)
    await follow.until("caught_up")
    overlap = Duration(seconds=1)
    await space.rpc.call("RotateApiKey", api_key_id=made.api_key.api_key_id, overlap=overlap)
    await expired(follow.frame)


async def test_a_runner_ends_with_its_key(space: Space) -> None:
    async with space.runner(key=await expiring(space, "ROLE_RUNNER", "default")) as runner:
        await expired(runner.receive)
