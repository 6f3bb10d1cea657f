import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from turnlog.v1 import content_pb2 as _content_pb2
from turnlog.v1 import run_pb2 as _run_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunQueued(_message.Message):
    __slots__ = ("trigger_event_id", "trigger_seq", "turns_ahead", "trigger_type")
    TRIGGER_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_SEQ_FIELD_NUMBER: _ClassVar[int]
    TURNS_AHEAD_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_TYPE_FIELD_NUMBER: _ClassVar[int]
    trigger_event_id: str
    trigger_seq: int
    turns_ahead: int
    trigger_type: str
    def __init__(self, trigger_event_id: _Optional[str] = ..., trigger_seq: _Optional[int] = ..., turns_ahead: _Optional[int] = ..., trigger_type: _Optional[str] = ...) -> None: ...

class RunReady(_message.Message):
    __slots__ = ("next_attempt_kind", "queue_deadline")
    NEXT_ATTEMPT_KIND_FIELD_NUMBER: _ClassVar[int]
    QUEUE_DEADLINE_FIELD_NUMBER: _ClassVar[int]
    next_attempt_kind: _run_pb2.AttemptKind
    queue_deadline: _timestamp_pb2.Timestamp
    def __init__(self, next_attempt_kind: _Optional[_Union[_run_pb2.AttemptKind, str]] = ..., queue_deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class RunAttemptStarted(_message.Message):
    __slots__ = ("kind", "runner_id", "runner_version", "startup_deadline", "deadline")
    KIND_FIELD_NUMBER: _ClassVar[int]
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNER_VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTUP_DEADLINE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    kind: _run_pb2.AttemptKind
    runner_id: str
    runner_version: str
    startup_deadline: _timestamp_pb2.Timestamp
    deadline: _timestamp_pb2.Timestamp
    def __init__(self, kind: _Optional[_Union[_run_pb2.AttemptKind, str]] = ..., runner_id: _Optional[str] = ..., runner_version: _Optional[str] = ..., startup_deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class RunAttemptEnded(_message.Message):
    __slots__ = ("status", "error", "cost")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    status: _run_pb2.AttemptStatus
    error: _content_pb2.RunError
    cost: _content_pb2.Cost
    def __init__(self, status: _Optional[_Union[_run_pb2.AttemptStatus, str]] = ..., error: _Optional[_Union[_content_pb2.RunError, _Mapping]] = ..., cost: _Optional[_Union[_content_pb2.Cost, _Mapping]] = ...) -> None: ...

class RunEnded(_message.Message):
    __slots__ = ("status", "error", "cost", "attempts", "was_queued")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    WAS_QUEUED_FIELD_NUMBER: _ClassVar[int]
    status: _run_pb2.RunStatus
    error: _content_pb2.RunError
    cost: _content_pb2.Cost
    attempts: int
    was_queued: bool
    def __init__(self, status: _Optional[_Union[_run_pb2.RunStatus, str]] = ..., error: _Optional[_Union[_content_pb2.RunError, _Mapping]] = ..., cost: _Optional[_Union[_content_pb2.Cost, _Mapping]] = ..., attempts: _Optional[int] = ..., was_queued: _Optional[bool] = ...) -> None: ...

class RunStopRequested(_message.Message):
    __slots__ = ("ends_as", "grace_deadline", "ends_session", "error")
    ENDS_AS_FIELD_NUMBER: _ClassVar[int]
    GRACE_DEADLINE_FIELD_NUMBER: _ClassVar[int]
    ENDS_SESSION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ends_as: _run_pb2.RunStatus
    grace_deadline: _timestamp_pb2.Timestamp
    ends_session: bool
    error: _content_pb2.RunError
    def __init__(self, ends_as: _Optional[_Union[_run_pb2.RunStatus, str]] = ..., grace_deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ends_session: _Optional[bool] = ..., error: _Optional[_Union[_content_pb2.RunError, _Mapping]] = ...) -> None: ...
