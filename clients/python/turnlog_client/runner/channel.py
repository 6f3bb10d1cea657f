"""The connection to a server: how it is made, and what its end says."""

import asyncio
from dataclasses import dataclass
from enum import Enum, auto

import grpc

from turnlog_client.channel import effective_tls, is_local
from turnlog_client.errors import decode
from turnlog_client.runner.options import RunnerOptions

CONNECT = "/turnlog.runner.v1.RunnerService/Connect"

# What waiting alone rarely mends: somebody has to change the key, the pools or the program.
_REFUSALS = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
}

_INELIGIBLE = "RUNNER_INELIGIBLE"

_MESSAGE_BYTES = 8 << 20


class Cause(Enum):
    """Who ended a stream."""

    SERVER = auto()
    """The server or the network."""
    NOT_WELCOMED = auto()
    """The runner: no Welcome came in time."""
    DRAIN = auto()
    """The runner: the replica goes down."""
    LEASE = auto()
    """The runner: its lease may be over."""
    GOODBYE = auto()
    """The runner: it goes for good."""
    CREDENTIAL = auto()
    """The runner: its key or certificate cannot be read."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a stream, or of an attempt to make one.

    code: the gRPC status. details: its text. reason: the ErrorReason that came with it, if one did.
    retry_after: what the server asks to wait, in seconds.
    welcomed: the server had taken the runner in. lived: for how many seconds.
    """

    cause: Cause
    code: grpc.StatusCode | None = None
    details: str = ""
    reason: str = ""
    retry_after: float = 0.0
    welcomed: bool = False
    lived: float = 0.0

    @property
    def refused(self) -> bool:
        """The runner was turned away rather than cut off."""
        if self.cause is not Cause.SERVER or self.welcomed:
            return self.cause is Cause.CREDENTIAL
        return self.code in _REFUSALS or self.reason == _INELIGIBLE

    @property
    def exit_code(self) -> int:
        """How the command ends that gives up because of a refusal, as `turnlog --help` has it: 4, the key may not do
        this; 2, the pools, the profiles or the program are wrong."""
        denied = self.code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
        return 4 if denied or self.cause is Cause.CREDENTIAL else 2

    @property
    def refusal(self) -> str:
        """One sentence for people about an end that is `refused`."""
        if self.cause is Cause.CREDENTIAL:
            return self.details
        return f"The server refuses this runner: {self}".removesuffix(".") + "."

    @property
    def invalid(self) -> bool:
        """The server ended the stream because of something that the runner said on it."""
        return self.cause is Cause.SERVER and self.welcomed and self.code is grpc.StatusCode.INVALID_ARGUMENT

    def __str__(self) -> str:
        name = self.code.name if self.code else self.cause.name
        text = f"{name} {self.reason}".strip()
        return f"{text}: {self.details}" if self.details else text


def end_of(error: grpc.aio.AioRpcError) -> End:
    """What a call's status says."""
    decoded = decode(error)
    return End(Cause.SERVER, decoded.code, decoded.message[:1024], decoded.reason, decoded.retry_after or 0.0)


def open_channel(options: RunnerOptions, address: str) -> grpc.aio.Channel:
    """A channel of its own connection. Raises OSError when a certificate cannot be read."""
    timing = options.timing
    arguments: list[tuple[str, int | str]] = [
        ("grpc.keepalive_time_ms", int(timing.keepalive * 1000)),
        ("grpc.keepalive_timeout_ms", int(timing.keepalive_timeout * 1000)),
        # gRPC also pings to measure, has one ping on its way at a time, and by itself waits a minute for that one.
        ("grpc.http2.ping_timeout_ms", int(timing.keepalive_timeout * 1000)),
        # A quiet Run sends little, and its connection is the one that must be watched.
        ("grpc.http2.max_pings_without_data", 0),
        # Retries and waits are the runner's own; gRPC's would hide what happened and outlast the lease.
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.min_reconnect_backoff_ms", int(timing.connect * 1000)),
        ("grpc.max_receive_message_length", _MESSAGE_BYTES),
        ("grpc.max_send_message_length", _MESSAGE_BYTES),
    ]
    if is_local(address):
        # A proxy from the environment cannot reach this machine's loopback.
        arguments.append(("grpc.enable_http_proxy", 0))
    tls = effective_tls(address, options.tls)
    if tls is None:
        return grpc.aio.insecure_channel(address, options=arguments)
    if tls.server_name:
        arguments.append(("grpc.ssl_target_name_override", tls.server_name))
    return grpc.aio.secure_channel(address, tls.credentials(), options=arguments)


async def close_channel(channel: grpc.aio.Channel) -> None:
    """Closes it, also while the caller is being cancelled."""
    await asyncio.shield(asyncio.ensure_future(channel.close()))
