import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from turnlog.v1 import content_pb2 as _content_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_STATUS_UNSPECIFIED: _ClassVar[RunStatus]
    RUN_STATUS_QUEUED: _ClassVar[RunStatus]
    RUN_STATUS_RESOLVING: _ClassVar[RunStatus]
    RUN_STATUS_READY: _ClassVar[RunStatus]
    RUN_STATUS_PROVISIONING: _ClassVar[RunStatus]
    RUN_STATUS_RUNNING: _ClassVar[RunStatus]
    RUN_STATUS_WAITING: _ClassVar[RunStatus]
    RUN_STATUS_RECONCILING: _ClassVar[RunStatus]
    RUN_STATUS_SUCCEEDED: _ClassVar[RunStatus]
    RUN_STATUS_FAILED: _ClassVar[RunStatus]
    RUN_STATUS_INTERRUPTED: _ClassVar[RunStatus]
    RUN_STATUS_CANCELED: _ClassVar[RunStatus]

class AttemptStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTEMPT_STATUS_UNSPECIFIED: _ClassVar[AttemptStatus]
    ATTEMPT_STATUS_STARTING: _ClassVar[AttemptStatus]
    ATTEMPT_STATUS_RUNNING: _ClassVar[AttemptStatus]
    ATTEMPT_STATUS_PARKED: _ClassVar[AttemptStatus]
    ATTEMPT_STATUS_SETTLED: _ClassVar[AttemptStatus]
    ATTEMPT_STATUS_STARTUP_TIMEOUT: _ClassVar[AttemptStatus]
    ATTEMPT_STATUS_DEADLINE: _ClassVar[AttemptStatus]
    ATTEMPT_STATUS_LOST: _ClassVar[AttemptStatus]
    ATTEMPT_STATUS_ABANDONED: _ClassVar[AttemptStatus]
    ATTEMPT_STATUS_INTERRUPTED: _ClassVar[AttemptStatus]
    ATTEMPT_STATUS_CANCELED: _ClassVar[AttemptStatus]

class AttemptKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTEMPT_KIND_UNSPECIFIED: _ClassVar[AttemptKind]
    ATTEMPT_KIND_INITIAL: _ClassVar[AttemptKind]
    ATTEMPT_KIND_RETRY: _ClassVar[AttemptKind]
    ATTEMPT_KIND_CONTINUATION: _ClassVar[AttemptKind]
    ATTEMPT_KIND_RECOVERY: _ClassVar[AttemptKind]
RUN_STATUS_UNSPECIFIED: RunStatus
RUN_STATUS_QUEUED: RunStatus
RUN_STATUS_RESOLVING: RunStatus
RUN_STATUS_READY: RunStatus
RUN_STATUS_PROVISIONING: RunStatus
RUN_STATUS_RUNNING: RunStatus
RUN_STATUS_WAITING: RunStatus
RUN_STATUS_RECONCILING: RunStatus
RUN_STATUS_SUCCEEDED: RunStatus
RUN_STATUS_FAILED: RunStatus
RUN_STATUS_INTERRUPTED: RunStatus
RUN_STATUS_CANCELED: RunStatus
ATTEMPT_STATUS_UNSPECIFIED: AttemptStatus
ATTEMPT_STATUS_STARTING: AttemptStatus
ATTEMPT_STATUS_RUNNING: AttemptStatus
ATTEMPT_STATUS_PARKED: AttemptStatus
ATTEMPT_STATUS_SETTLED: AttemptStatus
ATTEMPT_STATUS_STARTUP_TIMEOUT: AttemptStatus
ATTEMPT_STATUS_DEADLINE: AttemptStatus
ATTEMPT_STATUS_LOST: AttemptStatus
ATTEMPT_STATUS_ABANDONED: AttemptStatus
ATTEMPT_STATUS_INTERRUPTED: AttemptStatus
ATTEMPT_STATUS_CANCELED: AttemptStatus
ATTEMPT_KIND_UNSPECIFIED: AttemptKind
ATTEMPT_KIND_INITIAL: AttemptKind
ATTEMPT_KIND_RETRY: AttemptKind
ATTEMPT_KIND_CONTINUATION: AttemptKind
ATTEMPT_KIND_RECOVERY: AttemptKind

class Run(_message.Message):
    __slots__ = ("run_id", "session_id", "status", "trigger", "attempt_no", "cost", "error", "pending_reason", "create_time", "start_time", "end_time")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_NO_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PENDING_REASON_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    session_id: str
    status: RunStatus
    trigger: RunTrigger
    attempt_no: int
    cost: _content_pb2.Cost
    error: _content_pb2.RunError
    pending_reason: str
    create_time: _timestamp_pb2.Timestamp
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    def __init__(self, run_id: _Optional[str] = ..., session_id: _Optional[str] = ..., status: _Optional[_Union[RunStatus, str]] = ..., trigger: _Optional[_Union[RunTrigger, _Mapping]] = ..., attempt_no: _Optional[int] = ..., cost: _Optional[_Union[_content_pb2.Cost, _Mapping]] = ..., error: _Optional[_Union[_content_pb2.RunError, _Mapping]] = ..., pending_reason: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class RunTrigger(_message.Message):
    __slots__ = ("event_id", "seq", "type")
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    event_id: str
    seq: int
    type: str
    def __init__(self, event_id: _Optional[str] = ..., seq: _Optional[int] = ..., type: _Optional[str] = ...) -> None: ...

class RunAttempt(_message.Message):
    __slots__ = ("attempt_no", "kind", "trigger_event_id", "status", "runner_id", "cost", "error", "accept_time", "ready_time", "end_time", "startup_deadline", "deadline", "runner_version")
    ATTEMPT_NO_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_TIME_FIELD_NUMBER: _ClassVar[int]
    READY_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    STARTUP_DEADLINE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    RUNNER_VERSION_FIELD_NUMBER: _ClassVar[int]
    attempt_no: int
    kind: AttemptKind
    trigger_event_id: str
    status: AttemptStatus
    runner_id: str
    cost: _content_pb2.Cost
    error: _content_pb2.RunError
    accept_time: _timestamp_pb2.Timestamp
    ready_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    startup_deadline: _timestamp_pb2.Timestamp
    deadline: _timestamp_pb2.Timestamp
    runner_version: str
    def __init__(self, attempt_no: _Optional[int] = ..., kind: _Optional[_Union[AttemptKind, str]] = ..., trigger_event_id: _Optional[str] = ..., status: _Optional[_Union[AttemptStatus, str]] = ..., runner_id: _Optional[str] = ..., cost: _Optional[_Union[_content_pb2.Cost, _Mapping]] = ..., error: _Optional[_Union[_content_pb2.RunError, _Mapping]] = ..., accept_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ready_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., startup_deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., runner_version: _Optional[str] = ...) -> None: ...
