"""What the command line says of a value that it cannot take, in words for people."""

from __future__ import annotations

import re

_PLAIN = (
    (r"^Value error, ", ""),
    (r"^Input should be ", "must be "),
    (r", unable to (parse|interpret) .*$", ""),
    (r"a valid number\b", "a number"),
    (r"a valid integer\b", "a whole number"),
    (r"greater than or equal to ", "at least "),
    (r"less than or equal to ", "at most "),
    (r"greater than ", "more than "),
)


def plain(message: str) -> str:
    """pydantic's words, which typer passes on, as a person would say it."""
    for found, instead in _PLAIN:
        message = re.sub(found, instead, message)
    return message
