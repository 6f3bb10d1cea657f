import datetime

from buf.validate import validate_pb2 as _validate_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from turnlog.runner.v1 import runner_pb2 as _runner_pb2
from turnlog.v1 import agent_pb2 as _agent_pb2
from turnlog.v1 import agent_event_pb2 as _agent_event_pb2
from turnlog.v1 import content_pb2 as _content_pb2
from turnlog.v1 import error_pb2 as _error_pb2
from turnlog.v1 import event_pb2 as _event_pb2
from turnlog.v1 import run_pb2 as _run_pb2
from turnlog.v1 import session_pb2 as _session_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConnectRequest(_message.Message):
    __slots__ = ("hello", "ready", "accept", "decline", "harness_ready", "append", "preview", "heartbeat", "settle", "abandon", "goodbye")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    DECLINE_FIELD_NUMBER: _ClassVar[int]
    HARNESS_READY_FIELD_NUMBER: _ClassVar[int]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    SETTLE_FIELD_NUMBER: _ClassVar[int]
    ABANDON_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    ready: Ready
    accept: Accept
    decline: Decline
    harness_ready: HarnessReady
    append: Append
    preview: PreviewText
    heartbeat: Heartbeat
    settle: Settle
    abandon: Abandon
    goodbye: Goodbye
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., ready: _Optional[_Union[Ready, _Mapping]] = ..., accept: _Optional[_Union[Accept, _Mapping]] = ..., decline: _Optional[_Union[Decline, _Mapping]] = ..., harness_ready: _Optional[_Union[HarnessReady, _Mapping]] = ..., append: _Optional[_Union[Append, _Mapping]] = ..., preview: _Optional[_Union[PreviewText, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., settle: _Optional[_Union[Settle, _Mapping]] = ..., abandon: _Optional[_Union[Abandon, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ("welcome", "offer", "accepted", "interrupt", "cancel", "ack", "lease_lost", "drain")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    INTERRUPT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    LEASE_LOST_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    offer: Offer
    accepted: Accepted
    interrupt: Interrupt
    cancel: Cancel
    ack: Ack
    lease_lost: LeaseLost
    drain: Drain
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., offer: _Optional[_Union[Offer, _Mapping]] = ..., accepted: _Optional[_Union[Accepted, _Mapping]] = ..., interrupt: _Optional[_Union[Interrupt, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., lease_lost: _Optional[_Union[LeaseLost, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("session_id", "run_id", "attempt_no", "lease_token", "message_no")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_NO_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_NO_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    attempt_no: int
    lease_token: bytes
    message_no: int
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., attempt_no: _Optional[int] = ..., lease_token: _Optional[bytes] = ..., message_no: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("runner_id", "instance_id", "display_name", "version", "pools", "harness_profiles", "held")
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    HARNESS_PROFILES_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    runner_id: str
    instance_id: str
    display_name: str
    version: str
    pools: _containers.RepeatedScalarFieldContainer[str]
    harness_profiles: _containers.RepeatedScalarFieldContainer[str]
    held: _containers.RepeatedCompositeFieldContainer[HeldAttempt]
    def __init__(self, runner_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., display_name: _Optional[str] = ..., version: _Optional[str] = ..., pools: _Optional[_Iterable[str]] = ..., harness_profiles: _Optional[_Iterable[str]] = ..., held: _Optional[_Iterable[_Union[HeldAttempt, _Mapping]]] = ...) -> None: ...

class HeldAttempt(_message.Message):
    __slots__ = ("session_id", "run_id", "attempt_no", "lease_token")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_NO_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    attempt_no: int
    lease_token: bytes
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., attempt_no: _Optional[int] = ..., lease_token: _Optional[bytes] = ...) -> None: ...

class Ready(_message.Message):
    __slots__ = ("credits",)
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    credits: int
    def __init__(self, credits: _Optional[int] = ...) -> None: ...

class Accept(_message.Message):
    __slots__ = ("session_id", "run_id", "attempt_no", "lease_token")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_NO_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    attempt_no: int
    lease_token: bytes
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., attempt_no: _Optional[int] = ..., lease_token: _Optional[bytes] = ...) -> None: ...

class Decline(_message.Message):
    __slots__ = ("session_id", "run_id", "reason")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    reason: str
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class HarnessReady(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ...) -> None: ...

class Append(_message.Message):
    __slots__ = ("lease", "events")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    events: _containers.RepeatedCompositeFieldContainer[RunnerEvent]
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., events: _Optional[_Iterable[_Union[RunnerEvent, _Mapping]]] = ...) -> None: ...

class RunnerEvent(_message.Message):
    __slots__ = ("agent_message", "agent_tool_use", "agent_tool_result", "model_called")
    AGENT_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    AGENT_TOOL_USE_FIELD_NUMBER: _ClassVar[int]
    AGENT_TOOL_RESULT_FIELD_NUMBER: _ClassVar[int]
    MODEL_CALLED_FIELD_NUMBER: _ClassVar[int]
    agent_message: _agent_event_pb2.AgentMessage
    agent_tool_use: _agent_event_pb2.AgentToolUse
    agent_tool_result: _agent_event_pb2.AgentToolResult
    model_called: _agent_event_pb2.ModelCalled
    def __init__(self, agent_message: _Optional[_Union[_agent_event_pb2.AgentMessage, _Mapping]] = ..., agent_tool_use: _Optional[_Union[_agent_event_pb2.AgentToolUse, _Mapping]] = ..., agent_tool_result: _Optional[_Union[_agent_event_pb2.AgentToolResult, _Mapping]] = ..., model_called: _Optional[_Union[_agent_event_pb2.ModelCalled, _Mapping]] = ...) -> None: ...

class PreviewText(_message.Message):
    __slots__ = ("session_id", "run_id", "attempt_no", "text")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_NO_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    attempt_no: int
    text: str
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., attempt_no: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Settle(_message.Message):
    __slots__ = ("lease", "outcome", "error")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTCOME_UNSPECIFIED: _ClassVar[Settle.Outcome]
        OUTCOME_SUCCEEDED: _ClassVar[Settle.Outcome]
        OUTCOME_FAILED: _ClassVar[Settle.Outcome]
        OUTCOME_STOPPED: _ClassVar[Settle.Outcome]
    OUTCOME_UNSPECIFIED: Settle.Outcome
    OUTCOME_SUCCEEDED: Settle.Outcome
    OUTCOME_FAILED: Settle.Outcome
    OUTCOME_STOPPED: Settle.Outcome
    LEASE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    outcome: Settle.Outcome
    error: _content_pb2.RunError
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., outcome: _Optional[_Union[Settle.Outcome, str]] = ..., error: _Optional[_Union[_content_pb2.RunError, _Mapping]] = ...) -> None: ...

class Abandon(_message.Message):
    __slots__ = ("lease", "reason")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    reason: str
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("lease_ttl", "heartbeat_interval", "held", "max_unacked_messages", "max_unacked_bytes")
    LEASE_TTL_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    MAX_UNACKED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_UNACKED_BYTES_FIELD_NUMBER: _ClassVar[int]
    lease_ttl: _duration_pb2.Duration
    heartbeat_interval: _duration_pb2.Duration
    held: _containers.RepeatedCompositeFieldContainer[HeldState]
    max_unacked_messages: int
    max_unacked_bytes: int
    def __init__(self, lease_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., heartbeat_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., held: _Optional[_Iterable[_Union[HeldState, _Mapping]]] = ..., max_unacked_messages: _Optional[int] = ..., max_unacked_bytes: _Optional[int] = ...) -> None: ...

class HeldState(_message.Message):
    __slots__ = ("session_id", "run_id", "attempt_no", "last_message_no", "stop_as")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_NO_FIELD_NUMBER: _ClassVar[int]
    LAST_MESSAGE_NO_FIELD_NUMBER: _ClassVar[int]
    STOP_AS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    attempt_no: int
    last_message_no: int
    stop_as: _run_pb2.RunStatus
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., attempt_no: _Optional[int] = ..., last_message_no: _Optional[int] = ..., stop_as: _Optional[_Union[_run_pb2.RunStatus, str]] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("session_id", "run_id", "attempt_no", "attempt_kind", "lease_token", "accept_within", "startup_allowance", "max_duration", "pins", "harness_profile", "agent_version", "model_route", "trigger", "history", "history_omitted")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_NO_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_KIND_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_WITHIN_FIELD_NUMBER: _ClassVar[int]
    STARTUP_ALLOWANCE_FIELD_NUMBER: _ClassVar[int]
    MAX_DURATION_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    HARNESS_PROFILE_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_ROUTE_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    HISTORY_OMITTED_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    attempt_no: int
    attempt_kind: _run_pb2.AttemptKind
    lease_token: bytes
    accept_within: _duration_pb2.Duration
    startup_allowance: _duration_pb2.Duration
    max_duration: _duration_pb2.Duration
    pins: _session_pb2.SessionPins
    harness_profile: str
    agent_version: _agent_pb2.AgentVersion
    model_route: str
    trigger: _event_pb2.Event
    history: _containers.RepeatedCompositeFieldContainer[_event_pb2.Event]
    history_omitted: int
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., attempt_no: _Optional[int] = ..., attempt_kind: _Optional[_Union[_run_pb2.AttemptKind, str]] = ..., lease_token: _Optional[bytes] = ..., accept_within: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., startup_allowance: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., pins: _Optional[_Union[_session_pb2.SessionPins, _Mapping]] = ..., harness_profile: _Optional[str] = ..., agent_version: _Optional[_Union[_agent_pb2.AgentVersion, _Mapping]] = ..., model_route: _Optional[str] = ..., trigger: _Optional[_Union[_event_pb2.Event, _Mapping]] = ..., history: _Optional[_Iterable[_Union[_event_pb2.Event, _Mapping]]] = ..., history_omitted: _Optional[int] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("session_id", "run_id", "attempt_no", "startup_remaining", "deadline_remaining", "startup_deadline", "deadline")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_NO_FIELD_NUMBER: _ClassVar[int]
    STARTUP_REMAINING_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_REMAINING_FIELD_NUMBER: _ClassVar[int]
    STARTUP_DEADLINE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    attempt_no: int
    startup_remaining: _duration_pb2.Duration
    deadline_remaining: _duration_pb2.Duration
    startup_deadline: _timestamp_pb2.Timestamp
    deadline: _timestamp_pb2.Timestamp
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., attempt_no: _Optional[int] = ..., startup_remaining: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., deadline_remaining: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., startup_deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Interrupt(_message.Message):
    __slots__ = ("session_id", "run_id", "attempt_no", "grace")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_NO_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    attempt_no: int
    grace: _duration_pb2.Duration
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., attempt_no: _Optional[int] = ..., grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("session_id", "run_id", "attempt_no", "grace")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_NO_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    attempt_no: int
    grace: _duration_pb2.Duration
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., attempt_no: _Optional[int] = ..., grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("session_id", "run_id", "attempt_no", "through", "rejections")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_NO_FIELD_NUMBER: _ClassVar[int]
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    REJECTIONS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    attempt_no: int
    through: int
    rejections: _containers.RepeatedCompositeFieldContainer[Rejection]
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., attempt_no: _Optional[int] = ..., through: _Optional[int] = ..., rejections: _Optional[_Iterable[_Union[Rejection, _Mapping]]] = ...) -> None: ...

class Rejection(_message.Message):
    __slots__ = ("message_no", "event_index", "reason", "message")
    MESSAGE_NO_FIELD_NUMBER: _ClassVar[int]
    EVENT_INDEX_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message_no: int
    event_index: int
    reason: _error_pb2.ErrorReason
    message: str
    def __init__(self, message_no: _Optional[int] = ..., event_index: _Optional[int] = ..., reason: _Optional[_Union[_error_pb2.ErrorReason, str]] = ..., message: _Optional[str] = ...) -> None: ...

class LeaseLost(_message.Message):
    __slots__ = ("session_id", "run_id", "attempt_no", "reason")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_NO_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    attempt_no: int
    reason: _error_pb2.ErrorReason
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., attempt_no: _Optional[int] = ..., reason: _Optional[_Union[_error_pb2.ErrorReason, str]] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ("reason",)
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[Drain.Reason]
        REASON_RUNNER: _ClassVar[Drain.Reason]
        REASON_SERVER: _ClassVar[Drain.Reason]
    REASON_UNSPECIFIED: Drain.Reason
    REASON_RUNNER: Drain.Reason
    REASON_SERVER: Drain.Reason
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: Drain.Reason
    def __init__(self, reason: _Optional[_Union[Drain.Reason, str]] = ...) -> None: ...

class ListRunnersRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListRunnersResponse(_message.Message):
    __slots__ = ("runners", "next_page_token")
    RUNNERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    runners: _containers.RepeatedCompositeFieldContainer[_runner_pb2.Runner]
    next_page_token: str
    def __init__(self, runners: _Optional[_Iterable[_Union[_runner_pb2.Runner, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DrainRunnerRequest(_message.Message):
    __slots__ = ("request_id", "runner_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    runner_id: str
    def __init__(self, request_id: _Optional[str] = ..., runner_id: _Optional[str] = ...) -> None: ...

class DrainRunnerResponse(_message.Message):
    __slots__ = ("runner", "replayed")
    RUNNER_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    runner: _runner_pb2.Runner
    replayed: bool
    def __init__(self, runner: _Optional[_Union[_runner_pb2.Runner, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...
