"""A fuzzed message and where it goes: made from a seed and a number alone, so that it can be made again."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from support.replicas import METHODS
from turnlog.runner.v1 import runner_service_pb2 as fleet

from fuzz import grammar, hostile
from fuzz.encoding import bytes_field, fields
from fuzz.grammar import Names
from fuzz.mutations import mutated

RUNNER_STREAM = "Connect"
# Every RPC with one request, whatever it answers with.
CALLS: Sequence[str] = sorted(name for name in METHODS if not METHODS[name].client_streaming)
# What is asked of one Session, and so can spoil it: these come more often than the others.
SESSION_CALLS = [name for name in CALLS if "session_id" in METHODS[name].input_type.fields_by_name]
TOO_LARGE = 4 * 1024 * 1024


@dataclass(slots=True)
class Call:
    """One call. hasty: its deadline, in seconds, is there to pass."""

    method: str
    raw: bytes
    metadata: list[tuple[str, str | bytes]]
    seconds: float = 30.0
    hasty: bool = False


def random_of(seed: int, round_no: int, number: int) -> Random:
    """The chance that a message is made from."""
    return Random(seed << 64 | round_no << 32 | number)


def call(rng: Random, names: Names, keys: dict[str, str]) -> Call:
    """A call of any RPC but the runners' stream. keys: for each RPC one that may."""
    method = rng.choice(SESSION_CALLS) if rng.random() < 0.2 else rng.choice(CALLS)
    raw = body(rng, method, names)
    made = Call(method, raw, [("authorization", f"Bearer {keys[method]}")])
    if rng.random() < 0.06:
        _spoil(rng, made)
    if rng.random() < 0.03:
        made.hasty, made.seconds = True, rng.choice((0.0, 0.001, 0.005, 0.02, 0.05))
    return made


def body(rng: Random, method: str, names: Names) -> bytes:
    """The request's bytes: valid, or with hostile values, or mutated."""
    wildness = rng.choice((0.0, 0.0, 0.0, 0.0, 0.03, 0.15, 0.5))
    raw = grammar.request(rng, METHODS[method].input_type, names, wildness)
    if rng.random() < 0.35:
        raw = mutated(rng, raw)
    if rng.random() < 0.00005:
        raw += bytes(rng.choice((TOO_LARGE, 2 * TOO_LARGE + 1)))
    return raw


def runner_message(rng: Random, names: Names) -> bytes:
    """One message of the runners' stream."""
    wildness = rng.choice((0.0, 0.0, 0.03, 0.15, 0.5))
    raw = grammar.request(rng, fleet.ConnectRequest.DESCRIPTOR, names, wildness)
    return mutated(rng, raw) if rng.random() < 0.4 else raw


def proven(rng: Random, raw: bytes, lease: fleet.Lease) -> bytes:
    """The message with this lease where it is of a kind that has one: what is wrong is then all that is wrong."""
    found = fields(raw) or []
    if len(found) != 1 or found[0].number not in _LEASED:
        return raw
    inside = fields(found[0].inside)
    rest = b"".join(each.raw for each in inside if each.number != 1) if inside is not None else found[0].inside
    return bytes_field(found[0].number, bytes_field(1, lease.SerializeToString()) + rest)


_LEASED = {
    arm.number
    for arm in fleet.ConnectRequest.DESCRIPTOR.fields
    if any(each.message_type is fleet.Lease.DESCRIPTOR for each in arm.message_type.fields)
}


def _spoil(rng: Random, made: Call) -> None:
    """Metadata that somebody made up. Keys and text are what gRPC lets pass."""
    key = dict(made.metadata)["authorization"]
    printable = "".join(chr(rng.randrange(32, 127)) for _ in range(rng.choice((0, 1, 20, 300))))
    spoilers: list[list[tuple[str, str | bytes]]] = [
        [],
        [("authorization", printable)],
        [("authorization", "Bearer " + printable)],
        [("authorization", str(key)[:-1] + "0")],
        [("authorization", str(key).replace("Bearer", "bearer  "))],
        [("authorization", key), ("authorization", "Bearer x")],
        [("authorization", key), ("turnlog-api-version", printable)],
        [("authorization", key), ("turnlog-api-version", "2026-11-01")],
        [("authorization", key), ("idempotency-key", printable), ("x-request-id", printable)],
        [("authorization", key), ("request-id-bin", hostile.text(rng)[:500])],
        [("authorization", key), ("grpc-status-details-bin", b"\xff")],
        [("authorization", key), *((f"x-{at}", "y" * 50) for at in range(40))],
    ]
    made.metadata = rng.choice(spoilers)
