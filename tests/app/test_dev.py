"""`turnlog-server dev`, as a newcomer and as fate treat it."""

import asyncio
import json
import signal
import stat
from pathlib import Path

import grpc
import psutil
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from support.embedded import works_in
from support.server_process import NOT_SERVING, SERVING, channel, health, ran, server, until_health
from turnlog.v1 import agent_service_pb2, agent_service_pb2_grpc, server_service_pb2, server_service_pb2_grpc

DEV = ("dev", "--listen", "127.0.0.1:0", "--no-embedded-fsync")


def profile_in(ground: Path) -> dict[str, str]:
    return json.loads((ground / ".turnlog" / "profile.json").read_text())


async def deployments(profile: dict[str, str]) -> list[str]:
    """The deployments that the profile's key sees."""
    async with channel(profile["address"]) as opened:
        stub = agent_service_pb2_grpc.AgentServiceStub(opened)
        request = agent_service_pb2.ListDeploymentsRequest()
        answer = await stub.ListDeployments(request, metadata=[("authorization", f"Bearer {profile['key']}")])
        return [each.agent_deployment_id for each in answer.agent_deployments]


async def test_it_starts_from_nothing_and_greets(ground: Path) -> None:
    async with server(*DEV, cwd=ground) as dev:
        address = await dev.ready()
        assert await health(address) == await health(address, "liveness") == SERVING
        assert await health(address, "turnlog.v1.SessionService") == SERVING
        profile = profile_in(ground)
        assert profile["address"] == address
        assert profile["agent_deployment_id"] in await deployments(profile)
        for name in ("profile.json", "key", "runner-key"):
            assert stat.S_IMODE((ground / ".turnlog" / name).stat().st_mode) == 0o600
        assert (ground / ".turnlog" / "key").read_text().strip() == profile["key"]
        await dev.printed("  Ctrl-C stops")
        assert dev.out[0] == f'Turnlog is ready on {address} · workspace "default" · agent "repo" deployed'
        assert "session chat --new" in dev.out[1]
        assert dev.out[2] == (f'  grpcurl -plaintext -H "authorization: Bearer $(cat .turnlog/key)" {address} list')
        assert dev.out[3] == "  Ctrl-C stops; your Sessions stay in .turnlog/"


async def test_ctrl_c_stops_everything_and_the_next_start_finds_it_again(ground: Path) -> None:
    async with server(*DEV, cwd=ground) as dev:
        await dev.ready()
        before = profile_in(ground)
        assert await dev.stop(signal.SIGINT) == 0
    assert not works_in(ground)
    async with server(*DEV, cwd=ground) as dev:
        await dev.ready()
        after = profile_in(ground)
        assert after | {"address": ""} == before | {"address": ""}
        assert await deployments(after)
        assert await dev.stop() == 0


async def test_a_kill_loses_nothing(ground: Path) -> None:
    async with server(*DEV, cwd=ground) as dev:
        await dev.ready()
        before = profile_in(ground)
        await dev.kill()
    async with server(*DEV, cwd=ground) as dev:
        await dev.ready()
        assert profile_in(ground) | {"address": ""} == before | {"address": ""}
        assert await dev.stop() == 0
    assert await ran("check", "--replay", cwd=ground) == (0, "0 Sessions, 0 events, 0 differences")


async def test_two_on_one_folder(ground: Path) -> None:
    async with server(*DEV, cwd=ground) as dev:
        address = await dev.ready()
        # On the same port, too, as `make run` twice: the folder says who it is.
        code, said = await ran(*DEV, "--listen", address, cwd=ground)
        assert code == 1
        assert f"is in use by process {dev.process.pid}" in said
        assert await health(address) == SERVING


async def test_a_database_that_dies_is_started_again(ground: Path) -> None:
    async with server(*DEV, cwd=ground) as dev:
        address = await dev.ready()
        [postmaster] = [each for each in works_in(ground) if each.ppid() == dev.process.pid]
        watch = asyncio.create_task(until_health(address, NOT_SERVING))
        postmaster.kill()
        await watch
        assert await health(address, "liveness") == SERVING
        await until_health(address, SERVING)
        assert await deployments(profile_in(ground))
        assert await dev.stop() == 0
    assert not works_in(ground)


async def test_health_and_follow_on_streams_end_when_it_stops(ground: Path) -> None:
    async with server(*DEV, cwd=ground) as dev:
        address = await dev.ready()
        watch = asyncio.create_task(until_health(address, 99))
        await until_health(address, SERVING)
        assert await dev.stop() == 0
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await watch
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_second_signal_does_not_wait_for_calls_in_flight(ground: Path) -> None:
    async with server(*DEV, "--drain-grace-seconds", "600", cwd=ground) as dev:
        address = await dev.ready()
        async with channel(address) as opened:
            stream = reflection_pb2_grpc.ServerReflectionStub(opened).ServerReflectionInfo()
            await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            await stream.read()
            dev.process.send_signal(signal.SIGTERM)
            await dev.logged("stopping")
            await until_refused(address)
            assert dev.process.returncode is None
            assert await dev.stop() == 0


async def until_refused(address: str) -> None:
    """Until the server takes no calls any more."""
    async with channel(address) as opened:
        stub = server_service_pb2_grpc.ServerServiceStub(opened)
        while True:
            try:
                await stub.GetServerInfo(server_service_pb2.GetServerInfoRequest(), timeout=5)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    return
            await asyncio.sleep(0.01)


async def test_the_runner_lives_and_dies_with_it(ground: Path) -> None:
    async with server(*DEV, "--with-runner", cwd=ground) as dev:
        await dev.ready()
        assert dev.out[0].endswith("· 1 runner connected")
        first = runner_of(dev.process.pid)
        first.kill()
        await dev.logged("the runner ended and is started again")
        second = await until_runner(dev.process.pid)
        await dev.kill()
        # By the kernel: nobody was left to do it.
        assert await asyncio.to_thread(psutil.wait_procs, [second], 10) == ([second], [])


def runner_of(server_pid: int) -> psutil.Process:
    [runner] = [each for each in psutil.Process(server_pid).children() if "runner" in each.cmdline()]
    return runner


async def until_runner(server_pid: int) -> psutil.Process:
    async with asyncio.timeout(20):
        while True:
            try:
                return runner_of(server_pid)
            except (ValueError, psutil.NoSuchProcess):
                await asyncio.sleep(0.01)
