"""Use cases of Sessions: what callers may ask for, handed to the lane as commands."""

import asyncio
import os
from collections.abc import Awaitable, Callable

from turnlog_server.domain import ids, limits
from turnlog_server.domain.access import require
from turnlog_server.domain.asked import Inbound, NewSession
from turnlog_server.domain.commands import (
    Author,
    CancelRun,
    CancelSession,
    Command,
    CompleteSession,
    Create,
    DeleteSession,
    SendInterrupt,
    SendMessage,
)
from turnlog_server.domain.events import Cause, CauseKind
from turnlog_server.domain.refusals import Reason, Refusal, not_found
from turnlog_server.domain.session import Pins, Run, SessionFacts
from turnlog_server.service.context import CallContext
from turnlog_server.service.submission import Admits, Result, Submission
from turnlog_server.store.codec import encode
from turnlog_server.store.runs import Runs
from turnlog_server.store.sessions import Place, Stored
from turnlog_server.store.sessions import Sessions as SessionStore

PinsFor = Callable[[str, str, int | None], Awaitable[Pins]]

# Leaves room below the limit of a response for what is around the Sessions.
LIST_BYTES = 3 * limits.MIB
SCAN_FACTOR = 20
SCAN_MAXIMUM = 5_000


class Sessions:
    """Create, change and read Sessions."""

    def __init__(self, lane: Admits, store: SessionStore, runs: Runs, pins_for: PinsFor) -> None:
        self._lane = lane
        self._store = store
        self._runs = runs
        self._pins_for = pins_for

    async def create(self, ctx: CallContext, new: NewSession) -> Result:
        """A Session that pins what is current, and its first turn where a message came along."""
        require(ctx.caller, ctx.method)
        principal = acting_principal(ctx, new.principal)
        pins = await self._pins_for(ctx.caller.workspace_id, new.deployment_id, new.revision)
        session_id = ids.make_id(ids.SESSION, os.urandom(ids.CHANCE_BYTES))
        facts = SessionFacts(session_id, ctx.caller.workspace_id, pins, principal, new.reusable, 0, new.labels)
        author = Author(principal or ctx.caller.subject, ctx.caller.subject, Cause(CauseKind.API))
        result = await self._submit(
            ctx, session_id, Create(facts, author, new.message), len(new.message), scope=ctx.caller.workspace_id
        )
        return existing(result)

    async def append(self, ctx: CallContext, inbound: Inbound) -> Result:
        """A message or an interrupt, into the log."""
        require(ctx.caller, ctx.method)
        principal = acting_principal(ctx, inbound.principal)
        if inbound.authored_by not in (ctx.caller.subject, principal):
            raise Refusal(
                Reason.AUTHOR_NOT_ALLOWED,
                f"Your key may not write in the name of {inbound.authored_by}: name {ctx.caller.subject}.",
                {"authored_by": inbound.authored_by},
            )
        author = Author(inbound.authored_by, ctx.caller.subject, inbound.cause)
        command: Command
        if inbound.message:
            command = SendMessage(author, inbound.payload, inbound.if_busy, inbound.expected_head)
        else:
            command = SendInterrupt(author, inbound.payload, inbound.run_id, inbound.expected_head)
        return existing(await self._submit(ctx, inbound.session_id, command, len(inbound.payload)))

    async def complete(self, ctx: CallContext, session_id: str) -> Result:
        """Ends an idle Session well."""
        require(ctx.caller, ctx.method)
        return existing(await self._submit(ctx, session_id, CompleteSession(_by(ctx))))

    async def cancel(self, ctx: CallContext, session_id: str, reason: str) -> Result:
        """Ends a Session as canceled."""
        require(ctx.caller, ctx.method)
        return existing(await self._submit(ctx, session_id, CancelSession(_by(ctx), reason)))

    async def delete(self, ctx: CallContext, session_id: str) -> Result:
        """Removes an idle or terminal Session."""
        require(ctx.caller, ctx.method)
        return await self._submit(ctx, session_id, DeleteSession(_by(ctx)))

    async def cancel_run(self, ctx: CallContext, session_id: str, run_id: str, reason: str) -> tuple[Run, bool]:
        """Cancels a Run; returns it as it now stands, and whether the request was a repeat."""
        require(ctx.caller, ctx.method)
        run = await self._runs.get(ctx.caller.workspace_id, session_id, run_id, ctx.deadline)
        if run is None:
            raise not_found("run", run_id)
        result = await self._submit(ctx, session_id, CancelRun(_by(ctx), run_id, reason))
        run = await self._runs.get(ctx.caller.workspace_id, session_id, run_id, ctx.deadline)
        if run is None:
            raise not_found("run", run_id)
        return run, result.replayed

    async def get(self, ctx: CallContext, session_id: str) -> Stored:
        """One Session."""
        require(ctx.caller, ctx.method)
        found = await self._store.get(ctx.caller.workspace_id, session_id, ctx.deadline)
        if found is None:
            raise not_found("session", session_id)
        stored, epoch = found
        if epoch != ctx.caller.epoch:
            await ctx.judge(ctx.caller)
        return stored

    async def page(
        self, ctx: CallContext, labels: dict[str, str], statuses: list[str], after: Place | None, size: int
    ) -> tuple[list[Stored], Place | None]:
        """Newest first, with where the next page starts. A page that had to look at many may be short."""
        require(ctx.caller, ctx.method)
        await ctx.judge(ctx.caller)
        scan = min(SCAN_MAXIMUM, size * SCAN_FACTOR if labels or statuses else size + 1)
        rows = await self._store.page(
            ctx.caller.workspace_id,
            labels=encode(labels).decode(),
            statuses=statuses,
            before=after or (2**62, ""),
            scan=scan,
            size=LIST_BYTES,
            deadline=ctx.deadline,
        )
        hits: list[Stored] = []
        through = after
        for index, row in enumerate(rows):
            if row.hit and row.stored is None:
                return hits, through
            if row.stored is not None:
                hits.append(row.stored)
            through = row.place
            if len(hits) == size and (index + 1 < len(rows) or len(rows) == scan):
                return hits, through
        return hits, through if len(rows) == scan else None

    async def _submit(
        self, ctx: CallContext, session_id: str, command: Command, size: int = 0, *, scope: str = ""
    ) -> Result:
        submission = Submission(
            session_id,
            command,
            size + 512,
            asyncio.get_running_loop().create_future(),
            ctx.caller,
            ctx.judge,
            (scope or session_id, ctx.caller.subject, ctx.rpc, ctx.request_id),
            ctx.fingerprint,
        )
        return await self._lane.submit(submission, ctx.deadline)


def acting_principal(ctx: CallContext, principal: str) -> str:
    """The principal that acts: the key's own. Any other needs a delegation, and there are none yet."""
    subject = ctx.caller.subject
    own = subject if subject.startswith(ids.PRINCIPAL) else ""
    if principal and principal != own:
        raise Refusal(
            Reason.DELEGATION_MISSING,
            f"Your key has no delegation to act as {principal}: leave principal empty, or use a key of that principal.",
            {"principal": principal},
        )
    return own


def existing(result: Result) -> Result:
    """The Session of a replayed request may have been deleted since."""
    if result.facts is None or result.state is None:
        raise not_found("session", result.resource_id)
    return result


def _by(ctx: CallContext) -> Author:
    return Author("", ctx.caller.subject, Cause(CauseKind.API))
