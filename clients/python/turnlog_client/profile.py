"""Where a client finds its server: a small private file, that `turnlog-server dev` writes.

    {"address": "127.0.0.1:7777", "key": "tlk_…", "workspace_id": "ws_…", "agent_deployment_id": "adep_…"}

and `"ca_file"` where the server has a certificate of its own making; a relative one starts at the profile's folder.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from turnlog_client.errors import TurnlogError

NAME = Path(".turnlog", "profile.json")

_KEY = re.compile(r"tlk_[0-9A-Za-z_]+")


class ProfileError(TurnlogError):
    """No server is named, or the file that should name it cannot be used; the message says what to do."""


@dataclass(frozen=True)
class Profile:
    """One server, and who you are to it. Empty text where the file names none."""

    address: str
    key: str = ""
    workspace_id: str = ""
    agent_deployment_id: str = ""
    ca_file: Path | None = None


def is_key(text: str) -> bool:
    """Whether the text is one API key and nothing else. gRPC would refuse other text without a word about the key."""
    return _KEY.fullmatch(text) is not None


def find_profile(
    named: str | Path | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    start: Path | None = None,
) -> Profile | None:
    """The profile to use, None when there is none.

    Looks at `named`, then TURNLOG_PROFILE, then `.turnlog/profile.json` in `start` (the working directory) and its
    parents, then `turnlog/profile.json` under XDG_CONFIG_HOME. A file that was named must be there.

    Raises ProfileError.
    """
    named = named or environ.get("TURNLOG_PROFILE")
    if named:
        return read_profile(Path(named).expanduser())
    for path in _places(environ, start or Path.cwd()):
        if path.is_file():
            _refuse_a_stranger(path)
            return read_profile(path)
    return None


def read_profile(path: Path) -> Profile:
    """Reads one file. Raises ProfileError when it is missing, readable by others, or not a profile."""
    try:
        mode = path.stat().st_mode
        # Windows keeps no such bits.
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            raise ProfileError(f"{path} holds a key and can be read by others. Run: chmod 600 {path}")
        found = json.loads(path.read_text("utf-8"))
        ca_file = found.get("ca_file")
        return Profile(
            address=found["address"],
            key=found.get("key", ""),
            workspace_id=found.get("workspace_id", ""),
            agent_deployment_id=found.get("agent_deployment_id", ""),
            ca_file=path.parent / ca_file if ca_file else None,
        )
    except OSError as error:
        raise ProfileError(f"The profile {path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProfileError(f'{path} is not a profile: JSON with at least "address" is expected.') from error


def _places(environ: Mapping[str, str], start: Path) -> Iterator[Path]:
    for folder in (start, *start.parents):
        yield folder / NAME
    home = environ.get("XDG_CONFIG_HOME")
    yield (Path(home) if home else Path("~/.config").expanduser()) / "turnlog" / "profile.json"


def _refuse_a_stranger(path: Path) -> None:
    # A file that was found by walking up, in /tmp say, could send what you write to somebody else's server.
    if os.name == "posix" and path.stat().st_uid not in (os.geteuid(), 0):
        raise ProfileError(f"{path} belongs to another user. To use it all the same, name it: --profile {path}")
