"""The queue is an index and never the truth: here it is made again where it does not follow from the Sessions.

Every commit writes its Session's row, so there is nothing to do but after a hand in the tables, a restored backup or a
defect. Then a Run without a row would be claimed by nobody, and one held without a row would not be missed.
"""

from collections.abc import Callable
from dataclasses import replace

import structlog

from turnlog_server.service.background import Background
from turnlog_server.service.batch import queue_row
from turnlog_server.store.log import QueueRow
from turnlog_server.store.queue import Place
from turnlog_server.store.queue_sweep import Compared, QueueSweep

log = structlog.get_logger(__name__)

PAGE = 256
LEASE_INTERVALS = 5.0

MISSING, STALE, NEEDLESS = "missing", "stale", "needless"


class QueueSweeper:
    """Walks all Sessions, a page at an interval, on one replica at a time.

    claimable: a Run has its row again. mended: counts, by what was wrong.
    """

    def __init__(
        self,
        sweep: QueueSweep,
        interval: float,
        claimable: Callable[[Place], None],
        mended: Callable[[str], None],
    ) -> None:
        self._sweep = sweep
        self._interval = interval
        self._claimable = claimable
        self._mended = mended
        self._session = self._row = ""
        self._tasks = Background()

    def start(self) -> None:
        """Begins to look."""
        self._tasks.repeat("queue sweep", self.look, self._interval)

    async def close(self) -> None:
        """Stops."""
        await self._tasks.close()

    async def look(self) -> None:
        """One page of each walk."""
        if not await self._sweep.mine(self._interval * LEASE_INTERVALS):
            return
        page = await self._sweep.compare(self._session, PAGE)
        for found in page.compared:
            await self._compare(found)
        self._session = page.after
        strays, self._row = await self._sweep.remove_strays(self._row, PAGE)
        for session_id in strays:
            self._say(NEEDLESS, session_id, "")

    async def _compare(self, found: Compared) -> None:
        due = queue_row(found.facts, found.state)
        if due is None or due.state == "GONE":
            if found.row is not None and found.row.state != "GONE" and await self._sweep.remove(found):
                self._say(NEEDLESS, found.session_id, found.row.run_id)
        elif _bare(found.row) != due and await self._sweep.mend(found, due):
            self._say(MISSING if found.row is None else STALE, found.session_id, due.run_id)
            if due.state == "READY":
                self._claimable(Place(due.workspace_id, due.pool, due.harness_profile_id))

    def _say(self, what: str, session_id: str, run_id: str) -> None:
        self._mended(what)
        log.warning("a row of the queue was mended", was=what, session=session_id, run=run_id)


def _bare(row: QueueRow | None) -> QueueRow | None:
    """Without the reservation, which is written beside the log."""
    return replace(row, runner_id="") if row is not None and row.state == "READY" else row
