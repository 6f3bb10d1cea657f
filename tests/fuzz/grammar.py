"""Requests as the descriptors describe them: most are valid and name things that exist, some fields are hostile.

Nothing is listed by hand: an RPC, a message or a rule that is added to the contract is in the grammar by itself.
"""

import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

from buf.validate import validate_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from turnlog_server.wire import pages

from fuzz import hostile
from fuzz.encoding import bytes_field, tag, varint
from fuzz.patterns import matching

F = FieldDescriptor
_PREFIX = re.compile(r"\^\(?([a-z|]+)\)?_\[")
_IDENTITY = re.compile(r"([a-z]+)_[0-9a-z]{8,59}")
_FIXED = {F.TYPE_DOUBLE: 8, F.TYPE_FLOAT: 4, F.TYPE_FIXED32: 4, F.TYPE_FIXED64: 8}

Make = Callable[[Random, "Names", float], bytes]


class Names:
    """What exists: ids by their prefix, other values by the name of their field, as the server's answers have them.

    focus: what a message is about; what was noted together has the same place, so that a Run is of its Session.
    """

    def __init__(self) -> None:
        self.by_prefix: defaultdict[str, list[str]] = defaultdict(list)
        self.by_field: defaultdict[str, list[Any]] = defaultdict(list)
        self.focus = 0

    def copy(self) -> "Names":
        """The same, to learn more."""
        same = Names()
        for mine, other in ((self.by_prefix, same.by_prefix), (self.by_field, same.by_field)):
            other.update({key: list(values) for key, values in mine.items()})
        return same

    def learn(self, message: Message) -> None:
        """Takes every scalar of a message."""
        for field, value in message.ListFields():
            for each in value if field.is_repeated else (value,):
                if isinstance(each, Message):
                    self.learn(each)
                elif isinstance(each, (str, bytes)) or (isinstance(each, int) and not isinstance(each, bool)):
                    self.note(field.name.removesuffix("s"), each)

    def note(self, name: str, value: Any) -> None:
        """One value of a field."""
        if isinstance(value, str) and (identity := _IDENTITY.fullmatch(value)):
            known = self.by_prefix[identity[1]]
        else:
            known = self.by_field[name]
        if value not in known and len(known) < 64:
            known.append(value)


def request(rng: Random, message: Descriptor, names: Names, wildness: float) -> bytes:
    """A message. wildness: the share of its values that are hostile."""
    names.focus = rng.randrange(1 << 16)
    raw = _message(message)(rng, names, wildness)
    if "page_token" in message.fields_by_name and rng.random() < 0.15:
        raw += _page_token(rng, message, raw)
    return raw


def _page_token(rng: Random, message: Descriptor, raw: bytes) -> bytes:
    """A token that the request's own fields vouch for, and that leads anywhere."""
    whole = (rng.choice(hostile.INTEGERS), rng.choice(("", "x", "agt_1", "é", "\0", "z" * 70)))
    shape = rng.choice(((whole[0],), whole, (whole[1],), (), (None,), (1.5, True), ({"a": [1]},)))
    try:
        asked = GetMessageClass(message).FromString(raw)
        token = pages.token(asked, shape)
    except (DecodeError, ValueError):
        return b""
    return bytes_field(message.fields_by_name["page_token"].number, token.encode())


@cache
def _message(message: Descriptor) -> Make:
    if message.full_name == "google.protobuf.Struct":
        return lambda rng, _names, _wildness: hostile.structure(rng)
    if message.full_name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        return _span
    # Made when it is first needed: a message may hold itself.
    parts: list[tuple[bool, list[Make]]] = []

    def make(rng: Random, names: Names, wildness: float) -> bytes:
        if not parts:
            parts.extend(_parts(message))
        made = []
        for required, choices in parts:
            missing = rng.random() < (wildness / 4 if required else 0.6)
            if not missing:
                made.append((choices[0] if len(choices) == 1 else rng.choice(choices))(rng, names, wildness))
        return b"".join(made)

    return make


def _parts(message: Descriptor) -> list[tuple[bool, list[Make]]]:
    """Fields, and the arms of each oneof as one part; whether it is needed."""
    parts = []
    for oneof in message.oneofs:
        if len(oneof.fields) > 1 or not oneof.name.startswith("_"):
            parts.append((True, [_field(field) for field in oneof.fields]))
    for field in message.fields:
        oneof = field.containing_oneof
        if oneof is None or (len(oneof.fields) == 1 and oneof.name.startswith("_")):
            parts.append((_needed(field) or (field.enum_type is not None and not field.is_repeated), [_field(field)]))
    return parts


def _rules(field: FieldDescriptor) -> validate_pb2.FieldRules:
    return field.GetOptions().Extensions[validate_pb2.field]  # type: ignore[index]


def _needed(field: FieldDescriptor) -> bool:
    """Whether its rules refuse what it is when it is absent."""
    rules = _rules(field)
    if rules.required or field.has_presence or rules.ignore == validate_pb2.IGNORE_IF_ZERO_VALUE:
        return rules.required
    kind = rules.WhichOneof("type")
    match kind:
        case "string":
            return bool(rules.string.min_len or (rules.string.pattern and not re.match(rules.string.pattern, "")))
        case "bytes":
            return bool(rules.bytes.len)
        case "repeated":
            return bool(rules.repeated.min_items)
        case "enum":
            return 0 in rules.enum.not_in
        case "map" | "bool" | None:
            return False
    return getattr(rules, kind).gte > 0


