"""The connection to a server: how it is made, and what its end says."""

import asyncio
from dataclasses import dataclass
from enum import Enum, auto

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from turnlog_client.runner.options import RunnerOptions, Tls

CONNECT = "/turnlog.runner.v1.RunnerService/Connect"

# What waiting alone rarely mends: somebody has to change the key, the pools or the program.
_REFUSALS = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
}

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
    lived: seconds from Welcome to the end; 0 if there was no Welcome.
    """

    cause: Cause
    code: grpc.StatusCode | None = None
    details: str = ""
    reason: str = ""
    lived: float = 0.0

    @property
    def refused(self) -> bool:
        """The runner was turned away rather than cut off."""
        return self.cause is Cause.CREDENTIAL or (self.cause is Cause.SERVER and self.code in _REFUSALS)

    def __str__(self) -> str:
        name = self.code.name if self.code and self.cause is Cause.SERVER else self.cause.name
        text = f"{name} {self.reason}".strip()
        return f"{text}: {self.details}" if self.details else text


def end_of(error: grpc.aio.AioRpcError) -> End:
    """What a call's status says."""
    return End(Cause.SERVER, error.code(), (error.details() or "")[:1024], _reason(error))


def open_channel(options: RunnerOptions, address: str) -> grpc.aio.Channel:
    """A channel of its own connection. Raises OSError when a certificate cannot be read."""
    timing = options.timing
    arguments: list[tuple[str, int | str]] = [
        ("grpc.keepalive_time_ms", int(timing.keepalive * 1000)),
        ("grpc.keepalive_timeout_ms", int(timing.keepalive_timeout * 1000)),
        # A quiet Run sends little, and its connection is the one that must be watched.
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.keepalive_permit_without_calls", 1),
        # Retries and waits are the runner's own; gRPC's would hide what happened and outlast the lease.
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.min_reconnect_backoff_ms", int(timing.connect * 1000)),
        ("grpc.max_receive_message_length", _MESSAGE_BYTES),
        ("grpc.max_send_message_length", _MESSAGE_BYTES),
    ]
    if options.tls is None:
        return grpc.aio.insecure_channel(address, options=arguments)
    if options.tls.server_name:
        arguments.append(("grpc.ssl_target_name_override", options.tls.server_name))
    return grpc.aio.secure_channel(address, _credentials(options.tls), options=arguments)


async def close_channel(channel: grpc.aio.Channel) -> None:
    """Closes it, also while the caller is being cancelled."""
    await asyncio.shield(asyncio.ensure_future(channel.close()))


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        root_certificates=tls.ca_file.read_bytes() if tls.ca_file else None,
        private_key=tls.key_file.read_bytes() if tls.key_file else None,
        certificate_chain=tls.cert_file.read_bytes() if tls.cert_file else None,
    )


def _reason(error: grpc.aio.AioRpcError) -> str:
    try:
        status = rpc_status.from_call(error)  # pyright: ignore[reportArgumentType]  # needs only what AioRpcError has
    except ValueError:
        return ""
    for detail in status.details if status else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            return info.reason
    return ""
