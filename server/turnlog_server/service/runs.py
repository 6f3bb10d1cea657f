"""Use cases of Runs and of remembered requests."""

from turnlog_server.domain.access import require
from turnlog_server.domain.refusals import not_found
from turnlog_server.domain.requests import AcceptedRequest
from turnlog_server.domain.session import Attempt, Run, RunStatus
from turnlog_server.service.context import CallContext
from turnlog_server.store.database import Database
from turnlog_server.store.execute import reading
from turnlog_server.store.requests import request_find
from turnlog_server.store.runs import Runs as RunStore
from turnlog_server.store.sessions import Sessions


class Runs:
    """Reads of Runs and attempts."""

    def __init__(self, store: RunStore, sessions: Sessions) -> None:
        self._store = store
        self._sessions = sessions

    async def get(self, ctx: CallContext, session_id: str, run_id: str) -> tuple[Run, str]:
        """One Run, and why it is still pending."""
        require(ctx.caller, ctx.method)
        await ctx.judge(ctx.caller)
        run = await self._store.get(ctx.caller.workspace_id, session_id, run_id, ctx.deadline)
        if run is None:
            raise not_found("run", run_id)
        return run, await self._pending(ctx, session_id, run)

    async def page(self, ctx: CallContext, session_id: str, before: int, count: int) -> list[Run]:
        """Newest first."""
        require(ctx.caller, ctx.method)
        await ctx.judge(ctx.caller)
        if await self._sessions.get(ctx.caller.workspace_id, session_id, ctx.deadline) is None:
            raise not_found("session", session_id)
        return await self._store.page(session_id, before, count, ctx.deadline)

    async def attempts(self, ctx: CallContext, session_id: str, run_id: str, after: int, count: int) -> list[Attempt]:
        """Oldest first."""
        require(ctx.caller, ctx.method)
        await ctx.judge(ctx.caller)
        if await self._store.get(ctx.caller.workspace_id, session_id, run_id, ctx.deadline) is None:
            raise not_found("run", run_id)
        return await self._store.attempts(session_id, run_id, after, count, ctx.deadline)

    async def _pending(self, ctx: CallContext, session_id: str, run: Run) -> str:
        if run.status is RunStatus.QUEUED:
            return "It waits behind other turns of its Session."
        if run.status is not RunStatus.READY:
            return ""
        found = await self._sessions.get(ctx.caller.workspace_id, session_id, ctx.deadline)
        if found is None:
            return ""
        pins = found[0][0].pins
        connected, in_pool, serving = await self._store.runners(
            ctx.caller.workspace_id, pins.runner_pool, pins.harness_profile_id
        )
        if not connected:
            return "No runner is connected: start one with `turnlog runner start`."
        if not in_pool:
            return f"No connected runner serves the pool {pins.runner_pool}."
        if not serving:
            return f"No connected runner of the pool {pins.runner_pool} serves the deployment's harness profile."
        return "Every eligible runner is busy, or the workspace holds as many Runs as it may."


class Requests:
    """What became of a request."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def get(self, ctx: CallContext, method: str, session_id: str, request_id: str) -> AcceptedRequest:
        """The caller's own request."""
        require(ctx.caller, ctx.method)
        await ctx.judge(ctx.caller)
        execute = reading(self._db, "request_find", ctx.deadline)
        scope = session_id or ctx.caller.workspace_id
        found = await request_find(execute, scope, ctx.caller.subject, method, request_id)
        if found is None:
            raise not_found("request", request_id)
        return found
