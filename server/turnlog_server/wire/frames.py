"""Frames of a follow as bytes. A batch is joined from events that were serialised once, when they were committed."""

from collections.abc import Iterator

from turnlog.v1 import event_pb2
from turnlog.v1 import event_service_pb2 as pb

VARINT_BITS = 70  # ten bytes of seven
_EVENTS_TAG = b"\x0a"  # field 1, length-delimited: EventBatch.events, and the frame's own arm


def varint(value: int) -> bytes:
    """An unsigned number in protobuf's variable-length form."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(raw: bytes, at: int) -> tuple[int, int]:
    """The number that starts at `at`, and where it ends. Raises IndexError where there is no end within 64 bits."""
    value = shift = 0
    while shift < VARINT_BITS:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    # A number as long as a message would take minutes.
    raise IndexError(at)


def elements(raw: bytes) -> Iterator[bytes]:
    """Each element of a message that holds nothing but one repeated field, of a number below 16."""
    at = 0
    while at < len(raw):
        # Nearly all are longer than 127 bytes and shorter than 16 KiB.
        if at + 2 < len(raw) and raw[at + 2] < 0x80 <= raw[at + 1]:
            size, start = raw[at + 1] & 0x7F | raw[at + 2] << 7, at + 3
        else:
            size, start = read_varint(raw, at + 1)
        at = start + size
        yield raw[start:at]


def frame_event(body: bytes) -> bytes:
    """An event as an element of `EventBatch.events`."""
    return b"".join((_EVENTS_TAG, varint(len(body)), body))


def of_session(frame: bytes, session_id: str) -> bytes:
    """A frame of FollowEvents as one of FollowSessions: fields of a message may be concatenated."""
    name = session_id.encode()
    return b"".join((frame, b"\x7a", varint(len(name)), name))


class FollowFrames:
    """Implements `service.follow.Frames`."""

    def events(self, framed: list[bytes]) -> bytes:
        """A batch of framed events."""
        size = sum(map(len, framed))
        return b"".join((_EVENTS_TAG, varint(size), *framed))

    def caught_up(self, seq: int) -> bytes:
        """Everything up to here was delivered."""
        return pb.FollowEventsResponse(caught_up=pb.CaughtUp(seq=seq)).SerializeToString()

    def progress(self, seq: int) -> bytes:
        """The cursor may move here."""
        return pb.FollowEventsResponse(progress=pb.Progress(through_seq=seq)).SerializeToString()

    def preview(self, run_id: str, attempt_no: int, text: str) -> bytes:
        """Text in the making."""
        preview = pb.Preview(run_id=run_id, attempt_no=attempt_no, text=text)
        return pb.FollowEventsResponse(preview=preview).SerializeToString()

    def boundary(self, seq: int) -> bytes:
        """The boundary was met."""
        end = pb.FollowEnd(reason=pb.FollowEnd.REASON_BOUNDARY, seq=seq)
        return pb.FollowEventsResponse(end=end).SerializeToString()

    def terminal(self, seq: int) -> bytes:
        """Nothing more will come."""
        end = pb.FollowEnd(reason=pb.FollowEnd.REASON_TERMINAL, seq=seq)
        return pb.FollowEventsResponse(end=end).SerializeToString()


def parse_events(bodies: list[bytes]) -> list[event_pb2.Event]:
    """Stored events as messages."""
    return [event_pb2.Event.FromString(body) for body in bodies]
