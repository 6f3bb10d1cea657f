"""When a failed job is tried again."""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential growth with full jitter.

    base: seconds before the first retry. ceiling: the longest delay in seconds. max_attempts: then the job is dead.
    """

    base: float = 2.0
    ceiling: float = 900.0
    max_attempts: int = 8

    def delay(self, attempts: int, chance: random.Random) -> float:
        """Seconds to wait after the given number of attempts."""
        highest = min(self.ceiling, self.base * 2 ** (attempts - 1))
        # Full jitter: workers that failed together do not come back together.
        return chance.uniform(0, highest)

    def gives_up(self, attempts: int) -> bool:
        """Whether a job that failed this often is dead."""
        return attempts >= self.max_attempts
