"""A request as it arrives: parsed, checked against the rules of the contract and the limits, and fingerprinted."""

import hashlib
import re
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import protovalidate
from google.protobuf import struct_pb2
from google.protobuf.message import DecodeError, Message

from turnlog_server.domain import limits
from turnlog_server.domain.refusals import FieldViolation, Reason, Refusal, invalid

M = TypeVar("M", bound=Message)

# Of a larger message only the first mistake is named: a few megabytes have room for a million, and to list those would
# keep everybody else waiting for many seconds.
LISTED_BYTES: Final = 2048

UNPARSABLE: Final = "The request is not a valid message of the contract: check the field types, and that text is UTF-8."


def parse(kind: type[M], raw: bytes) -> M:
    """The message, within the limits and valid by the contract's rules. Raises Refusal naming what is wrong."""
    if len(raw) > limits.MESSAGE_BYTES:
        raise too_large("message_bytes", limits.MESSAGE_BYTES, len(raw), "Send less in one request.")
    try:
        message = kind.FromString(raw)
    except (DecodeError, RecursionError):
        raise Refusal(Reason.INVALID_FIELD, UNPARSABLE, {"field": ""}) from None
    try:
        violations = protovalidate.collect_violations(message, fail_fast=len(raw) > LISTED_BYTES)
    except (protovalidate.EvaluationError, protovalidate.CompilationError) as exc:
        raise invalid("", f"could not be checked: {type(exc).__name__}") from exc
    if violations:
        raise refused(violations)
    return message


def valid(message: Message) -> bool:
    """Whether the rules of the contract hold for a message."""
    return not protovalidate.collect_violations(message, fail_fast=True)


def refused(violations: list[protovalidate.Violation]) -> Refusal:
    """All that is wrong with a request, in one refusal."""
    fields = [FieldViolation(_path(violation), _says(violation)) for violation in violations]
    more = f" (and {len(fields) - 1} more)" if len(fields) > 1 else ""
    first = fields[0]
    return Refusal(
        Reason.INVALID_FIELD, f"{first.field}: {first.description}{more}", {"field": first.field}, tuple(fields)
    )


def fingerprint(message: Message) -> bytes:
    """SHA-256 over our own deterministic serialisation of the request without its id, which the message keeps."""
    request_id: str = message.request_id  # type: ignore[attr-defined]
    message.ClearField("request_id")
    raw = message.SerializeToString(deterministic=True)
    message.request_id = request_id  # type: ignore[attr-defined]
    return hashlib.sha256(raw).digest()


def check_payload(field: str, size: int) -> None:
    """Refuses an event that is larger than one may be."""
    if size > limits.EVENT_PAYLOAD_BYTES:
        raise too_large(
            "event_payload_bytes", limits.EVENT_PAYLOAD_BYTES, size, f"{field}: upload it as a file and attach that."
        )


def check_struct(field: str, struct: struct_pb2.Struct) -> None:
    """Refuses what some language could not read back: too deep, too wide, or a number that JSON has not."""
    pending: list[tuple[str, Any, int]] = [(field, struct, 1)]
    while pending:
        path, value, depth = pending.pop()
        if depth > limits.STRUCT_DEPTH:
            raise too_large("struct_depth", limits.STRUCT_DEPTH, depth, f"{field}: nest less.")
        pending.extend(_inside(path, value, depth))


def _inside(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any, int]]:
    if isinstance(value, struct_pb2.Struct):
        if len(value.fields) > limits.STRUCT_ENTRIES:
            raise too_large("struct_entries", limits.STRUCT_ENTRIES, len(value.fields), f"{path}: use fewer keys.")
        for key, inner in value.fields.items():
            yield from _value(f"{path}.{key}", inner, depth)
    else:
        if len(value.values) > limits.STRUCT_ENTRIES:
            raise too_large("struct_entries", limits.STRUCT_ENTRIES, len(value.values), f"{path}: use fewer items.")
        for index, inner in enumerate(value.values):
            yield from _value(f"{path}[{index}]", inner, depth)


def _value(path: str, value: struct_pb2.Value, depth: int) -> Iterator[tuple[str, Any, int]]:
    match value.WhichOneof("kind"):
        case "struct_value":
            yield path, value.struct_value, depth + 1
        case "list_value":
            yield path, value.list_value, depth + 1
        case "number_value":
            number = value.number_value
            if number != number or number in (float("inf"), float("-inf")):
                raise invalid(path, "must be a finite number")
        case None:
            raise invalid(path, "holds no value: write null where none is meant")


def too_large(limit: str, maximum: int, actual: int, advice: str) -> Refusal:
    """A documented limit was passed."""
    return Refusal(
        Reason.LIMIT_EXCEEDED,
        f"{limit} is at most {maximum}, this is {actual}. {advice}",
        {"limit": limit, "maximum": str(maximum), "actual": str(actual)},
    )


# The forms of the contract in words: a regular expression tells a person little.
_FORMS: Final = {
    "^[ -~]{1,128}$": "must be 1 to 128 printable ASCII characters",
    "^[a-z0-9][a-z0-9._-]{0,62}$": "must be lower-case letters, digits, '.', '_' and '-', at most 63 characters",
    "^(prn|svc)_[0-9a-z]{1,59}$": "must be an id of the form prn_… or svc_…",
    "^[^\\x00-\\x1f\\x7f]*$": "must hold no control character",
}
_ID_FORM: Final = re.compile(r"\^([a-z]+_)\[")
_PATTERN: Final = re.compile(r"`(.*)`", re.DOTALL)


def _says(violation: protovalidate.Violation) -> str:
    """What is wrong with a field, for a person."""
    stated = violation.proto.message or "is not valid"
    quoted = _PATTERN.search(stated)
    if violation.proto.rule_id != "string.pattern" or quoted is None:
        return stated
    if of_id := _ID_FORM.match(quoted[1]):
        return f"must be an id of the form {of_id[1]}…"
    return _FORMS.get(quoted[1], stated)


def _path(violation: protovalidate.Violation) -> str:
    path = ""
    for element in violation.proto.field.elements if violation.proto.field else ():
        path += ("." if path else "") + element.field_name
        match element.subscript:
            case None:
                pass
            case subscript:
                path += f"[{subscript.value}]"
    return path
