from buf.validate import validate_pb2 as _validate_pb2
from turnlog.v1 import event_pb2 as _event_pb2
from turnlog.v1 import user_event_pb2 as _user_event_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IfBusy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    IF_BUSY_UNSPECIFIED: _ClassVar[IfBusy]
    IF_BUSY_ENQUEUE: _ClassVar[IfBusy]
    IF_BUSY_REJECT: _ClassVar[IfBusy]
    IF_BUSY_INTERRUPT: _ClassVar[IfBusy]
IF_BUSY_UNSPECIFIED: IfBusy
IF_BUSY_ENQUEUE: IfBusy
IF_BUSY_REJECT: IfBusy
IF_BUSY_INTERRUPT: IfBusy

class AppendEventRequest(_message.Message):
    __slots__ = ("request_id", "session_id", "authored_by", "caused_by", "principal", "expected_head_seq", "if_busy", "user_message", "user_interrupt")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    AUTHORED_BY_FIELD_NUMBER: _ClassVar[int]
    CAUSED_BY_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
    IF_BUSY_FIELD_NUMBER: _ClassVar[int]
    USER_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    USER_INTERRUPT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    session_id: str
    authored_by: str
    caused_by: _event_pb2.CausedBy
    principal: str
    expected_head_seq: int
    if_busy: IfBusy
    user_message: _user_event_pb2.UserMessage
    user_interrupt: _user_event_pb2.UserInterrupt
    def __init__(self, request_id: _Optional[str] = ..., session_id: _Optional[str] = ..., authored_by: _Optional[str] = ..., caused_by: _Optional[_Union[_event_pb2.CausedBy, _Mapping]] = ..., principal: _Optional[str] = ..., expected_head_seq: _Optional[int] = ..., if_busy: _Optional[_Union[IfBusy, str]] = ..., user_message: _Optional[_Union[_user_event_pb2.UserMessage, _Mapping]] = ..., user_interrupt: _Optional[_Union[_user_event_pb2.UserInterrupt, _Mapping]] = ...) -> None: ...

class AppendEventResponse(_message.Message):
    __slots__ = ("seq", "event_id", "run_id", "blocked_by", "replayed")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_BY_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    seq: int
    event_id: str
    run_id: str
    blocked_by: str
    replayed: bool
    def __init__(self, seq: _Optional[int] = ..., event_id: _Optional[str] = ..., run_id: _Optional[str] = ..., blocked_by: _Optional[str] = ..., replayed: _Optional[bool] = ...) -> None: ...

