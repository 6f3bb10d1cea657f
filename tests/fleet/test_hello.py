"""The time between the opening of a runner's stream and its Hello."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from support.replicas import FakeRunner, Refused, Space
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.transport import runner as transport


@pytest.mark.parametrize("loss", ["role", "key"])
async def test_a_hello_counts_what_the_key_opens_when_it_is_said(space: Space, loss: str) -> None:
    account = (await space.rpc.call("CreateServiceAccount", display_name="late", role="ROLE_RUNNER")).service_account
    subject = account.service_account_id
    made = await space.rpc.call("CreateApiKey", subject=subject, display_name="late", runner_pools=["default"])
    rpc = space.live.rpc(made.secret)
    runner = FakeRunner(rpc, harness=space.harness)
    # The stream is open: a later call on the same connection is answered.
    with pytest.raises(Refused):
        await rpc.call("GetWorkspace")
    if loss == "role":
        await space.rpc.call("RemoveRole", subject=subject)
    else:
        await space.rpc.call("RevokeApiKey", api_key_id=made.api_key.api_key_id)
    await space.session("not for you")
    with pytest.raises(Refused) as refused:
        await runner.welcome()
    assert refused.value.reason == {"role": "PERMISSION_MISSING", "key": "CREDENTIAL_INVALID"}[loss]


async def test_a_stream_without_a_hello_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "HELLO_SECONDS", 0.05)

    async def never() -> None:
        await asyncio.Event().wait()

    nothing: Any = SimpleNamespace(read=never)
    unused: Any = None
    with pytest.raises(Refusal) as refused:
        async with asyncio.timeout(5):
            await transport.RunnerServicer(unused, unused).Connect(unused, nothing)
    assert refused.value.reason is Reason.DEADLINE_EXCEEDED
