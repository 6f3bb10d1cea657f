"""The `start` message, made to fit."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from turnlog_client.harness import limits


def start_message(
    *,
    session_id: str,
    run_id: str,
    parts: Sequence[str],
    attempt_no: int = 1,
    attempt_kind: str = "INITIAL",
    history: Sequence[Mapping[str, Any]] = (),
    instructions: str = "",
    tools: Sequence[Mapping[str, Any]] = (),
    deadline_seconds: float | None = None,
    workdir: str = "",
    env_root: str = "",
) -> dict[str, Any]:
    """A `start` as the schema has it.

    parts: the texts of the message. history: records oldest first, as `history_record` in the schema has them; the
    oldest are left out, and counted, when the line would be over `MAX_START_BYTES`.
    deadline_seconds: what is left, None without a limit. workdir, env_root: absolute paths.
    """
    start: dict[str, Any] = {
        "type": "start",
        "protocol": limits.PROTOCOL,
        "session_id": session_id,
        "run_id": run_id,
        "attempt_no": attempt_no,
        "attempt_kind": attempt_kind,
        "message": {"parts": [{"text": part} for part in parts], "text": "".join(parts)},
        "history": [],
        "history_omitted": 0,
        "instructions": instructions,
        "tools": [dict(tool) for tool in tools],
        "limits": limits.as_json(),
        "workdir": workdir,
        "env_root": env_root,
    }
    if deadline_seconds is not None:
        start["deadline_seconds"] = max(0.0, deadline_seconds)
    room = limits.MAX_START_BYTES - _size(start)
    kept: list[dict[str, Any]] = []
    for record in reversed(history):
        room -= _size(record) + 1
        if room < 0:
            break
        kept.append(dict(record))
    start["history"] = kept[::-1]
    start["history_omitted"] = len(history) - len(kept)
    return start


def _size(value: Mapping[str, Any]) -> int:
    """Bytes on the line, at most: with every character beyond ASCII escaped."""
    return len(json.dumps(value))
