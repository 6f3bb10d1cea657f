"""What a lane writes beside the log: numbers of a runner's messages, which another lane must not turn back."""

from dataclasses import replace

from support.lanes import differences, log_of, message, replicas
from turnlog.v1 import event_pb2
from turnlog_server.domain.commands import AppendReports, HarnessReady
from turnlog_server.domain.events import Said
from turnlog_server.domain.refusals import Reason


async def test_a_message_that_was_refused_stays_counted_whoever_writes_next(database):
    async with replicas(database, 2) as (runners, callers):
        session_id = await callers.create(text="hello")
        lease = await runners.accept(session_id)
        await runners.do(session_id, HarnessReady(replace(lease, message_no=1), "prn_1"), None)
        # This lane remembers the Session from here on.
        await callers.do(session_id, message())
        again = await runners.do(session_id, HarnessReady(replace(lease, message_no=2), "prn_1"), None)
        assert again.answer.refused is not None
        assert again.answer.refused.reason is Reason.ILLEGAL_TRANSITION
        await callers.do(session_id, message())
        payload = event_pb2.Event(agent_message={"parts": [{"text": "working"}]}).SerializeToString()
        report = (Said("agent.message"), payload)
        await runners.do(session_id, AppendReports(replace(lease, message_no=3), "prn_1", (report,)), None)
        assert "agent.message" in (await log_of(database, session_id)).types
        assert await differences(database) == []
