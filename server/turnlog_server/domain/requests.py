"""Idempotency: what is remembered of a request that was accepted."""

from dataclasses import dataclass

from turnlog_server.domain.refusals import Reason, Refusal


@dataclass(frozen=True, slots=True)
class RequestKey:
    """Whose request it is.

    scope: the Session, or the workspace for calls that name none.
    caller: the subject behind the key, so that a rotated key finds its own requests.
    method: the RPC's short name.
    """

    scope: str
    caller: str
    method: str
    request_id: str


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """A request and what it came to.

    resource_id: what it made or changed.
    seq, event_id, run_id: the event that it appended and the Run that it made; 0 and empty where there is none.
    accept_time: microseconds since the epoch, by the database's clock; 0 until it is stored.
    """

    key: RequestKey
    fingerprint: bytes
    resource_id: str
    seq: int = 0
    event_id: str = ""
    run_id: str = ""
    accept_time: int = 0


def require_same(accepted: AcceptedRequest, fingerprint: bytes) -> None:
    """Refuses another request under a name that is used."""
    if accepted.fingerprint != fingerprint:
        request_id = accepted.key.request_id
        raise Refusal(
            Reason.REQUEST_ID_REUSED,
            f"The request_id {request_id} was used before with another request: choose a new one for this request.",
            {"request_id": request_id},
        )
