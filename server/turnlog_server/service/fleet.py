"""The fleet: which Run goes to which runner, whose lease stands, and who is lost.

A Run that becomes claimable here is offered at once to a runner of this replica that has credit; the poll finds those
that became claimable elsewhere. An Offer is a reservation on the queue's row, outside the log; its Accept is a command.
Leases belong to runners, not to Runs: one statement renews all of this replica's, and only for who was heard since.
"""

import asyncio
import random
from dataclasses import replace
from functools import partial
from typing import Protocol

import structlog

from turnlog_server.domain import fleet as said
from turnlog_server.domain.commands import AttemptLost
from turnlog_server.domain.credentials import credential_expired
from turnlog_server.domain.refusals import Reason, Refusal, invalid
from turnlog_server.domain.session import RunStatus
from turnlog_server.service.background import Background
from turnlog_server.service.clock import Clock
from turnlog_server.service.context import CallContext
from turnlog_server.service.epochs import Epochs
from turnlog_server.service.hub import Hub
from turnlog_server.service.lane import Committed, Lane
from turnlog_server.service.link import Held, Link, RunnerFrames, lost_reason, token_hash
from turnlog_server.service.offers import Offers
from turnlog_server.service.roster import Roster
from turnlog_server.service.submission import Submission
from turnlog_server.store.queue import Place, Queue, Reserved
from turnlog_server.store.runners import RunnerKey, Runners
from turnlog_server.store.sessions import Sessions

log = structlog.get_logger(__name__)

