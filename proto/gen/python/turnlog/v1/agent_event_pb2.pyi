from buf.validate import validate_pb2 as _validate_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from turnlog.v1 import content_pb2 as _content_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AgentMessage(_message.Message):
    __slots__ = ("parts",)
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[_content_pb2.ContentPart]
    def __init__(self, parts: _Optional[_Iterable[_Union[_content_pb2.ContentPart, _Mapping]]] = ...) -> None: ...

class AgentToolUse(_message.Message):
    __slots__ = ("call_id", "name", "arguments")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    name: str
    arguments: _struct_pb2.Struct
    def __init__(self, call_id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class AgentToolResult(_message.Message):
    __slots__ = ("call_id", "parts", "data", "media_type", "is_error", "truncated")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    IS_ERROR_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    parts: _containers.RepeatedCompositeFieldContainer[_content_pb2.ContentPart]
    data: bytes
    media_type: str
    is_error: bool
    truncated: bool
    def __init__(self, call_id: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[_content_pb2.ContentPart, _Mapping]]] = ..., data: _Optional[bytes] = ..., media_type: _Optional[str] = ..., is_error: _Optional[bool] = ..., truncated: _Optional[bool] = ...) -> None: ...

class ModelCalled(_message.Message):
    __slots__ = ("model", "usage")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    model: str
    usage: _content_pb2.Cost
    def __init__(self, model: _Optional[str] = ..., usage: _Optional[_Union[_content_pb2.Cost, _Mapping]] = ...) -> None: ...
