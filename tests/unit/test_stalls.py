"""A stream whose other side takes nothing ends; one that is quiet or slow does not."""

import asyncio

import pytest
from turnlog_server.transport import stalls
from turnlog_server.transport.stalls import Stalls


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(stalls, "LOOK_SECONDS", 0.01)


async def stream(watch: Stalls, *writes: asyncio.Event) -> str:
    try:
        async with asyncio.timeout(None) as mine:
            for written in writes:
                watch.begin(mine)
                await written.wait()
                watch.end(mine)
    except TimeoutError:
        return "stalled"
    return "done"


def taken() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


async def test_a_frame_that_nobody_takes_ends_its_stream_and_no_other():
    watch = Stalls(0.05)
    slow = asyncio.Event()
    others = [asyncio.create_task(stream(watch, taken(), taken())) for _ in range(3)]
    stuck = [asyncio.create_task(stream(watch, taken(), asyncio.Event())) for _ in range(3)]
    assert await asyncio.gather(*stuck) == ["stalled"] * 3
    assert await asyncio.gather(*others) == ["done"] * 3
    late = asyncio.create_task(stream(watch, slow, taken()))
    await asyncio.sleep(0)
    slow.set()
    assert await late == "done"


async def test_a_stream_that_says_nothing_is_not_stalled():
    watch = Stalls(0.01)
    async with asyncio.timeout(None) as mine:
        watch.begin(mine)
        watch.end(mine)
        stuck = asyncio.create_task(stream(watch, asyncio.Event()))
        # Seen to be stalled by a look that came later than this one's time.
        assert await stuck == "stalled"
    assert not mine.expired()
