"""Splitting a harness's output into lines: exact below the limit, valid JSON and bounded above it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from turnlog_client.runner import harness_lines
from turnlog_client.runner.harness_lines import Line, LineReader

_TEXT = st.text(st.sampled_from('aé😀"\\\n\x00{}[],:'), max_size=60)
_JSON = st.recursive(
    _TEXT | st.none() | st.booleans() | st.integers(-99, 99),
    lambda child: st.lists(child, max_size=6) | st.dictionaries(st.text(max_size=8), child, max_size=6),
    max_leaves=40,
)


def read(raw: bytes, steps: list[int], **bounds: int) -> list[Line]:
    reader, lines, at, turn = LineReader(**bounds), [], 0, 0
    while at < len(raw):
        step = steps[turn % len(steps)]
        lines += reader.feed(raw[at : at + step])
        at, turn = at + step, turn + 1
    return lines + reader.end()


@given(
    lines=st.lists(st.binary(max_size=30).map(lambda raw: raw.replace(b"\n", b"")), max_size=8),
    steps=st.lists(st.integers(1, 20), min_size=1, max_size=8),
)
def test_lines_within_the_limit_come_as_they_are(lines: list[bytes], steps: list[int]) -> None:
    got = read(b"".join(line + b"\n" for line in lines), steps)
    assert [(each.number, each.data) for each in got] == [
        (number, line) for number, line in enumerate(lines, 1) if line.strip()
    ]
    assert not any(each.cut or each.too_long for each in got)


def test_a_last_line_without_a_line_break_is_a_line() -> None:
    reader = LineReader()
    assert reader.feed(b'{"a"') == []
    assert reader.end() == [Line(1, b'{"a"')]


@settings(max_examples=400)
@given(
    first=_JSON,
    second=_JSON,
    escaped=st.booleans(),
    steps=st.lists(st.integers(1, 40), min_size=1, max_size=8),
)
def test_a_line_over_the_limit_stays_json_and_keeps_its_other_keys(
    first: Any, second: Any, escaped: bool, steps: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_SLACK", 40), ("_HOPELESS", 4000), ("_SHORT", 12)):
            patch.setattr(harness_lines, name, value)
        message = {"type": "event", "payload": {"a": first, "b": second, "is_error": True}, "z": 1}
        raw = json.dumps(message, ensure_ascii=escaped).encode() + b"\n"
        (line,) = read(raw, steps, max_line=200, max_string=50)
    got = json.loads(line.data.decode())
    assert line.cut or got == message
    assert (got["type"], got["z"], got["payload"]["is_error"]) == ("event", 1, True)
    assert len(line.data) < 200 + 4000 + 200


def test_a_cut_never_halves_a_character() -> None:
    for text in ("é" * 50, "😀" * 50, "a😀" * 50, "\x00😀é" * 30):
        for escaped in (True, False):
            raw = json.dumps({"payload": {"text": text}}, ensure_ascii=escaped).encode() + b"\n"
            for limit in range(30, 60):
                (line,) = read(raw, [13], max_line=40, max_string=limit)
                got = json.loads(line.data.decode())["payload"]["text"]
                assert line.cut
                assert text.startswith(got)
                got.encode()


def test_an_output_of_a_million_parts_loses_its_end_and_keeps_what_follows() -> None:
    parts = [{"text": f"line {number}"} for number in range(300_000)]
    message = {"type": "event", "payload": {"call_id": "c", "parts": parts, "is_error": True}}
    (line,) = read(json.dumps(message).encode() + b"\n", [1 << 16])
    got = json.loads(line.data)["payload"]
    assert line.cut
    assert not line.too_long
    assert got["is_error"] is True
    assert got["parts"] == parts[: len(got["parts"])]
    assert len(got["parts"]) > 100_000


@pytest.mark.parametrize("filler", [b"[", b"1", b" ", b'{"a":'])
def test_a_line_with_nothing_to_cut_is_given_up_within_bounds(filler: bytes) -> None:
    reader = LineReader(max_line=1 << 16)
    for _ in range(64):
        assert reader.feed(filler * (1 << 14)) == []
    (line,) = reader.feed(b"\n")
    assert len(line.data) < 1 << 20
    assert line.too_long or line.cut
