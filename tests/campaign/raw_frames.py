"""Frames of a follow with their events as the bytes that came, for a parsed message does not tell them.

The same fields, declared once more as bytes: on the wire they are the same.
"""

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

BYTES = FieldDescriptorProto.TYPE_BYTES
REPEATED = FieldDescriptorProto.LABEL_REPEATED

_file = FileDescriptorProto(name="raw_frames.proto", package="campaign", syntax="proto3")
# `events` of FollowEventsResponse, and `events` of the EventBatch in it, have the number 1.
_file.message_type.add(name="Raw").field.add(name="parts", number=1, type=BYTES, label=REPEATED)
Raw = GetMessageClass(DescriptorPool().AddSerializedFile(_file.SerializeToString()).message_types_by_name["Raw"])


def bodies_of(frame: bytes) -> list[bytes]:
    """The events of a FollowEventsResponse, each as it came."""
    return [body for batch in Raw.FromString(frame).parts for body in Raw.FromString(batch).parts]
