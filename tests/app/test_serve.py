"""`turnlog-server serve`: refusals, a database that is not there, one that goes away."""

import asyncio
import json
import os
import socket
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from support.server_process import NOT_SERVING, SERVING, ServerProcess, channel, health, ran, server, until_health
from support.wire import wire_proxy
from turnlog.v1 import server_service_pb2, server_service_pb2_grpc
from turnlog_server.store.steps import steps_known

SERVE = ("serve", "--listen", "127.0.0.1:0", "--safety-poll-seconds", "0.2", "--pool-size", "2")


async def server_info(address: str) -> grpc.aio.AioRpcError:
    """What a call without a key is told."""
    async with channel(address) as opened:
        stub = server_service_pb2_grpc.ServerServiceStub(opened)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.GetServerInfo(server_service_pb2.GetServerInfoRequest(), timeout=10)
        return refused.value


def reason_of(error: grpc.aio.AioRpcError) -> str:
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    assert status is not None
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return info.reason


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", ":0", "a-name.example:0"])
async def test_plaintext_beyond_this_machine_is_refused(tmp_path: Path, listen: str) -> None:
    code, said = await ran("serve", "--listen", listen, "--database-url", "host=/nowhere", cwd=tmp_path)
    assert code == 1
    assert f"{listen} can be reached by other machines" in said
    assert "--tls-cert" in said
    assert "--insecure" in said


async def test_plaintext_where_it_was_asked_for(tmp_path: Path, dsn: str) -> None:
    async with server("serve", "--listen", "0.0.0.0:0", "--insecure", cwd=tmp_path, database_url=dsn) as serving:
        address = await serving.ready()
        assert await health(address.replace("0.0.0.0", "127.0.0.1")) == SERVING


async def test_a_port_that_is_taken(tmp_path: Path, dsn: str) -> None:
    async with server(*SERVE, cwd=tmp_path, database_url=dsn) as first:
        address = await first.ready()
        code, said = await ran("serve", "--listen", address, cwd=tmp_path, database_url=dsn)
        assert code == 1
        assert f"{address} cannot be listened on" in said
        assert "add_port" not in said, "gRPC's own words"


async def test_a_socket_in_the_file_system(tmp_path: Path, dsn: str) -> None:
    listen = f"unix:/tmp/turnlog-test-{os.getpid()}.sock"
    async with server("serve", "--listen", listen, cwd=tmp_path, database_url=dsn) as serving:
        assert await serving.ready() == listen
        assert await health(listen) == SERVING
        assert await serving.stop() == 0


async def test_a_database_that_is_absent_and_comes(tmp_path: Path, dsn: str) -> None:
    async with wire_proxy(dsn) as proxy:
        await proxy.stop()
        async with server(*SERVE, cwd=tmp_path, database_url=proxy.dsn) as serving:
            address = await serving.listening()
            await serving.logged("waiting for the database")
            assert await health(address) == NOT_SERVING
            assert await health(address, "liveness") == SERVING
            error = await server_info(address)
            assert (error.code(), reason_of(error)) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
            watch = asyncio.create_task(until_health(address, SERVING))
            await proxy.start()
            await watch
            assert (await server_info(address)).code() is grpc.StatusCode.UNAUTHENTICATED
            assert [line["message"] for line in serving.log].count(
                "waiting for the database: NOT_SERVING until it is there"
            ) == 1
            assert await serving.stop() == 0


async def test_a_stop_while_the_database_is_absent(tmp_path: Path, dsn: str) -> None:
    async with wire_proxy(dsn) as proxy:
        await proxy.stop()
        async with server(*SERVE, cwd=tmp_path, database_url=proxy.dsn) as serving:
            await serving.logged("waiting for the database")
            assert await serving.stop() == 0


async def test_a_database_that_goes_and_comes_back(tmp_path: Path, dsn: str) -> None:
    async with wire_proxy(dsn) as proxy, server(*SERVE, cwd=tmp_path, database_url=proxy.dsn) as serving:
        address = await serving.ready()
        await proxy.stop()
        await until_health(address, NOT_SERVING)
        await proxy.start()
        await until_health(address, SERVING)
        assert await serving.stop() == 0


async def test_an_older_schema_is_refused_unless_it_may_be_changed(tmp_path: Path, empty_dsn: str) -> None:
    code, said = await ran(*SERVE, cwd=tmp_path, database_url=empty_dsn)
    assert code == 1
    assert "run `turnlog-server migrate`" in said
    async with server(*SERVE, "--migrate", cwd=tmp_path, database_url=empty_dsn) as serving:
        assert await health(await serving.ready()) == SERVING
        assert (await serving.logged("steps of the schema are applied"))["count"] == len(steps_known())
        assert "a step of the schema" not in serving.said, "one line is enough"
        assert await serving.stop() == 0


async def test_migrate_says_what_it_did(tmp_path: Path, empty_dsn: str) -> None:
    code, said = await ran("migrate", cwd=tmp_path, database_url=empty_dsn)
    assert code == 0
    assert "0001_leases" in said
    _, said = await ran("migrate", cwd=tmp_path, database_url=empty_dsn)
    assert "0 steps applied" in said


async def test_metrics_have_a_port_of_their_own(tmp_path: Path, dsn: str) -> None:
    async with server(*SERVE, "--metrics-listen", "127.0.0.1:0", cwd=tmp_path, database_url=dsn) as serving:
        await serving.ready()
        port = (await serving.logged("metrics"))["port"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        text = (await reader.read()).decode()
        writer.close()
        assert "\nturnlog_ready 1.0" in text
        assert await serving.stop() == 0
        with socket.socket() as again:
            assert again.connect_ex(("127.0.0.1", port)) != 0


async def test_the_first_workspace_and_key_open_the_server(tmp_path: Path, dsn: str) -> None:
    assert (await ran("workspace", "create", "acme", cwd=tmp_path, database_url=dsn))[0] == 0
    code, said = await ran("workspace", "create", "acme", cwd=tmp_path, database_url=dsn)
    assert code == 1
    assert "acme" in said
    made = await ServerProcess.start("key", "create", "acme", cwd=tmp_path, database_url=dsn)
    assert await made.ends() == 0
    assert [line[:4] for line in made.out] == ["tlk_"], "nothing else is in a key file"
    code, said = await ran("key", "create", "acme", "--role", "viewer", "--json", cwd=tmp_path, database_url=dsn)
    assert code == 0
    key = json.loads(said)["key"]
    assert (await ran("workspace", "set-limit", "acme", "3", cwd=tmp_path, database_url=dsn))[0] == 0
    _, said = await ran("workspace", "list", cwd=tmp_path, database_url=dsn)
    assert "acme" in said
    assert "at most 3 Runs" in said
    async with server(*SERVE, cwd=tmp_path, database_url=dsn) as serving, channel(await serving.ready()) as opened:
        stub = server_service_pb2_grpc.ServerServiceStub(opened)
        request = server_service_pb2.GetServerInfoRequest()
        answer = await stub.GetServerInfo(request, metadata=[("authorization", f"Bearer {key}")])
        assert answer.subject.startswith("svc_")
        assert key not in serving.said
