"""Unary calls: retries, request ids, typed errors, and the table of methods against the contract."""

import asyncio
from datetime import UTC, datetime

import grpc
import pytest
from google.protobuf import descriptor_pool
from grpc import StatusCode
from scripted import Refusal, ScriptedServer, Sleeps, client
from turnlog.v1 import event_service_pb2, run_pb2, run_service_pb2, session_pb2, session_service_pb2
from turnlog_client import Turnlog, errors, v1
from turnlog_client.stubs import Paged, Service, Unary

APPENDED = event_service_pb2.AppendEventResponse(seq=4, event_id="evt_4", run_id="run_4", replayed=True)
SESSION = session_service_pb2.GetSessionResponse(session=session_pb2.Session(session_id="sess_1", head_seq=4))


@pytest.mark.case(96)
@pytest.mark.parametrize("reason", ["", "OUTCOME_UNKNOWN", "STORE_UNAVAILABLE", "SERVER_DRAINING"])
async def test_a_retry_carries_the_same_request_id(scripted: ScriptedServer, reason: str) -> None:
    scripted.on("AppendEvent", *[Refusal(StatusCode.UNAVAILABLE, reason)] * 3, APPENDED)
    async with client(scripted) as t:
        answer = await t.sessions.steer("sess_1", "hello")
    assert (answer.seq, answer.run_id, answer.replayed) == (4, "run_4", True)
    requests = scripted.requests("AppendEvent")
    assert len(requests) == 4
    assert len({request.request_id for request in requests}) == 1
    assert requests[0].request_id


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (StatusCode.CANCELLED, "CANCELLED"),
        (StatusCode.INTERNAL, "Received RST_STREAM with error code 2"),
        (StatusCode.UNKNOWN, "Stream removed"),
    ],
)
async def test_a_call_that_was_reset_on_the_way_is_sent_again(
    scripted: ScriptedServer, code: StatusCode, message: str
) -> None:
    """So it looks when a replica closes its port, or a proxy loses the one that it led to."""
    scripted.on("AppendEvent", Refusal(code, message=message), APPENDED)
    async with client(scripted) as t:
        answer = await t.sessions.steer("sess_1", "hello")
    assert answer.seq == 4
    first, second = (request.request_id for request in scripted.requests("AppendEvent"))
    assert first == second != ""


async def test_two_requests_have_two_ids_and_a_given_one_is_kept(scripted: ScriptedServer) -> None:
    scripted.on("AppendEvent", APPENDED)
    async with client(scripted) as t:
        for request_id in ("", "", "mine"):
            await t.sessions.steer("sess_1", "hello", request_id=request_id)
    first, second, third = (request.request_id for request in scripted.requests("AppendEvent"))
    assert first != second
    assert third == "mine"


async def test_patience_ends_and_the_error_names_the_request_to_ask_for(scripted: ScriptedServer) -> None:
    scripted.on("AppendEvent", Refusal(StatusCode.UNAVAILABLE, "OUTCOME_UNKNOWN", retry_after=4.0))
    sleeps = Sleeps()
    async with client(scripted, sleep=sleeps, patience=3.0) as t:
        with pytest.raises(errors.OutcomeUnknown) as caught:
            await t.sessions.steer("sess_1", "hello")
    [request] = scripted.requests("AppendEvent")
    assert sleeps == [], "waiting longer than the patience left is of no use"
    assert caught.value.request_id == request.request_id
    assert caught.value.retry_after == 4.0


