"""The fleet: runners come and go, speak of their attempts, and hear what becomes of these.

A runner keeps one stream to one replica. What it may be offered is the business of `dispatch`, whether its lease
stands that of `leases`; here its messages go where they belong, and what others commit to what it holds is told to it.
"""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Protocol

import structlog

from turnlog_server.domain import fleet as said
from turnlog_server.domain.refusals import Reason, Refusal, invalid
from turnlog_server.domain.session import RunStatus
from turnlog_server.service.background import Background
from turnlog_server.service.clock import Clock
from turnlog_server.service.context import CallContext
from turnlog_server.service.dispatch import Dispatch
from turnlog_server.service.epochs import Epochs
from turnlog_server.service.holding import Held, lost_reason, token_hash
from turnlog_server.service.hub import Hub
from turnlog_server.service.lane import Committed, Lane
from turnlog_server.service.leases import Leases
from turnlog_server.service.link import Link, RunnerFrames
from turnlog_server.service.offers import Offers
from turnlog_server.service.pipeline import ANSWER_SECONDS
from turnlog_server.service.roster import Roster
from turnlog_server.store.errors import StoreFault
from turnlog_server.store.queue import Place, Queue
from turnlog_server.store.runners import Runners
from turnlog_server.store.sessions import Sessions

log = structlog.get_logger(__name__)

DEFAULT_POOL = "default"


class FleetObserver(Protocol):
    """Hooks for metrics; they return at once."""

    def runner_connected(self) -> None: ...
    def runner_gone(self) -> None: ...
    def offer(self, result: str) -> None: ...
    def lease_lost(self) -> None: ...
    def fenced(self) -> None: ...


