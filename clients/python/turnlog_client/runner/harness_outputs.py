"""Turns a harness's lines into outputs: parsed, checked against the schema, made to fit the limits."""

import json
import logging
import math
from collections.abc import Callable
from typing import Any

from turnlog_client.harness import limits, schema
from turnlog_client.harness.payloads import PayloadError, clean_text, cut_text, shape, shape_usage, split_text
from turnlog_client.runner.harness_lines import Line
from turnlog_client.runner.outputs import HarnessEvent, Output, Preview, ProtocolError, Ready, Settle

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

PROTOCOL_ERROR = "harness.protocol_error"
PROTOCOL_UNSUPPORTED = "harness.protocol_unsupported"


class OutputParser:
    """Holds what the order of messages depends on.

    log: where the harness's log messages go, with level and text.
    complain: called with a text for the harness when it sent a message of an unknown type.
    """

    def __init__(self, log: Callable[[int, str], None], complain: Callable[[str], None]) -> None:
        self._log = log
        self._complain = complain
        self._ready = False

    def parse(self, line: Line) -> list[Output]:
        """The outputs of one line, mostly one. A `Settle` or `ProtocolError` is the last; feed nothing after it."""
        try:
            return self._parse(line)
        except _Broken as broken:
            return [ProtocolError(broken.code, f"Line {line.number} of the harness's output: {broken}.")]

    def _parse(self, line: Line) -> list[Output]:
        message = _decode(line)
        kind = message.get("type")
        if not isinstance(kind, str):
            raise _Broken('it must have the key "type", a string')
        handler = self._HANDLERS.get(kind)
        if handler is None:
            text = (
                f"Message type {kind[:64]!r} is not known in version {limits.PROTOCOL} of the protocol and is ignored."
            )
            self._log(logging.ERROR, text)
            self._complain(text)
            return []
        try:
            schema.check(kind, message)
            return handler(self, message, line)
        except (schema.SchemaError, PayloadError) as error:
            raise _Broken(f"{kind}: {error}") from None

    def _on_ready(self, message: dict[str, Any], line: Line) -> list[Output]:
        if message["protocol"] != limits.PROTOCOL:
            raise _Broken(
                f"the harness speaks version {message['protocol']} of the protocol, this runner {limits.PROTOCOL}",
                PROTOCOL_UNSUPPORTED,
            )
        if self._ready:
            self._log(logging.WARNING, "A second ready is ignored.")
            return []
        self._ready = True
        return [Ready(clean_text(message.get("name", ""))[:128])]

    def _on_event(self, message: dict[str, Any], line: Line) -> list[Output]:
        self._must_be_ready("event")
        event_type: str = message["event_type"]
        try:
            schema.check(event_type, message["payload"])
        except schema.SchemaError as error:
            raise _Broken(f"event {event_type}: payload: {error}") from None
        payload, cut = shape(event_type, message["payload"], already_cut=line.cut)
        return [HarnessEvent(event_type, payload, cut)]

    def _on_preview(self, message: dict[str, Any], line: Line) -> list[Output]:
        self._must_be_ready("preview")
        return [Preview(piece) for piece in split_text(clean_text(message["text"]), limits.MAX_PREVIEW_BYTES)]

    def _on_settle(self, message: dict[str, Any], line: Line) -> list[Output]:
        outputs: list[Output] = []
        usage = shape_usage(message.get("usage", {}))
        if usage and self._ready:
            # One carrier of usage: what sums it up never has to look in two places.
            outputs.append(HarnessEvent("model.called", {"model": "", "usage": usage}))
        if message["outcome"] == "succeeded":
            self._must_be_ready("settle with outcome succeeded")
            return [*outputs, Settle("succeeded")]
        error = message.get("error", {"code": "harness.failed", "message": "The harness gave no reason."})
        text, _ = cut_text(clean_text(error.get("message", "")), limits.MAX_ERROR_MESSAGE_BYTES)
        return [*outputs, Settle("failed", error["code"], text)]

    def _on_log(self, message: dict[str, Any], line: Line) -> list[Output]:
        text, cut = cut_text(clean_text(message["message"]), limits.MAX_LOG_BYTES)
        self._log(_LEVELS[message.get("level", "info")], text + (" [cut]" if cut else ""))
        return []

    def _must_be_ready(self, what: str) -> None:
        if not self._ready:
            raise _Broken(f"{what}: a ready must come before it")

    _HANDLERS: dict[str, Callable[["OutputParser", dict[str, Any], Line], list[Output]]] = {
        "ready": _on_ready,
        "event": _on_event,
        "preview": _on_preview,
        "settle": _on_settle,
        "log": _on_log,
    }


class _Broken(Exception):
    def __init__(self, message: str, code: str = PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.code = code


def _decode(line: Line) -> dict[str, Any]:
    if line.too_long:
        raise _Broken(f"it is over max_line_bytes ({limits.MAX_LINE_BYTES}) even with its long strings cut")
    try:
        message = json.loads(line.data.decode(), parse_constant=_refuse_constant, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise _Broken(f"it is not UTF-8 at byte {error.start + 1}") from None
    except RecursionError:
        raise _Broken("it is nested too deep") from None
    except ValueError as error:
        shown = ascii(line.data[:60].decode("utf-8", "replace"))
        raise _Broken(f"it is not JSON ({error}); it begins with {shown}") from None
    if not isinstance(message, dict):
        raise _Broken("it must be a JSON object")
    return message


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:32]} is out of range")
    return value
