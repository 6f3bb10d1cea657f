"""Whose lease stands, and who is lost.

Leases belong to runners, not to Runs: one statement renews all of this replica's, and only for who was heard since.
Loss is a command to each Session: until that is in the log, the old attempt is valid.
"""

import asyncio
from collections.abc import Callable

import structlog

from turnlog_server.domain import fleet as said
from turnlog_server.domain.commands import AttemptLost
from turnlog_server.domain.credentials import credential_expired
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.service.background import Background
from turnlog_server.service.clock import Clock
from turnlog_server.service.holding import Held
from turnlog_server.service.lane import Lane
from turnlog_server.service.link import Link
from turnlog_server.service.roster import Roster
from turnlog_server.service.submission import Submission
from turnlog_server.store.queue import Queue, Reserved
from turnlog_server.store.runners import RunnerKey, Runners

log = structlog.get_logger(__name__)

ORPHANS_AT_ONCE = 200
# Clocks of replicas may differ, and a renewal may be on its way.
SLACK_SECONDS = 1.0


class Leases:
    """Of the runners that are connected here, and a look at all others.

    drained: a runner is to be told that an operator drains it. counted: a runner was declared lost.
    """

    def __init__(
        self,
        roster: Roster,
        lane: Lane,
        queue: Queue,
        runners: Runners,
        clock: Clock,
        settings: said.Settings,
        drained: Callable[[Link], None],
        counted: Callable[[], None],
    ) -> None:
        self._roster = roster
        self._lane = lane
        self._queue = queue
        self._runners = runners
        self._clock = clock
        self._settings = settings
        self._drained = drained
        self._counted = counted
        self._tasks = Background()
        self._last_look = self._lose_after = float("-inf")

    def start(self) -> None:
        """Begins to renew, and to look for who is lost."""
        self._tasks.repeat("leases", self._look, self._settings.poll)

    async def close(self) -> None:
        """Stops."""
        await self._tasks.close()

    def lose(self, lost: Reserved, reason: str) -> None:
        """Tells a Session that its attempt's runner is gone."""
        command = AttemptLost(lost.run_id, lost.attempt_no, reason)
        future = asyncio.get_running_loop().create_future()
        self._tasks.once("lose", self._lane.internal(Submission(lost.session_id, command, 256, future)))

    def give_up(self, held: Held) -> None:
        """The runner that holds it made a mistake about it."""
        self.lose(Reserved(held.session_id, held.run_id, held.attempt_no), "The runner did not prove its lease.")

    def goodbye(self, link: Link) -> None:
        """A runner goes for good."""
        link.left = True
        self._tasks.once("goodbye", self._goodbye(link))

    async def welcome(self, link: Link, held: tuple[said.HeldAttempt, ...]) -> None:
        """What is this runner's by the queue, and not by itself, died with an earlier process, or it lost sight of it.

        held: what it says it holds.
        """
        for lost in await self._of(link):
            if (lost.session_id, lost.run_id) not in link.held:
                self.lose(lost, "The runner came without it.")
        # An Accept may be on its way in another replica still, on a stream that is no more.
        until = asyncio.get_running_loop().time() + self._settings.startup_allowance
        for attempt in held:
            if (attempt.session_id, attempt.run_id) not in link.held:
                link.forsaken[attempt.session_id, attempt.run_id, attempt.attempt_no] = until

    async def look_for_forsaken(self) -> None:
        """What a runner claimed and was not granted it has dropped: if it turns out to be its own, it is lost."""
        now = asyncio.get_running_loop().time()
        for link in self._roster:
            if not link.forsaken:
                continue
            for lost in await self._of(link):
                forsaken = link.forsaken.pop((lost.session_id, lost.run_id, lost.attempt_no), None)
                if forsaken is not None and (lost.session_id, lost.run_id) not in link.held:
                    self.lose(lost, "The runner came before it was its own.")
            link.forsaken = {key: until for key, until in link.forsaken.items() if until > now}

    async def _of(self, link: Link) -> list[Reserved]:
        return await self._queue.held(link.workspace_id, link.hello.runner_id, link.epoch + 1)

    async def _look(self) -> None:
        silent_since = asyncio.get_running_loop().time() - self._settings.lease_ttl
        for link in self._roster:
            if link.heard_at < silent_since:
                # A peer that is gone without a word: TCP would go on for long, and offers would go nowhere.
                link.fail(Refusal(Reason.LEASE_LOST, "The runner was not heard of for the length of its lease."))
            expires = link.ctx.caller.expire_time
            if expires and expires <= self._clock.now():
                link.fail(credential_expired())
        await self._renew()
        await self._lose_silent()

    async def _renew(self) -> None:
        heard = [link for link in self._roster if link.heard and not link.left and not link.failure.done()]
        if not heard:
            return
        for link in heard:
            link.heard = False
        keys = [RunnerKey(link.workspace_id, link.hello.runner_id, link.epoch) for link in heard]
        try:
            renewed = await self._runners.renew(keys)
        except BaseException:
            for link in heard:
                link.heard = True
            raise
        for link in heard:
            drained = renewed.get((link.workspace_id, link.hello.runner_id))
            if drained is None:
                link.fail(
                    Refusal(Reason.LEASE_LOST, "The runner's lease was lost: say Hello again with what you hold.")
                )
            elif drained:
                self._drained(link)

    async def _lose_silent(self) -> None:
        # Listed again at every look: an Accept that knew the old epoch may commit after the runner was declared lost.
        for lost in await self._queue.orphans(ORPHANS_AT_ONCE):
            self.lose(lost, "The runner was not heard of for the length of its lease.")
        now = asyncio.get_running_loop().time()
        if now - self._last_look > self._settings.lease_ttl / 2:
            # We start, or the database was away: nobody could renew, so everybody gets a whole lease to come back.
            self._lose_after = now + self._settings.lease_ttl
        self._last_look = now
        if now < self._lose_after:
            return
        for runner in await self._runners.lose(SLACK_SECONDS):
            self._counted()
            log.warning("a runner is lost", runner=runner.runner_id)

    async def _goodbye(self, link: Link) -> None:
        await self._runners.leave(RunnerKey(link.workspace_id, link.hello.runner_id, link.epoch))
        for lost in await self._of(link):
            self.lose(lost, "The runner said goodbye.")
