"""The gRPC server of a process: its port, what is served before and beside a replica, and how it closes."""

import asyncio
import contextlib
import errno
import socket
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_status import rpc_status

from turnlog_server.app.certificates import CertificateFiles
from turnlog_server.app.health import Health
from turnlog_server.app.reflection import Catalogue, Reflection
from turnlog_server.app.settings import Settings, SettingsError
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.wire.errors import status_of

MIB: Final = 1024 * 1024
OURS: Final = ("turnlog.v1.", "turnlog.runner.v1.")

# Requests of up to 8 MiB are parsed, so that what is too large is refused with a reason; see `domain.limits`.
# We ping an idle connection after 20 s and give it up after 10 more: that bounds how long a dead peer goes unnoticed.
# Clients are told to ping no more often than every 10 s. Half of that is suffered, because a ping that is sent after
# 10 s may arrive after less, and the penalty is the connection.
OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.max_receive_message_length", 8 * MIB),
    ("grpc.max_send_message_length", 8 * MIB),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # gRPC sends pings of its own to measure, has one on its way at a time, and by itself waits a minute for that one.
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Of calls that came in one burst and are not looked at yet gRPC cancels some beyond 1000, and all beyond 3000,
    # without a word of ours: thousands of followers come back at once when a replica went away.
    ("grpc.server.max_pending_requests", 1_000_000),
    ("grpc.server.max_pending_requests_hard_limit", 1_000_000),
    # A second server on the same port is a mistake, and must not get half of the connections.
    ("grpc.so_reuseport", 0),
)

NOT_YET: Final = Refusal(
    Reason.STORE_UNAVAILABLE,
    "The server waits for its database; nothing was changed. Try again shortly.",
    retry_after=1.0,
)


class Door:
    """Open from the start of the process to its end, whatever becomes of the database behind it.

    server: where a replica registers its services.
    address: what clients connect to, the port that was taken included.
    services: the full names of ours.
    """

    def __init__(self, settings: Settings) -> None:
        catalogue = Catalogue.of_contract()
        self.services = [name for name in catalogue.services if name.startswith(OURS)]
        others = [name for name in catalogue.services if name not in self.services]
        self.health = Health([*self.services, *others])
        self.address = ""
        self._settings = settings
        self._gate = _Gate(self.services)
        options = [*OPTIONS, ("grpc.max_concurrent_streams", settings.max_concurrent_streams)]
        self.server = grpc.aio.server(options=options)
        self.server.add_generic_rpc_handlers([self._gate])
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.server)
        Reflection(catalogue, [*self.services, *others]).add_to(self.server)

    async def open(self) -> None:
        """Takes the port. Raises SettingsError where it cannot be served on."""
        listen = self._settings.listen
        self._settings.require_safe_transport()
        files = CertificateFiles.of(self._settings)
        try:
            _require_port(listen)
            if files is None:
                port = self.server.add_insecure_port(listen)
            else:
                port = self.server.add_secure_port(listen, files.credentials())
        except (RuntimeError, _TakenError):
            raise SettingsError(
                f"{listen} cannot be listened on: another program may have that port, such as a Turnlog that runs "
                "already, or this machine does not have that address. Choose another by --listen; port 0 takes a free "
                "one."
            ) from None
        self.address = listen if listen.startswith("unix:") else f"{listen.rpartition(':')[0]}:{port}"
        await self.server.start()

    @property
    def admits(self) -> bool:
        """Whether there is a replica behind it."""
        return self._gate.open

    def admit(self) -> None:
        """A replica has registered its services: calls go to it from now on."""
        self._gate.open = True

    async def close(self, grace: float) -> None:
        """No new calls; those in flight get so many seconds. May be called again with fewer."""
        self.health.close()
        await self.server.stop(grace)


class _TakenError(Exception):
    """Somebody listens there."""


def _require_port(listen: str) -> None:
    """Asks before gRPC does, which would write a line of its own. What else may be wrong is left to it."""
    host, _, port = listen.rpartition(":")
    if listen.startswith("unix:"):
        return
    with contextlib.suppress(OSError):
        for family, _, _, _, address in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM):
            with socket.socket(family) as probe:
                # As gRPC does: connections that are over do not hold the port.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(address)
                except OSError as error:
                    if error.errno == errno.EADDRINUSE:
                        raise _TakenError from None


class _Gate(grpc.GenericRpcHandler):
    """Asked first: answers for a replica that is not there yet."""

    def __init__(self, services: list[str]) -> None:
        self.open = False
        self._prefixes = tuple(f"/{service}/" for service in services)
        # To the wire every kind of call is a stream both ways.
        self._refuse = grpc.stream_stream_rpc_method_handler(_refuse_all)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        method = handler_call_details.method
        return None if self.open or not method.startswith(self._prefixes) else self._refuse


async def _refuse_all(_requests: object, context: grpc.aio.ServicerContext) -> None:
    status = rpc_status.to_status(status_of(NOT_YET))
    try:
        await context.abort(status.code, status.details or "", status.trailing_metadata or ())
    except grpc.aio.InternalError:
        # The caller left while this was on its way, which is no fault of ours: the call ends as if it was cancelled.
        raise asyncio.CancelledError from None
