"""What a runner declined, by itself: for how long, for whom, and how much of it is remembered."""

import pytest
from turnlog_server.service.declines import MOST_SECONDS, RUNNERS, RUNS_OF_A_RUNNER, Declines


class Clock:
    """Stands still unless it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def declines(clock: Clock) -> Declines:
    return Declines(clock)


def test_each_time_in_a_row_takes_longer(clock: Clock, declines: Declines) -> None:
    waits = []
    for _ in range(8):
        declines.note("a", "run_1")
        began = clock.now
        while declines.of("a"):
            clock.now += 1.0
        waits.append(clock.now - began)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, MOST_SECONDS, MOST_SECONDS]
    declines.taken("a", "run_1")
    declines.note("a", "run_1")
    clock.now += 1.0
    assert declines.of("a") == []


def test_others_are_asked(declines: Declines) -> None:
    declines.note("a", "run_1")
    assert declines.of("a") == ["run_1"]
    assert declines.of("b") == []
    declines.note("a", "run_2")
    declines.taken("a", "run_1")
    assert declines.of("a") == ["run_2"]
    declines.taken("nobody", "run_1")


def test_what_is_remembered_is_bounded(declines: Declines) -> None:
    for number in range(RUNS_OF_A_RUNNER + 1):
        declines.note("a", f"run_{number}")
    assert declines.of("a") == [f"run_{number}" for number in range(1, RUNS_OF_A_RUNNER + 1)]
    for number in range(RUNNERS):
        declines.note(f"runner {number}", "run_1")
    assert declines.of("a") == []
    assert declines.of("runner 0") == ["run_1"]
