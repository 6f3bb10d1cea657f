"""Which Run goes to which runner: reservations on the queue's rows, made into Offers, and given back.

A Run that becomes claimable here is offered at once to a runner of this replica that has credit; the poll finds those
that became claimable elsewhere. An Offer is outside the log; its Accept is a command.
"""

import asyncio
import random
from collections.abc import Callable

import structlog

from turnlog_server.domain import fleet as said
from turnlog_server.service.background import Background
from turnlog_server.service.declines import Declines
from turnlog_server.service.link import Link
from turnlog_server.service.offers import Offers
from turnlog_server.service.roster import Roster
from turnlog_server.store.queue import Place, Queue, Reserved

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 16


class Dispatch:
    """Offers of this replica. count: what came of each, for metrics."""

    def __init__(
        self, roster: Roster, queue: Queue, offers: Offers, seconds: float, count: Callable[[str], None]
    ) -> None:
        self._roster = roster
        self._queue = queue
        self._offers = offers
        self._seconds = seconds
        self._count = count
        self._declines = Declines(asyncio.get_running_loop().time)
        self._dirty: set[Place] = set()
        self._wake = asyncio.Event()
        self._tasks = Background()
        self._stopped = False

    def start(self) -> None:
        """Begins to offer."""
        self._tasks.repeat("dispatch", self._dispatch, 0.0)

    def stop(self) -> None:
        """Offers nothing more; what was offered stands."""
        self._stopped = True

    async def close(self) -> None:
        """Stops."""
        await self._tasks.close()

    # -- why somebody may have to be asked

    def claimable(self, place: Place) -> None:
        """A Run became claimable, here or, by a hint, elsewhere."""
        if self._roster.serves(place):
            self._dirty.add(place)
            self._wake.set()

    def look(self) -> None:
        """Something may have become claimable, at any place that has somebody free."""
        self._dirty.update(place for place in self._roster.places() if self._roster.free_at(place))
        self._wake.set()

    def ready(self, link: Link, credits: int) -> None:
        """A runner says how many it can take."""
        link.credits = credits
        self._dirty.update(self._roster.places_of(link))
        self._wake.set()

    # -- what comes of an Offer

    def accepted(self, link: Link, held: said.HeldAttempt) -> None:
        """A runner takes what it was offered, or what it believes it was."""
        offered = link.offers.get((held.session_id, held.run_id))
        self._count("accepted" if offered is not None else "late")
        self._declines.taken(_instance(link), held.run_id)
        link.accept(held, self._offers.tools(offered.offer) if offered is not None else frozenset())

    def declined(self, link: Link, session_id: str, run_id: str, reason: str) -> None:
        """A runner does not take what it was offered: others are asked at once, and it itself after a while."""
        offer = link.refuse_offer(session_id, run_id)
        if offer is not None:
            self._count("declined")
            log.info("a runner declined a run", run=run_id, runner=link.hello.runner_id, reason=reason)
            self._declines.note(_instance(link), run_id)
            self._tasks.once("unreserve", self._give_back(link, offer))

    def withdraw(self, link: Link) -> None:
        """The stream ended: what was offered on it goes to others at once."""
        for session_id, run_id in list(link.offers):
            offer = link.take_offer(session_id, run_id)
            if offer is not None:
                self._tasks.once("unreserve", self._give_back(link, offer))

    def _expired(self, link: Link, offer: said.Offer) -> None:
        self._count("expired")
        log.info("an offer ran out", run=offer.run_id, runner=link.hello.runner_id)
        self._tasks.once("unreserve", self._give_back(link, offer))

    async def _give_back(self, link: Link, offer: said.Offer) -> None:
        await self._queue.unreserve(offer.session_id, offer.run_id, link.hello.runner_id)
        pins = offer.pins
        self.claimable(Place(link.workspace_id, pins.runner_pool, pins.harness_profile_id))

    # -- the work

    async def _dispatch(self) -> None:
        await self._wake.wait()
        self._wake.clear()
        dirty, self._dirty = self._dirty, set()
        for place in dirty:
            await self._fill(place)

    async def _fill(self, place: Place) -> None:
        shards = list(range(self._queue.shards))
        random.shuffle(shards)
        for shard in shards:
            if not await self._fill_from(place, shard):
                return

    async def _fill_from(self, place: Place, shard: int) -> bool:
        """Offers what one shard has; False where nobody is free any more."""
        served: set[Link] = set()
        while not self._stopped and (free := self._roster.free_at(place)):
            links = [link for link in free if link not in served]
            if not links:
                return True
            link = max(links, key=lambda link: (link.free, random.random()))
            count, declined = min(link.free, MOST_AT_ONCE), self._declines.of(_instance(link))
            reserved = await self._queue.reserve(place, shard, link.hello.runner_id, count, declined)
            await asyncio.gather(*(self._make_offer(link, place, run) for run in reserved))
            if len(reserved) < count:
                if not declined:
                    return True
                # What is left may be what this one declined: the others are asked.
                served.add(link)
        return False

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
        if not link.free or self._stopped:
            await self._queue.unreserve(reserved.session_id, reserved.run_id, link.hello.runner_id)
            return
        self._count("made")
        link.offer(offer, self._seconds, self._expired)


def _instance(link: Link) -> str:
    return f"{link.workspace_id} {link.hello.runner_id} {link.hello.instance_id}"
