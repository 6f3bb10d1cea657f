"""The status of a Session is a function of its active Run and its terminal mark; its legal steps follow from that."""

from itertools import pairwise
from typing import Final

from turnlog_server.domain.session import RunStatus, SessionState, Status

OF_RUN: Final = {
    RunStatus.QUEUED: Status.PENDING,
    RunStatus.RESOLVING: Status.PENDING,
    RunStatus.READY: Status.PENDING,
    RunStatus.PROVISIONING: Status.PROVISIONING,
    RunStatus.RUNNING: Status.RUNNING,
    RunStatus.WAITING: Status.WAITING,
    RunStatus.RECONCILING: Status.RECONCILING,
}

S = Status
LEGAL: Final[dict[Status, frozenset[Status]]] = {
    S.IDLE: frozenset({S.PENDING, S.COMPLETED, S.CANCELED, S.FAILED}),
    S.PENDING: frozenset({S.PROVISIONING, S.IDLE, S.FAILED, S.CANCELED}),
    S.PROVISIONING: frozenset({S.RUNNING, S.PENDING, S.IDLE, S.FAILED, S.CANCELED}),
    S.RUNNING: frozenset(
        {S.WAITING, S.PAUSED, S.RECONCILING, S.IDLE, S.PENDING, S.COMPLETED, S.FAILED, S.CANCELED},
    ),
    S.WAITING: frozenset({S.RUNNING, S.PENDING, S.PAUSED, S.IDLE, S.FAILED, S.CANCELED}),
    S.PAUSED: frozenset({S.PENDING, S.IDLE, S.FAILED, S.CANCELED}),
    S.RECONCILING: frozenset({S.IDLE, S.COMPLETED, S.FAILED, S.CANCELED}),
    S.COMPLETED: frozenset(),
    S.FAILED: frozenset(),
    S.CANCELED: frozenset(),
}
FIRST: Final = frozenset({S.IDLE, S.PENDING})
del S


def status_of(state: SessionState) -> Status:
    """The status that the Session has to show."""
    if state.terminal:
        return state.status
    return Status.IDLE if state.active is None else OF_RUN[state.active.status]


def legal_path(statuses: list[Status]) -> bool:
    """True when a Session may show these statuses one after another, from its first event on."""
    if not statuses:
        return True
    return statuses[0] in FIRST and all(after in LEGAL[before] for before, after in pairwise(statuses))
