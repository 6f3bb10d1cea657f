"""A runner's link by itself: what it says when the lane refuses."""

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest
from turnlog_server.domain import fleet as said
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.service.holding import Held, Holders
from turnlog_server.service.link import UNREAD_MESSAGES, Link


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


async def test_refusals_that_nobody_waits_for_any_more_are_no_fault_of_the_server() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    sent: list[Any] = []
    ctx: Any = SimpleNamespace(caller=SimpleNamespace(workspace_id="ws_1", subject="svc_1"), judge=None)
    hello = said.Hello("rnr_1", "i", "vm", "1", ("default",), ("echo",))
    lane: Any = SimpleNamespace(enqueue=lambda submission, *, forced: sent.append(submission))
    link = Link(ctx, hello, {}, 1, Holders(), lambda held: None, lane, Frames(), lambda: 0)
    link.hold(Held("sess_1", "run_1", 1, frozenset()))
    for number in range(1, 4):
        link.report(said.HarnessStarted(said.LeaseProof("sess_1", "run_1", 1, b"t", number)))
    await link.close()
    del link
    while sent:
        sent.pop().future.set_exception(Refusal(Reason.LEASE_LOST, "Too late."))
    await asyncio.sleep(0)
    gc.collect()
    assert not complaints


async def test_a_runner_that_reads_nothing_loses_its_stream() -> None:
    ctx: Any = SimpleNamespace(caller=SimpleNamespace(workspace_id="ws_1", subject="svc_1"), judge=None)
    hello = said.Hello("rnr_1", "i", "vm", "1", ("default",), ("echo",))
    lane: Any = SimpleNamespace(enqueue=None)
    link = Link(ctx, hello, {}, 1, Holders(), lambda held: None, lane, Frames(), lambda: 0)
    for _ in range(UNREAD_MESSAGES):
        link.send(b"")
    assert not link.failure.done()
    link.send(b"")
    refusal = link.failure.exception()
    assert isinstance(refusal, Refusal)
    assert refusal.metadata["limit"] == "runner_unread_messages"
    await link.close()
