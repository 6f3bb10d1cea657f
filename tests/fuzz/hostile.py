"""Values that break programs: text, numbers and nesting at and beyond the edges of what a field may hold."""

import struct
from random import Random

from fuzz.encoding import bytes_field, tag, varint

LONG = (63, 64, 65, 127, 128, 129, 200, 201, 255, 256, 1023, 1024, 1025, 4096, 16_385)
HUGE = (65_535, 65_537, 131_073, 262_143, 262_145, 1_048_577)

TEXT: tuple[bytes, ...] = (
    b"",
    b"\0",
    b"a\0b",
    b" ",
    b"\r\n",
    b"\x7f\x1b[31m",
    "\u202eabc\u202c".encode(),
    "\u200f\u200e\u2066x\u2069".encode(),
    "\ufeffx".encode(),
    "\ufffe\uffff\U0001fffe\U0010ffff".encode(),
    "\ufdd0\ufdef".encode(),
    ("e" + "\u0301" * 400).encode(),
    ("Z" + "\u0335\u0489\u20dd" * 100).encode(),
    "👩‍👩‍👧‍👦🏴󠁧󠁢󠁳󠁣󠁴󠁿".encode(),
    "ﷺ".encode(),
    "İıſK".encode(),
    "\u2028\u2029\u0085".encode(),
    b"%00%s%n{}{0}$1",
    b"'; --",
    b'"\\',
    b"../../..",
    b"NaN",
    b"null",
    b"-0",
    b"1e400",
    b"9" * 400,
    # What is not UTF-8: surrogates, overlong forms, beyond the last code point, cut short, bytes that never are.
    b"\xed\xa0\x80",
    b"\xed\xbf\xbf\xed\xa0\x80",
    b"\xc0\x80",
    b"\xe0\x80\xaf",
    b"\xf4\x90\x80\x80",
    b"\xf8\x88\x80\x80\x80",
    b"ab\xe2\x82",
    b"\xff\xfe",
)
INTEGERS = (
    0, 1, 2, -1, 127, 128, 255, 256, 499, 500, 501, 1000, 1001, 2**15, 2**16, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1,
    2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**62, 2**62 + 1, 2**63 - 1, 2**63, -(2**63), 2**64 - 1,
)  # fmt: skip
DOUBLES = (
    0.0, -0.0, 1.0, -1.5, float("nan"), float("inf"), float("-inf"), 5e-324, 2.2250738585072014e-308,
    1.7976931348623157e308, 2.0**53, 2.0**53 + 2, 1e22, 0.1,
)  # fmt: skip
# Of Timestamp and Duration: around the years 0001 and 9999, around 10,000 years, and around what a 64-bit count of
# microseconds or of nanoseconds can hold.
SECONDS = (
    0, 1, -1, 59, 2_592_000, 2_592_001, -62_135_596_800, -62_135_596_801, 253_402_300_799, 253_402_300_800,
    315_576_000_000, 315_576_000_001, -315_576_000_001, 9_223_372_036, 9_223_372_037, 9_223_372_036_854,
    9_223_372_036_855, 2**63 - 1, -(2**63),
)  # fmt: skip
NANOS = (0, 1, 999_999_999, 1_000_000_000, -1, -999_999_999, -1_000_000_000, 2**31 - 1, -(2**31))
DEPTHS = (1, 2, 8, 31, 32, 33, 34, 49, 50, 51, 98, 99, 100, 101, 1000, 10_000)


def text(rng: Random) -> bytes:
    """Text that somebody did not expect."""
    roll = rng.random()
    if roll < 0.7:
        return rng.choice(TEXT)
    if roll < 0.98:
        unit = rng.choice((b"a", "é".encode(), "🙂".encode(), b"\0", "\u0301".encode()))
        return unit * (rng.choice(LONG) // rng.choice((1, len(unit))))
    if roll < 0.985:
        return rng.choice((b"a", "🙂".encode())) * rng.choice(HUGE)
    return rng.randbytes(rng.randrange(1, 64))


def double(number: float) -> bytes:
    """As the wire has it."""
    return struct.pack("<d", number)


def structure(rng: Random) -> bytes:
    """A google.protobuf.Struct."""
    roll = rng.random()
    if roll < 0.03:
        return _deep(rng.choice(DEPTHS), rng.random() < 0.5)
    if roll < 0.033:
        entry = bytes_field(1, bytes_field(1, b"k") + bytes_field(2, b"\x20\x01"))
        return b"".join(entry.replace(b"k", bytes([97 + i % 26])) for i in range(rng.choice((999, 1000, 1001, 20_000))))
    if roll < 0.036:
        return _listed(b"\x0a\x02\x20\x00" * rng.choice((999, 1000, 1001, 50_000)))
    return b"".join(_entry(rng, 0) for _ in range(rng.randrange(4)))


def _entry(rng: Random, depth: int) -> bytes:
    key = rng.choice((b"a", b"a", b"b", b"")) if rng.random() < 0.8 else text(rng)
    return bytes_field(1, bytes_field(1, key) + bytes_field(2, _value(rng, depth)))


def _value(rng: Random, depth: int) -> bytes:
    """A google.protobuf.Value; now and then one without a kind, or with two."""
    kind = rng.randrange(8 if depth < 4 else 5)
    match kind:
        case 0:
            return tag(1, 0) + varint(rng.choice((0, 0, 1, 2**31)))
        case 1:
            return tag(2, 1) + double(rng.choice(DOUBLES))
        case 2:
            return bytes_field(3, text(rng))
        case 3:
            return tag(4, 0) + varint(rng.randrange(2))
        case 4:
            return b"" if rng.random() < 0.1 else tag(4, 0) + b"\1" + bytes_field(3, b"x")
        case 5:
            return bytes_field(5, b"".join(_entry(rng, depth + 1) for _ in range(rng.randrange(4))))
        case _:
            return bytes_field(6, b"".join(bytes_field(1, _value(rng, depth + 1)) for _ in range(rng.randrange(4))))


def _deep(depth: int, of_lists: bool) -> bytes:
    """Written from the inside out, for no library writes what it could not read."""
    whole = b""
    for _ in range(depth - 1):
        whole = bytes_field(1, bytes_field(6, whole)) if of_lists else _listed(whole, 5)
    return _listed(whole) if of_lists else whole


def _listed(items: bytes, kind: int = 6) -> bytes:
    return bytes_field(1, bytes_field(1, b"in") + bytes_field(2, bytes_field(kind, items)))
