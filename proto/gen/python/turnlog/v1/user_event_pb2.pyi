from buf.validate import validate_pb2 as _validate_pb2
from turnlog.v1 import content_pb2 as _content_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UserMessage(_message.Message):
    __slots__ = ("parts",)
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[_content_pb2.ContentPart]
    def __init__(self, parts: _Optional[_Iterable[_Union[_content_pb2.ContentPart, _Mapping]]] = ...) -> None: ...

class UserInterrupt(_message.Message):
    __slots__ = ("reason", "run_id")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    reason: str
    run_id: str
    def __init__(self, reason: _Optional[str] = ..., run_id: _Optional[str] = ...) -> None: ...
