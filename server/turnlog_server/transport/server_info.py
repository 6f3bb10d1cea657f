"""turnlog.v1.ServerService: what a client should know about the server that it speaks to."""

from importlib.metadata import PackageNotFoundError, version

from google.protobuf import duration_pb2
from turnlog.v1 import server_service_pb2 as pb

from turnlog_server.domain.fleet import Settings
from turnlog_server.domain.limits import FOLLOWER_STALL_SECONDS, LIMITS
from turnlog_server.service.context import CallContext
from turnlog_server.transport.adapter import API_VERSIONS


def server_version() -> str:
    """The version of the distribution; `unknown` where it is not installed as one."""
    try:
        return version("turnlog")
    except PackageNotFoundError:
        return "unknown"


class ServerServicer:
    """Facts of this replica."""

    def __init__(
        self, engine: str, hint_mode: str, fleet: Settings, *, progress: float, keepalive: tuple[float, float]
    ) -> None:
        """keepalive: the shortest interval that a client may ping in, and the server's own interval, in seconds."""
        self._engine = engine
        self._hint_mode = hint_mode
        self._fleet = fleet
        self._progress = progress
        self._keepalive = keepalive

    async def GetServerInfo(self, ctx: CallContext, request: pb.GetServerInfoRequest) -> pb.GetServerInfoResponse:
        del request
        return pb.GetServerInfoResponse(
            version=server_version(),
            api_versions=API_VERSIONS,
            hint_mode=self._hint_mode,
            database_engine=self._engine,
            limits={limit.name: limit.value for limit in LIMITS},
            keepalive_min_interval=_seconds(self._keepalive[0]),
            keepalive_interval=_seconds(self._keepalive[1]),
            progress_interval=_seconds(self._progress),
            follower_stall_timeout=_seconds(FOLLOWER_STALL_SECONDS),
            startup_allowance=_seconds(self._fleet.startup_allowance),
            runner_lease_ttl=_seconds(self._fleet.lease_ttl),
            workspace_id=ctx.caller.workspace_id,
            subject=ctx.caller.subject,
        )


def _seconds(seconds: float) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromMicroseconds(int(seconds * 1_000_000))
    return duration
