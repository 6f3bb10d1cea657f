"""`turnlog-server check --replay`: every log of a database against what is stored beside it."""

from collections.abc import Callable
from dataclasses import dataclass

from turnlog_server.app.replay import Difference, Replay
from turnlog_server.store.database import Database
from turnlog_server.store.replay import StoredLogs, StoredSession
from turnlog_server.wire.events import decode

# A Session that others write to while it is read is read again; whoever writes that fast is looked at another time.
ROUNDS = 20


@dataclass(slots=True)
class Replayed:
    """How much was compared. skipped: Sessions that moved all the time."""

    sessions: int = 0
    events: int = 0
    differences: int = 0
    skipped: int = 0


async def replay(database: Database, report: Callable[[Difference], None]) -> Replayed:
    """Compares every Session and reports each difference."""
    logs, done = StoredLogs(database), Replayed()
    async for session in logs.sessions():
        if session.head_seq < 0:
            continue
        found = await _still(logs, session, done)
        if found is None:
            done.skipped += 1
            continue
        done.sessions += 1
        done.differences += len(found)
        for difference in found:
            report(difference)
    return done


async def _still(logs: StoredLogs, session: StoredSession, done: Replayed) -> list[Difference] | None:
    """The differences of a Session that did not move while it was read."""
    for _ in range(ROUNDS):
        log, found = await _compare(logs, session)
        if found:
            now = await logs.session(session.session_id)
            if now is None or now.head_seq < 0:
                return []
            if now != session:
                session = now
                continue
        done.events += log.events
        return found
    return None


async def _compare(logs: StoredLogs, session: StoredSession) -> tuple[Replay, list[Difference]]:
    log, session_id = Replay(session.session_id), session.session_id
    async for seq, kind, body in logs.events(session_id):
        try:
            event = decode(body)
        except Exception as error:  # whatever an unreadable event raises is what there is to report
            log.unreadable(seq, f"{type(error).__name__}: {error}")
            break
        log.feed(seq, kind, event)
    runs = [row async for row in logs.runs(session_id)]
    attempts = [row async for row in logs.attempts(session_id)]
    requests = [row async for row in logs.requests(session_id)]
    return log, log.differences(session, runs, attempts, requests)
