from turnlog.v1 import content_pb2 as _content_pb2
from turnlog.v1 import session_pb2 as _session_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SessionCreated(_message.Message):
    __slots__ = ("workspace_id", "pins", "principal", "labels", "reusable")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    REUSABLE_FIELD_NUMBER: _ClassVar[int]
    workspace_id: str
    pins: _session_pb2.SessionPins
    principal: str
    labels: _containers.ScalarMap[str, str]
    reusable: bool
    def __init__(self, workspace_id: _Optional[str] = ..., pins: _Optional[_Union[_session_pb2.SessionPins, _Mapping]] = ..., principal: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., reusable: _Optional[bool] = ...) -> None: ...

class SessionStatusChanged(_message.Message):
    __slots__ = ("status", "active_run_id", "stop_reason", "pending_action_ids", "boundary", "error", "ended_run_id")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    PENDING_ACTION_IDS_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ENDED_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    status: _session_pb2.SessionStatus
    active_run_id: str
    stop_reason: _session_pb2.StopReason
    pending_action_ids: _containers.RepeatedScalarFieldContainer[str]
    boundary: _session_pb2.StatusBoundary
    error: _content_pb2.RunError
    ended_run_id: str
    def __init__(self, status: _Optional[_Union[_session_pb2.SessionStatus, str]] = ..., active_run_id: _Optional[str] = ..., stop_reason: _Optional[_Union[_session_pb2.StopReason, str]] = ..., pending_action_ids: _Optional[_Iterable[str]] = ..., boundary: _Optional[_Union[_session_pb2.StatusBoundary, str]] = ..., error: _Optional[_Union[_content_pb2.RunError, _Mapping]] = ..., ended_run_id: _Optional[str] = ...) -> None: ...
