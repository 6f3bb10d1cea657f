"""Tools keep their schema, exactly."""

import math

import pytest
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st
from turnlog.v1 import agent_service_pb2 as pb
from turnlog_server.domain.agents import AGENT_VERSION_BYTES, AgentVersion, Tool, check_tools
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.wire.agents import agent_version_message, plan_of, tool_message, tools_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def publish(**tool):
    return pb.PublishAgentVersionRequest(agent_id="agt_1", tools=[{"name": "t", **tool}])


@given(st.dictionaries(TEXT, JSON, max_size=4))
def test_a_schema_goes_there_and_back(schema):
    parameters = Struct()
    parameters.update(schema)
    [tool] = tools_of(publish(parameters=parameters))
    assert tool_message(tool).parameters == parameters
    # The same content is the same text, whatever order it came in.
    again = Struct()
    again.update(dict(reversed(schema.items())))
    assert tools_of(publish(parameters=again)) == (tool,)


def test_no_schema_is_not_an_empty_one():
    [none], [empty] = tools_of(publish()), tools_of(publish(parameters=Struct()))
    assert (none.parameters, empty.parameters) == ("", "{}")
    assert not tool_message(none).HasField("parameters")
    assert tool_message(empty).HasField("parameters")


def test_whole_numbers_read_as_such():
    parameters = Struct()
    parameters.update({"minimum": 1, "maximum": 1.5, "huge": 1e300})
    [tool] = tools_of(publish(parameters=parameters))
    assert tool.parameters == '{"huge":1e+300,"maximum":1.5,"minimum":1}'


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_has_not_are_refused(number):
    parameters = Struct()
    parameters.fields["n"].number_value = number
    with pytest.raises(Refusal) as refused:
        tools_of(publish(parameters=parameters))
    assert refused.value.fields[0].field == "tools[0].parameters.n"


def test_a_schema_that_is_too_deep_is_refused():
    deep = {}
    for _ in range(33):
        deep = {"a": deep}
    parameters = Struct()
    parameters.update(deep)
    with pytest.raises(Refusal) as refused:
        tools_of(publish(parameters=parameters))
    assert refused.value.metadata["limit"] == "struct_depth"


def test_a_version_that_is_too_large_for_an_offer_is_refused():
    tools = [{"name": f"t{at}", "description": "x" * 16_000} for at in range(80)]
    with pytest.raises(Refusal) as refused:
        tools_of(pb.PublishAgentVersionRequest(agent_id="agt_1", tools=tools))
    assert refused.value.reason is Reason.LIMIT_EXCEEDED
    assert refused.value.metadata["maximum"] == str(AGENT_VERSION_BYTES)


def test_tools_of_one_name_are_refused():
    check_tools([Tool("a"), Tool("b")])
    with pytest.raises(Refusal) as refused:
        check_tools([Tool("a"), Tool("b"), Tool("a")])
    assert refused.value.fields[0].field == "tools[2].name"


def test_instructions_may_hold_any_character():
    version = AgentVersion("agt_1", "ws_1", 1, "a\0b\U0001f600", (), 1)
    assert agent_version_message(version).instructions == version.instructions


def test_a_plan_names_the_default_pool_and_the_latest_version():
    plan = plan_of(pb.PublishDeploymentRevisionRequest(agent_deployment_id="adep_1"))
    assert (plan.runner_pool, plan.agent_version_number) == ("default", None)
    assert plan_of(pb.PublishDeploymentRevisionRequest(agent_version_number=3)).agent_version_number == 3
