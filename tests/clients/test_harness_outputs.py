"""A harness's lines as outputs: what is refused, what is cut, and that the contract takes what is left."""

import base64
import json
import logging
from typing import Any

import pytest
from google.protobuf import json_format
from turnlog.v1 import agent_event_pb2
from turnlog_client.harness import limits, schema
from turnlog_client.harness.payloads import cut_text, encode_line, fit_struct, shape, split_text
from turnlog_client.runner.harness_lines import Line
from turnlog_client.runner.harness_outputs import OutputParser
from turnlog_client.runner.outputs import HarnessEvent, Output, Preview, ProtocolError, Ready, Settle
from turnlog_client.runner.start import start_message

MESSAGES = {
    "agent.message": agent_event_pb2.AgentMessage,
    "agent.tool_use": agent_event_pb2.AgentToolUse,
    "agent.tool_result": agent_event_pb2.AgentToolResult,
    "model.called": agent_event_pb2.ModelCalled,
}


class Heard:
    """A parser with what it logged and what it told the harness."""

    def __init__(self, *, ready: bool = True) -> None:
        self.logged: list[tuple[int, str]] = []
        self.complaints: list[str] = []
        self.parser = OutputParser(lambda level, text: self.logged.append((level, text)), self.complaints.append)
        if ready:
            assert self.parse({"type": "ready", "protocol": 1}) == [Ready()]

    def parse(self, message: object, *, cut: bool = False) -> list[Output]:
        raw = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.parser.parse(Line(7, raw, cut))

    def event(self, event_type: str, payload: dict[str, Any], *, cut: bool = False) -> HarnessEvent:
        (output,) = self.parse({"type": "event", "event_type": event_type, "payload": payload}, cut=cut)
        assert isinstance(output, HarnessEvent), output
        # The contract takes it as it is, and has room for it.
        parsed = json_format.ParseDict(output.payload, MESSAGES[event_type]())
        assert parsed.ByteSize() <= limits.MAX_EVENT_BYTES
        return output


def event(event_type: str, **payload: Any) -> dict[str, Any]:
    return {"type": "event", "event_type": event_type, "payload": payload}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"hello", "it is not JSON"),
        (b'{"type":"log"', "it is not JSON"),
        (b'"\xff"', "it is not UTF-8 at byte 2"),
        (b"[1]", "it must be a JSON object"),
        (b"[" * 100_000, "it is nested too deep"),
        (b'{"type":"event","x":NaN}', "NaN is not a JSON number"),
        (b'{"type":"event","x":1e999}', "out of range"),
        (b'{"type":"event","x":' + b"9" * 5000 + b"}", "it is not JSON"),
        ({}, '"type"'),
        ({"type": 3}, '"type"'),
        ({"type": "event", "event_type": "user.message", "payload": {}}, 'event_type must be one of "agent.message"'),
        ({"type": "event", "event_type": "agent.message"}, 'must have the key "payload"'),
        (event("agent.message", parts=[]), "payload: parts must have at least 1 items"),
        (event("agent.message", parts=[{"text": "a"}, {"text": 3}]), "parts[1].text must be a string, not 3"),
        (event("agent.message", parts=[{"image": "a"}]), 'parts[0] must have the key "text"'),
        (event("agent.tool_use", name="x"), 'must have the key "call_id"'),
        (event("agent.tool_use", call_id="c", name="a\x00b"), "name must match"),
        (event("agent.tool_use", call_id="c" * 129, name="x"), "call_id must have at most 128 characters"),
        (event("agent.tool_use", call_id="c", name="x", arguments=[1]), "arguments must be an object"),
        (event("agent.tool_result", call_id="c", data="not base64!"), "payload.data is not base64"),
        (event("agent.tool_result", call_id="c", is_error=1), "is_error must be a boolean"),
        (event("model.called", model="m"), 'must have the key "usage"'),
        (event("model.called", usage={"input_tokens": -1}), "input_tokens must be at least 0"),
        (event("model.called", usage={"input_tokens": True}), "input_tokens must be an integer"),
        (event("model.called", usage={"currency": "usd"}), "currency must match"),
        ({"type": "preview"}, 'must have the key "text"'),
        ({"type": "settle", "outcome": "done"}, 'outcome must be one of "succeeded", "failed"'),
        ({"type": "settle", "outcome": "failed", "error": {"code": "Oops"}}, "error.code must match"),
        ({"type": "log", "message": "x", "level": "loud"}, "level must be one of"),
    ],
)
def test_a_broken_line_ends_the_attempt_and_says_where(line: object, complaint: str) -> None:
    (output,) = Heard().parse(line)
    assert isinstance(output, ProtocolError)
    assert output.error_code == "harness.protocol_error"
    assert output.message.startswith("Line 7 of the harness's output: ")
    assert complaint in output.message
    assert len(output.message) < 400


