"""The contract as its descriptors tell it, and messages of every type: one full sample, or any."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import turnlog
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

WELL_KNOWN = ("google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.Struct")
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)


def modules() -> list[Any]:
    """Every generated module of the two packages of the contract."""
    root = Path(next(iter(turnlog.__path__)))
    paths = sorted([*root.glob("v1/*_pb2.py"), *root.glob("runner/v1/*_pb2.py")])
    return [
        importlib.import_module("turnlog." + ".".join(path.relative_to(root).with_suffix("").parts)) for path in paths
    ]


def _with_nested(message: Descriptor) -> Iterator[Descriptor]:
    yield message
    for nested in message.nested_types:
        if not nested.GetOptions().map_entry:
            yield from _with_nested(nested)


MODULES = modules()
SERVICES: list[ServiceDescriptor] = [s for m in MODULES for s in m.DESCRIPTOR.services_by_name.values()]
METHODS: list[MethodDescriptor] = [method for service in SERVICES for method in service.methods]
MESSAGES: list[Descriptor] = [
    message
    for module in MODULES
    for top in module.DESCRIPTOR.message_types_by_name.values()
    for message in _with_nested(top)
]
ENUMS: list[EnumDescriptor] = [
    *(enum for module in MODULES for enum in module.DESCRIPTOR.enum_types_by_name.values()),
    *(enum for message in MESSAGES for enum in message.enum_types),
]


def inside(message: Descriptor, seen: set[str] | None = None) -> Iterator[Descriptor]:
    """The message and every message of ours that it may hold."""
    seen = set() if seen is None else seen
    if message.full_name in seen or not message.full_name.startswith("turnlog."):
        return
    seen.add(message.full_name)
    yield message
    for field in message.fields:
        if field.message_type is not None:
            yield from inside(field.message_type, seen)


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def arms(message: Descriptor, oneof: str) -> dict[str, FieldDescriptor]:
    return {field.name: field for field in message.oneofs_by_name[oneof].fields}


def _real_oneofs(message: Descriptor) -> list[Any]:
    return [oneof for oneof in message.oneofs if not oneof.name.startswith("_")]


# A sample: every field set, to a value that tells it from its neighbours.


def sample(message: Descriptor, arm: str = "", depth: int = 0) -> Message:
    """Every field filled in; of a oneof the arm that is named, else its first."""
    made = GetMessageClass(message)()
    chosen = {
        oneof.name: next((f.name for f in oneof.fields if f.name == arm), oneof.fields[0].name)
        for oneof in _real_oneofs(message)
    }
    for field in message.fields:
        oneof = field.containing_oneof
        if oneof is not None and chosen.get(oneof.name, field.name) != field.name:
            continue
        if field.message_type is not None and depth > 3:
            continue
        if is_map(field):
            value = field.message_type.fields_by_name["value"]
            for key in ("a", "b"):
                getattr(made, field.name)[key] = _sampled(value, depth)
        elif field.is_repeated:
            values = [_sampled(field, depth), _sampled(field, depth)]
            getattr(made, field.name).extend(values)
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(_sampled(field, depth))
        else:
            setattr(made, field.name, _sampled(field, depth))
    return made


def _sampled(field: FieldDescriptor, depth: int) -> Any:
    number = field.number
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_MESSAGE:
            return _sampled_message(field.message_type, depth)
        case FieldDescriptor.CPPTYPE_STRING:
            return (
                f"{field.name} é".encode() + b"\0\xff"
                if field.type == FieldDescriptor.TYPE_BYTES
                else f"{field.name} é\0"
            )
        case FieldDescriptor.CPPTYPE_BOOL:
            return True
        case FieldDescriptor.CPPTYPE_ENUM:
            return field.enum_type.values[1].number
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return number + 0.5
    return number * 1_000 + 7


def _sampled_message(kind: Descriptor, depth: int) -> Message:
    made = GetMessageClass(kind)()
    match kind.full_name:
        case "google.protobuf.Timestamp":
            made.FromMicroseconds(1_800_000_000_123_456)  # type: ignore[attr-defined]
        case "google.protobuf.Duration":
            made.FromMicroseconds(61_500_000)  # type: ignore[attr-defined]
        case "google.protobuf.Struct":
            made.update({"text": "é", "list": [1, None, True], "deep": {"n": 1.5}})  # type: ignore[attr-defined]
        case _:
            return sample(kind, depth=depth + 1)
    return made


# Whatever fits the types, sensible or not.

INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)


@st.composite
def messages(draw: st.DrawFn, kind: Descriptor, depth: int = 0) -> Message:
    """Any message of this type."""
    made = GetMessageClass(kind)()
    if kind.full_name in WELL_KNOWN:
        _draw_well_known(draw, made)
        return made
    chosen = {oneof.name: draw(st.sampled_from([None, *oneof.fields])) for oneof in _real_oneofs(kind)}
    for field in kind.fields:
        oneof = field.containing_oneof
        if oneof is not None and oneof.name in chosen:
            if chosen[oneof.name] is not field:
                continue
        elif not draw(st.booleans()):
            continue
        if field.message_type is not None and depth > 2:
            continue
        _draw_field(draw, made, field, depth)
    return made


def _draw_field(draw: st.DrawFn, made: Message, field: FieldDescriptor, depth: int) -> None:
    if is_map(field):
        value = field.message_type.fields_by_name["value"]
        getattr(made, field.name).update(draw(st.dictionaries(TEXT, _values(value, depth), max_size=2)))
    elif field.is_repeated:
        getattr(made, field.name).extend(draw(st.lists(_values(field, depth), max_size=2)))
    elif field.message_type is not None:
        getattr(made, field.name).CopyFrom(draw(_values(field, depth)))
    else:
        setattr(made, field.name, draw(_values(field, depth)))


def _values(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_MESSAGE:
            return messages(field.message_type, depth + 1)
        case FieldDescriptor.CPPTYPE_STRING:
            return st.binary(max_size=8) if field.type == FieldDescriptor.TYPE_BYTES else TEXT
        case FieldDescriptor.CPPTYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.CPPTYPE_ENUM:
            return st.sampled_from([value.number for value in field.enum_type.values])
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return st.floats(allow_nan=False, width=32)
    return INTEGERS[field.cpp_type]


def _draw_well_known(draw: st.DrawFn, made: Any) -> None:
    match made.DESCRIPTOR.name:
        case "Timestamp":
            made.FromMicroseconds(draw(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)))
        case "Duration":
            # None of the contract is below zero, which betterproto2 writes wrongly.
            made.FromMicroseconds(draw(st.integers(0, 10**15)))
        case _:
            made.update(draw(st.dictionaries(TEXT, JSON, max_size=2)))
