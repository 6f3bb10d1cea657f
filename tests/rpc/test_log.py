"""The log of a Session: one order, nothing ever changed, everything else told from it."""

import asyncio
from collections.abc import Awaitable

import pytest
from support.replicas import METHODS, Refused, Space, fresh, said
from support.story import story, text_of
from turnlog.runner.v1 import runner_service_pb2 as fleet
from turnlog.v1 import event_pb2, run_pb2

TEXT = "nul \0, line\u2028separator, \u202eright to left\u202c, 🏴󠁧󠁢󠁳󠁣󠁴󠁿, é and é"


async def _code(call: Awaitable[object]) -> str:
    try:
        await call
    except Refused as refused:
        return refused.code.name
    return "OK"


def _bytes(log: list[event_pb2.Event]) -> list[bytes]:
    return [event.SerializeToString(deterministic=True) for event in log]


@pytest.mark.rule("R2", "R31", "R40", "R46")
@pytest.mark.case(33)
async def test_one_order_however_many_write_at_once(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    follow = space.rpc.stream("FollowEvents", session_id=session_id)
    writers = [space.live.rpc(space.key) for _ in range(8)]

    async def write(rpc, number: int) -> list[tuple[int, str]]:
        answers = []
        for turn in range(60):
            answer = await rpc.call(
                "AppendEvent",
                session_id=session_id,
                authored_by=space.subject,
                caused_by={"kind": "KIND_API"},
                user_interrupt={"reason": f"{number}.{turn}"},
            )
            answers.append((answer.seq, answer.event_id))
        return answers

    answers = await asyncio.gather(*(write(rpc, number) for number, rpc in enumerate(writers)))
    for mine in answers:
        assert [seq for seq, _ in mine] == sorted({seq for seq, _ in mine})
    told = dict(pair for mine in answers for pair in mine)
    assert len(told) == len(set(told.values())) == 8 * 60
    log = await space.log(session_id)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert (await space.get(session_id)).head_seq == len(log)
    assert {event.seq: event.event_id for event in log if event.type == "user.interrupt"} == told
    assert len({event.event_id for event in log}) == len(log)
    times = [event.create_time.ToNanoseconds() for event in log]
    assert times == sorted(times)
    followed = await follow.events(len(log))
    assert _bytes(followed) == _bytes(log)
    follow.cancel()


@pytest.mark.rule("R32", "R46")
async def test_what_is_in_the_log_stays_as_it_is(space: Space) -> None:
    session_id = (await space.session("first")).session.session_id
    async with space.runner() as runner:
        seen: list[bytes] = []
        heads = [0]
        for step in range(3):
            if step:
                await space.say(session_id, f"message {step}")
            offer = await runner.start()
            await runner.append(offer, "an answer")
            await runner.settle(offer)
            log = _bytes(await space.log(session_id))
            assert log[: len(seen)] == seen
            seen = log
            heads.append((await space.get(session_id)).head_seq)
    assert heads == sorted(set(heads))
    assert heads[-1] == len(seen)
    for name, method in METHODS.items():
        if method.containing_service.name == "EventService":
            assert name in ("AppendEvent", "ListEvents", "FollowEvents", "FollowSessions")


@pytest.mark.rule("R20", "R33", "R46")
async def test_messages_calls_and_usage_are_told_by_the_log(space: Space) -> None:
    session_id = (await space.session(TEXT)).session.session_id
    async with space.runner() as runner:
        offer = await runner.start()
        await runner.append(offer, agent_message={"parts": [{"text": "looking"}, {"text": "…"}]})
        await runner.append(offer, agent_tool_use={"call_id": "1", "name": "search", "arguments": {"q": "log"}})
        await runner.append(offer, agent_tool_result={"call_id": "1", "parts": [{"text": TEXT}], "data": b"\0\xff"})
        for tokens in (3, 5):
            usage = {"input_tokens": tokens, "output_tokens": 1, "amount_nanos": 7, "currency": "EUR"}
            await runner.append(offer, model_called={"model": "m", "usage": usage})
        await runner.append(offer, "found")
        await runner.settle(offer)
    log = await space.log(session_id)
    told = story(log)
    assert told.messages == [("user.message", TEXT), ("agent.message", "looking…"), ("agent.message", "found")]
    assert told.calls == {"1": ("search", TEXT)}
    result = next(event for event in log if event.type == "agent.tool_result")
    assert result.agent_tool_result.data == b"\0\xff"
    run = (await space.rpc.call("GetRun", session_id=session_id, run_id=offer.run_id)).run
    of_log = told.runs[offer.run_id]
    assert run.cost.input_tokens + run.cost.output_tokens == of_log.tokens == 10
    assert (run.cost.amount_nanos, run.cost.currency) == (of_log.nanos, "EUR") == (14, "EUR")
    attempts = (await space.rpc.call("ListAttempts", session_id=session_id, run_id=offer.run_id)).attempts
    assert [attempt.cost for attempt in attempts] == [run.cost]
    # Every event of the Run lies inside its turn, and its attempt says which one wrote it.
    of_run = [event.seq for event in log if event.run_id == offer.run_id]
    assert of_run == list(range(of_run[0], of_run[-1] + 1))
    assert {event.attempt_no for event in log if event.type.startswith(("agent.", "model."))} == {1}


@pytest.mark.rule("R36", "R37", "R38")
async def test_a_message_says_who_wrote_it_and_why_it_came(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    caused_by = {"kind": "KIND_CONNECTOR", "reference": "mail 4711"}
    answer = await space.say(session_id, "hello", caused_by=caused_by)
    event = (await space.log(session_id))[answer.seq - 1]
    assert (event.event_id, event.type) == (answer.event_id, "user.message")
    assert event.WhichOneof("payload") == "user_message"
    assert text_of(event.user_message) == "hello"
    assert event.authored_by == event.authenticated_by == space.subject
    assert (event.caused_by.kind, event.caused_by.reference) == (event_pb2.CausedBy.KIND_CONNECTOR, "mail 4711")
    assert event.create_time.seconds
    for field, fields in {
        "authored_by": {"authored_by": ""},
        "caused_by": {"caused_by": None},
        "caused_by.kind": {"caused_by": {"kind": "KIND_UNSPECIFIED"}},
    }.items():
        with pytest.raises(Refused) as refused:
            await space.say(session_id, **fields)
        assert refused.value.code.name == "INVALID_ARGUMENT"
        assert field in refused.value.fields
    for kind in ("KIND_RUNNER", "KIND_SERVER", "KIND_TIMER", 99):
        with pytest.raises(Refused) as refused:
            await space.say(session_id, caused_by={"kind": kind})
        assert "caused_by.kind" in refused.value.fields
    with pytest.raises(Refused) as refused:
        await space.say(session_id, authored_by="prn_somebodyelse")
    assert (refused.value.code.name, refused.value.reason) == ("PERMISSION_DENIED", "AUTHOR_NOT_ALLOWED")
    assert len(await space.log(session_id)) == answer.seq + 3


@pytest.mark.rule("R36")
async def test_only_what_callers_may_write_is_written(space: Space) -> None:
    """An arm of the server's or a runner's is not an arm of AppendEvent, and an unknown one is no event at all."""
    arms = {field.name for field in METHODS["AppendEvent"].input_type.oneofs_by_name["event"].fields}
    assert all(arm.startswith("user_") for arm in arms)
    session_id = (await space.session()).session.session_id
    before = await space.log(session_id)
    request = space.rpc.request(
        "AppendEvent", session_id=session_id, authored_by=space.subject, caused_by={"kind": "KIND_API"}
    )
    status = event_pb2.Event()
    status.session_status_completed.status = 8
    for smuggled in (status.SerializeToString(), event_pb2.Event(agent_message={}).SerializeToString(), b""):
        with pytest.raises(Refused) as refused:
            await space.rpc.send("AppendEvent", request.SerializeToString() + smuggled)
        assert refused.value.code.name == "INVALID_ARGUMENT"
        assert "event" in refused.value.fields
    assert await space.log(session_id) == before


@pytest.mark.rule("R32")
@pytest.mark.case(88)
async def test_a_runner_cannot_write_an_envelope(space: Space) -> None:
    """Fields that RunnerEvent does not have are fields of Event: they must not come through."""
    session_id = (await space.session("hello")).session.session_id
    envelope = event_pb2.Event(seq=999, event_id="evt_forged", type="user.message", authored_by="prn_victim")
    envelope.create_time.nanos = -1
    forged = (
        envelope.SerializeToString()
        + event_pb2.Event(user_message={"parts": [{"text": "I never said this"}]}).SerializeToString()
    )
    async with space.runner() as runner:
        offer = await runner.start()
        event = fleet.RunnerEvent.FromString(said("mine").SerializeToString() + forged)
        await runner.send(append=fleet.Append(lease=runner.lease(offer), events=[event]))
        await runner.expect("ack")
        await runner.settle(offer)
    log = await space.log(session_id)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    mine = next(event for event in log if event.type == "agent.message")
    assert (mine.WhichOneof("payload"), text_of(mine.agent_message)) == ("agent_message", "mine")
    assert mine.event_id.startswith("evt_")
    assert mine.event_id != "evt_forged"
    assert mine.authored_by == ""
    assert mine.create_time.nanos >= 0


@pytest.mark.rule("R13", "R19")
async def test_a_run_comes_from_a_message_and_from_nothing_else(space: Space) -> None:
    """Every unary RPC that names the Session is called; only a message makes a Run, and stands in the log before it."""
    session_id = (await space.session()).session.session_id
    run_id = (await space.say(session_id)).run_id
    more = {
        "run_id": run_id,
        "method": "AppendEvent",
        "request_id": fresh(),
        "authored_by": space.subject,
        "caused_by": {"kind": "KIND_API"},
        "user_interrupt": {},
    }
    for name, method in METHODS.items():
        fields = method.input_type.fields_by_name
        if "session_id" not in fields or method.server_streaming or method.client_streaming or name == "DeleteSession":
            continue
        given = {field: value for field, value in more.items() if field in fields}
        assert await _code(space.rpc.call(name, session_id=session_id, **given)) in (
            "OK",
            "FAILED_PRECONDITION",
            "NOT_FOUND",
        ), name
    log = await space.log(session_id)
    runs = (await space.rpc.call("ListRuns", session_id=session_id)).runs
    assert [run.run_id for run in runs] == [run_id]
    first = next(event for event in log if event.run_id == run_id)
    assert first.type == "user.message"
    ends = [event for event in log if event.type in ("run.succeeded", "run.failed", "run.interrupted", "run.canceled")]
    assert [event.run_id for event in ends] == [run_id]
    assert runs[0].status == run_pb2.RUN_STATUS_INTERRUPTED


@pytest.mark.rule("R3", "R9", "R10", "R14")
async def test_a_session_keeps_what_it_pinned_while_its_deployment_goes_on(space: Space) -> None:
    session_id = (await space.session("hello")).session.session_id
    pins = (await space.get(session_id)).pins
    rpc = space.rpc
    await rpc.call("PublishAgentVersion", agent_id=pins.agent_id, instructions="Do something else.")
    await rpc.call(
        "PublishDeploymentRevision",
        agent_deployment_id=pins.agent_deployment_id,
        agent_id=pins.agent_id,
        harness_profile_id=pins.harness_profile_id,
        sandbox_profile_id=pins.sandbox_profile_id,
    )
    async with space.runner() as runner:
        for turn in range(2):
            offer = await runner.start()
            assert offer.agent_version.instructions == "Help."
            assert offer.pins == pins
            await runner.settle(offer)
            if not turn:
                await space.say(session_id, "and again")
        assert (await space.get(session_id)).pins == pins
        newer = await space.session("hello")
        assert newer.session.pins.agent_deployment_revision_number == pins.agent_deployment_revision_number + 1
        older = await space.session(agent_deployment_revision_number=pins.agent_deployment_revision_number)
        assert older.session.pins == pins
        offer = await runner.start()
        assert offer.agent_version.instructions == "Do something else."
        await runner.settle(offer)
    # No RPC has a field to change them with.
    for name, method in METHODS.items():
        if "pins" in method.input_type.fields_by_name:
            raise AssertionError(name)


@pytest.mark.rule("R31")
async def test_an_append_may_insist_on_the_head(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    head = (await space.get(session_id)).head_seq
    asked = {"expected_head_seq": head, "request_id": fresh()}
    first = await space.say(session_id, **asked)
    with pytest.raises(Refused) as refused:
        await space.say(session_id, expected_head_seq=head)
    assert (refused.value.code.name, refused.value.reason) == ("ABORTED", "SEQ_CONFLICT")
    now = (await space.get(session_id)).head_seq
    assert refused.value.metadata == {"expected_head_seq": str(head), "head_seq": str(now)}
    with pytest.raises(Refused) as refused:
        await space.say(session_id, expected_head_seq=0)
    assert refused.value.reason == "SEQ_CONFLICT"
    again = await space.say(session_id, **asked)
    assert (again.seq, again.replayed) == (first.seq, True)
