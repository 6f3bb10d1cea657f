"""What holds for every RPC and every message of the contract, whoever adds the next."""

import pytest
from protovalidate import collect_violations
from support.contract import ENUMS, MESSAGES, METHODS, SERVICES, arms, inside
from turnlog.runner.v1 import runner_service_pb2
from turnlog.v1 import event_pb2, event_service_pb2, session_pb2
from turnlog_server.domain.access import PERMISSIONS
from turnlog_server.wire.events import ARMS, IGNORABLE

EVENT = event_pb2.Event.DESCRIPTOR
PAYLOAD = arms(EVENT, "payload")
FAMILIES = {"user": (20, 39), "agent": (40, 59), "model": (40, 59), "session": (60, 99), "run": (100, 129)}
READS = ("Get", "List", "Follow")
# A request_id is what this one asks for; a runner's stream counts its messages itself.
SUBJECT_IS_A_REQUEST, COUNTS_ITSELF = "GetRequest", "Connect"

every_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
every_list = pytest.mark.parametrize(
    "method", [method for method in METHODS if method.name.startswith("List")], ids=lambda method: method.name
)


def requests():
    """Every message that a caller or a runner sends, once."""
    seen = set()
    return [message for method in METHODS for message in inside(method.input_type, seen)]


def fields_of(*kinds):
    return [
        pytest.param(message, field, id=f"{message.name}.{field.name}")
        for message in requests()
        for field in message.fields
        if any(kind(field) for kind in kinds)
    ]


def test_there_is_a_contract():
    assert len(SERVICES) >= 8
    assert len(METHODS) >= 50
    assert len(ENUMS) >= 10


@every_method
def test_every_rpc_has_messages_of_its_own_and_a_permission(method):
    assert (method.input_type.name, method.output_type.name) == (f"{method.name}Request", f"{method.name}Response")
    assert f"{method.containing_service.full_name}/{method.name}" in PERMISSIONS


@pytest.mark.rule("R5", "R36")
@every_method
def test_what_changes_something_has_a_request_id_and_what_reads_has_none(method):
    has = "request_id" in method.input_type.fields_by_name
    if method.name in (SUBJECT_IS_A_REQUEST, COUNTS_ITSELF):
        return
    assert has == (not method.name.startswith(READS))
    if has:
        request = method.input_type._concrete_class
        assert method.input_type.fields_by_name["request_id"].number == 1
        for wrong in ("", "x" * 129, "näme", "line\n"):
            assert "request_id" in refused(request(request_id=wrong))
        for right in ("x", "~" * 128, "a b"):
            assert "request_id" not in refused(request(request_id=right))


@every_list
def test_every_list_has_pages(method):
    request, response = method.input_type.fields_by_name, method.output_type.fields_by_name
    assert request["page_size"].cpp_type == request["page_size"].CPPTYPE_INT32
    assert request["page_token"].cpp_type == request["page_token"].CPPTYPE_STRING
    assert response["next_page_token"].cpp_type == response["next_page_token"].CPPTYPE_STRING
    assert [field.message_type is not None for field in response.values() if field.is_repeated] == [True]
    assert "page_size" in refused(method.input_type._concrete_class(page_size=-1))


# Zero is what is meant when nothing is said. Whoever adds a field says here why that is so, or makes it `optional`.
ZERO_MEANS_UNSET = {
    "page_size": "0 is the default",
    "after_seq": "0 is from the start: no event has seq 0",
    "previews": "false is not asked for",
    "credits": "0 takes the credits back, and none were given before",
    "is_error": "false is not an error",
    "truncated": "false is whole",
    "input_tokens": "nothing used",
    "output_tokens": "nothing used",
    "cached_tokens": "nothing used",
    "amount_nanos": "no price known",
    "if_busy": "UNSPECIFIED is documented as a value",
    "boundary": "UNSPECIFIED is documented as a value",
    "CausedBy.kind": "UNSPECIFIED is refused, by the server: events that are shown share the message",
    "CreatePrincipalRequest.role": "UNSPECIFIED is no role",
    "CreateServiceAccountRequest.role": "UNSPECIFIED is no role",
}


@pytest.mark.parametrize(
    ("message", "field"),
    fields_of(
        lambda f: f.message_type is None and not f.is_repeated and not f.has_presence and f.cpp_type != f.CPPTYPE_STRING
    ),
)
def test_unset_differs_from_zero_only_where_it_can_be_told(message, field):
    excused = {field.name, f"{message.name}.{field.name}"} & set(ZERO_MEANS_UNSET)
    zero_is_refused = field.name in refused(message._concrete_class())
    assert excused or zero_is_refused, f"{message.name}.{field.name} = 0 and unset are the same: is that meant?"


