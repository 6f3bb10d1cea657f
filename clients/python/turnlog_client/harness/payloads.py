"""Event payloads made to fit: known keys only, text that is text, sizes within the limits.

Both sides use it: the library to spare the pipe, the runner because a harness may be written in anything.
What is too large is cut at a code point and marked. It is never a reason for a turn to fail.
"""

import base64
import binascii
import json
import math
from collections.abc import Callable, Iterable
from typing import Any

from turnlog_client.harness import limits

CUT_MARK = "\n[cut here: the rest was over the limit of {limit} bytes]"

_USAGE_COUNTS = ("input_tokens", "output_tokens", "cached_tokens", "amount_nanos")


class PayloadError(ValueError):
    """A payload that cannot be made to fit because it is wrong, not because it is large."""


def clean_text(text: str) -> str:
    """`text` without lone surrogates, which no encoding can carry: pairs are joined, the rest becomes U+FFFD.

    JSON allows them (`"\\ud83d"`), and Python makes them of file names that are not UTF-8. U+0000 stays.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def cut_text(text: str, max_bytes: int) -> tuple[str, bool]:
    """The longest beginning of `text` that has at most `max_bytes` bytes of UTF-8, and whether that is not all of it.

    `text` must be clean.
    """
    if len(text) * 4 <= max_bytes:
        return text, False
    max_bytes = max(max_bytes, 0)
    # A code point has at least one byte, so no more than this many can stay: a large text is not encoded whole.
    raw = text[: max_bytes + 1].encode()
    if len(raw) <= max_bytes:
        return text, False
    return raw[:max_bytes].decode("utf-8", "ignore"), True


def split_text(text: str, max_bytes: int) -> list[str]:
    """`text` in pieces of at most `max_bytes` bytes (4 or more), nothing lost. Empty text gives no piece."""
    pieces: list[str] = []
    while text:
        piece, _ = cut_text(text, max_bytes)
        pieces.append(piece)
        text = text[len(piece) :]
    return pieces


def shape(event_type: str, payload: dict[str, Any], *, already_cut: bool = False) -> tuple[dict[str, Any], bool]:
    """The payload as the contract takes it, and whether something of it was cut.

    event_type: one of the four that a harness may send; payload: checked against the schema.
    already_cut: an earlier step cut strings of it; then it is marked even if it fits now.
    Raises `PayloadError`.
    """
    return _SHAPES[event_type](payload, already_cut)


def shape_usage(usage: dict[str, Any]) -> dict[str, Any]:
    """Known keys of a usage, and only those that say something."""
    shaped: dict[str, Any] = {key: int(usage[key]) for key in _USAGE_COUNTS if usage.get(key)}
    if usage.get("currency"):
        shaped["currency"] = usage["currency"]
    return shaped


def _message(payload: dict[str, Any], already_cut: bool) -> tuple[dict[str, Any], bool]:
    mark = CUT_MARK.format(limit=limits.MAX_EVENT_BYTES)
    parts, _, cut = _cut_parts(payload["parts"], limits.MAX_EVENT_CONTENT_BYTES - len(mark))
    if cut or already_cut:
        # A message has no field that says so: its text does.
        parts[-1] = {"text": parts[-1]["text"] + mark}
    return {"parts": parts}, cut or already_cut


def _tool_use(payload: dict[str, Any], already_cut: bool) -> tuple[dict[str, Any], bool]:
    arguments, cut = fit_struct(payload.get("arguments", {}), limits.MAX_EVENT_CONTENT_BYTES)
    shaped = {"call_id": clean_text(payload["call_id"]), "name": clean_text(payload["name"]), "arguments": arguments}
    return shaped, cut or already_cut


def _tool_result(payload: dict[str, Any], already_cut: bool) -> tuple[dict[str, Any], bool]:
    parts, left, cut = _cut_parts(payload.get("parts", ()), limits.MAX_EVENT_CONTENT_BYTES)
    shaped: dict[str, Any] = {"call_id": clean_text(payload["call_id"]), "parts": parts}
    if payload.get("data"):
        data, data_cut = _cut_base64(payload["data"], left, already_cut)
        cut = cut or data_cut
        shaped["data"] = data
        if payload.get("media_type"):
            shaped["media_type"] = clean_text(payload["media_type"])
    if payload.get("is_error"):
        shaped["is_error"] = True
    cut = cut or already_cut or bool(payload.get("truncated"))
    if cut:
        shaped["truncated"] = True
    return shaped, cut


def _model_called(payload: dict[str, Any], already_cut: bool) -> tuple[dict[str, Any], bool]:
    model = clean_text(payload.get("model", ""))
    return {"model": model, "usage": shape_usage(payload["usage"])}, already_cut


_SHAPES: dict[str, Callable[[dict[str, Any], bool], tuple[dict[str, Any], bool]]] = {
    "agent.message": _message,
    "agent.tool_use": _tool_use,
    "agent.tool_result": _tool_result,
    "model.called": _model_called,
}


def _cut_parts(parts: Iterable[dict[str, Any]], room: int) -> tuple[list[dict[str, str]], int, bool]:
    """The parts that fit into `room` bytes, the room that is left, and whether something was cut."""
    kept: list[dict[str, str]] = []
    for part in parts:
        if kept and (room <= 0 or len(kept) == limits.MAX_PARTS):
            return kept, max(room, 0), True
        text, cut = cut_text(clean_text(part["text"]), room)
        kept.append({"text": text})
        if cut:
            return kept, 0, True
        # Tags and lengths of a part are at most this much.
        room -= len(text.encode()) + 16
    return kept, max(room, 0), False


def _cut_base64(data: str, room: int, already_cut: bool) -> tuple[str, bool]:
    """Base64 whose bytes fit into `room`, and whether some were cut."""
    longest = room // 3 * 4
    cut = len(data) > longest
    if cut or already_cut:
        # Four characters are three bytes; a cut elsewhere would leave something that is not base64.
        data = data[: min(longest, len(data) // 4 * 4)]
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PayloadError(f"payload.data is not base64: {error}") from None
    return data, cut


def fit_struct(value: dict[str, Any], max_bytes: int) -> tuple[dict[str, Any], bool]:
    """A JSON object within the contract's bounds of depth, entries and size, and whether something had to go.

    What is too deep becomes text that says so; too many entries are left out; strings that are too long are cut.
    """
    fitter = _StructFitter(max_bytes)
    return fitter.object(value, 1), fitter.cut


class _StructFitter:
    """Walks a JSON value once, spending a budget of bytes as protobuf would need them."""

    def __init__(self, room: int) -> None:
        self._room = room
        self.cut = False

    def object(self, value: dict[str, Any], depth: int) -> dict[str, Any]:
        fitted: dict[str, Any] = {}
        for key, child in value.items():
            name, cut = cut_text(clean_text(key), 1024)
            # The entry, its key, and the value inside, with their tags and lengths.
            self._room -= len(name.encode()) + 24
            if self._room < 0 or len(fitted) == limits.MAX_STRUCT_ENTRIES:
                self.cut = True
                break
            self.cut = self.cut or cut
            fitted[name] = self._value(child, depth)
        return fitted

    def _value(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            text, cut = cut_text(clean_text(value), self._room)
            self._room -= len(text.encode())
            self.cut = self.cut or cut
            return text
        if isinstance(value, dict | list) and depth >= limits.MAX_STRUCT_DEPTH:
            self.cut = True
            return "[cut here: too deep]"
        if isinstance(value, dict):
            return self.object(value, depth + 1)
        if isinstance(value, list):
            return self._list(value, depth + 1)
        if isinstance(value, int) and not isinstance(value, bool) and not _is_finite(value):
            self.cut = True
            return "[cut here: too large a number]"
        return value

    def _list(self, value: list[Any], depth: int) -> list[Any]:
        fitted: list[Any] = []
        for child in value:
            self._room -= 24
            if self._room < 0:
                self.cut = True
                break
            fitted.append(self._value(child, depth))
        return fitted


def _is_finite(value: int) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def encode_line(message: dict[str, Any]) -> bytes:
    """One line of the protocol. U+0000 and all else that JSON escapes is escaped; other characters stay as they are."""
    return clean_text(json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False)).encode() + b"\n"
