"""turnlog.runner.v1.RunnerService: the fleet's stream, and what operators ask of runners."""

import asyncio

from turnlog.runner.v1 import runner_service_pb2 as pb

from turnlog_server.domain import fleet as said
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.service.context import CallContext
from turnlog_server.service.fleet import Fleet
from turnlog_server.service.link import Link
from turnlog_server.service.operators import Operators
from turnlog_server.transport.adapter import Stream
from turnlog_server.wire import pages
from turnlog_server.wire import runner as wire

# Nothing is known of a stream before its Hello, and nothing ends it: whoever opens many of them says no more.
HELLO_SECONDS = 30.0


class RunnerServicer:
    """Connect is two loops, a hello and a goodbye."""

    def __init__(self, fleet: Fleet, operators: Operators) -> None:
        self._fleet = fleet
        self._operators = operators

    async def Connect(self, ctx: CallContext, stream: Stream) -> None:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                first = await stream.read()
        except TimeoutError:
            raise Refusal(
                Reason.DEADLINE_EXCEEDED, f"No Hello came within {HELLO_SECONDS:g} seconds: say it first."
            ) from None
        if first is None:
            return
        hello, held = wire.hello(first)  # type: ignore[arg-type]
        link = await self._fleet.connect(ctx, hello, held)
        reader = asyncio.create_task(self._read(link, stream), name="runner reads")
        writer = asyncio.create_task(self._write(link, stream), name="runner writes")
        try:
            await asyncio.wait({reader, writer, link.failure}, return_when=asyncio.FIRST_COMPLETED)
            if link.failure.done():
                await link.failure
            for task in (reader, writer):
                if task.done():
                    await task
        finally:
            reader.cancel()
            try:
                await self._fleet.disconnect(link)
                await stream.close()
            finally:
                writer.cancel()
                await asyncio.gather(reader, writer, return_exceptions=True)

    async def ListRunners(self, ctx: CallContext, request: pb.ListRunnersRequest) -> pb.ListRunnersResponse:
        window = pages.window(request, str)
        after = str(window.after[0]) if window.after else ""
        found = await self._operators.page(ctx, after, window.size + 1)
        shown = found[: window.size]
        more = len(found) > window.size
        return pb.ListRunnersResponse(
            runners=[wire.runner(row) for row in shown],
            next_page_token=pages.token(request, (shown[-1].hello.runner_id,)) if more else "",
        )

    async def DrainRunner(self, ctx: CallContext, request: pb.DrainRunnerRequest) -> pb.DrainRunnerResponse:
        made = await self._operators.drain(ctx, request.runner_id)
        return pb.DrainRunnerResponse(runner=wire.runner(made.item), replayed=made.replayed)

    async def _read(self, link: Link, stream: Stream) -> None:
        while True:
            try:
                message = await stream.read()
                if message is None:
                    return
                spoken: said.FromRunner = wire.from_runner(message)  # type: ignore[arg-type]
            except Refusal as refusal:
                # One bad message of one attempt is no reason to cut off all the others of the runner.
                spoken = wire.malformed(stream.raw, refusal)
            self._fleet.handle(link, spoken)

    async def _write(self, link: Link, stream: Stream) -> None:
        while True:
            await stream.write(await link.outbox.get())
