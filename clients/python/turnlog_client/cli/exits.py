"""What a command's exit code says, and what to do about an error."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from grpc import StatusCode

from turnlog_client.errors import OutcomeUnknown, TurnlogError
from turnlog_client.profile import ProfileError


class Exit(IntEnum):
    """Exit codes, for scripts; `docs/cookbook.md` has the same table."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    DENIED = 4
    CONFLICT = 5
    UNAVAILABLE = 6
    STOPPED = 7
    CTRL_C = 130


MEANINGS = {
    Exit.OK: "done; a turn that was waited for ended well",
    Exit.FAILED: "the Run or the Session failed, or the server has a defect",
    Exit.USAGE: "the command line, the profile or the request is wrong as it stands",
    Exit.NOT_FOUND: "it does not exist, or you may not know that it does",
    Exit.DENIED: "the key is missing, invalid or expired, or may not do this",
    Exit.CONFLICT: "the state does not allow it: a turn is active, the Session has ended, somebody was first",
    Exit.UNAVAILABLE: "the server cannot be reached, is overloaded or did not answer in time; try again",
    Exit.STOPPED: "the turn that was waited for was interrupted or canceled",
    Exit.CTRL_C: "Ctrl-C; nothing on the server stopped because of it",
}

_BY_CODE = {
    StatusCode.INVALID_ARGUMENT: Exit.USAGE,
    StatusCode.OUT_OF_RANGE: Exit.USAGE,
    StatusCode.UNIMPLEMENTED: Exit.USAGE,
    StatusCode.NOT_FOUND: Exit.NOT_FOUND,
    StatusCode.PERMISSION_DENIED: Exit.DENIED,
    StatusCode.UNAUTHENTICATED: Exit.DENIED,
    StatusCode.ABORTED: Exit.CONFLICT,
    StatusCode.ALREADY_EXISTS: Exit.CONFLICT,
    StatusCode.FAILED_PRECONDITION: Exit.CONFLICT,
    StatusCode.UNAVAILABLE: Exit.UNAVAILABLE,
    StatusCode.DEADLINE_EXCEEDED: Exit.UNAVAILABLE,
    StatusCode.RESOURCE_EXHAUSTED: Exit.UNAVAILABLE,
}

_NEXT = {
    "NOT_FOUND": "Check the id, and that your key is one of its workspace: turnlog server info",
    "PERMISSION_MISSING": "Ask a manager of the workspace for a role: turnlog role set SUBJECT ROLE",
    "DELEGATION_MISSING": "Leave --principal out to act as the key's own subject",
    "AUTHOR_NOT_ALLOWED": "Leave --principal out to act as the key's own subject",
    "CREDENTIAL_INVALID": "Give a key that works: --key, TURNLOG_KEY or a profile",
    "CREDENTIAL_EXPIRED": "Ask for a new key: turnlog key create SUBJECT --name NAME",
    "SESSION_BUSY": "Wait for the turn: turnlog session wait ID; or cancel it: turnlog run cancel ID RUN",
    "SESSION_TERMINAL": "Start another Session: turnlog session create",
    "SESSION_NOT_REUSABLE": "Start another Session: turnlog session create",
    "SEQ_CONFLICT": "Read what was appended meanwhile, then decide again: turnlog session events ID",
    "REQUEST_ID_REUSED": "Use a --request-id of its own for each request",
    "CURSOR_AHEAD": "Use an --after-seq at or below the head: turnlog session show ID",
    "HISTORY_TRIMMED": "Use an --after-seq at or above earliest_available_seq",
    "ALREADY_EXISTS": "Choose another name",
    "STORE_UNAVAILABLE": "Try again in a moment; turnlog-server check names what is wrong",
    "SERVER_DRAINING": "Try again in a moment",
    "QUOTA_EXCEEDED": "Wait until some of what is queued has ended, then try again",
    "API_VERSION_UNSUPPORTED": "Use a client made for this server",
    "INTERNAL": "Tell the server's operator the call_id: its log has a line with it",
}


def exit_for(error: TurnlogError) -> Exit:
    """The exit code of a command that ended with the error."""
    if isinstance(error, ProfileError):
        return Exit.USAGE
    return _BY_CODE.get(error.code, Exit.FAILED)


_PUBLISH = {
    "agent deployment revision": "deployment publish {} --agent AGENT --harness-profile PROFILE --sandbox-profile "
    "PROFILE",
    "agent version": "agent publish {} --instructions TEXT",
}
"""What to run where nothing was published yet, by what is missing."""


def next_step(error: TurnlogError, address: str, names: Mapping[str, str]) -> str:
    """What to do next, in one line; empty where nothing can be said. names: id to the name that was typed for it."""
    if isinstance(error, OutcomeUnknown) and error.request_id:
        return f"Repeat it with --request-id {error.request_id}: it will be done once"
    if error.code is StatusCode.UNAVAILABLE and not error.reason:
        return f"Is the server running at {address}? turnlog-server dev starts one; to one with TLS: --tls-ca CA.pem"
    if error.code is StatusCode.UNAUTHENTICATED and not error.reason:
        return _NEXT["CREDENTIAL_INVALID"]
    parent, _, number = error.metadata.get("id", "").rpartition("/")
    publish = _PUBLISH.get(error.metadata.get("resource", "")) if number == "0" else None
    if error.reason == "NOT_FOUND" and publish:
        return f"Publish the first one: turnlog {publish.format(names.get(parent, parent))}"
    return _NEXT.get(error.reason, "")