async def test_retry_info_is_honoured_whatever_the_code(scripted: ScriptedServer) -> None:
    sleeps = Sleeps()
    full = Refusal(StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", retry_after=1.5)
    contention = Refusal(StatusCode.ABORTED, "CONTENTION", retry_after=0.5)
    scripted.on("AppendEvent", full, contention, APPENDED)
    async with client(scripted, sleep=sleeps) as t:
        await t.sessions.steer("sess_1", "hello")
    assert 1.5 <= sleeps[0] <= 1.875
    assert sleeps[1] >= 0.5


@pytest.mark.parametrize(
    ("code", "reason", "family"),
    [
        (StatusCode.NOT_FOUND, "NOT_FOUND", errors.NotFound),
        (StatusCode.PERMISSION_DENIED, "DELEGATION_MISSING", errors.PermissionDenied),
        (StatusCode.UNAUTHENTICATED, "CREDENTIAL_INVALID", errors.Unauthenticated),
        (StatusCode.FAILED_PRECONDITION, "SESSION_BUSY", errors.SessionBusy),
        (StatusCode.FAILED_PRECONDITION, "SESSION_TERMINAL", errors.SessionTerminal),
        (StatusCode.ABORTED, "SEQ_CONFLICT", errors.SeqConflict),
        (StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED", errors.RequestIdReused),
        (StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", errors.Exhausted),
        (StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", errors.DeadlineExceeded),
        (StatusCode.UNIMPLEMENTED, "CAPABILITY_UNSUPPORTED", errors.Unsupported),
        (StatusCode.INTERNAL, "INTERNAL", errors.ServerDefect),
        (StatusCode.FAILED_PRECONDITION, "A_REASON_OF_LATER", errors.Conflict),
    ],
)
async def test_a_refusal_is_final_and_typed_by_reason(
    scripted: ScriptedServer, code: StatusCode, reason: str, family: type[errors.TurnlogError]
) -> None:
    scripted.on("GetSession", Refusal(code, reason, "what happened", session_id="sess_1"))
    async with client(scripted) as t:
        with pytest.raises(family) as caught:
            await t.sessions.get("sess_1")
    error = caught.value
    assert (error.code, error.reason, error.message) == (code, reason, "what happened")
    assert error.metadata == {"session_id": "sess_1"}
    assert error.retry_after is None
    assert len(scripted.received) == 1


@pytest.mark.case(94)
async def test_an_error_with_many_details_keeps_its_code_message_and_fields(scripted: ScriptedServer) -> None:
    fields = {f"labels[{number}]": "too long" for number in range(500)}
    scripted.on("GetSession", Refusal(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", "500 fields", fields=fields))
    async with client(scripted) as t:
        with pytest.raises(errors.InvalidRequest) as caught:
            await t.sessions.get("sess_1")
    assert caught.value.reason == "INVALID_FIELD"
    assert len(caught.value.field_violations) == 500
    assert caught.value.field_violations[7] == errors.FieldViolation("labels[7]", "too long")


@pytest.mark.case(94)
async def test_details_that_cannot_be_read_do_not_hide_the_error(scripted: ScriptedServer) -> None:
    async def broken(request: object, context: grpc.aio.ServicerContext) -> None:
        context.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff\xff"),))
        await context.abort(StatusCode.NOT_FOUND, "gone")

    scripted.on("GetSession", broken)
    async with client(scripted) as t:
        with pytest.raises(errors.NotFound, match="gone"):
            await t.sessions.get("sess_1")


async def test_a_deadline_is_set_on_every_unary_call_and_can_be_chosen(scripted: ScriptedServer) -> None:
    scripted.on("GetSession", SESSION)
    async with client(scripted, timeout=20.0) as t:
        await t.sessions.get("sess_1")
        await t.sessions.get.within(5.0)("sess_1")
    first, second = (each.time_remaining for each in scripted.received)
    assert first
    assert second
    assert 10.0 < first < 21.0, "the wire rounds up"
    assert 0.0 < second < 6.0


async def test_the_deadline_is_not_retried(scripted: ScriptedServer) -> None:
    never = asyncio.Event()

    async def hang(request: object, context: object) -> None:
        await never.wait()

    scripted.on("GetSession", hang)
    async with client(scripted) as t:
        with pytest.raises(errors.DeadlineExceeded):
            await t.sessions.get.within(0.2)("sess_1")
    assert len(scripted.received) == 1


async def test_a_caller_that_is_cancelled_is_cancelled(scripted: ScriptedServer) -> None:
    never = asyncio.Event()

    async def hang(request: object, context: object) -> None:
        await never.wait()

    scripted.on("GetSession", hang)
    async with client(scripted) as t:
        asking = asyncio.ensure_future(t.sessions.get("sess_1"))
        await scripted.until("GetSession", 1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_metadata_has_key_and_version(scripted: ScriptedServer) -> None:
    scripted.on("GetSession", SESSION)
    async with client(scripted, api_version="2026-01-01") as t:
        await t.sessions.get("sess_1")
    metadata = scripted.received[0].metadata
    assert metadata["authorization"] == "Bearer tlk_test"
    assert metadata["turnlog-api-version"] == "2026-01-01"


async def test_author_is_the_keys_subject_asked_once_or_the_acting_principal(scripted: ScriptedServer) -> None:
    scripted.on("AppendEvent", APPENDED)
    async with client(scripted) as t:
        await asyncio.gather(t.sessions.steer("sess_1", "a"), t.sessions.interrupt("sess_1", reason="enough"))
        await t.sessions.steer("sess_1", "b", principal="prn_other", if_busy=v1.IfBusy.REJECT, expected_head_seq=0)
    assert len(scripted.requests("GetServerInfo")) == 1
    requests = scripted.requests("AppendEvent")
    assert {request.authored_by for request in requests[:2]} == {"prn_me"}
    assert {request.WhichOneof("event") for request in requests[:2]} == {"user_message", "user_interrupt"}
    assert requests[2].authored_by == requests[2].principal == "prn_other"
    assert requests[2].caused_by.kind == 1
    assert requests[2].if_busy == event_service_pb2.IF_BUSY_REJECT
    assert requests[2].HasField("expected_head_seq"), "zero is not absent"
    assert not requests[0].HasField("expected_head_seq")


async def test_create_takes_the_profiles_deployment(scripted: ScriptedServer) -> None:
    scripted.on("CreateSession", session_service_pb2.CreateSessionResponse(run_id="run_1", seq=2))
    async with client(scripted) as t:
        with pytest.raises(errors.InvalidRequest, match="deployment"):
            await t.sessions.create()
        answer = await t.sessions.create("adep_1", first_message="hi", labels={"a": "b"}, reusable=False)
    [request] = scripted.requests("CreateSession")
    assert request.first_message.parts[0].text == "hi"
    assert dict(request.labels) == {"a": "b"}
    assert request.HasField("reusable")
    assert answer.run_id == "run_1"


async def test_each_reads_page_after_page(scripted: ScriptedServer) -> None:
    def page(request: run_service_pb2.ListRunsRequest, context: object) -> run_service_pb2.ListRunsResponse:
        number = int(request.page_token or 0)
        runs = [run_pb2.Run(run_id=f"run_{number}")] if number != 1 else []
        return run_service_pb2.ListRunsResponse(runs=runs, next_page_token=str(number + 1) if number < 3 else "")

    scripted.on("ListRuns", page)
    async with client(scripted) as t:
        assert [run.run_id async for run in t.runs.list.each("sess_1")] == ["run_0", "run_2", "run_3"]
    assert {request.session_id for request in scripted.requests("ListRuns")} == {"sess_1"}


async def test_times_and_durations_are_pythons(scripted: ScriptedServer) -> None:
    response = session_service_pb2.GetSessionResponse()
    response.session.create_time.FromJsonString("2026-02-03T04:05:06.789Z")
    scripted.on("GetSession", response)
    async with client(scripted) as t:
        session = (await t.sessions.get("sess_1")).session
    assert session
    assert session.create_time == datetime(2026, 2, 3, 4, 5, 6, 789000, tzinfo=UTC)


async def test_an_answer_that_cannot_be_read_is_an_error(scripted: ScriptedServer) -> None:
    scripted.on("GetSession", b"\x0a\xff")
    async with client(scripted) as t:
        with pytest.raises(errors.ServerDefect):
            await t.sessions.get("sess_1")


@pytest.mark.rule("R17")
def test_every_rpc_of_the_contract_has_a_method_and_every_method_is_an_rpc() -> None:
    ours = set()
    for name in ("sessions", "events", "runs", "requests", "agents", "access", "server", "runners"):
        service: type[Service] = __import__("typing").get_type_hints(Turnlog)[name]
        for rpc in vars(service).values():
            if isinstance(rpc, Unary | Paged):
                ours.add((service.NAME, rpc.rpc, rpc.request.__name__, rpc.response.__name__))
    pool = descriptor_pool.Default()
    names = ["Session", "Event", "Run", "Request", "Agent", "Access", "Server"]
    services = [pool.FindServiceByName(f"turnlog.v1.{name}Service") for name in names]
    services.append(pool.FindServiceByName("turnlog.runner.v1.RunnerService"))
    contract = {
        (service.full_name, method.name, method.input_type.name, method.output_type.name)
        for service in services
        for method in service.methods
        if not method.server_streaming
    }
    assert ours == contract
