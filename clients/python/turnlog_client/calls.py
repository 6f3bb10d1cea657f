"""Sends requests: metadata, deadlines, retries with one request id."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import betterproto2
import grpc.aio
from tenacity import AsyncRetrying, retry_if_exception, stop_before_delay

from turnlog_client.backoff import WaitAsTold, may_be_sent_again
from turnlog_client.errors import ServerDefect, TurnlogError, decode

Answer = TypeVar("Answer", bound=betterproto2.Message)

Sleep = Callable[[float], Awaitable[None]]


def new_request_id() -> str:
    """A name for one request, unique for ever."""
    return uuid.uuid4().hex


class Caller:
    """One channel with the metadata of one key.

    `timeout` is the deadline of one attempt at a unary call, `patience` how long attempts go on altogether; seconds.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        metadata: tuple[tuple[str, str], ...],
        *,
        timeout: float,
        patience: float,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.channel = channel
        self.metadata = metadata
        self.sleep = sleep
        self._timeout = timeout
        self._patience = patience

    async def unary(
        self, path: str, request: betterproto2.Message, answer: type[Answer], timeout: float | None = None
    ) -> Answer:
        """Calls, and calls again while that is safe and may help. Fills in a missing `request_id`.

        Raises TurnlogError; its `request_id` is the one that every attempt carried.
        """
        request_id = getattr(request, "request_id", None)
        if request_id == "":
            request.request_id = request_id = new_request_id()  # pyright: ignore[reportAttributeAccessIssue]
        call = self.channel.unary_unary(path, request_serializer=bytes, response_deserializer=answer.parse)
        attempts = AsyncRetrying(
            retry=retry_if_exception(may_be_sent_again),
            wait=WaitAsTold(first=0.1, longest=2.0),
            stop=stop_before_delay(self._patience),
            sleep=self.sleep,
            reraise=True,
        )
        try:
            return await attempts(self._once, call, request, timeout or self._timeout)
        except TurnlogError as error:
            error.request_id = request_id or ""
            raise

    async def _once(self, call: Any, request: betterproto2.Message, timeout: float) -> Any:
        try:
            answer = await call(request, timeout=timeout, metadata=self.metadata)
        except grpc.aio.AioRpcError as error:
            raise decode(error) from None
        if answer is None:
            raise ServerDefect("The server's answer could not be read.")
        return answer

    def stream(self, path: str, request: Any, response: Any) -> grpc.aio.UnaryStreamCall:
        """Opens a server stream of raw `_pb2` messages, without a deadline."""
        call = self.channel.unary_stream(
            path, request_serializer=type(request).SerializeToString, response_deserializer=response.FromString
        )
        return call(request, metadata=self.metadata)
