"""Who is connected here: found by runner, by the places it serves, and by the Sessions of which it holds attempts."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator

from turnlog_server.service.holding import Holders
from turnlog_server.service.link import Link
from turnlog_server.service.submission import Result
from turnlog_server.store.queue import Place


class Roster:
    """The links of this replica."""

    def __init__(self) -> None:
        self.holders: Holders[Link] = Holders()
        self._links: dict[tuple[str, str], Link] = {}
        self._accepting: defaultdict[tuple[str, str], set[asyncio.Future[Result]]] = defaultdict(set)
        self._places: defaultdict[Place, set[Link]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[Link]:
        return iter(list(self._links.values()))

    def add(self, link: Link) -> Link | None:
        """A runner is here; returns the earlier stream that it has left behind."""
        key = (link.workspace_id, link.hello.runner_id)
        earlier = self._links.get(key)
        if earlier is not None:
            self.remove(earlier)
        self._links[key] = link
        for pool in link.hello.pools:
            for profile_id in link.profiles.values():
                self._places[Place(link.workspace_id, pool, profile_id)].add(link)
        return earlier

    def remove(self, link: Link) -> None:
        """The stream counts no more."""
        key = (link.workspace_id, link.hello.runner_id)
        for accept in link.accepting:
            self._accepting[key].add(accept)
            accept.add_done_callback(lambda accept: self._accepted(key, accept))
        if self._links.get(key) is link:
            del self._links[key]
        for place in self.places_of(link):
            self._places[place].discard(link)
            if not self._places[place]:
                del self._places[place]
        for held in link.held.values():
            self.holders.discard(held.session_id, link)

    def accepting(self, link: Link) -> set[asyncio.Future[Result]]:
        """Accepts that the runner sent on streams which are gone, and that are not answered yet."""
        return set(self._accepting.get((link.workspace_id, link.hello.runner_id), ()))

    def _accepted(self, key: tuple[str, str], accept: asyncio.Future[Result]) -> None:
        self._accepting[key].discard(accept)
        if not self._accepting[key]:
            del self._accepting[key]

    def places(self) -> list[Place]:
        """Where runners of this replica serve."""
        return list(self._places)

    def places_of(self, link: Link) -> list[Place]:
        """Where this runner serves."""
        return [place for place, links in self._places.items() if link in links]

    def free_at(self, place: Place) -> list[Link]:
        """Runners that may be offered a Run of this place now."""
        return [link for link in self._places.get(place, ()) if link.free]

    def serves(self, place: Place) -> bool:
        """Whether any runner here serves the place."""
        return place in self._places
