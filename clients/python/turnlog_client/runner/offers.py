"""What an Offer says, as a harness is told it."""

from typing import Any

from google.protobuf.json_format import MessageToDict
from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog.v1 import content_pb2, event_pb2, run_pb2

from turnlog_client.runner.start import start_message


def start_of(offer: pb.Offer, *, deadline_seconds: float, workdir: str) -> dict[str, Any]:
    """The `start` message of an Offer."""
    start = start_message(
        session_id=offer.session_id,
        run_id=offer.run_id,
        attempt_no=offer.attempt_no,
        attempt_kind=run_pb2.AttemptKind.Name(offer.attempt_kind).removeprefix("ATTEMPT_KIND_"),
        parts=[part.text for part in offer.trigger.user_message.parts if part.HasField("text")],
        history=[_record(event) for event in offer.history],
        instructions=offer.agent_version.instructions,
        tools=[_tool(tool) for tool in offer.agent_version.tools],
        deadline_seconds=deadline_seconds,
        workdir=workdir,
    )
    start["history_omitted"] += offer.history_omitted
    if offer.model_route:
        start["model_route"] = offer.model_route
    return start


def _tool(tool: Any) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": tool.name, "description": tool.description}
    if tool.HasField("parameters"):
        shown["input_schema"] = MessageToDict(tool.parameters)
    return shown


def _record(event: event_pb2.Event) -> dict[str, Any]:
    """One earlier event of the conversation."""
    record: dict[str, Any] = {"seq": event.seq, "type": event.type, "text": ""}
    match event.WhichOneof("payload"):
        case "user_message":
            record["text"] = _text(event.user_message.parts)
        case "agent_message":
            record["text"] = _text(event.agent_message.parts)
        case "agent_tool_use":
            use = event.agent_tool_use
            record |= {"call_id": use.call_id, "name": use.name, "arguments": MessageToDict(use.arguments)}
        case "agent_tool_result":
            result = event.agent_tool_result
            record |= {"call_id": result.call_id, "text": _text(result.parts), "is_error": result.is_error}
            if result.media_type:
                record["media_type"] = result.media_type
        case _:
            # An event of a kind that this runner does not know still has its place in the conversation.
            pass
    return record


def _text(parts: Any) -> str:
    texts: list[str] = [part.text for part in parts if isinstance(part, content_pb2.ContentPart)]
    return "".join(texts)
