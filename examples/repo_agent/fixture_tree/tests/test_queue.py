"""The queue's promises."""

import random

from jobq import Queue, RetryPolicy, State
from jobq.store import Store


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_job_whose_worker_died_is_claimed_again() -> None:
    clock = Clock()
    queue = Queue(Store(":memory:"), clock=clock)
    queue.add("mail.send", {"to": "ada"})
    assert queue.claim() is not None
    assert queue.claim() is None
    clock.now += 60
    again = queue.claim()
    assert again is not None
    assert again.attempts == 2


def test_a_job_that_fails_too_often_is_dead() -> None:
    clock = Clock()
    queue = Queue(Store(":memory:"), clock=clock, policy=RetryPolicy(max_attempts=2), chance=random.Random(1))
    queue.add("mail.send", None)
    states = []
    for _ in range(2):
        job = queue.claim()
        assert job is not None
        states.append(queue.fail(job, "no route"))
        clock.now += 1000
    assert states == [State.WAITING, State.DEAD]
