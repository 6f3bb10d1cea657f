"""What is wrong with a request, and how much of that is worth saying."""

import pytest
from turnlog.v1 import event_service_pb2 as pb
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.wire.requests import LISTED_BYTES, parse


def refusal(request: pb.FollowSessionsRequest) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse(type(request), request.SerializeToString())
    assert caught.value.reason is Reason.INVALID_FIELD
    return caught.value


def test_everything_is_said_of_a_small_request() -> None:
    wrong = refusal(pb.FollowSessionsRequest(sessions=[{}] * 3, types=["", "x"]))
    assert [each.field for each in wrong.fields] == [f"sessions[{at}].session_id" for at in range(3)] + ["types[0]"]


@pytest.mark.case(85)
def test_of_a_large_request_the_first_mistake_is_said_and_the_rest_not_looked_for() -> None:
    request = pb.FollowSessionsRequest(sessions=[{}] * (LISTED_BYTES // 2 + 1))
    wrong = refusal(request)
    assert len(wrong.fields) == 1
    assert wrong.metadata == {"field": wrong.fields[0].field}