@pytest.mark.rule("R172")
@pytest.mark.parametrize(
    "message",
    [
        event("agent.message", parts=[{"text": "a"}]),
        {"type": "preview", "text": "a"},
        {"type": "settle", "outcome": "succeeded"},
    ],
)
def test_nothing_is_done_before_ready(message: dict[str, Any]) -> None:
    (output,) = Heard(ready=False).parse(message)
    assert isinstance(output, ProtocolError)
    assert "a ready must come before it" in output.message


def test_a_start_up_that_fails_may_settle_at_once() -> None:
    error = {"code": "index.missing", "message": "There is no index."}
    heard = Heard(ready=False)
    assert heard.parse({"type": "settle", "outcome": "failed", "error": error, "usage": {"input_tokens": 1}}) == [
        Settle("failed", "index.missing", "There is no index.")
    ]


def test_another_version_is_refused_by_name() -> None:
    (output,) = Heard(ready=False).parse({"type": "ready", "protocol": 2})
    assert isinstance(output, ProtocolError)
    assert output.error_code == "harness.protocol_unsupported"
    assert "version 2" in output.message


def test_unknown_types_and_keys_are_ignored_and_types_are_answered() -> None:
    heard = Heard()
    assert heard.parse({"type": "ask", "question": "?"}) == []
    assert "'ask'" in heard.complaints[0]
    assert heard.logged[0][0] == logging.ERROR
    got = heard.event("agent.message", {"parts": [{"text": "a", "lang": "en"}], "mood": "good"})
    assert got == HarnessEvent("agent.message", {"parts": [{"text": "a"}]})
    assert heard.parse({"type": "ready", "protocol": 1}) == []


def test_usage_of_a_settle_becomes_a_model_call() -> None:
    usage = {"input_tokens": 3, "amount_nanos": 5, "currency": "EUR", "cached_tokens": 0}
    assert Heard().parse({"type": "settle", "outcome": "succeeded", "usage": usage}) == [
        HarnessEvent("model.called", {"model": "", "usage": {"input_tokens": 3, "amount_nanos": 5, "currency": "EUR"}}),
        Settle("succeeded"),
    ]


@pytest.mark.parametrize("character", ["a", "é", "你", "😀", "\x00"])
def test_text_over_the_limit_is_cut_at_a_code_point_and_marked(character: str) -> None:
    heard = Heard()
    text = character * limits.MAX_EVENT_BYTES
    result = heard.event("agent.tool_result", {"call_id": "c", "parts": [{"text": "x"}, {"text": text}, {"text": "z"}]})
    assert result.cut
    assert result.payload["truncated"] is True
    assert [set(part["text"]) for part in result.payload["parts"]] == [{"x"}, {character}]
    assert len(result.payload["parts"][1]["text"].encode()) > limits.MAX_EVENT_BYTES - 8192

    message = heard.event("agent.message", {"parts": [{"text": text}]})
    assert message.cut
    assert message.payload["parts"][0]["text"].rstrip("]").endswith("over the limit of 262144 bytes")


def test_many_parts_are_cut_to_what_the_contract_takes() -> None:
    result = Heard().event("agent.tool_result", {"call_id": "c", "parts": [{"text": "x"}] * 5000})
    assert len(result.payload["parts"]) == 1000
    assert result.payload["truncated"] is True


def test_bytes_are_cut_at_a_byte_and_marked() -> None:
    raw = bytes(range(256)) * 2048
    payload = {"call_id": "c", "data": base64.b64encode(raw).decode(), "media_type": "image/png"}
    result = Heard().event("agent.tool_result", payload)
    got = base64.b64decode(result.payload["data"])
    assert raw.startswith(got)
    assert len(got) > limits.MAX_EVENT_BYTES - 8192
    assert result.payload["truncated"] is True
    assert result.payload["media_type"] == "image/png"
    # What the reader cut need not end where base64 may end.
    cut = Heard().event("agent.tool_result", {**payload, "data": payload["data"][:4001]}, cut=True)
    assert base64.b64decode(cut.payload["data"]) == raw[:3000]


def test_what_the_reader_cut_is_marked_though_it_fits() -> None:
    heard = Heard()
    assert heard.event("agent.tool_result", {"call_id": "c", "parts": [{"text": "a"}]}, cut=True).payload["truncated"]
    assert "[cut here" in heard.event("agent.message", {"parts": [{"text": "a"}]}, cut=True).payload["parts"][0]["text"]


