"""Bytes that are split and joined without being parsed."""

from hypothesis import given
from hypothesis import strategies as st
from turnlog.runner.v1 import runner_service_pb2 as fleet
from turnlog_server.wire.frames import elements, read_varint, varint

SIZES = st.sampled_from([0, 1, 126, 127, 128, 129, 16_382, 16_383, 16_384, 20_000])


@given(st.lists(SIZES, max_size=12))
def test_a_repeated_field_is_split_where_it_was_joined(sizes):
    items = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    assert list(elements(b"".join(b"\x12" + varint(len(item)) + item for item in items))) == items


@given(st.integers(0, 2**64 - 1))
def test_a_number_is_read_as_it_was_written(number):
    raw = varint(number)
    assert read_varint(b"x" + raw + b"y", 1) == (number, 1 + len(raw))


@given(st.lists(st.text(max_size=20_000), min_size=1, max_size=4))
def test_elements_are_what_the_runtime_says_they_are(texts):
    append = fleet.Append()
    for text in texts:
        append.events.add().agent_message.parts.add(text=text)
    split = list(elements(append.SerializeToString()))
    assert [fleet.RunnerEvent.FromString(each) for each in split] == list(append.events)
