"""Enums and reasons of the contract and of the domain are the same lists, by the same names."""

import importlib
import pkgutil
import re
from importlib.resources import files

import pytest
import turnlog_server.wire
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc import StatusCode
from support.contract import ENUMS
from turnlog.runner.v1 import runner_service_pb2
from turnlog.v1 import access_pb2, error_pb2, event_pb2, event_service_pb2, run_pb2, session_pb2
from turnlog_server.domain.access import Role
from turnlog_server.domain.events import CauseKind
from turnlog_server.domain.refusals import Reason
from turnlog_server.domain.session import AttemptKind, AttemptStatus, Boundary, RunStatus, Status, StopReason
from turnlog_server.wire import errors, inbound, runner
from turnlog_server.wire.enums import Enum

MAPPED = {
    session_pb2.SessionStatus: Status,
    session_pb2.StopReason: StopReason,
    session_pb2.StatusBoundary: Boundary,
    run_pb2.RunStatus: RunStatus,
    run_pb2.AttemptStatus: AttemptStatus,
    run_pb2.AttemptKind: AttemptKind,
    event_pb2.CausedBy.Kind: CauseKind,
    access_pb2.Role: Role,
}
# Of a request, each to what it asks for; UNSPECIFIED is one of the values where the contract says what it means.
ASKED = {
    event_service_pb2.IfBusy: (inbound.IF_BUSY, 0),
    event_service_pb2.FollowUntil.Boundary: (inbound.UNTIL, 0),
    runner_service_pb2.Settle.Outcome: (runner.OUTCOMES, 1),
}
# Written by name where they are sent.
SENT = {"FollowEnd.Reason", "Drain.Reason", "ErrorReason"}
# Why Runs and attempts end. No call is refused with these, so the domain of refusals does not have them.
OF_RUNS = {"STARTUP_TIMEOUT", "STARTUP_EXHAUSTED", "QUEUE_TIMEOUT", "TURN_DEADLINE_EXCEEDED"}


def mappings():
    """Every `Enum` of the wire."""
    return [
        value
        for module in pkgutil.iter_modules(turnlog_server.wire.__path__, "turnlog_server.wire.")
        for value in vars(importlib.import_module(module.name)).values()
        if isinstance(value, Enum)
    ]


@pytest.mark.parametrize(("contract", "domain"), MAPPED.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_both_ways_and_all_values(contract, domain):
    found = [mapping for mapping in mappings() if type(mapping.value(1)) is domain]
    assert found, f"nothing maps {domain.__name__}"
    numbers = {found[0].number(value): value for value in domain}
    assert all(found[0].value(number) is value for number, value in numbers.items())
    assert set(numbers) | {0} == set(contract.values())
    with pytest.raises(KeyError):
        found[0].value(max(numbers) + 1)


@pytest.mark.parametrize(("contract", "mapping"), ASKED.items(), ids=["if busy", "until", "outcome"])
def test_every_value_of_a_request_means_something(contract, mapping):
    meant, first = mapping
    assert set(meant) == {number for number in contract.values() if number >= first}


def test_no_enum_is_left_out():
    named = {enum.DESCRIPTOR.full_name.split(".v1.")[1] for enum in (*MAPPED, *ASKED)} | SENT
    assert {enum.full_name.split(".v1.")[1] for enum in ENUMS} == named


def test_every_reason_is_in_the_contract_and_in_the_table():
    named = {name.removeprefix("ERROR_REASON_") for name in dict(error_pb2.ErrorReason.items())}
    assert named == {reason.value for reason in Reason} | OF_RUNS | {"UNSPECIFIED"}
    assert {reason.name for reason in Reason} == {reason.value for reason in Reason}
    assert set(errors.TABLE) == set(Reason)


KEYS = {key for row in errors.TABLE.values() for key in row.metadata}
CODES = {code.value[0]: code.name for code in StatusCode}
DESCRIBED = FileDescriptorSet.FromString((files("turnlog") / "contract.binpb").read_bytes())


def comments_of_reasons():
    """What the contract says of each reason."""
    file = next(file for file in DESCRIBED.file if file.name == "turnlog/v1/error.proto")
    return {
        file.enum_type[0].value[place.path[3]].name: " ".join(place.leading_comments.split())
        for place in file.source_code_info.location
        if len(place.path) == 4 and tuple(place.path[:3]) == (5, 0, 2)
    }


@pytest.mark.parametrize("reason", Reason)
def test_the_contract_says_the_code_and_the_metadata_of_a_reason(reason):
    says, row = comments_of_reasons()[f"ERROR_REASON_{reason}"], errors.TABLE[reason]
    assert says.startswith(f"{CODES[row.code]}. ")
    _, _, metadata = says.partition("Metadata: ")
    assert set(re.findall(r"[a-z_]+", metadata)) & KEYS == set(row.metadata)
