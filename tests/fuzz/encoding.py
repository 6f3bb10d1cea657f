"""The wire format of protobuf by hand: what is to be wrong cannot be written by a library."""

from dataclasses import dataclass


def varint(number: int) -> bytes:
    """A number as the wire has it; a negative one as its 64-bit complement."""
    number &= 2**64 - 1
    if number < 0x80:
        return bytes((number,))
    raw = bytearray()
    while number > 0x7F:
        raw.append(number & 0x7F | 0x80)
        number >>= 7
    raw.append(number)
    return bytes(raw)


def tag(number: int, kind: int) -> bytes:
    """A field's number and wire type."""
    return varint(number << 3 | kind)


def bytes_field(number: int, inside: bytes) -> bytes:
    """A field that holds text, bytes or a message."""
    return varint(number << 3 | 2) + varint(len(inside)) + inside


@dataclass(frozen=True, slots=True)
class Field:
    """A field as it lies in a message, with its tag."""

    number: int
    kind: int
    raw: bytes
    inside: bytes


def fields(raw: bytes) -> list[Field] | None:
    """The fields of a message; None where these bytes are none."""
    found, at = [], 0
    try:
        while at < len(raw):
            start = at
            key, at = _read(raw, at)
            kind, inside = key & 7, b""
            match kind:
                case 0:
                    _, at = _read(raw, at)
                case 1:
                    at += 8
                case 2:
                    size, at = _read(raw, at)
                    inside = raw[at : at + size]
                    at += size
                case 5:
                    at += 4
                case _:
                    return None
            if at > len(raw) or not key >> 3:
                return None
            found.append(Field(key >> 3, kind, raw[start:at], inside))
            if len(found) > 200:
                return None
    except IndexError:
        return None
    return found


def _read(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise IndexError(at)
