"""A runner's link by itself: what it says when the lane refuses."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from turnlog_server.domain import fleet as said
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.service.link import Holders, Link


class Frames:
    """Messages as what they say."""

    def __getattr__(self, name: str) -> Any:
        return lambda *said: (name, *said)


@pytest.mark.parametrize("reason", [Reason.INTERNAL, Reason.INVALID_FIELD, Reason.LEASE_LOST])
async def test_a_runner_is_told_of_an_accept_that_was_refused(reason: Reason) -> None:
    def refuse(submission: Any, *, forced: bool) -> None:
        submission.future.set_exception(Refusal(reason, "The write failed."))

    offer: Any = SimpleNamespace(session_id="sess_1", run_id="run_1", attempt_no=1, token=b"t")
    ctx: Any = SimpleNamespace(caller=SimpleNamespace(workspace_id="ws_1", subject="svc_1"), judge=None)
    hello = said.Hello("rnr_1", "i", "vm", "1", ("default",), ("echo",))
    lane: Any = SimpleNamespace(enqueue=refuse)
    link = Link(ctx, hello, {}, 1, Holders(), lambda held: None, lane, Frames(), lambda: 0)
    link.credits = 1
    link.offer(offer, 5.0, lambda link, offer: None)
    link.accept(said.HeldAttempt("sess_1", "run_1", 1, b"t"), frozenset())
    assert (await link.outbox.get())[0] == "offer"
    async with asyncio.timeout(2):
        told: Any = await link.outbox.get()
    assert told[:4] == ("lease_lost", "sess_1", "run_1", 1)
    assert not link.failure.done(), "the stream goes on"
    await link.close()
