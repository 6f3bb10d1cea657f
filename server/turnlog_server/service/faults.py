"""Mistakes of ours: logged whole for the operator, told to the caller as nothing but an id."""

import os

import structlog

from turnlog_server.domain.refusals import Reason, Refusal

log = structlog.get_logger(__name__)


def internal(what: str, fault: BaseException, **facts: str) -> Refusal:
    """The refusal for a call that failed inside the server. The log has a line with the same `call_id`."""
    call_id = os.urandom(8).hex()
    log.error(what, call_id=call_id, exc_info=fault, **facts)
    return Refusal(
        Reason.INTERNAL, f"The server made a mistake: tell its operator the id {call_id}.", {"call_id": call_id}
    )
