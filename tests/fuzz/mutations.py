"""What noise, old clients and attackers do to a message on its way."""

from collections.abc import Callable
from random import Random

from fuzz.encoding import Field, bytes_field, fields, tag, varint

VARINTS = (
    b"\x80\x00",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 9 + b"\x7f",
    b"\xff" * 10 + b"\x01",
    b"\x80" * 20 + b"\x00",
    b"\xff" * 5 + b"\x0f",
    b"\xff" * 5000,
)
LENGTHS = (2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1)
NUMBERS = (0, 15, 16, 999, 18_999, 19_000, 19_999, 2**28, 2**29 - 1)
DEPTHS = (1, 3, 50, 97, 98, 99, 100, 101, 1000, 20_000)
LARGE = 20_000
# In bytes, up to the largest message.
CROWDS = (20_000, 100_000, 1_000_000, 4_150_000)
WIRE_TYPES = (0, 1, 2, 3, 4, 5, 6, 7)


def mutated(rng: Random, raw: bytes) -> bytes:
    """The message with one to three things wrong."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if len(raw) > LARGE:
            # Large enough to be wrong, and slow to be changed.
            break
        found = fields(raw) if rng.random() < 0.7 else None
        raw = rng.choice(STRUCTURAL)(rng, found) if found else rng.choice(BLIND)(rng, raw)
    return raw


def _flip(rng: Random, raw: bytes) -> bytes:
    if not raw:
        return b"\1"
    changed = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(rng: Random, raw: bytes) -> bytes:
    return raw[: rng.randrange(len(raw) + 1)]


def _remove(rng: Random, raw: bytes) -> bytes:
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + raw[at + rng.randrange(1, 9) :]


def _repeat(rng: Random, raw: bytes) -> bytes:
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + raw[at : at + rng.randrange(1, 32)] * 2 + raw[at:]


def _insert(rng: Random, raw: bytes) -> bytes:
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + rng.choice((rng.randbytes(rng.randrange(1, 12)), *VARINTS)) + raw[at:]


def _set(rng: Random, raw: bytes) -> bytes:
    if not raw:
        return b"\xff"
    at = rng.randrange(len(raw))
    return raw[:at] + bytes([rng.choice((0, 0x7F, 0x80, 0xFF))]) + raw[at + 1 :]


def _run(rng: Random, raw: bytes) -> bytes:
    """One byte and nothing else: a number that never ends, or a message of nothing."""
    size = rng.choice(CROWDS) if rng.random() < 0.02 else 500
    return raw[: rng.choice((0, 0, 1, 2))] + rng.choice((b"\xff", b"\x80", b"\x00", b"\x0a", b"\x32")) * size


def _noise(rng: Random, raw: bytes) -> bytes:
    return rng.randbytes(min(len(raw), 200) + 1)


def _again(rng: Random, found: list[Field]) -> bytes:
    twice = rng.choice(found)
    return b"".join(field.raw for field in found) + twice.raw * rng.choice((1, 1, 2, 100))


def _crowd(rng: Random, found: list[Field]) -> bytes:
    """The same so often that only its number is wrong with it."""
    more = rng.choice(found).raw
    size = rng.choice(CROWDS) if rng.random() < 0.02 else 2000
    return b"".join(field.raw for field in found) + more * (size // max(1, len(more)))


def _without(rng: Random, found: list[Field]) -> bytes:
    less = rng.randrange(len(found))
    return b"".join(field.raw for at, field in enumerate(found) if at != less)


def _shuffled(rng: Random, found: list[Field]) -> bytes:
    return b"".join(field.raw for field in rng.sample(found, len(found)))


def _instead(rng: Random, found: list[Field], replace: Callable[[Field], bytes]) -> bytes:
    at = rng.randrange(len(found))
    return b"".join(replace(field) if here == at else field.raw for here, field in enumerate(found))


def _of_another_type(rng: Random, found: list[Field]) -> bytes:
    return _instead(
        rng, found, lambda field: tag(field.number, rng.choice(WIRE_TYPES)) + (field.inside or rng.randbytes(8))
    )


def _of_another_number(rng: Random, found: list[Field]) -> bytes:
    return _instead(
        rng, found, lambda field: tag(rng.choice((rng.randrange(1, 64), *NUMBERS)), field.kind) + field.raw[1:]
    )


def _overlong(rng: Random, found: list[Field]) -> bytes:
    return _instead(rng, found, lambda field: tag(field.number, 2) + varint(rng.choice(LENGTHS)) + field.inside)


def _wide_number(rng: Random, found: list[Field]) -> bytes:
    return _instead(rng, found, lambda field: tag(field.number, 0) + rng.choice(VARINTS))


def _inside(rng: Random, found: list[Field]) -> bytes:
    """The same to a message within the message, whose length is mended."""
    return _instead(
        rng,
        found,
        lambda field: bytes_field(field.number, mutated(rng, field.inside)) if field.kind == 2 else field.raw,
    )


def _nested(rng: Random, found: list[Field]) -> bytes:
    def deep(field: Field) -> bytes:
        inside = field.inside
        for _ in range(rng.choice(DEPTHS[:-1] if len(inside) < 500 else DEPTHS[:3])):
            inside = bytes_field(field.number, inside)
        return bytes_field(field.number, inside)

    return _instead(rng, found, deep)


def _unknown(rng: Random, found: list[Field]) -> bytes:
    number = rng.choice((rng.randrange(1, 200), *NUMBERS))
    more = rng.choice(
        (
            tag(number, 0) + varint(rng.getrandbits(64)),
            tag(number, 1) + rng.randbytes(8),
            bytes_field(number, rng.randbytes(rng.randrange(40))),
            tag(number, 5) + rng.randbytes(4),
        )
    )
    whole = [field.raw for field in found]
    whole.insert(rng.randrange(len(whole) + 1), more * rng.choice((1, 1, 1, 50)))
    return b"".join(whole)


def _groups(rng: Random, found: list[Field]) -> bytes:
    number, depth = rng.choice((rng.choice(found).number, 999)), rng.choice(DEPTHS)
    closed = rng.choice((depth, depth, depth - 1, depth + 1, 0))
    groups = tag(number, 3) * depth + tag(number, 4) * closed
    return b"".join(field.raw for field in found) + groups


BLIND = (_flip, _flip, _cut, _remove, _repeat, _insert, _set, _run, _noise)
STRUCTURAL = (
    _again, _crowd, _without, _shuffled, _of_another_type, _of_another_number, _overlong, _wide_number, _inside,
    _inside, _inside, _nested, _unknown, _groups,
)  # fmt: skip
