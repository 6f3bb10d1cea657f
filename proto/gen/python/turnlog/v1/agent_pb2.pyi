import datetime

from buf.validate import validate_pb2 as _validate_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Agent(_message.Message):
    __slots__ = ("agent_id", "name", "description", "latest_version_number", "create_time")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    LATEST_VERSION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    name: str
    description: str
    latest_version_number: int
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, agent_id: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., latest_version_number: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class AgentVersion(_message.Message):
    __slots__ = ("agent_id", "version_number", "instructions", "tools", "create_time")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    version_number: int
    instructions: str
    tools: _containers.RepeatedCompositeFieldContainer[Tool]
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, agent_id: _Optional[str] = ..., version_number: _Optional[int] = ..., instructions: _Optional[str] = ..., tools: _Optional[_Iterable[_Union[Tool, _Mapping]]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Tool(_message.Message):
    __slots__ = ("name", "description", "parameters")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    parameters: _struct_pb2.Struct
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., parameters: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class HarnessProfile(_message.Message):
    __slots__ = ("harness_profile_id", "name", "description", "create_time")
    HARNESS_PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    harness_profile_id: str
    name: str
    description: str
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, harness_profile_id: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SandboxProfile(_message.Message):
    __slots__ = ("sandbox_profile_id", "name", "max_duration_seconds", "create_time")
    SANDBOX_PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_DURATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    sandbox_profile_id: str
    name: str
    max_duration_seconds: int
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, sandbox_profile_id: _Optional[str] = ..., name: _Optional[str] = ..., max_duration_seconds: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class AgentDeployment(_message.Message):
    __slots__ = ("agent_deployment_id", "name", "current_revision_number", "create_time")
    AGENT_DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CURRENT_REVISION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    agent_deployment_id: str
    name: str
    current_revision_number: int
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, agent_deployment_id: _Optional[str] = ..., name: _Optional[str] = ..., current_revision_number: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class AgentDeploymentRevision(_message.Message):
    __slots__ = ("agent_deployment_id", "revision_number", "agent_id", "agent_version_number", "harness_profile_id", "sandbox_profile_id", "runner_pool", "model_route", "create_time")
    AGENT_DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    HARNESS_PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNER_POOL_FIELD_NUMBER: _ClassVar[int]
    MODEL_ROUTE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    agent_deployment_id: str
    revision_number: int
    agent_id: str
    agent_version_number: int
    harness_profile_id: str
    sandbox_profile_id: str
    runner_pool: str
    model_route: str
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, agent_deployment_id: _Optional[str] = ..., revision_number: _Optional[int] = ..., agent_id: _Optional[str] = ..., agent_version_number: _Optional[int] = ..., harness_profile_id: _Optional[str] = ..., sandbox_profile_id: _Optional[str] = ..., runner_pool: _Optional[str] = ..., model_route: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
