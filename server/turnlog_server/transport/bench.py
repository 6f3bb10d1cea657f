"""turnlog.bench.v1.BenchService: yardsticks, as thin as they can be."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc
from turnlog.bench.v1 import bench_service_pb2 as pb
from turnlog.v1 import event_pb2, event_service_pb2

from turnlog_server.domain import limits
from turnlog_server.domain.commands import Author, Command, SendInterrupt, SendMessage
from turnlog_server.domain.events import Cause, CauseKind
from turnlog_server.service.lane import Lane
from turnlog_server.service.submission import Submission
from turnlog_server.transport.adapter import Adapter, Context
from turnlog_server.transport.sessions import EventServicer

SERVICE = pb.DESCRIPTOR.services_by_name["BenchService"]
APPEND = event_service_pb2.DESCRIPTOR.services_by_name["EventService"].methods_by_name["AppendEvent"]

Handle = Callable[[bytes, Context], Awaitable[bytes]]


def handlers(adapter: Adapter, one_transaction: EventServicer, lane: Lane) -> grpc.GenericRpcHandler:
    """one_transaction: an EventServicer whose Sessions are written by `service.bench.OneTransaction`."""
    append = adapter.unary(APPEND, one_transaction.AppendEvent)

    async def in_transaction(raw: bytes, context: Context) -> bytes:
        response = await append(pb.AppendOneTransactionRequest.FromString(raw).request, context)
        return pb.AppendOneTransactionResponse(response=response).SerializeToString()

    methods: dict[str, Handle] = {
        "Empty": _empty,
        "AppendOneTransaction": in_transaction,
        "AppendUnchecked": _Unchecked(lane).append,
    }
    return grpc.method_handlers_generic_handler(
        SERVICE.full_name, {name: grpc.unary_unary_rpc_method_handler(call) for name, call in methods.items()}
    )


async def _empty(_raw: bytes, _context: Context) -> bytes:
    return b""


class _Unchecked:
    """An append with nothing around it but the lane."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    async def append(self, raw: bytes, _context: Context) -> bytes:
        asked = event_service_pb2.AppendEventRequest.FromString(pb.AppendUncheckedRequest.FromString(raw).request)
        author = Author(asked.authored_by, asked.authored_by, Cause(CauseKind.API))
        if asked.HasField("user_message"):
            payload = event_pb2.Event(user_message=asked.user_message).SerializeToString()
            command: Command = SendMessage(author, payload)
        else:
            payload = event_pb2.Event(user_interrupt=asked.user_interrupt).SerializeToString()
            command = SendInterrupt(author, payload)
        loop = asyncio.get_running_loop()
        submission = Submission(asked.session_id, command, len(payload) + 512, loop.create_future())
        result = await self._lane.submit(submission, loop.time() + limits.UNARY_DEADLINE_SECONDS)
        answer = result.answer
        response = event_service_pb2.AppendEventResponse(
            seq=answer.seq, event_id=answer.event_id, run_id=answer.run_id, blocked_by=answer.blocked_by
        )
        return pb.AppendUncheckedResponse(response=response.SerializeToString()).SerializeToString()
