"""Arrays of a fixed type in PostgreSQL's binary form.

The driver's own list adapter guesses the element type and cannot tell it for an empty list, so that one statement would
be prepared again and again under other types. These always say what they are.
"""

import struct
from collections.abc import Collection
from functools import lru_cache
from typing import Any

from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

_EMPTY = struct.Struct(">iiI")
_HEADER = struct.Struct(">iiIii")
_LENGTH = struct.Struct(">i")
_TEXT, _BYTEA, _INT8 = 25, 17, 20
_TEXT_ARRAY, _BYTEA_ARRAY, _INT8_ARRAY = 1009, 1001, 1016


class Texts(list[str]):
    """`text[]`"""


class Blobs(list[bytes]):
    """`bytea[]`"""


class Ints(list[int]):
    """`int8[]`"""


def texts(values: Collection[str]) -> bytes:
    """`text[]`"""
    return _blobs(_TEXT, [value.encode() for value in values])


def names(values: Collection[str]) -> bytes:
    """`text[]` of short texts that come again and again."""
    return _array(_TEXT, [_name(value) for value in values], len(values))


def utf8s(values: Collection[bytes]) -> bytes:
    """`text[]` of what is UTF-8 already."""
    return _blobs(_TEXT, values)


def blobs(values: Collection[bytes]) -> bytes:
    """`bytea[]`"""
    return _blobs(_BYTEA, values)


def ints(values: Collection[int]) -> bytes:
    """`int8[]`"""
    flat = [part for value in values for part in (8, value)]
    return _array(_INT8, [struct.pack(">" + "iq" * len(values), *flat)], len(values))


def _blobs(element: int, values: Collection[bytes]) -> bytes:
    parts = [b""] * (2 * len(values))
    parts[::2] = map(_LENGTH.pack, map(len, values))
    parts[1::2] = values
    return _array(element, parts, len(values))


def _array(element: int, parts: list[bytes], count: int) -> bytes:
    if not count:
        return _EMPTY.pack(0, 0, element)
    return b"".join([_HEADER.pack(1, 0, element, count, 1), *parts])


@lru_cache(maxsize=4096)
def _name(value: str) -> bytes:
    raw = value.encode()
    return _LENGTH.pack(len(raw)) + raw


class _TextsDumper(Dumper):
    format = Format.BINARY
    oid = _TEXT_ARRAY

    def dump(self, obj: Any) -> bytes:
        return texts(obj)


class _BlobsDumper(Dumper):
    format = Format.BINARY
    oid = _BYTEA_ARRAY

    def dump(self, obj: Any) -> bytes:
        return blobs(obj)


class _IntsDumper(Dumper):
    format = Format.BINARY
    oid = _INT8_ARRAY

    def dump(self, obj: Any) -> bytes:
        return ints(obj)


def register(adapters: AdaptersMap) -> None:
    """Teaches connections the three types."""
    adapters.register_dumper(Texts, _TextsDumper)
    adapters.register_dumper(Blobs, _BlobsDumper)
    adapters.register_dumper(Ints, _IntsDumper)
