"""Principals, service accounts, keys and pools as messages of the contract."""

from typing import Final

from turnlog.v1 import access_pb2 as pb

from turnlog_server.domain.access import Role
from turnlog_server.domain.credentials import ApiKey
from turnlog_server.domain.workspace import RunnerPool, Subject, Workspace
from turnlog_server.wire.enums import Enum
from turnlog_server.wire.times import timestamp

ROLE: Final = Enum(pb.Role, "ROLE_", Role)


def workspace_message(workspace: Workspace) -> pb.Workspace:
    """A workspace."""
    return pb.Workspace(
        workspace_id=workspace.workspace_id,
        name=workspace.name,
        max_concurrent_runs=workspace.max_concurrent_runs,
        create_time=timestamp(workspace.create_time),
    )


def principal_message(subject: Subject) -> pb.Principal:
    """A subject that is a principal."""
    return pb.Principal(
        principal_id=subject.subject_id,
        display_name=subject.display_name,
        role=role_number(subject.role),
        create_time=timestamp(subject.create_time),
    )


def service_account_message(subject: Subject) -> pb.ServiceAccount:
    """A subject that is a service account."""
    return pb.ServiceAccount(
        service_account_id=subject.subject_id,
        display_name=subject.display_name,
        role=role_number(subject.role),
        create_time=timestamp(subject.create_time),
    )


def api_key_message(key: ApiKey) -> pb.ApiKey:
    """A key, without its secret."""
    message = pb.ApiKey(
        api_key_id=key.api_key_id,
        display_name=key.display_name,
        subject=key.subject,
        runner_pools=key.runner_pools,
        rotated_from=key.rotated_from,
        create_time=timestamp(key.create_time),
        prefix=key.prefix,
    )
    if key.expire_time:
        message.expire_time.CopyFrom(timestamp(key.expire_time))
    if key.revoke_time:
        message.revoke_time.CopyFrom(timestamp(key.revoke_time))
    return message


def runner_pool_message(pool: RunnerPool) -> pb.RunnerPool:
    """A runner pool."""
    return pb.RunnerPool(name=pool.name, description=pool.description, create_time=timestamp(pool.create_time))


def role_number(role: Role) -> pb.Role:
    """A role for the contract."""
    return ROLE.number(role)  # type: ignore[return-value]


def role_of(number: int) -> Role:
    """A role from the contract."""
    return ROLE.value(number)
