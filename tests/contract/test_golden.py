"""Golden bytes: an event of every payload, as it was written once. What reads these files reads what is in databases.

TURNLOG_REGENERATE_GOLDEN=1 writes the files that are not what this version would write; look at the difference before
you commit it, and never change one for a field that was renumbered or retyped.
"""

import os
from pathlib import Path

import pytest
from google.protobuf import json_format
from support.contract import arms, sample
from turnlog.v1 import event_pb2
from turnlog_server.wire.events import ARMS, decode

GOLDEN = Path(__file__).parent / "golden"
PAYLOAD = arms(event_pb2.Event.DESCRIPTOR, "payload")
REGENERATE = os.environ.get("TURNLOG_REGENERATE_GOLDEN") == "1"


def event_of(arm):
    """One with every field set."""
    event = sample(event_pb2.Event.DESCRIPTOR, arm)
    event.type = ARMS[arm]
    if arm.startswith("session_status_"):
        # The status inside says the same as the arm.
        changed = getattr(event, arm)
        changed.status = changed.DESCRIPTOR.fields_by_name["status"].enum_type.values_by_name[arm.upper()].number
    elif arm in ("run_succeeded", "run_failed", "run_interrupted", "run_canceled"):
        ended = getattr(event, arm)
        name = f"RUN_STATUS_{arm.removeprefix('run_').upper()}"
        ended.status = ended.DESCRIPTOR.fields_by_name["status"].enum_type.values_by_name[name].number
    return event


def as_json(event):
    return json_format.MessageToJson(event, ensure_ascii=False, sort_keys=True) + "\n"


@pytest.mark.parametrize("arm", PAYLOAD)
def test_the_bytes_are_what_they_were(arm):
    event, path = event_of(arm), GOLDEN / f"{ARMS[arm]}.bin"
    body = event.SerializeToString(deterministic=True)
    if REGENERATE:
        GOLDEN.mkdir(exist_ok=True)
        path.write_bytes(body)
        path.with_suffix(".json").write_text(as_json(event), "utf-8")
    assert path.exists(), f"a new payload: write {path.name}, see above"
    assert path.read_bytes() == body


@pytest.mark.parametrize("arm", PAYLOAD)
def test_what_was_written_is_read_as_it_was_meant(arm):
    path = GOLDEN / f"{ARMS[arm]}.bin"
    event = event_pb2.Event.FromString(path.read_bytes())
    assert event.WhichOneof("payload") == arm
    assert as_json(event) == path.with_suffix(".json").read_text("utf-8")
    read = decode(path.read_bytes())
    assert (read.type, read.seq, read.event_id) == (ARMS[arm], event.seq, event.event_id)


def test_no_file_is_left_over():
    assert {path.stem for path in GOLDEN.iterdir()} == set(ARMS.values())
