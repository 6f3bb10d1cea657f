"""Messages nobody meant, and what holds all the same; `make fuzz` sends as many as one likes."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.rpc import error_details_pb2, status_pb2
from support.postgres import PostgresServer
from support.replicas import METHODS

from fuzz.calls import Tally, send
from fuzz.campaign import Campaign
from fuzz.corpus import CORPUS, Entry, load
from fuzz.messages import RUNNER_STREAM, Call
from fuzz.oracle import DETAILS, Answer
from fuzz.streams import Episode
from fuzz.world import World, replayed, world

SEED, MESSAGES = 1, 15_000
calm = pytest.mark.only_on("postgresql", "crdb-switches", reason="what a database says that fails is no fault there")
# What a message is told that got no further than the door.
AT_THE_DOOR = {"INVALID_FIELD", "CREDENTIAL_INVALID", "API_VERSION_UNSUPPORTED", "(DEADLINE_EXCEEDED)"}


@pytest.fixture(scope="module")
async def fuzzed(
    postgres: PostgresServer, schema_template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    """A server under the meter, which a test may spoil."""
    dsn = postgres.database_create(schema_template)
    async with world(dsn, tmp_path_factory.mktemp("fuzz")) as fuzzed:
        yield fuzzed


@calm
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.case(85, 90)
async def test_thousands_of_messages_do_no_harm(fuzzed: World, tmp_path: Path) -> None:
    said: list[str] = []
    campaign = Campaign(fuzzed, SEED, tmp_path, said.append)
    await campaign.run(MESSAGES)
    assert not campaign.tally.faults, said
    ends = campaign.tally.of_method
    assert {name for name in METHODS if not ends.get(name, {}).keys() - AT_THE_DOOR} == set()
    code, output = await replayed(fuzzed.live.dsn)
    assert code == 0, output


@calm
@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.json")), ids=lambda path: path.stem)
async def test_what_did_harm_once_does_none_now(fuzzed: World, path: Path) -> None:
    await fuzzed.furnish(0)
    entry, tally = load(path), Tally()
    if entry.method == RUNNER_STREAM:
        fault = await _replay_stream(fuzzed, entry, tally)
    else:
        metadata: list[tuple[str, str | bytes]] = [("authorization", f"Bearer {fuzzed.key_for(entry.method)}")]
        (raw,) = entry.messages(fuzzed.names)
        fault = await send(fuzzed.space.rpc.channel, Call(entry.method, raw, metadata), tally)
    assert not fault
    assert not fuzzed.log_faults()
    assert not fuzzed.meter.offenders()
    await fuzzed.canary.sing()


async def _replay_stream(fuzzed: World, entry: Entry, tally: Tally) -> str:
    episode = Episode.again(fuzzed.yard.rpc.channel, fuzzed.yard, fuzzed.names, entry, tally)
    await episode.play(len(entry.raw))
    return episode.fault


# What would be no test if it could not fail.


def status(code: grpc.StatusCode, reason: str, message: str = "no", **metadata: str) -> Answer:
    """An answer of a server."""
    packed = Any()
    packed.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="turnlog.dev", metadata=metadata))
    whole = status_pb2.Status(code=code.value[0], message=message, details=[packed])
    return Answer(code, message, whole.SerializeToString())


def test_the_oracle_knows_a_bad_answer_from_a_good_one() -> None:
    invalid, missing = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
    assert not status(missing, "NOT_FOUND", resource="session", id="sess_1").fault
    assert not Answer(grpc.StatusCode.OK, "", None).fault
    assert DETAILS.endswith("-bin")
    for bad in (
        Answer(grpc.StatusCode.UNKNOWN, "Unexpected <class 'KeyError'>: 1", None),
        Answer(missing, "no", None),
        status(grpc.StatusCode.INTERNAL, "INTERNAL"),
        status(missing, "INVALID_FIELD"),
        status(missing, "SOMETHING"),
        status(missing, "NOT_FOUND", table="sessions"),
        status(invalid, "INVALID_FIELD", "psycopg.errors.DataError"),
        status(invalid, "INVALID_FIELD", "could not be checked: EvaluationError"),
        status(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE"),
    ):
        assert bad.fault


def test_the_meter_counts_work_and_not_waiting(tmp_path: Path) -> None:
    program = """
import asyncio, sys, time
from fuzz.launcher import Meter

async def works():
    until = time.thread_time() + 0.08
    while time.thread_time() < until:
        pass

async def waits():
    time.sleep(0.08)

async def both():
    await asyncio.gather(asyncio.create_task(works()), asyncio.create_task(waits()))

Meter(open(sys.argv[1], "a")).install()
asyncio.run(both())
"""
    found = tmp_path / "callbacks"
    subprocess.run([sys.executable, "-c", program, str(found)], cwd=Path(__file__).parents[1], check=True, timeout=60)
    long = [line for line in found.read_text().splitlines() if '"within": false' in line]
    assert [line for line in long if "works" in line]
    assert not [line for line in long if "waits" in line]
