"""A tenant, and who and what belongs to it. Times are microseconds since the epoch."""

from dataclasses import dataclass
from enum import StrEnum

from turnlog_server.domain import ids
from turnlog_server.domain.access import VERBS, Caller, Role, Scope, covers
from turnlog_server.domain.pages import Position
from turnlog_server.domain.refusals import Reason, Refusal


@dataclass(frozen=True, slots=True)
class Workspace:
    """A tenant. `max_concurrent_runs` None means no limit."""

    workspace_id: str
    name: str
    max_concurrent_runs: int | None
    create_time: int


class SubjectKind(StrEnum):
    """What a key can speak for."""

    PRINCIPAL = "PRINCIPAL"
    SERVICE_ACCOUNT = "SERVICE_ACCOUNT"

    @property
    def resource(self) -> str:
        """How refusals call one."""
        return "principal" if self is SubjectKind.PRINCIPAL else "service account"

    @property
    def prefix(self) -> str:
        """What its ids begin with."""
        return ids.PRINCIPAL if self is SubjectKind.PRINCIPAL else ids.SERVICE_ACCOUNT


def kind_of(subject: str) -> SubjectKind:
    """The kind of the subject with this id."""
    return SubjectKind.PRINCIPAL if subject.startswith(ids.PRINCIPAL) else SubjectKind.SERVICE_ACCOUNT


@dataclass(frozen=True, slots=True)
class Subject:
    """A person or a program, with its one role in the workspace."""

    subject_id: str
    workspace_id: str
    kind: SubjectKind
    display_name: str
    role: Role
    create_time: int

    @property
    def position(self) -> Position:
        """Lists are newest first."""
        return (self.create_time, self.subject_id)


@dataclass(frozen=True, slots=True)
class RunnerPool:
    """A group of runners that claim from one queue."""

    workspace_id: str
    name: str
    description: str
    create_time: int

    @property
    def position(self) -> Position:
        """Lists are by name."""
        return (self.name,)


def require_covers(giver: Caller, given: Role) -> None:
    """Refuses to give, or to act for, a role that is more than the giver's own."""
    if not covers(giver.role, given):
        missing = min(VERBS[given] - VERBS[giver.role])
        raise Refusal(
            Reason.PERMISSION_MISSING,
            f"You cannot give {given}: it holds {missing}, which your own role does not. Ask a manager.",
            {"verb": missing.value, "scope": Scope.WORKSPACE.value},
        )


def require_manager_left(subject: Subject, becomes: Role, managers: int) -> None:
    """Refuses to leave a workspace with nobody who may manage it.

    managers: how many the workspace has, the subject included.
    """
    if subject.role is Role.MANAGER and becomes is not Role.MANAGER and managers <= 1:
        raise Refusal(
            Reason.ILLEGAL_TRANSITION,
            f"{subject.subject_id} is the last manager of the workspace: give MANAGER to another subject first.",
            {"from": Role.MANAGER.value, "to": becomes.value or "NONE"},
        )
