"""Splits what a harness writes into lines of bounded size.

A line within the limit is kept as it is. In a longer one the long JSON strings, and then the long arrays and objects of
the payload, are cut while it is read: it stays JSON and the memory stays bounded, whatever its length. So a tool that
prints 64 MB costs its output, not the turn.
"""

import re
from dataclasses import dataclass

from turnlog_client.harness.limits import MAX_EVENT_BYTES, MAX_LINE_BYTES

# One byte of text takes up to six in JSON (`\u0000`). A string cut at this length still fills an event.
_MAX_STRING = 6 * MAX_EVENT_BYTES

# What a line that is over the limit may have beside its strings before an array or object is cut, and again after it.
_SLACK = 64 << 10

# A line that has this much more, and nothing that may be cut, is given up.
_HOPELESS = 8 * _SLACK

_SHORT = 256

# The message is level 1, a payload level 2; what is deeper may lose its end.
_CUT_LEVEL = 3

_STRUCTURE = re.compile(rb"[\[\]{},]")

# Everything up to a string's end, or up to a lone backslash that ends the chunk.
_STRING_BODY = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)

# Whole characters of a JSON string; the two halves of an escaped surrogate pair are one.
_WHOLE = re.compile(
    rb"(?:[^\\]++|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?=.{6}))"
    rb"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*+",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its line break.

    number: from 1. cut: something of it was cut. too_long: it was over the limit even so, and `data` is its beginning.
    """

    number: int
    data: bytes
    cut: bool = False
    too_long: bool = False


class LineReader:
    """Feed it chunks, get lines. Keeps at most `max_line` bytes and a little more."""

    def __init__(self, max_line: int = MAX_LINE_BYTES, max_string: int = _MAX_STRING) -> None:
        self._max_line = max_line
        self._max_string = max_string
        self._number = 0
        self._buffer = bytearray()
        self._cutter: _Cutter | None = None

    def feed(self, chunk: bytes) -> list[Line]:
        """The lines that this chunk completes. Blank ones are counted and left out."""
        lines: list[Line] = []
        *complete, rest = chunk.split(b"\n")
        for piece in complete:
            self._add(piece)
            self._finish(lines)
        self._add(rest)
        return lines

    def end(self) -> list[Line]:
        """What was left without a line break when the input ended: one line or none."""
        lines: list[Line] = []
        self._finish(lines)
        return lines

    def _add(self, piece: bytes) -> None:
        if self._cutter is not None:
            self._cutter.feed(piece)
            return
        self._buffer += piece
        if len(self._buffer) > self._max_line:
            self._cutter = _Cutter(self._max_line, self._max_string)
            self._cutter.feed(bytes(self._buffer))
            self._buffer = bytearray()

    def _finish(self, lines: list[Line]) -> None:
        self._number += 1
        if self._cutter is not None:
            lines.append(Line(self._number, bytes(self._cutter.kept), self._cutter.cut, self._cutter.too_long))
            self._cutter = None
        elif self._buffer.strip():
            lines.append(Line(self._number, bytes(self._buffer)))
        self._buffer = bytearray()


class _Cutter:
    """Copies one line of JSON and leaves out the ends of its long strings."""

    def __init__(self, max_line: int, max_string: int) -> None:
        self._max_line = max_line
        self._max_string = max_string
        self._soft_limit = max_line + _SLACK
        self._in_string = False
        self._string_start = 0
        self._room = 0
        self._escaped = False
        self._dropping = False
        self._level = 0
        # Where the open array or object of the cut level may end and still be JSON; below 0 where none is open.
        self._safe_end = -1
        self._skipping = False
        self.kept = bytearray()
        self.cut = False
        self.too_long = False

    def feed(self, data: bytes) -> None:
        at = 0
        while at < len(data) and not self.too_long:
            at = self._string(data, at) if self._in_string else self._outside(data, at)

    def _outside(self, data: bytes, at: int) -> int:
        quote = data.find(b'"', at)
        self._structure(data[at : quote if quote >= 0 else len(data)])
        if len(self.kept) > self._soft_limit:
            self._cut_structure()
        if quote < 0:
            return len(data)
        self._in_string = True
        self._dropping = self._skipping
        if not self._skipping:
            self.kept += b'"'
            self._string_start = len(self.kept)
            # A short string stays whole even now: it may be a key, such as that of `is_error` after the output.
            self._room = min(self._max_string, max(_SHORT, self._max_line - len(self.kept)))
        return quote + 1

    def _structure(self, segment: bytes) -> None:
        """Copies what stands between two strings, or only follows its levels while an array or object is left out."""
        done = 0
        for match in _STRUCTURE.finditer(segment):
            sign = match.group()
            if sign in b"[{":
                self._level += 1
                if self._level == _CUT_LEVEL and not self._skipping:
                    self.kept += segment[done : match.end()]
                    done = match.end()
                    self._safe_end = len(self.kept)
            elif sign == b",":
                if self._level == _CUT_LEVEL and not self._skipping:
                    self.kept += segment[done : match.start()]
                    done = match.start()
                    self._safe_end = len(self.kept)
            else:
                self._level -= 1
                if self._level == _CUT_LEVEL - 1:
                    self._safe_end = -1
                    if self._skipping:
                        self._skipping = False
                        done = match.start()
        if not self._skipping:
            self.kept += segment[done:]

    def _cut_structure(self) -> None:
        if self._safe_end >= 0 and not self._skipping and self._soft_limit < self._max_line + _HOPELESS:
            del self.kept[self._safe_end :]
            self.cut = True
            self._skipping = True
            self._soft_limit += _SLACK
        elif len(self.kept) > self._max_line + _HOPELESS:
            self.too_long = True

    def _string(self, data: bytes, at: int) -> int:
        if self._escaped:
            # The chunk before ended in a backslash; this byte belongs to it, a quote too.
            self._escaped = False
            self._keep(data[at : at + 1])
            at += 1
        match = _STRING_BODY.match(data, at)
        end = match.end() if match else at
        self._keep(data[at:end])
        if end == len(data):
            return end
        if data[end] == ord("\\"):
            self._escaped = True
            self._keep(b"\\")
        else:
            self._in_string = False
            if not self._skipping:
                self.kept += b'"'
        return end + 1

    def _keep(self, piece: bytes) -> None:
        if self._dropping or not piece:
            return
        room = self._room - (len(self.kept) - self._string_start)
        self.kept += piece[:room]
        if len(piece) > room:
            self._dropping = True
            self.cut = True
            whole = _whole_characters(bytes(self.kept[self._string_start :]))
            del self.kept[self._string_start + whole :]


def _whole_characters(body: bytes) -> int:
    """How many bytes of a cut JSON string are whole characters."""
    match = _WHOLE.match(body)
    end = match.end() if match else 0
    # A UTF-8 character that lost its tail: back to its first byte.
    for back in range(1, min(4, end) + 1):
        byte = body[end - back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return end if back >= length else end - back
    return end
