"""Changes of anything but a Session: at most once under one request id, and never on a permission that is gone.

The effect, the request id and the look at the permission epoch are one transaction. A request that fails is looked up
before the failure is answered, for the failure may be the echo of the same request, carried out before: of a name that
is taken now, by what the request itself made.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from turnlog_server.domain import access
from turnlog_server.domain.access import Caller
from turnlog_server.domain.names import already_exists
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.domain.requests import AcceptedRequest, RequestKey, require_same
from turnlog_server.service.context import CallContext
from turnlog_server.service.epochs import Epochs
from turnlog_server.store.access import epoch_raise, epoch_read
from turnlog_server.store.connections import Connection
from turnlog_server.store.database import Database
from turnlog_server.store.errors import Duplicate
from turnlog_server.store.execute import Execute, reading, within
from turnlog_server.store.requests import REQUEST_PKEY, request_find, request_insert

T = TypeVar("T")

JUDGEMENTS: Final = 5
"""How often a call is judged anew while others keep changing who may do what."""

# After these the database is not asked again: it could not answer.
_HOPELESS: Final = frozenset({Reason.STORE_UNAVAILABLE, Reason.DEADLINE_EXCEEDED, Reason.QUOTA_EXCEEDED})


@dataclass(frozen=True, slots=True)
class Made(Generic[T]):
    """What a request made or changed; `replayed` when an earlier one with its id did the work."""

    item: T
    replayed: bool


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """What a request does.

    effect: in a transaction, for a caller judged in the epoch that the transaction sees; returns what it made. It may
        be called many times, and brings ids and times from outside.
    name: what the request is remembered to have made, such as `agt_…`.
    find: what is behind such a name now.
    own: the name, where it was made up for this call and no other can have it.
    unique: by constraint, what is taken when it is violated: the resource and its name.
    changes_access: who may do what is another after it.
    """

    effect: Callable[[Execute, Caller], Awaitable[T]]
    name: Callable[[T], str]
    find: Callable[[str], Awaitable[T]]
    own: str = ""
    unique: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    changes_access: bool = False


class _Moved(Exception):
    """Somebody's access changed since the caller was judged: `epoch` is the newest, 0 where the workspace is gone."""

    def __init__(self, epoch: int) -> None:
        super().__init__(epoch)
        self.epoch = epoch


class Changes:
    """Carries changes out, each once."""

    def __init__(self, db: Database, epochs: Epochs) -> None:
        self._db = db
        self._epochs = epochs

    async def make(self, ctx: CallContext, change: Change[T]) -> Made[T]:
        """Carry out `change` unless the same request did so before."""
        caller = ctx.caller
        for _ in range(JUDGEMENTS):
            try:
                return await self._attempt(ctx, caller, change)
            except _Moved as moved:
                self._epochs.note(caller.workspace_id, moved.epoch)
                caller = await ctx.judge(caller)
                access.require(caller, ctx.method)
            except (Duplicate, Refusal) as failure:
                if (accepted := await self._accepted(ctx, failure)) is None:
                    raise _answer(failure, change.unique) from failure
                require_same(accepted, ctx.fingerprint)
                return Made(await change.find(accepted.resource_id), replayed=accepted.resource_id != change.own)
        raise Refusal(
            Reason.CONTENTION,
            "Too many others are changing who may do what; nothing was changed. Try again shortly.",
            retry_after=0.2,
        )

    async def _attempt(self, ctx: CallContext, caller: Caller, change: Change[T]) -> Made[T]:
        async def body(conn: Connection) -> tuple[T, int]:
            execute = within(conn)
            # Before anything is read: those who change access wait for each other here.
            step = epoch_raise if change.changes_access else epoch_read
            epoch = await step(execute, caller.workspace_id) or 0
            if (standing := epoch - change.changes_access) != caller.epoch:
                raise _Moved(standing)
            item = await change.effect(execute, caller)
            key = RequestKey(caller.workspace_id, caller.subject, ctx.rpc, ctx.request_id)
            await request_insert(execute, AcceptedRequest(key, ctx.fingerprint, change.name(item)))
            return item, epoch

        item, epoch = await self._db.run(ctx.rpc, body, deadline=ctx.deadline, replay_keys=(REQUEST_PKEY,))
        self._epochs.note(caller.workspace_id, epoch)
        return Made(item, replayed=False)

    async def _accepted(self, ctx: CallContext, failure: Duplicate | Refusal) -> AcceptedRequest | None:
        """The request of this name, if one was accepted."""
        if isinstance(failure, Refusal) and failure.reason in _HOPELESS:
            return None
        execute = reading(self._db, ctx.rpc, ctx.deadline)
        caller = ctx.caller
        with suppress(Refusal):
            return await request_find(execute, caller.workspace_id, caller.subject, ctx.rpc, ctx.request_id)
        return None


def _answer(failure: Duplicate | Refusal, unique: Mapping[str, tuple[str, str]]) -> Exception:
    taken = unique.get(failure.constraint or "") if isinstance(failure, Duplicate) else None
    return already_exists(*taken) if taken else failure
