"""What an Offer holds: all that the execution of a Run needs, read when the Run is reserved."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from turnlog_server.domain import fleet as said
from turnlog_server.domain import limits
from turnlog_server.domain.agents import AgentVersion
from turnlog_server.domain.session import Pins, Run, RunStatus, SessionState
from turnlog_server.service.catalogue import Catalogue
from turnlog_server.service.holding import new_token
from turnlog_server.service.lane import Committed
from turnlog_server.store.queue import Reserved
from turnlog_server.store.sessions import Sessions, Stored

BUILD_SECONDS = 3.0
REMEMBERED = 1_000

RunIdOf = Callable[[bytes], str]


class Offers:
    """Builds Offers."""

    def __init__(self, sessions: Sessions, catalogue: Catalogue, run_id_of: RunIdOf, settings: said.Settings) -> None:
        self._sessions = sessions
        self._catalogue = catalogue
        self._run_id_of = run_id_of
        self._settings = settings
        self._claimable: OrderedDict[str, Stored] = OrderedDict()

    def committed(self, commit: Committed) -> None:
        """This replica committed: what it made claimable need not be read to be offered.

        Whatever others write meanwhile, an Accept that is too late is fenced.
        """
        session_id, run = commit.facts.session_id, commit.state.active
        self._claimable.pop(session_id, None)
        if run is not None and run.status is RunStatus.READY and not commit.deleted:
            self._claimable[session_id] = (commit.facts, commit.state)
            if len(self._claimable) > REMEMBERED:
                self._claimable.popitem(last=False)

    async def profiles(self, workspace_id: str, names: Sequence[str]) -> dict[str, str]:
        """The ids of harness profiles by name; those that do not exist are absent."""
        return await self._catalogue.harness_profile_names(workspace_id, list(names))

    def tools(self, offer: said.Offer) -> frozenset[str]:
        """The tools that an Offer names."""
        assert isinstance(offer.agent, AgentVersion)
        return frozenset(tool.name for tool in offer.agent.tools)

    async def tools_of(self, workspace_id: str, pins: Pins) -> frozenset[str]:
        """The tools of a Session's agent."""
        version = await self._catalogue.version(workspace_id, pins.agent_id, pins.agent_version_number)
        return frozenset(tool.name for tool in version.tools)

    async def build(self, workspace_id: str, reserved: Reserved, profile: str) -> said.Offer | None:
        """The Offer; None when the Run is not claimable any more."""
        deadline = asyncio.get_running_loop().time() + BUILD_SECONDS
        stored = self._claimable.pop(reserved.session_id, None)
        if stored is None or _of(stored[1], reserved) is None:
            found = await self._sessions.get(workspace_id, reserved.session_id, deadline)
            if found is None:
                return None
            stored, _ = found
        facts, state = stored
        run = _of(state, reserved)
        if run is None:
            return None
        pins = facts.pins
        version, revision, conversation = await asyncio.gather(
            self._catalogue.version(workspace_id, pins.agent_id, pins.agent_version_number, deadline=deadline),
            self._catalogue.revision(workspace_id, pins.deployment_id, pins.revision_number, deadline=deadline),
            self._sessions.conversation(
                reserved.session_id,
                run.trigger_seq,
                state.head_seq,
                types=sorted(self._settings.history_types),
                without=[turn.trigger_seq for turn in state.queue],
                count=limits.OFFER_HISTORY_EVENTS,
                size=limits.OFFER_HISTORY_BYTES,
                deadline=deadline,
            ),
        )
        trigger, tail = conversation
        history, omitted = self._history(state, run.run_id, tail)
        return said.Offer(
            reserved.session_id,
            reserved.run_id,
            reserved.attempt_no,
            run.next_kind,
            new_token(),
            self._settings.offer,
            self._settings.startup_allowance,
            pins,
            profile,
            version,
            revision.model_route,
            trigger,
            history,
            omitted,
        )

    def _history(
        self, state: SessionState, run_id: str, tail: list[tuple[int, bytes]]
    ) -> tuple[tuple[bytes, ...], int]:
        """What was said before this turn: nothing of itself, nothing of turns that wait behind it."""
        not_yet = {run_id, *(turn.run_id for turn in state.queue)}
        kept = [(seq, body) for seq, body in tail if self._run_id_of(body) not in not_yet]
        omitted = kept[0][0] - 1 if kept else 0
        return tuple(body for _, body in kept), omitted


def _of(state: SessionState, reserved: Reserved) -> Run | None:
    """The Run that was reserved, if it may still be claimed."""
    run = state.active
    if (
        run is None
        or run.run_id != reserved.run_id
        or run.status is not RunStatus.READY
        or run.attempt_no + 1 != reserved.attempt_no
    ):
        return None
    return run
