"""A harness's command as a person types it."""

import os
from collections.abc import Sequence
from pathlib import Path


def resolve_command(argv: Sequence[str], folder: Path) -> list[str]:
    """The command with what names something in `folder` made absolute.

    A harness is started in a working folder of its own, where `python harness.py` would find nothing. Changed are
    `.` and `..`, files that exist, and paths with a slash that exist, also behind `--option=`; the rest stays as it is.
    """
    return [_resolved(argument, folder) for argument in argv]


def _resolved(argument: str, folder: Path) -> str:
    if argument.startswith("-"):
        option, separator, value = argument.partition("=")
        return f"{option}={_resolved(value, folder)}" if separator and value else argument
    looks_like_path = argument in {".", ".."} or os.sep in argument or "." in argument
    if not looks_like_path or os.path.isabs(argument):
        return argument
    # `os.path` and not `Path`: an argument may be a whole program, which is too long a name to ask about.
    path = os.path.abspath(os.path.join(folder, argument))
    exists = os.path.isfile(path) or (os.path.exists(path) and (os.sep in argument or argument in {".", ".."}))
    return path if exists else argument