def test_lone_surrogates_become_replacement_characters_and_pairs_are_joined() -> None:
    got = Heard().event("agent.message", {"parts": [{"text": "\ud83d\ude00 \ud83d x"}]})
    assert got.payload["parts"] == [{"text": "😀 \ufffd x"}]


def test_control_characters_in_text_stay() -> None:
    text = "a\x00b\x1b[0m\u2028\x85\x7f"
    assert Heard().event("agent.message", {"parts": [{"text": text}]}).payload == {"parts": [{"text": text}]}


def test_arguments_are_made_to_fit_the_contract() -> None:
    deep: Any = "bottom"
    for _ in range(40):
        deep = {"down": [deep]}
    arguments = {"deep": deep, "wide": {str(key): key for key in range(5000)}, "huge": 10**400, "long": "é" * 300_000}
    got = Heard().event("agent.tool_use", {"call_id": "c", "name": "t", "arguments": arguments})
    assert got.cut
    assert len(got.payload["arguments"]["wide"]) == 1000
    assert got.payload["arguments"]["huge"] == "[cut here: too large a number]"
    assert set(got.payload["arguments"]["long"]) == {"é"}
    assert "[cut here: too deep]" in json.dumps(got.payload["arguments"])
    parsed = json_format.ParseDict(got.payload, agent_event_pb2.AgentToolUse())
    assert _depth(json_format.MessageToDict(parsed)["arguments"]) == limits.MAX_STRUCT_DEPTH


@pytest.mark.parametrize("filler", [[0] * 300_000, [[]] * 300_000, [{"": None}] * 100_000, {"k" * 9000: "v" * 9000}])
def test_arguments_of_any_shape_have_room_in_an_event(filler: Any) -> None:
    Heard().event("agent.tool_use", {"call_id": "c", "name": "t", "arguments": {"a": filler, "b": filler}})


def test_small_arguments_stay_as_they_are() -> None:
    arguments = {"a": [1, 2.5, True, None, "x"], "b": {"c": {}}}
    assert fit_struct(arguments, 10_000) == (arguments, False)


def test_previews_are_split_and_nothing_is_lost() -> None:
    text = "é😀" * 30_000
    outputs = Heard().parse({"type": "preview", "text": text})
    pieces = [output.text for output in outputs if isinstance(output, Preview)]
    assert "".join(pieces) == text
    assert max(len(piece.encode()) for piece in pieces) <= limits.MAX_PREVIEW_BYTES
    assert Heard().parse({"type": "preview", "text": ""}) == []


@pytest.mark.parametrize("text", ["", "abc", "é", "😀😀"])
def test_cut_text_gives_the_longest_beginning_that_fits(text: str) -> None:
    for room in range(-1, 10):
        piece, cut = cut_text(text, room)
        assert text.startswith(piece)
        assert len(piece.encode()) <= max(room, 0)
        assert cut == (piece != text)
        if cut:
            assert len(text[: len(piece) + 1].encode()) > room
    assert "".join(split_text(text, 4)) == text


def test_history_that_does_not_fit_is_left_out_at_the_old_end() -> None:
    history = [{"seq": seq, "type": "user.message", "text": "é" * 1_000_000} for seq in range(1, 9)]
    message = start_message(session_id="s", run_id="r", parts=["a", "b"], history=history, deadline_seconds=-1.0)
    schema.check("start", message)
    assert len(encode_line(message)) <= limits.MAX_START_BYTES
    assert [record["seq"] for record in message["history"]] == [7, 8]
    assert message["history_omitted"] == 6
    assert message["message"]["text"] == "ab"
    assert message["deadline_seconds"] == 0


def test_the_schema_describes_every_type_that_is_understood() -> None:
    defs = schema.definitions()
    spoken = {each["$ref"].removeprefix("#/$defs/") for each in defs["from_harness"]["anyOf"]}
    assert spoken == set(OutputParser._HANDLERS)
    assert defs["event"]["properties"]["event_type"]["enum"] == list(MESSAGES)
    for event_type, message in MESSAGES.items():
        described = set(defs[event_type]["properties"])
        assert described == {field.name for field in message.DESCRIPTOR.fields}


def test_a_constraint_that_nobody_checks_cannot_enter_the_schema() -> None:
    with pytest.raises(ValueError, match="no check is written for"):
        schema._refuse_unknown_keywords("start", {"type": "object", "properties": {"x": {"uniqueItems": True}}})


def test_shape_keeps_what_is_right() -> None:
    payload = {"call_id": "c", "parts": [{"text": ""}], "is_error": False, "truncated": False}
    assert shape("agent.tool_result", payload) == ({"call_id": "c", "parts": [{"text": ""}]}, False)


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max((_depth(child) for child in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max((_depth(child) for child in value), default=0)
    return 0
