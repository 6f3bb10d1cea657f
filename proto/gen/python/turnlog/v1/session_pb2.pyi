import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from turnlog.v1 import content_pb2 as _content_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SessionStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SESSION_STATUS_UNSPECIFIED: _ClassVar[SessionStatus]
    SESSION_STATUS_PENDING: _ClassVar[SessionStatus]
    SESSION_STATUS_PROVISIONING: _ClassVar[SessionStatus]
    SESSION_STATUS_RUNNING: _ClassVar[SessionStatus]
    SESSION_STATUS_WAITING: _ClassVar[SessionStatus]
    SESSION_STATUS_PAUSED: _ClassVar[SessionStatus]
    SESSION_STATUS_RECONCILING: _ClassVar[SessionStatus]
    SESSION_STATUS_IDLE: _ClassVar[SessionStatus]
    SESSION_STATUS_COMPLETED: _ClassVar[SessionStatus]
    SESSION_STATUS_FAILED: _ClassVar[SessionStatus]
    SESSION_STATUS_CANCELED: _ClassVar[SessionStatus]

class StopReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STOP_REASON_UNSPECIFIED: _ClassVar[StopReason]
    STOP_REASON_END_TURN: _ClassVar[StopReason]
    STOP_REASON_REQUIRES_ACTION: _ClassVar[StopReason]
    STOP_REASON_INTERRUPTED: _ClassVar[StopReason]
    STOP_REASON_CANCELED: _ClassVar[StopReason]
    STOP_REASON_FAILED: _ClassVar[StopReason]
    STOP_REASON_COMPLETED: _ClassVar[StopReason]

class StatusBoundary(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATUS_BOUNDARY_UNSPECIFIED: _ClassVar[StatusBoundary]
    STATUS_BOUNDARY_NONE: _ClassVar[StatusBoundary]
    STATUS_BOUNDARY_TURN: _ClassVar[StatusBoundary]
    STATUS_BOUNDARY_ACTION_REQUIRED: _ClassVar[StatusBoundary]
    STATUS_BOUNDARY_TERMINAL: _ClassVar[StatusBoundary]
SESSION_STATUS_UNSPECIFIED: SessionStatus
SESSION_STATUS_PENDING: SessionStatus
SESSION_STATUS_PROVISIONING: SessionStatus
SESSION_STATUS_RUNNING: SessionStatus
SESSION_STATUS_WAITING: SessionStatus
SESSION_STATUS_PAUSED: SessionStatus
SESSION_STATUS_RECONCILING: SessionStatus
SESSION_STATUS_IDLE: SessionStatus
SESSION_STATUS_COMPLETED: SessionStatus
SESSION_STATUS_FAILED: SessionStatus
SESSION_STATUS_CANCELED: SessionStatus
STOP_REASON_UNSPECIFIED: StopReason
STOP_REASON_END_TURN: StopReason
STOP_REASON_REQUIRES_ACTION: StopReason
STOP_REASON_INTERRUPTED: StopReason
STOP_REASON_CANCELED: StopReason
STOP_REASON_FAILED: StopReason
STOP_REASON_COMPLETED: StopReason
STATUS_BOUNDARY_UNSPECIFIED: StatusBoundary
STATUS_BOUNDARY_NONE: StatusBoundary
STATUS_BOUNDARY_TURN: StatusBoundary
STATUS_BOUNDARY_ACTION_REQUIRED: StatusBoundary
STATUS_BOUNDARY_TERMINAL: StatusBoundary

class Session(_message.Message):
    __slots__ = ("session_id", "pins", "principal", "labels", "reusable", "status", "stop_reason", "active_run_id", "pending_action_ids", "queued_turns", "head_seq", "last_error", "create_time", "update_time")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    REUSABLE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PENDING_ACTION_IDS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_TURNS_FIELD_NUMBER: _ClassVar[int]
    HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    pins: SessionPins
    principal: str
    labels: _containers.ScalarMap[str, str]
    reusable: bool
    status: SessionStatus
    stop_reason: StopReason
    active_run_id: str
    pending_action_ids: _containers.RepeatedScalarFieldContainer[str]
    queued_turns: int
    head_seq: int
    last_error: _content_pb2.RunError
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    def __init__(self, session_id: _Optional[str] = ..., pins: _Optional[_Union[SessionPins, _Mapping]] = ..., principal: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., reusable: _Optional[bool] = ..., status: _Optional[_Union[SessionStatus, str]] = ..., stop_reason: _Optional[_Union[StopReason, str]] = ..., active_run_id: _Optional[str] = ..., pending_action_ids: _Optional[_Iterable[str]] = ..., queued_turns: _Optional[int] = ..., head_seq: _Optional[int] = ..., last_error: _Optional[_Union[_content_pb2.RunError, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SessionPins(_message.Message):
    __slots__ = ("agent_deployment_id", "agent_deployment_revision_number", "agent_id", "agent_version_number", "harness_profile_id", "sandbox_profile_id", "runner_pool", "max_duration_seconds")
    AGENT_DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_DEPLOYMENT_REVISION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    HARNESS_PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNER_POOL_FIELD_NUMBER: _ClassVar[int]
    MAX_DURATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    agent_deployment_id: str
    agent_deployment_revision_number: int
    agent_id: str
    agent_version_number: int
    harness_profile_id: str
    sandbox_profile_id: str
    runner_pool: str
    max_duration_seconds: int
    def __init__(self, agent_deployment_id: _Optional[str] = ..., agent_deployment_revision_number: _Optional[int] = ..., agent_id: _Optional[str] = ..., agent_version_number: _Optional[int] = ..., harness_profile_id: _Optional[str] = ..., sandbox_profile_id: _Optional[str] = ..., runner_pool: _Optional[str] = ..., max_duration_seconds: _Optional[int] = ...) -> None: ...
