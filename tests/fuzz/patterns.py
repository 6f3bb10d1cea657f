"""Text that a regular expression of the contract matches."""

# The parser of `re` itself: it changes rarely, and a grammar of our own would be a second opinion.
import re._constants as op  # pyright: ignore
import re._parser as parser  # pyright: ignore
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

MOST = 24
Maker = Callable[[Random], str]


@cache
def matching(pattern: str) -> Maker:
    """Makes texts that match."""
    makers = [_maker(code, argument) for code, argument in parser.parse(pattern)]
    return lambda rng: "".join(make(rng) for make in makers)


def _maker(code: Any, argument: Any) -> Maker:
    if code is op.AT:
        return lambda _: ""
    if code is op.LITERAL:
        return lambda _: chr(argument)
    if code is op.IN:
        letters = _letters(argument)
        return lambda rng: rng.choice(letters)
    if code is op.SUBPATTERN:
        return _sequence(argument[3])
    if code is op.BRANCH:
        branches = [_sequence(branch) for branch in argument[1]]
        return lambda rng: rng.choice(branches)(rng)
    if code is op.MAX_REPEAT:
        low, high, inner = argument
        make = _sequence(inner)
        # The shortest and the longest are where mistakes are.
        return lambda rng: "".join(make(rng) for _ in range(_count(rng, low, int(high))))
    raise NotImplementedError(f"patterns with {code}: teach tests/fuzz/patterns.py")


def _count(rng: Random, low: int, high: int) -> int:
    roll = rng.random()
    if roll < 0.02 and high < 1000:
        return high
    return low if roll < 0.06 else rng.randint(low, min(high, low + MOST))


def _sequence(parsed: Any) -> Maker:
    makers = [_maker(code, argument) for code, argument in parsed]
    return lambda rng: "".join(make(rng) for make in makers)


def _letters(members: Any) -> str:
    wanted, negated = set(), False
    for code, argument in members:
        if code is op.NEGATE:
            negated = True
        elif code is op.LITERAL:
            wanted.add(argument)
        else:
            low, high = argument
            wanted.update(range(low, high + 1))
    if negated:
        wanted = (set(range(32, 127)) | {0xE9, 0x301, 0x202E, 0x1F642}) - wanted
    return "".join(map(chr, sorted(wanted)))
