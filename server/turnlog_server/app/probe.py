"""`turnlog-server healthcheck`: asks a server how it is, as a container's runtime does."""

from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from turnlog_server.app.certificates import CertificateFiles
from turnlog_server.app.health import LIVENESS
from turnlog_server.app.settings import Settings, reachable


async def healthy(settings: Settings, *, liveness: bool, seconds: float) -> bool:
    """Whether the server that listens where the settings say serves; with `liveness`, whether its process lives."""
    address = reachable(settings.listen)
    async with _channel(settings, address) as channel:
        request = health_pb2.HealthCheckRequest(service=LIVENESS if liveness else "")
        try:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            answer = await stub.Check(request, timeout=seconds)
        except grpc.aio.AioRpcError:
            return False
    return answer.status == health_pb2.HealthCheckResponse.SERVING


def _channel(settings: Settings, address: str) -> grpc.aio.Channel:
    options: list[tuple[str, Any]] = [("grpc.enable_http_proxy", 0)]
    files = CertificateFiles.of(settings)
    if files is None:
        return grpc.aio.insecure_channel(address, options=options)
    # The server's own certificate is all that is trusted, under the name that it has, and is shown to it as well.
    chain, key = files.cert.read_bytes(), files.key.read_bytes()
    options.append(("grpc.ssl_target_name_override", files.name()))
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(chain, key, chain), options=options)
