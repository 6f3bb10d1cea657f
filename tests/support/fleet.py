"""What tests of the fleet wait for and look at."""

import asyncio
from typing import Any

from support.replicas import FakeRunner, Space
from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog.v1 import error_pb2, run_pb2

SUCCEEDED = run_pb2.RUN_STATUS_SUCCEEDED
FAILED = run_pb2.RUN_STATUS_FAILED
INTERRUPTED = run_pb2.RUN_STATUS_INTERRUPTED
CANCELED = run_pb2.RUN_STATUS_CANCELED
READY = run_pb2.RUN_STATUS_READY
RUNNING = run_pb2.RUN_STATUS_RUNNING


async def run_of(space: Space, session_id: str, run_id: str) -> Any:
    """The Run as it now stands."""
    return (await space.rpc.call("GetRun", session_id=session_id, run_id=run_id)).run


async def attempts_of(space: Space, session_id: str, run_id: str) -> list[Any]:
    """Its attempts, oldest first."""
    return list((await space.rpc.call("ListAttempts", session_id=session_id, run_id=run_id)).attempts)


async def types(space: Space, session_id: str) -> list[str]:
    """The types of the whole log."""
    return [event.type for event in await space.log(session_id)]


async def event(space: Space, session_id: str, type_: str, *, after: int = 0, timeout: float = 30) -> Any:
    """The first event of this type, once it is there."""
    follow = space.rpc.stream("FollowEvents", session_id=session_id, after_seq=after, types=[type_])
    try:
        return await follow.event(type_, timeout)
    finally:
        follow.cancel()


async def ended(space: Space, session_id: str, run_id: str, timeout: float = 30) -> Any:
    """The Run, once its turn is over."""
    until = {"boundary": "BOUNDARY_TURN", "run_id": run_id}
    follow = space.rpc.stream("FollowEvents", session_id=session_id, until=until)
    await follow.until("end", timeout)
    return await run_of(space, session_id, run_id)


async def runner_row(space: Space, runner_id: str) -> Any:
    """The runner as operators see it."""
    runners = (await space.rpc.call("ListRunners", page_size=500)).runners
    return next(runner for runner in runners if runner.runner_id == runner_id)


async def renewed(space: Space, runner_id: str, seconds: float) -> None:
    """Returns once the runner's lease reaches that much further than now."""
    began = (await runner_row(space, runner_id)).lease_expire_time.ToMicroseconds()
    async with asyncio.timeout(30):
        while True:
            row = await runner_row(space, runner_id)
            if row.lease_expire_time.ToMicroseconds() > began + seconds * 1_000_000:
                return
            await asyncio.sleep(0.05)


def status(attempt: Any) -> str:
    """An attempt's status without its prefix."""
    return run_pb2.AttemptStatus.Name(attempt.status).removeprefix("ATTEMPT_STATUS_")


def kind(attempt: Any) -> str:
    """An attempt's kind without its prefix."""
    return run_pb2.AttemptKind.Name(attempt.kind).removeprefix("ATTEMPT_KIND_")


def reason(message: Any) -> str:
    """The reason of a LeaseLost or a Rejection without its prefix."""
    return error_pb2.ErrorReason.Name(message.reason).removeprefix("ERROR_REASON_")


def held(offer: Any) -> pb.HeldAttempt:
    """What a Hello says of an attempt that the runner still executes."""
    return pb.HeldAttempt(
        session_id=offer.session_id,
        run_id=offer.run_id,
        attempt_no=offer.attempt_no,
        lease_token=offer.lease_token,
    )


async def acked(runner: FakeRunner, through: int) -> None:
    """Returns when the server has handled the messages up to this one."""
    while (await runner.expect("ack")).through < through:
        pass


def seen(runner: FakeRunner, kind: str) -> list[Any]:
    """All messages of a kind that the runner has received so far."""
    return [getattr(each, kind) for each in runner.seen if each.WhichOneof("message") == kind]
