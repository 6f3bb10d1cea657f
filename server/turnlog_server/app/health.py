"""grpc.health.v1: `""` and each service mean readiness, the database included; `liveness` means the process alone."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

LIVENESS: Final = "liveness"
Serving = health_pb2.HealthCheckResponse.ServingStatus
SERVING: Final = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN: Final = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Health(health_pb2_grpc.HealthServicer):
    """services: the full names of what is served here."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset({"", *services})
        self._ready = False
        self._closed = False
        # Replaced whenever something changes; watchers wait for the one that they saw.
        self._changed = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Whether calls are answered."""
        return self._ready

    def set_ready(self, ready: bool) -> None:
        """Tells whoever watches."""
        if not self._closed and ready is not self._ready:
            self._ready = ready
            self._tell()

    def close(self) -> None:
        """Not ready, for good; watches hear that and end, for an open stream would keep the server from stopping."""
        self._ready, self._closed = False, True
        self._tell()

    async def Check(self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext) -> object:
        """The status of this moment."""
        status = self._status(request.service)
        if status == UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, "No such service is served here.")
        return health_pb2.HealthCheckResponse(status=status)

    async def List(self, request: object, context: grpc.aio.ServicerContext) -> object:
        """The status of everything."""
        names = sorted({*self._services, LIVENESS})
        statuses = {name: health_pb2.HealthCheckResponse(status=self._status(name)) for name in names}
        return health_pb2.HealthListResponse(statuses=statuses)  # type: ignore[attr-defined]  # newer than the stubs

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """The status now, and whenever it changes."""
        told: Serving | None = None
        while True:
            changed = self._changed
            status = self._status(request.service)
            if status != told:
                told = status
                yield health_pb2.HealthCheckResponse(status=status)
            if self._closed:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "This replica is going down: watch another one.")
            await changed.wait()

    def _status(self, service: str) -> Serving:
        if service == LIVENESS:
            return SERVING
        if service not in self._services:
            return UNKNOWN
        return SERVING if self._ready else NOT_SERVING

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
