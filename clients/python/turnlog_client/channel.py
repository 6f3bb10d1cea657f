"""Opens the gRPC channel: credentials, keepalive, and the limits that the contract promises."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from turnlog_client.errors import InvalidRequest

# The server closes connections that ping more often than every 10 s; see `keepalive_min_interval` of GetServerInfo.
KEEPALIVE_SECONDS = 30

OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # gRPC sends pings of its own to measure, has one on its way at a time, and by itself waits a minute for that one.
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", 8 * 1024 * 1024),
    ("grpc.max_send_message_length", 8 * 1024 * 1024),
    # Refusals with many details must not be lost to a limit on trailers.
    ("grpc.absolute_max_metadata_size", 64 * 1024),
    # gRPC's own pause between connects grows to two minutes; how long to wait is decided in `backoff`.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass(frozen=True)
class Tls:
    """How to trust the server and, with `cert_file` and `key_file` (PEM), how to be trusted by it.

    `ca_file` (PEM) replaces the certificates that the machine trusts. `server_name` is the name that the server's
    certificate must have, where it is not the address.
    """

    ca_file: str | Path | None = None
    cert_file: str | Path | None = None
    key_file: str | Path | None = None
    server_name: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files. Raises OSError when one cannot be read."""
        return grpc.ssl_channel_credentials(
            root_certificates=_bytes(self.ca_file),
            private_key=_bytes(self.key_file),
            certificate_chain=_bytes(self.cert_file),
        )


def open_channel(address: str, tls: Tls | bool | None = None) -> grpc.aio.Channel:
    """A channel to `host:port` or any gRPC target, such as `unix:/run/turnlog.sock`; `tls` as `effective_tls` reads it.

    Call it inside the event loop that will use it.
    """
    if "://" in address and not address.startswith(("dns://", "unix://")):
        raise InvalidRequest(f"{address!r} is not an address: write host:port.")
    if not names_port(address):
        raise InvalidRequest(f"{address!r} names no port: name one, such as 127.0.0.1:7777.")
    options: list[tuple[str, int | str]] = list(OPTIONS)
    if is_local(address):
        # A proxy from the environment cannot reach this machine's loopback.
        options.append(("grpc.enable_http_proxy", 0))
    secured = effective_tls(address, tls)
    if secured is None:
        return grpc.aio.insecure_channel(address, options=options)
    if secured.server_name:
        options.append(("grpc.ssl_target_name_override", secured.server_name))
    return grpc.aio.secure_channel(address, secured.credentials(), options=options)


def effective_tls(address: str, tls: Tls | bool | None) -> Tls | None:
    """What secures a connection; None for plaintext.

    `tls` None means plaintext to this machine and TLS to any other; False sends the key in plaintext wherever it is.
    """
    if isinstance(tls, Tls):
        return tls
    return Tls() if tls or (tls is None and not is_local(address)) else None


def names_port(address: str) -> bool:
    """Whether the address says a port, or needs none. gRPC would silently take 443."""
    if address.startswith("unix:"):
        return True
    try:
        ipaddress.ip_address(address)  # ends in a colon and digits, as ::1 does, and still has no port
    except ValueError:
        return re.search(r":\d+$", address) is not None
    return False


def is_local(address: str) -> bool:
    """Whether what is sent to `address` stays on this machine."""
    if address.startswith("unix:"):
        return True
    host = re.sub("^(dns|ipv4|ipv6):/*", "", address).rsplit(":", 1)[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bytes(path: str | Path | None) -> bytes | None:
    return Path(path).read_bytes() if path else None
