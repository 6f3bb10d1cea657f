"""Which Runs a runner declined lately: it is not asked again at once, and others are asked first.

Of this replica alone, and bounded: what is forgotten costs one more Offer.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

FIRST_SECONDS, MOST_SECONDS = 1.0, 60.0
RUNNERS = 4_096
RUNS_OF_A_RUNNER = 64


@dataclass(slots=True)
class _Declined:
    """until: in the time that `now` tells. seconds: how long that was."""

    until: float
    seconds: float


class Declines:
    """By a runner's process, for another one may well take what this one could not."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._runners: OrderedDict[str, OrderedDict[str, _Declined]] = OrderedDict()

    def note(self, instance: str, run_id: str) -> None:
        """Declined: each time in a row it is asked again only after twice as long."""
        runs = self._runners.setdefault(instance, OrderedDict())
        self._runners.move_to_end(instance)
        before = runs.pop(run_id, None)
        seconds = FIRST_SECONDS if before is None else min(MOST_SECONDS, 2 * before.seconds)
        runs[run_id] = _Declined(self._now() + seconds, seconds)
        if len(runs) > RUNS_OF_A_RUNNER:
            runs.popitem(last=False)
        if len(self._runners) > RUNNERS:
            self._runners.popitem(last=False)

    def taken(self, instance: str, run_id: str) -> None:
        """Accepted after all."""
        runs = self._runners.get(instance)
        if runs is not None:
            runs.pop(run_id, None)
            if not runs:
                del self._runners[instance]

    def of(self, instance: str) -> list[str]:
        """What it is not to be asked now."""
        now = self._now()
        return [run_id for run_id, declined in self._runners.get(instance, {}).items() if declined.until > now]
