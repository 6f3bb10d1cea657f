"""Mistakes on the command line and in the settings, in words for whoever makes them."""

import re
from collections.abc import Sequence

import typer

# Base of every error of the command line itself; typer has a copy of click of its own, so it is not click's.
UsageError: type[Exception] = typer.BadParameter.__mro__[2]
MISTAKEN = 2

_PLAIN = (
    (r"^Value error, ", ""),
    (r"^Input should be ", "must be "),
    (r", unable to (parse|interpret) .*$", ""),
    (r"a valid number\b", "a number"),
    (r"a valid integer\b", "a whole number"),
    (r"a valid boolean\b", "true or false"),
    (r"greater than or equal to ", "at least "),
    (r"less than or equal to ", "at most "),
    (r"greater than ", "more than "),
)


def plain(message: str) -> str:
    """What pydantic says of a value, as a person would."""
    for found, instead in _PLAIN:
        message = re.sub(found, instead, message)
    return message


def invoke(app: typer.Typer, arguments: Sequence[str], name: str) -> int:
    """Runs one command line and returns its exit code."""
    try:
        code = typer.main.get_command(app).main(list(arguments), prog_name=name, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except UsageError as error:
        error.message = plain(error.message)  # pyright: ignore[reportAttributeAccessIssue]
        error.show()  # pyright: ignore[reportAttributeAccessIssue]
        return MISTAKEN
    except typer.Abort:
        return 130
