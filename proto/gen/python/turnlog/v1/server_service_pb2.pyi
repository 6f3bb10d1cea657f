import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServerInfoResponse(_message.Message):
    __slots__ = ("version", "api_versions", "hint_mode", "database_engine", "limits", "keepalive_min_interval", "keepalive_interval", "progress_interval", "follower_stall_timeout", "startup_allowance", "runner_lease_ttl", "workspace_id", "subject")
    class LimitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    API_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    HINT_MODE_FIELD_NUMBER: _ClassVar[int]
    DATABASE_ENGINE_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    KEEPALIVE_MIN_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    KEEPALIVE_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    FOLLOWER_STALL_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    STARTUP_ALLOWANCE_FIELD_NUMBER: _ClassVar[int]
    RUNNER_LEASE_TTL_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    version: str
    api_versions: _containers.RepeatedScalarFieldContainer[str]
    hint_mode: str
    database_engine: str
    limits: _containers.ScalarMap[str, int]
    keepalive_min_interval: _duration_pb2.Duration
    keepalive_interval: _duration_pb2.Duration
    progress_interval: _duration_pb2.Duration
    follower_stall_timeout: _duration_pb2.Duration
    startup_allowance: _duration_pb2.Duration
    runner_lease_ttl: _duration_pb2.Duration
    workspace_id: str
    subject: str
    def __init__(self, version: _Optional[str] = ..., api_versions: _Optional[_Iterable[str]] = ..., hint_mode: _Optional[str] = ..., database_engine: _Optional[str] = ..., limits: _Optional[_Mapping[str, int]] = ..., keepalive_min_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., keepalive_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., progress_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., follower_stall_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., startup_allowance: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., runner_lease_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., workspace_id: _Optional[str] = ..., subject: _Optional[str] = ...) -> None: ...
