"""What benchmarks compare the lane with: the same admission with a transaction for each command."""

from collections.abc import Callable

from turnlog_server.domain.draft import Rules
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.service.batch import Encode, Group, decide_group, result_of, session_write
from turnlog_server.service.submission import Result, Submission
from turnlog_server.store.connections import Connection
from turnlog_server.store.database import Database
from turnlog_server.store.log import event_append
from turnlog_server.store.sessions import session_lock


class OneTransaction:
    """Implements `submission.Admits`: BEGIN, lock and read the Session, decide, write the same rows, COMMIT."""

    def __init__(self, db: Database, encoder: Encode, now: Callable[[], int], rules: Rules) -> None:
        self._db = db
        self._encode = encoder
        self._now = now
        self._rules = rules

    async def submit(self, submission: Submission, deadline: float) -> Result:
        """Raises the refusal of the decision, and CONTENTION where a lane would look at the command again."""

        async def body(conn: Connection) -> Result:
            stored = await session_lock(conn, submission.session_id)
            group = Group(submission.session_id, [submission], stored, fresh=True)
            decide_group(group, now=self._now(), rules=self._rules, encoder=self._encode)
            for _, refused in group.refused:
                raise refused
            write = session_write(group)
            epoch = submission.caller.epoch if submission.caller is not None else 0
            if not await event_append(conn, self._db.dialect, [write], {write.workspace_id: epoch}):
                raise Refusal(Reason.CONTENTION, "A request id or a permission stood in the way.")
            return result_of(group, group.accepted[0][1])

        return await self._db.run("bench_append", body, deadline=deadline)
