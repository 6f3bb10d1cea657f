"""Harness events as the contract's messages."""

from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from turnlog.runner.v1 import runner_service_pb2 as pb

MAX_PAYLOAD_BYTES = 256 << 10


class EventError(ValueError):
    """A payload that is not what its event type holds. The text names the field."""


def runner_event(event_type: str, payload: dict[str, Any]) -> pb.RunnerEvent:
    """The event of a harness: `payload` is proto JSON with the field names of the contract, bytes in base64.

    Raises EventError.
    """
    arm = event_type.replace(".", "_")
    if arm not in pb.RunnerEvent.DESCRIPTOR.fields_by_name:
        raise EventError(f"{event_type} is not an event that a harness may send")
    event = pb.RunnerEvent()
    try:
        ParseDict({arm: payload}, event)
    except ParseError as error:
        raise EventError(f"event {event_type}: {error}") from None
    if event.WhichOneof("payload") is None:
        raise EventError(f"event {event_type}: the payload is missing")
    # The harness's side cuts text and bytes; what is still too large is made of something else.
    size = event.ByteSize()
    if size > MAX_PAYLOAD_BYTES:
        raise EventError(f"event {event_type}: the payload has {size} bytes, more than {MAX_PAYLOAD_BYTES}")
    return event