class Fleet:
    """All runners that are connected here."""

    def __init__(
        self,
        lane: Lane,
        hub: Hub,
        sessions: Sessions,
        queue: Queue,
        runners: Runners,
        offers: Offers,
        frames: RunnerFrames,
        epochs: Epochs,
        clock: Clock,
        settings: said.Settings,
        observer: FleetObserver,
    ) -> None:
        self._lane = lane
        self._hub = hub
        self._sessions = sessions
        self._queue = queue
        self._runners = runners
        self._offers = offers
        self._frames = frames
        self._epochs = epochs
        self._clock = clock
        self._settings = settings
        self._observer = observer
        self._roster = Roster()
        self._dispatch = Dispatch(self._roster, queue, offers, settings.offer, observer.offer)
        self._leases = Leases(
            self._roster, lane, queue, runners, clock, settings, self._drain_runner, observer.lease_lost
        )
        self._tasks = Background()
        self._draining = False
        epochs.listen(self._epoch_moved)

    @property
    def connected(self) -> int:
        """Runners whose stream is here."""
        return len(self._roster)

    @property
    def workspaces(self) -> set[str]:
        """The workspaces whose runners are here."""
        return {link.workspace_id for link in self._roster}

    def start(self) -> None:
        """Begins to offer, to renew, and to look for who is lost."""
        self._dispatch.start()
        self._leases.start()

    def drain(self) -> int:
        """Offers nothing more; runners are told to go elsewhere and keep what they hold. Returns how many there are."""
        self._draining = True
        self._dispatch.stop()
        for link in self._roster:
            link.send(self._frames.drain(said.DrainReason.SERVER))
        return len(self._roster)

    async def close(self) -> None:
        """Stops."""
        await self._dispatch.close()
        await self._leases.close()
        await self._tasks.close()

    # -- streams

    async def connect(self, ctx: CallContext, hello: said.Hello, held: tuple[said.HeldAttempt, ...]) -> Link:
        """A runner said Hello. Raises Refusal for pools and profiles that it may not serve."""
        # However long it took to say so: what the key opened when the stream was opened does not count.
        ctx = replace(ctx, caller=await ctx.judge(ctx.caller))
        pools = hello.pools or (DEFAULT_POOL,)
        hello = said.Hello(
            hello.runner_id, hello.instance_id, hello.display_name, hello.version, pools, hello.harness_profiles
        )
        for index, pool in enumerate(pools):
            if pool not in ctx.caller.runner_pools:
                raise Refusal(
                    Reason.RUNNER_INELIGIBLE,
                    f"hello.pools[{index}]: your key does not open the pool {pool[:64]!r}.",
                    {"pool": pool[:64]},
                )
        workspace_id = ctx.caller.workspace_id
        profiles = await self._offers.profiles(workspace_id, hello.harness_profiles)
        for index, name in enumerate(hello.harness_profiles):
            if name not in profiles:
                raise Refusal(
                    Reason.RUNNER_INELIGIBLE,
                    f"hello.harness_profiles[{index}]: there is no harness profile {name[:64]!r} in your workspace.",
                    {"harness_profile": name[:64]},
                )
        epoch, drained = await self._runners.hello(workspace_id, hello, list(profiles.values()))
        holders, give_up = self._roster.holders, self._leases.give_up
        link = Link(ctx, hello, profiles, epoch, holders, give_up, self._lane, self._frames, self._clock.now)
        earlier = self._roster.add(link)
        if earlier is not None:
            earlier.fail(Refusal(Reason.SERVER_DRAINING, "The runner has another stream now.", retry_after=1.0))
        self._observer.runner_connected()
        try:
            if self._epochs.get(workspace_id) not in (None, ctx.caller.epoch):
                # Access changed while nobody knew of the link yet.
                await self._judge(link)
            await self._welcome(link, held, drained)
        except BaseException:
            await self.disconnect(link)
            raise
        return link

    async def _welcome(self, link: Link, held: tuple[said.HeldAttempt, ...], drained: bool) -> None:
        await self._accepts_of_before(link)
        states = await self._still_held(link, held)
        await self._leases.welcome(link, held)
        link.send(self._frames.welcome(self._settings, states))
        for attempt in list(link.held.values()):
            await self._look(link, attempt)
        if drained:
            self._drain_runner(link)
        if self._draining:
            link.send(self._frames.drain(said.DrainReason.SERVER))

    async def _accepts_of_before(self, link: Link) -> None:
        """Waits for what an earlier stream of the runner sent into the lane and nobody answered.

        Only then is it known what the runner holds: an Accept that came in later would be nobody's.
        """
        accepting = self._roster.accepting(link)
        if not accepting:
            return
        _, unanswered = await asyncio.wait(accepting, timeout=ANSWER_SECONDS)
        if unanswered:
            raise Refusal(Reason.STORE_UNAVAILABLE, "The database does not answer.", retry_after=1.0)

    async def disconnect(self, link: Link) -> None:
        """The stream ended: not a goodbye, the lease goes on. Offers go to others at once."""
        self._roster.remove(link)
        self._observer.runner_gone()
        self._dispatch.withdraw(link)
        await link.close()

    def handle(self, link: Link, message: said.FromRunner) -> None:
        """One message. Never waits."""
        if link.failure.done():
            # The runner says it again on its next stream, where it may have been said by now.
            return
        link.listen()
        match message:
            case said.Ready(credits):
                self._dispatch.ready(link, credits)
            case said.Accept(held):
                self._dispatch.accepted(link, held)
            case said.Decline(session_id, run_id, reason):
                self._dispatch.declined(link, session_id, run_id, reason)
            case said.PreviewText(session_id, run_id, attempt_no, text):
                # Text in the making follows what was done before it, which is on its way into the log.
                show = partial(self._hub.preview, session_id, run_id, attempt_no, text)
                link.after_reports(session_id, run_id, attempt_no, show)
            case said.HarnessStarted() | said.Reports() | said.Settled() | said.Abandoned() | said.Malformed():
                if not link.report(message):
                    self._observer.fenced()
                    if link.stray(message.proof):
                        self._tasks.once("fenced", self._answer_strays(link))
            case said.Goodbye():
                self._leases.goodbye(link)
            case said.Heartbeat():
                pass

    # -- what others commit

    def committed(self, commits: list[Committed]) -> None:
        """This replica committed: claimable Runs are offered at once, held ones looked at."""
        for commit in commits:
            self._offers.committed(commit)
            run = commit.state.active
            if run is not None and run.status is RunStatus.READY:
                pins = commit.facts.pins
                self.claimable(Place(commit.facts.workspace_id, pins.runner_pool, pins.harness_profile_id))
            for link, held in self._roster.holders.held(commit.facts.session_id):
                held.head = commit.state.head_seq
                link.look(held, None if commit.deleted else commit.state)

    def claimable(self, place: Place) -> None:
        """A Run became claimable, here or, by a hint, elsewhere."""
        self._dispatch.claimable(place)

    def hint(self, session_id: str, head: int) -> None:
        """A hint: another replica committed to this Session."""
        for link, held in self._roster.holders.held(session_id):
            if not link.failure.done() and held.head != head:
                held.behind = True
                if not held.looking:
                    self._tasks.once("look", self._catch_up(link, held))

    async def poll(self) -> None:
        """The safety poll: did anybody else write to a Session whose attempt is held here?"""
        held = {held.session_id for link in self._roster for held in link.held.values()}
        if held:
            for session_id, head in (await self._sessions.heads(list(held))).items():
                self.hint(session_id, head)
        await self._leases.look_for_forsaken()
        self._dispatch.look()

    async def look(self) -> tuple[int, float]:
        """Runs that wait where runners of this replica serve, and the age of the oldest in seconds."""
        seen = [await self._queue.look(place) for place in self._roster.places()]
        return sum(count for count, _ in seen), max((age for _, age in seen), default=0.0)

    async def _catch_up(self, link: Link, held: Held) -> None:
        """Reads until nobody has written since; one at a time for each attempt, however many hints there are."""
        held.looking = True
        try:
            while held.behind:
                held.behind = False
                await self._look(link, held)
        finally:
            held.looking = False

    async def _look(self, link: Link, held: Held) -> None:
        found = await self._sessions.get(link.workspace_id, held.session_id, asyncio.get_running_loop().time() + 10)
        state = found[0][1] if found is not None else None
        if state is not None:
            held.head = state.head_seq
        if link.held.get(held.key) is held:
            link.look(held, state)

    async def _answer_strays(self, link: Link) -> None:
        """Says why messages of attempts that the runner does not hold are not heard, one attempt after the other."""
        try:
            while link.strays and not link.failure.done():
                key, proof = next(iter(link.strays.items()))
                await self._say_why(link, proof)
                # Those that came meanwhile are answered by this as well.
                del link.strays[key]
        except (Refusal, StoreFault):
            # What is forgotten here the runner says again on its next stream.
            link.fail(Refusal(Reason.STORE_UNAVAILABLE, "The database does not answer.", retry_after=1.0))
        finally:
            link.strays.clear()

    async def _say_why(self, link: Link, proof: said.LeaseProof) -> None:
        deadline = asyncio.get_running_loop().time() + 10
        found = await self._sessions.get(link.workspace_id, proof.session_id, deadline)
        reason = lost_reason(found[0][1] if found is not None else None, proof.run_id, proof.attempt_no)
        log.info("a message without a lease", run=proof.run_id, runner=link.hello.runner_id, reason=reason.value)
        link.lost(proof.session_id, proof.run_id, proof.attempt_no, reason)

    # -- books

    def _drain_runner(self, link: Link) -> None:
        if not link.draining:
            link.draining = True
            link.send(self._frames.drain(said.DrainReason.RUNNER))

    async def _still_held(self, link: Link, claimed: tuple[said.HeldAttempt, ...]) -> list[said.HeldState]:
        """Of what a runner says it holds, what is still its own."""
        states: list[said.HeldState] = []
        deadline = asyncio.get_running_loop().time() + 10
        for attempt in claimed:
            found = await self._sessions.get(link.workspace_id, attempt.session_id, deadline)
            run = found[0][1].active if found is not None else None
            live = run.live if run is not None and run.run_id == attempt.run_id else None
            if found is None or run is None or live is None or live.attempt_no != attempt.attempt_no:
                continue
            if live.token_hash != token_hash(attempt.token) or live.runner_epoch != link.epoch:
                continue
            tools = await self._offers.tools_of(link.workspace_id, found[0][0].pins)
            key = (attempt.session_id, attempt.run_id)
            link.hold(Held(*key, attempt.attempt_no, tools, run.stop_as, head=found[0][1].head_seq))
            states.append(said.HeldState(*key, attempt.attempt_no, live.last_message_no, run.stop_as))
        return states

    def _epoch_moved(self, workspace_id: str, epoch: int) -> None:
        del epoch
        for link in self._roster:
            if link.workspace_id == workspace_id:
                self._tasks.once("judge", self._judge(link))

    async def _judge(self, link: Link) -> None:
        try:
            caller = await link.ctx.judge(link.ctx.caller)
        except Refusal as refusal:
            link.fail(refusal)
            return
        link.ctx = replace(link.ctx, caller=caller)
        if not set(link.hello.pools) <= set(caller.runner_pools):
            link.fail(invalid("hello.pools", "names a pool that the key no longer opens"))
