"""TLS and mTLS between real processes, and a certificate that is renewed under a running server."""

import ssl
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from support.certificates import Authority, serial_of
from support.server_process import SERVING, ServerProcess, health, ran, server

SERVE = ("serve", "--listen", "0.0.0.0:0", "--pool-size", "2")


def tls(cert: Path, key: Path) -> tuple[str, ...]:
    return ("--tls-cert", str(cert), "--tls-key", str(key))


async def local(serving: ServerProcess) -> str:
    return (await serving.ready()).replace("0.0.0.0", "127.0.0.1")


def shown_by(address: str) -> int:
    """The serial number of the certificate that the server shows to a new connection."""
    host, port = address.split(":")
    return serial_of(ssl.get_server_certificate((host, int(port))).encode())


async def test_a_renewed_certificate_needs_no_restart(tmp_path: Path, dsn: str) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    trusts = grpc.ssl_channel_credentials(authority.ca.read_bytes())
    async with server(*SERVE, *tls(cert, key), cwd=tmp_path, database_url=dsn) as serving:
        address = await local(serving)
        assert await health(address, credentials=trusts) == SERVING
        assert shown_by(address) == serial_of(cert.read_bytes())
        authority.issue("server")
        assert shown_by(address) == serial_of(cert.read_bytes())
        await serving.logged("the certificate is renewed")
        # Half of a renewal: a key that does not fit.
        before = serial_of(cert.read_bytes())
        good = key.read_bytes()
        _, other = authority.issue("other")
        key.write_bytes(other.read_bytes())
        assert shown_by(address) == before
        await serving.logged("the certificate was not renewed")
        key.write_bytes(good)
        assert await health(address, credentials=trusts) == SERVING
        assert await serving.stop() == 0


async def test_clients_must_show_a_certificate_where_it_is_asked_for(tmp_path: Path, dsn: str) -> None:
    authority, strangers = Authority(tmp_path), Authority(tmp_path, "strangers")
    cert, key = authority.issue("server")
    flags = (*tls(cert, key), "--tls-client-ca", str(authority.ca))
    ca = authority.ca.read_bytes()
    async with server(*SERVE, *flags, cwd=tmp_path, database_url=dsn) as serving:
        address = await local(serving)
        mine, my_key = authority.issue("client")
        known = grpc.ssl_channel_credentials(ca, my_key.read_bytes(), mine.read_bytes())
        assert await health(address, credentials=known) == SERVING
        theirs, their_key = strangers.issue("stranger")
        unknown = grpc.ssl_channel_credentials(ca, their_key.read_bytes(), theirs.read_bytes())
        for credentials in (grpc.ssl_channel_credentials(ca), unknown):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await health(address, credentials=credentials)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        listen = ("--listen", address)
        assert (await ran("healthcheck", *listen, *flags, cwd=tmp_path))[0] == 0
        assert await serving.stop() == 0
        assert (await ran("healthcheck", *listen, *flags, cwd=tmp_path))[0] == 1


async def test_files_that_do_not_fit_are_refused_at_the_start(tmp_path: Path, dsn: str) -> None:
    authority = Authority(tmp_path)
    cert, _ = authority.issue("server")
    _, other = authority.issue("other")
    for key in (other, tmp_path / "absent.pem"):
        code, said = await ran(*SERVE, *tls(cert, key), cwd=tmp_path, database_url=dsn)
        assert code == 1
        assert f"{cert} with the key {key} cannot be used" in said


async def test_check_tells_of_a_certificate_that_expires(tmp_path: Path, dsn: str) -> None:
    authority = Authority(tmp_path)
    for lifetime, code, says in (
        (timedelta(days=90, hours=1), 0, "is good for 90 days"),
        (timedelta(days=2, hours=1), 1, "expires in 2 days"),
        (timedelta(days=-1, hours=-1), 1, "expired 2 days ago"),
    ):
        cert, key = authority.issue("server", lifetime)
        found, said = await ran("check", *tls(cert, key), cwd=tmp_path, database_url=dsn)
        assert found == code
        assert says in said
