"""How long a batch waits for others: alone never, among several until as many are there as there were."""

import asyncio

import pytest
from turnlog_server.domain.commands import TimeUp
from turnlog_server.service import lane_queue
from turnlog_server.service.lane_queue import LaneQueue
from turnlog_server.service.submission import Submission


@pytest.fixture(autouse=True)
def for_ever(monkeypatch):
    """Whoever lingers to the end does not come back in the time of a test."""
    monkeypatch.setattr(lane_queue, "LINGER_SECONDS", 3600.0)


@pytest.fixture
def queue():
    return LaneQueue()


def put(queue: LaneQueue, count: int) -> list[Submission]:
    loop = asyncio.get_running_loop()
    made = [Submission(f"sess_{number}", TimeUp(), 100, loop.create_future()) for number in range(count)]
    for submission in made:
        queue.put(submission)
    return made


async def test_a_lone_caller_never_waits(queue):
    for _ in range(3):
        [mine] = put(queue, 1)
        assert await queue.batch(256) == [mine]


async def test_a_batch_waits_for_as_many_as_there_were_and_no_more(queue):
    assert len(put(queue, 4)) == len(await queue.batch(256))
    waiting = asyncio.create_task(queue.batch(256))
    await asyncio.sleep(0)
    first = put(queue, 3)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    last = put(queue, 1)
    assert await waiting == first + last


async def test_those_who_waited_behind_a_batch_count_as_well(queue):
    put(queue, 2)
    await queue.batch(256)
    put(queue, 2)
    waiting = asyncio.create_task(queue.batch(256))
    await asyncio.sleep(0)
    put(queue, 1)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    put(queue, 1)
    assert len(await waiting) == 4


async def test_whoever_comes_behind_one_alone_waits_for_no_third(queue):
    put(queue, 1)
    await queue.batch(256)
    [second] = put(queue, 1)
    assert await queue.batch(256) == [second]


async def test_a_queue_that_closes_waits_for_nobody(queue):
    put(queue, 4)
    await queue.batch(256)
    put(queue, 1)
    waiting = asyncio.create_task(queue.batch(256))
    await asyncio.sleep(0)
    queue.close()
    assert len(await waiting) == 1
    assert await queue.batch(256) == []
