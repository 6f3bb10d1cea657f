import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Runner(_message.Message):
    __slots__ = ("runner_id", "display_name", "version", "pools", "harness_profiles", "connected", "draining", "held_runs", "lease_expire_time", "create_time")
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    HARNESS_PROFILES_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    HELD_RUNS_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    runner_id: str
    display_name: str
    version: str
    pools: _containers.RepeatedScalarFieldContainer[str]
    harness_profiles: _containers.RepeatedScalarFieldContainer[str]
    connected: bool
    draining: bool
    held_runs: int
    lease_expire_time: _timestamp_pb2.Timestamp
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, runner_id: _Optional[str] = ..., display_name: _Optional[str] = ..., version: _Optional[str] = ..., pools: _Optional[_Iterable[str]] = ..., harness_profiles: _Optional[_Iterable[str]] = ..., connected: _Optional[bool] = ..., draining: _Optional[bool] = ..., held_runs: _Optional[int] = ..., lease_expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