DEFAULT_POOL = "default"
MOST_AT_ONCE = 16
ORPHANS_AT_ONCE = 200
# Clocks of replicas may differ, and a renewal may be on its way.
SLACK_SECONDS = 1.0


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
        self._dirty: set[Place] = set()
        self._wake = asyncio.Event()
        self._tasks = Background()
        self._draining = False
        self._last_look = self._lose_after = float("-inf")
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
        self._tasks.repeat("dispatch", self._dispatch, 0.0)
        self._tasks.repeat("leases", self._leases, self._settings.poll)

    def drain(self) -> int:
        """Offers nothing more; runners are told to go elsewhere and keep what they hold. Returns how many there are."""
        self._draining = True
        for link in self._roster:
            link.send(self._frames.drain(said.DrainReason.SERVER))
        return len(self._roster)

    async def close(self) -> None:
        """Stops."""
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
        holders, give_up = self._roster.holders, self._give_up
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
        states = await self._still_held(link, held)
        # The rest died with an earlier instance of the runner, or this one lost sight of it.
        for lost in await self._queue.held(link.workspace_id, link.hello.runner_id, link.epoch + 1):
            if (lost.session_id, lost.run_id) not in link.held:
                self._lose(lost, "The runner came without it.")
        link.send(self._frames.welcome(self._settings, states))
        for attempt in list(link.held.values()):
            await self._look(link, attempt)
        if drained:
            self._drain_runner(link)
        if self._draining:
            link.send(self._frames.drain(said.DrainReason.SERVER))

    async def disconnect(self, link: Link) -> None:
        """The stream ended: not a goodbye, the lease goes on. Offers go to others at once."""
        self._roster.remove(link)
        self._observer.runner_gone()
        for session_id, run_id in list(link.offers):
            offer = link.take_offer(session_id, run_id)
            if offer is not None:
                self._tasks.once("unreserve", self._give_back(link, offer))
        await link.close()

    def handle(self, link: Link, message: said.FromRunner) -> None:
        """One message. Never waits."""
        link.listen()
        match message:
            case said.Ready(credits):
                link.credits = credits
                self._dirty.update(self._roster.places_of(link))
                self._wake.set()
            case said.Accept(held):
                offered = link.offers.get((held.session_id, held.run_id))
                self._observer.offer("accepted" if offered is not None else "late")
                link.accept(held, self._offers.tools(offered.offer) if offered is not None else frozenset())
            case said.Decline(session_id, run_id, reason):
                offer = link.refuse_offer(session_id, run_id)
                if offer is not None:
                    self._observer.offer("declined")
                    log.info("a runner declined a run", run=run_id, runner=link.hello.runner_id, reason=reason)
                    self._tasks.once("unreserve", self._give_back(link, offer))
            case said.PreviewText(session_id, run_id, attempt_no, text):
                # Text in the making follows what was done before it, which is on its way into the log.
                show = partial(self._hub.preview, session_id, run_id, attempt_no, text)
                link.after_reports(session_id, run_id, attempt_no, show)
            case said.HarnessStarted() | said.Reports() | said.Settled() | said.Abandoned() | said.Malformed():
                if not link.report(message):
                    self._observer.fenced()
                    self._tasks.once("fenced", self._say_why(link, message.proof))
            case said.Goodbye():
                link.left = True
                self._tasks.once("goodbye", self._goodbye(link))
            case said.Heartbeat():
                pass

    # -- what others commit

    def committed(self, commits: list[Committed]) -> None:
        """This replica committed: claimable Runs are offered at once, held ones looked at."""
        for commit in commits:
            run = commit.state.active
            if run is not None and run.status is RunStatus.READY:
                pins = commit.facts.pins
                self.claimable(Place(commit.facts.workspace_id, pins.runner_pool, pins.harness_profile_id))
            for link, held in self._roster.holders.held(commit.facts.session_id):
                held.head = commit.state.head_seq
                link.look(held, None if commit.deleted else commit.state)

    def claimable(self, place: Place) -> None:
        """A Run became claimable, here or, by a hint, elsewhere."""
        if self._roster.serves(place):
            self._dirty.add(place)
            self._wake.set()

    def hint(self, session_id: str, head: int) -> None:
        """A hint: another replica committed to this Session."""
        for link, held in self._roster.holders.held(session_id):
            if not link.failure.done() and held.head != head:
                self._tasks.once("look", self._look(link, held))

    async def poll(self) -> None:
        """The safety poll: did anybody else write to a Session whose attempt is held here?"""
        held = {held.session_id for link in self._roster for held in link.held.values()}
        if held:
            for session_id, head in (await self._sessions.heads(list(held))).items():
                self.hint(session_id, head)
        self._dirty.update(place for place in self._roster.places() if self._roster.free_at(place))
        self._wake.set()

    async def _look(self, link: Link, held: Held) -> None:
        found = await self._sessions.get(link.workspace_id, held.session_id, asyncio.get_running_loop().time() + 10)
        state = found[0][1] if found is not None else None
        if state is not None:
            held.head = state.head_seq
        if link.held.get((held.session_id, held.run_id)) is held:
            link.look(held, state)

    async def _say_why(self, link: Link, proof: said.LeaseProof) -> None:
        """A message of an attempt that the runner does not hold."""
        deadline = asyncio.get_running_loop().time() + 10
        found = await self._sessions.get(link.workspace_id, proof.session_id, deadline)
        reason = lost_reason(found[0][1] if found is not None else None, proof.run_id, proof.attempt_no)
        log.info("a message without a lease", run=proof.run_id, runner=link.hello.runner_id, reason=reason.value)
        link.lost(proof.session_id, proof.run_id, proof.attempt_no, reason)

    async def look(self) -> tuple[int, float]:
        """Runs that wait where runners of this replica serve, and the age of the oldest in seconds."""
        seen = [await self._queue.look(place) for place in self._roster.places()]
        return sum(count for count, _ in seen), max((age for _, age in seen), default=0.0)

    # -- offers

    async def _dispatch(self) -> None:
        await self._wake.wait()
        self._wake.clear()
        dirty, self._dirty = self._dirty, set()
        if self._draining:
            return
        for place in dirty:
            await self._fill(place)

    async def _fill(self, place: Place) -> None:
        shards = list(range(self._queue.shards))
        random.shuffle(shards)
        for shard in shards:
            while not self._draining and (links := self._roster.free_at(place)):
                link = max(links, key=lambda link: (link.free, random.random()))
                count = min(link.free, MOST_AT_ONCE)
                reserved = await self._queue.reserve(place, shard, link.hello.runner_id, count)
                await asyncio.gather(*(self._make_offer(link, place, run) for run in reserved))
                if len(reserved) < count:
                    break
            else:
                return

    async def _make_offer(self, link: Link, place: Place, reserved: Reserved) -> None:
        try:
            name = next(name for name, profile in link.profiles.items() if profile == place.profile)
            offer = await self._offers.build(place.workspace_id, reserved, name)
        except Exception as exc:
            # Its reservation stands for a few seconds more, so that other Runs go before it is tried again.
            log.warning("an offer could not be made", run=reserved.run_id, error=repr(exc))
            return
        if offer is None:
            # The row is not true: offered again at once, it would keep all others from their turn.
            return
        if not link.free or self._draining:
            await self._queue.unreserve(reserved.session_id, reserved.run_id, link.hello.runner_id)
            return
        self._observer.offer("made")
        link.offer(offer, self._settings.offer, self._expired)

    def _expired(self, link: Link, offer: said.Offer) -> None:
        self._observer.offer("expired")
        log.info("an offer ran out", run=offer.run_id, runner=link.hello.runner_id)
        self._tasks.once("unreserve", self._give_back(link, offer))

    async def _give_back(self, link: Link, offer: said.Offer) -> None:
        await self._queue.unreserve(offer.session_id, offer.run_id, link.hello.runner_id)
        pins = offer.pins
        self.claimable(Place(link.workspace_id, pins.runner_pool, pins.harness_profile_id))

    # -- leases

    async def _leases(self) -> None:
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
                self._drain_runner(link)

    async def _lose_silent(self) -> None:
        # Listed again at every look: an Accept that knew the old epoch may commit after the runner was declared lost.
        for lost in await self._queue.orphans(ORPHANS_AT_ONCE):
            self._lose(lost, "The runner was not heard of for the length of its lease.")
        now = asyncio.get_running_loop().time()
        if now - self._last_look > self._settings.lease_ttl / 2:
            # We start, or the database was away: nobody could renew, so everybody gets a whole lease to come back.
            self._lose_after = now + self._settings.lease_ttl
        self._last_look = now
        if now < self._lose_after:
            return
        for runner in await self._runners.lose(SLACK_SECONDS):
            self._observer.lease_lost()
            log.warning("a runner is lost", runner=runner.runner_id)

    def _lose(self, lost: Reserved, reason: str) -> None:
        command = AttemptLost(lost.run_id, lost.attempt_no, reason)
        future = asyncio.get_running_loop().create_future()
        self._tasks.once("lose", self._lane.internal(Submission(lost.session_id, command, 256, future)))

    def _give_up(self, held: Held) -> None:
        self._lose(Reserved(held.session_id, held.run_id, held.attempt_no), "The runner did not prove its lease.")

    async def _goodbye(self, link: Link) -> None:
        key = RunnerKey(link.workspace_id, link.hello.runner_id, link.epoch)
        await self._runners.leave(key)
        for lost in await self._queue.held(link.workspace_id, link.hello.runner_id, link.epoch + 1):
            self._lose(lost, "The runner said goodbye.")

    def _drain_runner(self, link: Link) -> None:
        if not link.draining:
            link.draining = True
            link.send(self._frames.drain(said.DrainReason.RUNNER))

    # -- books

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
