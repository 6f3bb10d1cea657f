"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Literal

import typer

from turnlog_client import v1
from turnlog_client.errors import InvalidRequest

SessionId = Annotated[str, typer.Argument(help="sess_…", metavar="SESSION")]
RunId = Annotated[str, typer.Argument(help="run_…", metavar="RUN")]
Limit = Annotated[int, typer.Option(help="Most entries to list; 0 lists all.", min=0)]
RequestId = Annotated[
    str, typer.Option("--request-id", help="Your name for this request: repeating it with the same is safe.")
]
Reason = Annotated[str, typer.Option(help="Why, for people who read the log.")]
ActingPrincipal = Annotated[
    str, typer.Option("--principal", help="The principal to act as, prn_…; the key's own subject if left out.")
]
Labels = Annotated[list[str] | None, typer.Option("--label", help="NAME=VALUE, as often as you like.")]
AgentDeployment = Annotated[
    str,
    typer.Option("--agent-deployment", help="The deployment to start from, by name or id; the profile's if left out."),
]
Description = Annotated[str, typer.Option(help="For people.")]
RoleName = Literal["viewer", "contributor", "publisher", "manager", "runner"]


def worth_saying(text: str) -> str:
    """The text of a message. One without a word would start a turn about nothing. Raises InvalidRequest."""
    if not text.strip():
        raise InvalidRequest("There is nothing to say in an empty message: give a text, or - to read it from stdin.")
    return text


def pairs(texts: Sequence[str] | None, flag: str, form: str = "NAME=VALUE") -> dict[str, str]:
    """NAME=VALUE texts as a dict. form: what the flag's help calls it. Raises BadParameter."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{text!r} is not {form}.", param_hint=flag)
        found[name] = value
    return found


def role(name: RoleName | None) -> v1.Role:
    """The contract's role; ROLE_UNSPECIFIED for None."""
    return v1.Role[name.upper()] if name else v1.Role.UNSPECIFIED


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration(text: str) -> timedelta:
    """A duration such as 90s, 15m, 12h or 30d. Raises BadParameter."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)([smhd])", text.strip())
    if not match:
        raise typer.BadParameter(f"{text!r} is not a duration such as 90s, 15m, 12h or 30d.")
    return timedelta(**{_UNITS[match[2]]: float(match[1])})


def page_size(limit: int) -> int:
    """How many entries to ask for at once: no more than will be shown."""
    return min(limit, 500)
