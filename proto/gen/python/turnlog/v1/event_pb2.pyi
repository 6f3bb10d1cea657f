import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from turnlog.v1 import agent_event_pb2 as _agent_event_pb2
from turnlog.v1 import run_event_pb2 as _run_event_pb2
from turnlog.v1 import session_event_pb2 as _session_event_pb2
from turnlog.v1 import user_event_pb2 as _user_event_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Event(_message.Message):
    __slots__ = ("seq", "event_id", "type", "create_time", "run_id", "attempt_no", "thread_id", "authored_by", "caused_by", "authenticated_by", "ignorable", "user_message", "user_interrupt", "agent_message", "agent_tool_use", "agent_tool_result", "model_called", "session_created", "session_status_pending", "session_status_provisioning", "session_status_running", "session_status_waiting", "session_status_paused", "session_status_reconciling", "session_status_idle", "session_status_completed", "session_status_failed", "session_status_canceled", "run_queued", "run_ready", "run_attempt_started", "run_stop_requested", "run_attempt_ended", "run_succeeded", "run_failed", "run_interrupted", "run_canceled")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_NO_FIELD_NUMBER: _ClassVar[int]
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    AUTHORED_BY_FIELD_NUMBER: _ClassVar[int]
    CAUSED_BY_FIELD_NUMBER: _ClassVar[int]
    AUTHENTICATED_BY_FIELD_NUMBER: _ClassVar[int]
    IGNORABLE_FIELD_NUMBER: _ClassVar[int]
    USER_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    USER_INTERRUPT_FIELD_NUMBER: _ClassVar[int]
    AGENT_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    AGENT_TOOL_USE_FIELD_NUMBER: _ClassVar[int]
    AGENT_TOOL_RESULT_FIELD_NUMBER: _ClassVar[int]
    MODEL_CALLED_FIELD_NUMBER: _ClassVar[int]
    SESSION_CREATED_FIELD_NUMBER: _ClassVar[int]
    SESSION_STATUS_PENDING_FIELD_NUMBER: _ClassVar[int]
    SESSION_STATUS_PROVISIONING_FIELD_NUMBER: _ClassVar[int]
    SESSION_STATUS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    SESSION_STATUS_WAITING_FIELD_NUMBER: _ClassVar[int]
    SESSION_STATUS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    SESSION_STATUS_RECONCILING_FIELD_NUMBER: _ClassVar[int]
    SESSION_STATUS_IDLE_FIELD_NUMBER: _ClassVar[int]
    SESSION_STATUS_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    SESSION_STATUS_FAILED_FIELD_NUMBER: _ClassVar[int]
    SESSION_STATUS_CANCELED_FIELD_NUMBER: _ClassVar[int]
    RUN_QUEUED_FIELD_NUMBER: _ClassVar[int]
    RUN_READY_FIELD_NUMBER: _ClassVar[int]
    RUN_ATTEMPT_STARTED_FIELD_NUMBER: _ClassVar[int]
    RUN_STOP_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    RUN_ATTEMPT_ENDED_FIELD_NUMBER: _ClassVar[int]
    RUN_SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    RUN_FAILED_FIELD_NUMBER: _ClassVar[int]
    RUN_INTERRUPTED_FIELD_NUMBER: _ClassVar[int]
    RUN_CANCELED_FIELD_NUMBER: _ClassVar[int]
    seq: int
    event_id: str
    type: str
    create_time: _timestamp_pb2.Timestamp
    run_id: str
    attempt_no: int
    thread_id: str
    authored_by: str
    caused_by: CausedBy
    authenticated_by: str
    ignorable: bool
    user_message: _user_event_pb2.UserMessage
    user_interrupt: _user_event_pb2.UserInterrupt
    agent_message: _agent_event_pb2.AgentMessage
    agent_tool_use: _agent_event_pb2.AgentToolUse
    agent_tool_result: _agent_event_pb2.AgentToolResult
    model_called: _agent_event_pb2.ModelCalled
    session_created: _session_event_pb2.SessionCreated
    session_status_pending: _session_event_pb2.SessionStatusChanged
    session_status_provisioning: _session_event_pb2.SessionStatusChanged
    session_status_running: _session_event_pb2.SessionStatusChanged
    session_status_waiting: _session_event_pb2.SessionStatusChanged
    session_status_paused: _session_event_pb2.SessionStatusChanged
    session_status_reconciling: _session_event_pb2.SessionStatusChanged
    session_status_idle: _session_event_pb2.SessionStatusChanged
    session_status_completed: _session_event_pb2.SessionStatusChanged
    session_status_failed: _session_event_pb2.SessionStatusChanged
    session_status_canceled: _session_event_pb2.SessionStatusChanged
    run_queued: _run_event_pb2.RunQueued
    run_ready: _run_event_pb2.RunReady
    run_attempt_started: _run_event_pb2.RunAttemptStarted
    run_stop_requested: _run_event_pb2.RunStopRequested
    run_attempt_ended: _run_event_pb2.RunAttemptEnded
    run_succeeded: _run_event_pb2.RunEnded
    run_failed: _run_event_pb2.RunEnded
    run_interrupted: _run_event_pb2.RunEnded
    run_canceled: _run_event_pb2.RunEnded
    def __init__(self, seq: _Optional[int] = ..., event_id: _Optional[str] = ..., type: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., run_id: _Optional[str] = ..., attempt_no: _Optional[int] = ..., thread_id: _Optional[str] = ..., authored_by: _Optional[str] = ..., caused_by: _Optional[_Union[CausedBy, _Mapping]] = ..., authenticated_by: _Optional[str] = ..., ignorable: _Optional[bool] = ..., user_message: _Optional[_Union[_user_event_pb2.UserMessage, _Mapping]] = ..., user_interrupt: _Optional[_Union[_user_event_pb2.UserInterrupt, _Mapping]] = ..., agent_message: _Optional[_Union[_agent_event_pb2.AgentMessage, _Mapping]] = ..., agent_tool_use: _Optional[_Union[_agent_event_pb2.AgentToolUse, _Mapping]] = ..., agent_tool_result: _Optional[_Union[_agent_event_pb2.AgentToolResult, _Mapping]] = ..., model_called: _Optional[_Union[_agent_event_pb2.ModelCalled, _Mapping]] = ..., session_created: _Optional[_Union[_session_event_pb2.SessionCreated, _Mapping]] = ..., session_status_pending: _Optional[_Union[_session_event_pb2.SessionStatusChanged, _Mapping]] = ..., session_status_provisioning: _Optional[_Union[_session_event_pb2.SessionStatusChanged, _Mapping]] = ..., session_status_running: _Optional[_Union[_session_event_pb2.SessionStatusChanged, _Mapping]] = ..., session_status_waiting: _Optional[_Union[_session_event_pb2.SessionStatusChanged, _Mapping]] = ..., session_status_paused: _Optional[_Union[_session_event_pb2.SessionStatusChanged, _Mapping]] = ..., session_status_reconciling: _Optional[_Union[_session_event_pb2.SessionStatusChanged, _Mapping]] = ..., session_status_idle: _Optional[_Union[_session_event_pb2.SessionStatusChanged, _Mapping]] = ..., session_status_completed: _Optional[_Union[_session_event_pb2.SessionStatusChanged, _Mapping]] = ..., session_status_failed: _Optional[_Union[_session_event_pb2.SessionStatusChanged, _Mapping]] = ..., session_status_canceled: _Optional[_Union[_session_event_pb2.SessionStatusChanged, _Mapping]] = ..., run_queued: _Optional[_Union[_run_event_pb2.RunQueued, _Mapping]] = ..., run_ready: _Optional[_Union[_run_event_pb2.RunReady, _Mapping]] = ..., run_attempt_started: _Optional[_Union[_run_event_pb2.RunAttemptStarted, _Mapping]] = ..., run_stop_requested: _Optional[_Union[_run_event_pb2.RunStopRequested, _Mapping]] = ..., run_attempt_ended: _Optional[_Union[_run_event_pb2.RunAttemptEnded, _Mapping]] = ..., run_succeeded: _Optional[_Union[_run_event_pb2.RunEnded, _Mapping]] = ..., run_failed: _Optional[_Union[_run_event_pb2.RunEnded, _Mapping]] = ..., run_interrupted: _Optional[_Union[_run_event_pb2.RunEnded, _Mapping]] = ..., run_canceled: _Optional[_Union[_run_event_pb2.RunEnded, _Mapping]] = ...) -> None: ...

class CausedBy(_message.Message):
    __slots__ = ("kind", "event_id", "reference")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[CausedBy.Kind]
        KIND_API: _ClassVar[CausedBy.Kind]
        KIND_CONNECTOR: _ClassVar[CausedBy.Kind]
        KIND_SCHEDULE: _ClassVar[CausedBy.Kind]
        KIND_RUNNER: _ClassVar[CausedBy.Kind]
        KIND_SERVER: _ClassVar[CausedBy.Kind]
        KIND_TIMER: _ClassVar[CausedBy.Kind]
    KIND_UNSPECIFIED: CausedBy.Kind
    KIND_API: CausedBy.Kind
    KIND_CONNECTOR: CausedBy.Kind
    KIND_SCHEDULE: CausedBy.Kind
    KIND_RUNNER: CausedBy.Kind
    KIND_SERVER: CausedBy.Kind
    KIND_TIMER: CausedBy.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    kind: CausedBy.Kind
    event_id: str
    reference: str
    def __init__(self, kind: _Optional[_Union[CausedBy.Kind, str]] = ..., event_id: _Optional[str] = ..., reference: _Optional[str] = ...) -> None: ...
