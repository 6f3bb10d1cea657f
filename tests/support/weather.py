"""Faults by chance, at a low rate, for the wire proxy: what a cluster does to its clients on a bad day."""

import random
import re

from support.wire import COMMIT, Fails, Fault

# Where neither the transaction nor the statement took effect, or where nobody can say, and both kinds of silence.
READ: tuple[Fault, ...] = (Fails("40001"), Fails("40003"), Fails("57P01"), "cut-before", "cut-after")
WRITE: tuple[Fault, ...] = (*READ, Fails("40003", applied=True), Fails("57P01", applied=True))

WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE)\b")
STATEMENTS = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE|COMMIT)\b")
# What is said on every fresh connection, and the question whether it still lives. A connection that fails there was
# never one; the tests of outages cover it.
SET_UP = re.compile(r"set_config|pg_backend_pid|^SELECT 1$")


class Weather:
    """One statement in `every` fails."""

    def __init__(self, every: int, seed: int) -> None:
        self._every = every
        self._chance = random.Random(seed)

    def __call__(self, statement: str) -> Fault | None:
        if not STATEMENTS.match(statement) or SET_UP.search(statement) or self._chance.randrange(self._every):
            return None
        writes = COMMIT.match(statement) or WRITES.search(statement)
        return self._chance.choice(WRITE if writes else READ)
