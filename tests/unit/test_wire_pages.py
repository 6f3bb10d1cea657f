"""Page tokens belong to their request, and pages end before they are too large."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turnlog.v1 import agent_service_pb2 as pb
from turnlog_server.domain.agents import AgentVersion
from turnlog_server.domain.limits import PAGE_DEFAULT, PAGE_MAXIMUM, RESPONSE_BYTES
from turnlog_server.domain.pages import Page
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.wire.agents import agent_version_message
from turnlog_server.wire.pages import FARTHEST, fill, page_size, token, window

NAMES = st.text(st.characters(categories=["L", "N", "P"]), max_size=64)


def request(**fields):
    return pb.ListAgentVersionsRequest(**{"agent_id": "agt_1"} | fields)


@given(st.integers(-FARTHEST, FARTHEST), NAMES)
def test_a_token_leads_back_to_its_position(number, name):
    first = request()
    assert window(request(page_token=token(first, (number,))), int).after == (number,)
    assert window(request(page_token=token(first, (number, name))), int, str).after == (number, name)


@given(st.integers(0, 1000))
def test_the_size_may_change_between_pages(size):
    assert window(request(page_token=token(request(page_size=3), (7,)), page_size=size), int).after == (7,)


def refused_token(asked, *shape):
    with pytest.raises(Refusal) as refused:
        window(asked, *shape)
    assert refused.value.reason is Reason.INVALID_FIELD
    assert refused.value.fields[0].field == "page_token"


def test_a_token_of_another_request_is_refused():
    text = token(request(), (7,))
    refused_token(request(agent_id="agt_2", page_token=text), int)
    refused_token(pb.ListDeploymentRevisionsRequest(agent_deployment_id="agt_1", page_token=text), int)
    refused_token(pb.ListAgentsRequest(page_token=token(pb.ListHarnessProfilesRequest(), ("a",))), str)


@given(st.text(max_size=200))
def test_what_is_no_token_is_refused(text):
    if text:
        refused_token(request(page_token=text), int)


@pytest.mark.parametrize("position", [[], ["7"], [7, "x"], [7.0], [True], [None], {}, 7, [2**62 + 1], [10**400], [[7]]])
def test_a_made_up_position_is_refused(position):
    raw = base64.urlsafe_b64decode(token(request(), (7,)) + "==")
    forged = base64.urlsafe_b64encode(raw[:12] + json.dumps(position).encode()).decode()
    refused_token(request(page_token=forged), int)


def test_a_made_up_name_that_no_database_can_hold_is_refused():
    refused_token(pb.ListAgentsRequest(page_token=token(pb.ListAgentsRequest(), ("a\0",))), str)


def test_sizes():
    assert page_size(request()) == PAGE_DEFAULT
    assert page_size(request(page_size=PAGE_MAXIMUM + 1)) == PAGE_MAXIMUM
    assert page_size(request(page_size=1)) == 1
    with pytest.raises(Refusal, match="page_size"):
        page_size(request(page_size=-1))


def version(number, size):
    return AgentVersion("agt_1", "ws_1", number, "x" * size, (), number)


@given(st.lists(st.integers(0, 2 * 1024 * 1024), min_size=1, max_size=8), st.booleans())
def test_a_response_is_never_too_large_and_nothing_is_left_out(sizes, more):
    versions = tuple(version(number, size) for number, size in zip(range(len(sizes), 0, -1), sizes, strict=True))
    response = fill(
        request(), pb.ListAgentVersionsResponse(), "agent_versions", Page(versions, more), agent_version_message
    )
    count = len(response.agent_versions)
    assert response.ByteSize() <= RESPONSE_BYTES
    assert count > 0
    if count == len(versions) and not more:
        assert response.next_page_token == ""
    else:
        follows = window(request(page_token=response.next_page_token), int).after
        assert follows == (versions[count - 1].version_number,)


def test_an_empty_page_is_the_last():
    response = fill(request(), pb.ListAgentVersionsResponse(), "agent_versions", Page((), False), agent_version_message)
    assert response == pb.ListAgentVersionsResponse()