class ListEventsRequest(_message.Message):
    __slots__ = ("session_id", "after_seq", "types", "page_size", "page_token")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    after_seq: int
    types: _containers.RepeatedScalarFieldContainer[str]
    page_size: int
    page_token: str
    def __init__(self, session_id: _Optional[str] = ..., after_seq: _Optional[int] = ..., types: _Optional[_Iterable[str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("session_id", "events", "next_page_token", "head_seq")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    events: _containers.RepeatedCompositeFieldContainer[_event_pb2.Event]
    next_page_token: str
    head_seq: int
    def __init__(self, session_id: _Optional[str] = ..., events: _Optional[_Iterable[_Union[_event_pb2.Event, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., head_seq: _Optional[int] = ...) -> None: ...

class FollowUntil(_message.Message):
    __slots__ = ("boundary", "run_id")
    class Boundary(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BOUNDARY_UNSPECIFIED: _ClassVar[FollowUntil.Boundary]
        BOUNDARY_NEVER: _ClassVar[FollowUntil.Boundary]
        BOUNDARY_TURN: _ClassVar[FollowUntil.Boundary]
        BOUNDARY_ACTION_REQUIRED: _ClassVar[FollowUntil.Boundary]
        BOUNDARY_TERMINAL: _ClassVar[FollowUntil.Boundary]
    BOUNDARY_UNSPECIFIED: FollowUntil.Boundary
    BOUNDARY_NEVER: FollowUntil.Boundary
    BOUNDARY_TURN: FollowUntil.Boundary
    BOUNDARY_ACTION_REQUIRED: FollowUntil.Boundary
    BOUNDARY_TERMINAL: FollowUntil.Boundary
    BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    boundary: FollowUntil.Boundary
    run_id: str
    def __init__(self, boundary: _Optional[_Union[FollowUntil.Boundary, str]] = ..., run_id: _Optional[str] = ...) -> None: ...

class FollowEventsRequest(_message.Message):
    __slots__ = ("session_id", "after_seq", "types", "until", "previews")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    PREVIEWS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    after_seq: int
    types: _containers.RepeatedScalarFieldContainer[str]
    until: FollowUntil
    previews: bool
    def __init__(self, session_id: _Optional[str] = ..., after_seq: _Optional[int] = ..., types: _Optional[_Iterable[str]] = ..., until: _Optional[_Union[FollowUntil, _Mapping]] = ..., previews: _Optional[bool] = ...) -> None: ...

class FollowEventsResponse(_message.Message):
    __slots__ = ("events", "caught_up", "progress", "preview", "end")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    events: EventBatch
    caught_up: CaughtUp
    progress: Progress
    preview: Preview
    end: FollowEnd
    def __init__(self, events: _Optional[_Union[EventBatch, _Mapping]] = ..., caught_up: _Optional[_Union[CaughtUp, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., preview: _Optional[_Union[Preview, _Mapping]] = ..., end: _Optional[_Union[FollowEnd, _Mapping]] = ...) -> None: ...

class EventBatch(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_event_pb2.Event]
    def __init__(self, events: _Optional[_Iterable[_Union[_event_pb2.Event, _Mapping]]] = ...) -> None: ...

class CaughtUp(_message.Message):
    __slots__ = ("seq",)
    SEQ_FIELD_NUMBER: _ClassVar[int]
    seq: int
    def __init__(self, seq: _Optional[int] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("through_seq",)
    THROUGH_SEQ_FIELD_NUMBER: _ClassVar[int]
    through_seq: int
    def __init__(self, through_seq: _Optional[int] = ...) -> None: ...

class Preview(_message.Message):
    __slots__ = ("run_id", "attempt_no", "text")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_NO_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    attempt_no: int
    text: str
    def __init__(self, run_id: _Optional[str] = ..., attempt_no: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class FollowEnd(_message.Message):
    __slots__ = ("reason", "seq")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[FollowEnd.Reason]
        REASON_BOUNDARY: _ClassVar[FollowEnd.Reason]
        REASON_TERMINAL: _ClassVar[FollowEnd.Reason]
    REASON_UNSPECIFIED: FollowEnd.Reason
    REASON_BOUNDARY: FollowEnd.Reason
    REASON_TERMINAL: FollowEnd.Reason
    REASON_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    reason: FollowEnd.Reason
    seq: int
    def __init__(self, reason: _Optional[_Union[FollowEnd.Reason, str]] = ..., seq: _Optional[int] = ...) -> None: ...

class FollowSessionsRequest(_message.Message):
    __slots__ = ("sessions", "types", "until", "previews")
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    PREVIEWS_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[SessionCursor]
    types: _containers.RepeatedScalarFieldContainer[str]
    until: FollowUntil
    previews: bool
    def __init__(self, sessions: _Optional[_Iterable[_Union[SessionCursor, _Mapping]]] = ..., types: _Optional[_Iterable[str]] = ..., until: _Optional[_Union[FollowUntil, _Mapping]] = ..., previews: _Optional[bool] = ...) -> None: ...

class SessionCursor(_message.Message):
    __slots__ = ("session_id", "after_seq")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    after_seq: int
    def __init__(self, session_id: _Optional[str] = ..., after_seq: _Optional[int] = ...) -> None: ...

class FollowSessionsResponse(_message.Message):
    __slots__ = ("session_id", "events", "caught_up", "progress", "preview", "end")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    events: EventBatch
    caught_up: CaughtUp
    progress: Progress
    preview: Preview
    end: FollowEnd
    def __init__(self, session_id: _Optional[str] = ..., events: _Optional[_Union[EventBatch, _Mapping]] = ..., caught_up: _Optional[_Union[CaughtUp, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., preview: _Optional[_Union[Preview, _Mapping]] = ..., end: _Optional[_Union[FollowEnd, _Mapping]] = ...) -> None: ...
