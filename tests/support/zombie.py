"""A runner in a process of its own, to be stopped and woken: `python zombie.py ADDRESS KEY HARNESS`.

It takes a Run and tells of it on stdout; at a line on stdin it says what a runner says that noticed nothing, first on
the stream that it has, then on a new one, and tells what it was answered, one JSON line each.
"""

import asyncio
import contextlib
import json
import sys
from typing import Any

import grpc
from support.fleet import held, reason
from support.replicas import FakeRunner, Refused, Rpc, said
from turnlog.runner.v1 import runner_service_pb2 as pb


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def go_on(runner: FakeRunner, offer: pb.Offer) -> str:
    """Heartbeat, Append and Settle; the reason that comes back."""
    append = pb.Append(lease=runner.lease(offer), events=[said("from beyond")])
    settle = pb.Settle(lease=runner.lease(offer), outcome="OUTCOME_SUCCEEDED")
    answers: set[str] = set()
    try:
        for message in ({"heartbeat": pb.Heartbeat(), "append": append}, {"settle": settle}):
            # A stream that is over takes no message.
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                for kind, what in message.items():
                    await runner.send(**{kind: what})
            answers.add(reason(await runner.expect("lease_lost")))
        return " ".join(answers)
    except Refused as refused:
        # gRPC forgets the status of a stream that was written to after its end.
        return refused.reason or "OVER"


async def main(address: str, key: str, harness: str) -> None:
    rpc = Rpc(address, key)
    runner = FakeRunner(rpc, harness=harness)
    await runner.welcome()
    offer = await runner.start()
    tell(runner_id=runner.runner_id, run_id=offer.run_id, attempt_no=offer.attempt_no)
    await asyncio.to_thread(sys.stdin.readline)
    tell(same_stream=await go_on(runner, offer))
    again = FakeRunner(
        rpc, harness=harness, runner_id=runner.runner_id, instance_id=runner.instance_id, held=[held(offer)]
    )
    welcome = await again.welcome()
    tell(still_held=len(welcome.held), new_stream=await go_on(again, offer))
    await asyncio.to_thread(sys.stdin.readline)
    tell(after_the_end=await go_on(again, offer))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
