"""What operators ask of runners."""

from turnlog_server.domain.access import Caller, require
from turnlog_server.domain.fleet import RunnerRow
from turnlog_server.domain.names import known
from turnlog_server.service.context import CallContext
from turnlog_server.service.once import Change, Changes, Made
from turnlog_server.store.database import Database
from turnlog_server.store.execute import Execute, reading
from turnlog_server.store.runners import Runners, runner_drain, runner_find


class Operators:
    """List and drain."""

    def __init__(self, db: Database, runners: Runners, changes: Changes) -> None:
        self._db = db
        self._runners = runners
        self._changes = changes

    async def page(self, ctx: CallContext, after: str, count: int) -> list[RunnerRow]:
        """The workspace's runners, by id."""
        require(ctx.caller, ctx.method)
        await ctx.judge(ctx.caller)
        return await self._runners.page(ctx.caller.workspace_id, after, count, ctx.deadline)

    async def drain(self, ctx: CallContext, runner_id: str) -> Made[RunnerRow]:
        """The runner takes nothing new; the replica that holds its stream tells it with the next renewal."""
        require(ctx.caller, ctx.method)

        async def effect(execute: Execute, caller: Caller) -> RunnerRow:
            await runner_drain(execute, caller.workspace_id, runner_id)
            return known(await runner_find(execute, caller.workspace_id, runner_id), "runner", runner_id)

        async def find(name: str) -> RunnerRow:
            execute = reading(self._db, "runner_find", ctx.deadline)
            return known(await runner_find(execute, ctx.caller.workspace_id, name), "runner", name)

        return await self._changes.make(ctx, Change(effect, lambda row: row.hello.runner_id, find))
