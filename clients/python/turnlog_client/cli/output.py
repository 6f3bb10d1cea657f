"""Where answers go: JSON lines for machines, or tables and colour for people."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any, Literal, TypeVar

import betterproto2
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnlog_client.errors import TurnlogError

Item = TypeVar("Item")

# Before the end of a line, and before the escape sequences that stand there.
_TRAILING_SPACE = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)

_SERVICES = {
    "turnlog.v1": ["access", "agent", "event", "request", "run", "server", "session"],
    "turnlog.runner.v1": ["runner"],
}


class Output:
    """Writes to stdout what was asked for and to stderr what went wrong."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        for stream in (sys.stdout, sys.stderr):
            # A terminal that cannot show a character must not end the command.
            getattr(stream, "reconfigure", lambda **_: None)(errors="replace")
        # Only a terminal has a width that a table must fit.
        width = None if sys.stdout.isatty() else 10_000
        self.console = _console(width=width)
        self.stderr = _console(stderr=True)

    @property
    def live(self) -> bool:
        """Whether a person looks: text in the making and progress are shown only then."""
        return self.console.is_terminal and not self.as_json

    def line(self, value: Mapping[str, Any]) -> None:
        """One JSON line on stdout."""
        print(json.dumps(value, ensure_ascii=False), flush=True)

    def say(self, text: str, style: str = "") -> None:
        """A line for people on stdout. Nothing with --json."""
        if not self.as_json:
            self.console.print(Text(clean(text), style))

    def note(self, text: str, **fields: Any) -> None:
        """A remark beside the answer, on stderr."""
        if self.as_json:
            print(json.dumps({"note": text, **fields}, ensure_ascii=False), file=sys.stderr, flush=True)
        else:
            self.stderr.print(Text(clean(text), "dim"))

    def answer(self, message: betterproto2.Message, said: str = "", *, made: str = "") -> None:
        """The answer of a call that changed something: whole for machines, `said` for people.

        made: the id of what was made, or a key, which is all that is said where no person reads:
        `X=$(turnlog … create)`.
        """
        if self.as_json:
            self.line(as_dict(message))
        elif made and not sys.stdout.isatty():
            # Not `console.is_terminal`, which a CI system that asks for colours makes true.
            self.say(made)
        elif said:
            self.say(said)
        else:
            self.details(message)

    def resource(self, message: betterproto2.Message | None) -> None:
        """One thing that was read."""
        if message is None:
            return
        if self.as_json:
            self.line(as_dict(message))
        else:
            self.details(message)

    def details(self, message: betterproto2.Message) -> None:
        """A message for people: a line for each field that is set."""
        table = Table.grid(padding=(0, 2))
        for name, value in _fields(message):
            table.add_row(Text(name, "dim"), Text(clean(value)))
        self._table(table)

    async def rows(
        self, items: AsyncIterator[Item], columns: Mapping[str, Callable[[Item], object]], limit: int
    ) -> None:
        """A list: a JSON line for each entry as it comes, or one table. At most `limit` entries, 0 for all."""
        table = Table(box=None, pad_edge=False, header_style="dim")
        for title in columns:
            # An id is of no use when it is cut: what does not fit is folded, the id in front not even that.
            table.add_column(title, overflow="fold", no_wrap=not table.columns)
        count = 0
        async for item in items:
            if limit and count == limit:
                self.note(f"There are more than {limit}: --limit 0 lists all.", limit=limit)
                break
            count += 1
            if self.as_json:
                self.line(as_dict(item))  # pyright: ignore[reportArgumentType]
            else:
                table.add_row(*(Text(clean(shown(value(item)))) for value in columns.values()))
        if count and not self.as_json:
            self._table(table)

    def _table(self, table: Table) -> None:
        with self.console.capture() as captured:
            self.console.print(table)
        # Cells are filled up with spaces, also the last of a row.
        self.console.file.write(_TRAILING_SPACE.sub(r"\1", captured.get()))
        self.console.file.flush()

    def failure(self, error: TurnlogError, code: int, next_step: str) -> None:
        """What went wrong and what to do, on stderr."""
        if self.as_json:
            told = {
                "message": error.message,
                "code": error.code.name,
                "reason": error.reason,
                "metadata": error.metadata,
                "field_violations": [dataclasses.asdict(each) for each in error.field_violations],
                "retry_after_seconds": error.retry_after,
                "request_id": error.request_id,
                "next": next_step,
                "exit_code": code,
            }
            print(json.dumps({"error": {key: value for key, value in told.items() if value}}), file=sys.stderr)
            return
        self.stderr.print(Text.assemble(("error: ", "bold red"), clean(error.message)))
        for violation in error.field_violations[:20]:
            told = f"{violation.field}: {violation.description}"
            if told != error.message:
                self.stderr.print(Text(f"  {clean(told)}"))
        if error.reason:
            known = " ".join(f"{key}={value}" for key, value in sorted(error.metadata.items()))
            self.stderr.print(Text(clean(f"  {error.reason} {known}"), "dim"))
        if next_step:
            self.stderr.print(Text(f"  → {next_step}"))


def _console(**options: Any) -> Console:
    # rich leaves dim and bold where NO_COLOR is set; here they are part of the colouring.
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(soft_wrap=True, highlight=False, markup=False, emoji=False, color_system=colours, **options)


def raw(message: betterproto2.Message) -> Message:
    """The same message as its `_pb2` class has it, which knows proto JSON to the letter."""
    package = type(message).__module__.removeprefix("turnlog_client.messages.")
    for service in _SERVICES[package]:
        import_module(f"{package}.{service}_service_pb2")
    described = descriptor_pool.Default().FindMessageTypeByName(f"{package}.{type(message).__name__}")
    return message_factory.GetMessageClass(described).FromString(bytes(message))


def as_dict(message: betterproto2.Message | Message) -> dict[str, Any]:
    """Proto JSON, with the contract's own field names."""
    if isinstance(message, betterproto2.Message):
        message = raw(message)
    return MessageToDict(message, preserving_proto_field_name=True)


# Control characters but newline and tab, and those that turn the direction of text around.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Text without what would steer the terminal that it is shown on: other people wrote it."""
    return _STEERING.sub("\ufffd", text)


def shown(value: object) -> str:
    """One value for people."""
    match value:
        case None | "" | [] | {}:
            return ""
        case betterproto2.Enum():
            return (value.name or str(value.value)).lower() if value.value else ""
        case datetime():
            return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        case timedelta():
            return f"{value.total_seconds():g} s"
        case dict():
            return " ".join(f"{key}={shown(each)}" for key, each in sorted(value.items()))
        case list():
            return ", ".join(shown(each) for each in value)
        case betterproto2.Message():
            return " ".join(f"{name}={text}" for name, text in _fields(value))
        case bool():
            return "yes" if value else "no"
        case _:
            return str(value)


def _fields(message: betterproto2.Message, prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for field in dataclasses.fields(message):  # pyright: ignore[reportArgumentType]
        value = getattr(message, field.name)
        if isinstance(value, betterproto2.Message):
            found += _fields(value, f"{prefix}{field.name}.")
        elif text := shown(value):
            found.append((prefix + field.name, text))
    return found