def _field(field: FieldDescriptor) -> Make:
    one = _single(field, _rules(field).repeated.items if field.is_repeated else _rules(field))
    if not field.is_repeated:
        return one
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        one = _entry(field, _rules(field).map)
        low, high = 0, _rules(field).map.max_pairs
    else:
        low, high = _rules(field).repeated.min_items, _rules(field).repeated.max_items

    def make(rng: Random, names: Names, wildness: float) -> bytes:
        count = low + rng.choice((0, 0, 1, 2, 3))
        if high and wildness and rng.random() < wildness / 25:
            count = min(rng.choice((high, high + 1, 2 * high)), 2000)
            # All alike, which is quick to make; what differs is below this.
            return one(rng, names, 0.0) * count
        # Twice now and then: twins where they are to differ, and of a map two values under one key.
        return b"".join([one(rng, names, wildness) for _ in range(count)]) * (2 if rng.random() < 0.03 else 1)

    return make


def _entry(field: FieldDescriptor, rules: Any) -> Make:
    """A pair of a map."""
    key, value = (
        _single(field.message_type.fields_by_name[name], getattr(rules, f"{name}s")) for name in ("key", "value")
    )

    def make(rng: Random, names: Names, wildness: float) -> bytes:
        keyed = key(rng, names, wildness)
        return bytes_field(field.number, keyed + value(rng, names, wildness))

    return make


def _single(field: FieldDescriptor, rules: Any) -> Make:
    number = field.number
    match field.type:
        case F.TYPE_MESSAGE:
            inner = _message(field.message_type)
            return lambda rng, names, wildness: bytes_field(number, inner(rng, names, wildness))
        case F.TYPE_STRING | F.TYPE_BYTES:
            text = _text(field, rules)
            return lambda rng, names, wildness: bytes_field(number, text(rng, names, wildness))
        case kind if kind in _FIXED:
            head = tag(number, 1 if _FIXED[kind] == 8 else 5)
            return lambda rng, _n, _w: head + hostile.double(rng.choice(hostile.DOUBLES))[: _FIXED[kind]]
    head, integer = tag(number, 0), _integer(field, rules)
    return lambda rng, names, wildness: head + varint(integer(rng, names, wildness))


def _integer(field: FieldDescriptor, rules: Any) -> Callable[[Random, Names, float], int]:
    if field.type == F.TYPE_BOOL:
        return lambda rng, _n, _w: rng.randrange(2)
    if field.type == F.TYPE_ENUM:
        numbers = [value.number for value in field.enum_type.values if value.number not in rules.enum.not_in]
        return _number(field.name, numbers)
    kind = rules.WhichOneof("type")
    bounds = getattr(rules, kind) if kind else None
    low = bounds.gte if bounds is not None else 0
    high = bounds.lte if bounds is not None and bounds.HasField("lte") else low + 20
    name = field.name

    def make(rng: Random, names: Names, wildness: float) -> int:
        if rng.random() < wildness:
            return rng.choice(hostile.INTEGERS)
        known = names.by_field.get(name)
        return rng.choice(known) if known and rng.random() < 0.7 else rng.randint(low, min(high, low + 20))

    return make


def _number(name: str, numbers: list[int]) -> Callable[[Random, Names, float], int]:
    """Of an enum."""

    def make(rng: Random, names: Names, wildness: float) -> int:
        if rng.random() < wildness:
            return rng.choice(hostile.INTEGERS)
        known = names.by_field.get(name)
        return rng.choice(known) if known and rng.random() < 0.5 else rng.choice(numbers)

    return make


def _text(field: FieldDescriptor, rules: Any) -> Callable[[Random, Names, float], bytes]:
    name = field.name.removesuffix("s")
    if field.type == F.TYPE_BYTES:
        size = rules.bytes.len or 8

        def fresh(rng: Random) -> bytes:
            return rng.randbytes(size)

        prefixes: list[str] = []
    else:
        bounds = rules.string
        prefix = _PREFIX.match(bounds.pattern)
        prefixes = prefix[1].split("|") if prefix else []
        if bounds.pattern:
            match = matching(bounds.pattern)

            def fresh(rng: Random) -> bytes:
                return match(rng).encode()
        else:
            low, high = bounds.min_len, min(bounds.max_len or bounds.max_bytes or 64, 300)

            def fresh(rng: Random) -> bytes:
                return rng.choice((b"a", "é".encode(), b" ", b"Zz")) * rng.randint(low, max(1, high // 8, low))

    def make(rng: Random, names: Names, wildness: float) -> bytes:
        roll = rng.random()
        if roll < wildness:
            return hostile.text(rng)
        known = [each for prefix in prefixes for each in names.by_prefix[prefix]] or names.by_field.get(name)
        if known and rng.random() < 0.85:
            value = known[names.focus % len(known)] if prefixes and rng.random() < 0.9 else rng.choice(known)
            return value if isinstance(value, bytes) else str(value).encode()
        return fresh(rng)

    return make


def _span(rng: Random, _names: Names, wildness: float) -> bytes:
    if rng.random() < wildness:
        seconds, nanos = rng.choice(hostile.SECONDS), rng.choice(hostile.NANOS)
    else:
        # In some years, or a length of some hours: whichever it is.
        seconds, nanos = rng.choice((60, 3600, 1_900_000_000, 2_500_000)), rng.choice((0, 1, 500_000_000))
    return b"\x08" + varint(seconds) + b"\x10" + varint(nanos)