def test_no_excuse_is_left_over():
    names = {
        name
        for message in requests()
        for field in message.fields
        for name in (field.name, f"{message.name}.{field.name}")
    }
    assert set(ZERO_MEANS_UNSET) <= names


# Names that others give, which are theirs to choose.
FOREIGN_IDS = {"request_id", "call_id", "instance_id"}
PREFIXES = {
    "session_id": "sess_",
    "run_id": "run_",
    "event_id": "evt_",
    "runner_id": "rnr_",
    "principal": "prn_",
    "principal_id": "prn_",
    "service_account_id": "svc_",
    "api_key_id": "key_",
    "agent_id": "agt_",
    "harness_profile_id": "hpr_",
    "sandbox_profile_id": "spr_",
    "agent_deployment_id": "adep_",
}


def is_id(field):
    return field.name in PREFIXES or (field.name.endswith("_id") and field.name not in FOREIGN_IDS)


# CausedBy is a message that stored events have as well, so the server bounds it and not the contract.
@pytest.mark.rule("R5")
@pytest.mark.parametrize(
    ("message", "field"),
    fields_of(lambda f: is_id(f) and f.containing_type.name != "CausedBy"),
)
def test_an_id_is_of_its_kind(message, field):
    request, prefix = message._concrete_class, PREFIXES[field.name]
    for wrong in ("1", prefix.upper() + "1", f"x{prefix}1", "other_0123456789abcdefghijklmnop", prefix + "0" * 100):
        assert field.name in refused(request(**{field.name: wrong})), wrong
    assert field.name not in refused(request(**{field.name: prefix + "0123456789abcdefghijklmnop"}))


@pytest.mark.parametrize("enum", ENUMS, ids=lambda enum: enum.full_name)
def test_the_first_value_of_an_enum_says_nothing(enum):
    assert enum.values[0].number == 0
    assert enum.values[0].name.endswith("_UNSPECIFIED")


# Events.


def test_the_envelope_is_small_and_names_no_session():
    envelope = [field for field in EVENT.fields if field.containing_oneof is None]
    assert all(field.number <= 15 for field in envelope)
    assert "session_id" not in EVENT.fields_by_name


@pytest.mark.rule("R36")
@pytest.mark.parametrize("arm", PAYLOAD)
def test_the_type_of_an_event_is_the_name_of_its_arm(arm):
    family, _, rest = arm.partition("_")
    assert ARMS[arm] == f"{family}.{rest}"
    low, high = FAMILIES[family]
    assert low <= PAYLOAD[arm].number <= high


@pytest.mark.rule("R62")
def test_every_status_has_its_event():
    named = {name.removeprefix("SESSION_STATUS_").lower() for name in session_pb2.SessionStatus.keys()[1:]}
    assert named == {arm.removeprefix("session_status_") for arm in PAYLOAD if arm.startswith("session_status_")}


@pytest.mark.parametrize(
    ("holder", "oneof"),
    [
        (event_service_pb2.AppendEventRequest, "event"),
        (runner_service_pb2.RunnerEvent, "payload"),
    ],
    ids=lambda value: getattr(getattr(value, "DESCRIPTOR", None), "name", value),
)
def test_an_arm_is_the_same_wherever_it_appears(holder, oneof):
    """What a caller or runner wrote is stored as it came, so it has to mean the same inside an Event."""
    for name, field in arms(holder.DESCRIPTOR, oneof).items():
        assert (field.number, field.message_type) == (PAYLOAD[name].number, PAYLOAD[name].message_type)


@pytest.mark.rule("R13", "R39")
def test_callers_append_what_callers_write_and_runners_what_runners_write():
    callers = set(arms(event_service_pb2.AppendEventRequest.DESCRIPTOR, "event"))
    runners = set(arms(runner_service_pb2.RunnerEvent.DESCRIPTOR, "payload"))
    assert callers == {arm for arm in PAYLOAD if arm.startswith("user_")}
    assert runners == {arm for arm in PAYLOAD if arm.startswith(("agent_", "model_"))}
    assert set(PAYLOAD) >= IGNORABLE


def refused(message):
    """The top-level fields that the contract's rules complain of."""
    return {
        violation.proto.field.elements[0].field_name
        for violation in collect_violations(message)
        if violation.proto.field.elements
    }


def test_messages_are_walked():
    assert {"Event", "Lease", "CausedBy", "SessionPins"} <= {message.name for message in MESSAGES}
