"""What is fuzzed: a server under the meter, a workspace to be spoiled, and a canary in another that must stay well."""

import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.replicas import METHODS, QUICK, FakeRunner, Follow, Live, Space, fresh, live_replica, make_space
from support.server_process import ServerProcess
from turnlog.v1 import event_pb2
from turnlog_server.domain.access import PERMISSIONS, VERBS, Role

from fuzz.grammar import Names

# The one who speaks for the runners has other things to do, too.
PATIENT = ("--runner-lease-ttl-seconds", "15", "--runner-heartbeat-seconds", "2")
SESSIONS, WITH_RUN = 24, 18


class Meter:
    """What the launcher has written."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0
        self.longest = 0.0

    def offenders(self) -> list[dict[str, Any]]:
        """Callbacks that took too long since the last look."""
        if not self._file.exists():
            return []
        lines = [json.loads(line) for line in self._file.read_text().splitlines()]
        new, self._read = lines[self._read :], len(lines)
        self.longest = max([self.longest, *(line["ms"] for line in lines)])
        return [line for line in new if not line["within"]]


class Canary:
    """A Session that is none of the fuzzer's business: it takes a turn each round, and its follower sees all of it."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._session_id = ""
        self._runner: FakeRunner
        self._follow: Follow
        self._seen: list[event_pb2.Event] = []
        self._turns = 0

    async def start(self) -> None:
        """Its runner, its Session, its follower."""
        rpc = self._space.live.rpc(self._space.runner_key)
        self._runner = FakeRunner(rpc, harness=self._space.harness)
        await self._runner.welcome()
        self._session_id = (await self._space.session()).session.session_id
        self._follow = self._space.rpc.stream("FollowEvents", session_id=self._session_id)

    async def sing(self) -> None:
        """One turn: admitted, run, followed, and the same when it is read again from the start."""
        self._turns += 1
        await self._space.say(self._session_id, f"turn {self._turns}")
        offer = await self._runner.start()
        await self._runner.append(offer, f"answer {self._turns}")
        await self._runner.settle(offer)
        while not self._seen or self._seen[-1].type != "session.status_idle" or self._ended() < self._turns:
            self._seen.extend(await self._follow.events(1))
        log = await self._space.log(self._session_id)
        assert [event.seq for event in log] == list(range(1, len(log) + 1)), "the canary's log has a gap"
        assert log == self._seen, "the canary's follower saw something else than its log"

    def _ended(self) -> int:
        return sum(event.type == "run.succeeded" for event in self._seen)

    def stop(self) -> None:
        self._follow.cancel()
        self._runner.hang_up()


class World:
    """space: the workspace that callers spoil. yard: the runners' own. names: what exists."""

    def __init__(self, live: Live, space: Space, yard: Space, canary: Canary, meter: Meter) -> None:
        self.live = live
        self.space = space
        self.canary = canary
        self.meter = meter
        self.yard = yard
        self._callers = {Role.MANAGER: space.key, Role.RUNNER: space.runner_key}
        self.names = Names()
        self.sessions: list[str] = []
        self._logged = 0

    def key_for(self, method: str) -> str:
        """The key of a caller who may call it."""
        described = METHODS[method]
        needed = PERMISSIONS[f"{described.containing_service.full_name}/{method}"].verb
        return next(key for role, key in self._callers.items() if needed in VERBS[role])

    async def furnish(self, round_no: int) -> None:
        """New things for a round, made in the same order each time: the ones of before are spoiled."""
        space, rpc = self.space, self.space.rpc
        await rpc.call("SetConcurrencyLimit")
        names = Names()
        names.by_field["authored_by"].append(space.subject)
        # From the start, mostly: a token that belongs to the request is made where it is needed.
        names.note("page_token", "")
        for name in METHODS:
            names.note("method", name)
        made = [
            await rpc.call("CreatePrincipal", display_name="somebody", role="ROLE_VIEWER"),
            account := await rpc.call("CreateServiceAccount", display_name="something", role="ROLE_CONTRIBUTOR"),
            await rpc.call("CreateRunnerPool", name=fresh("pool")),
            await rpc.call("CreateApiKey", subject=account.service_account.service_account_id, display_name="spare"),
            await rpc.call("CreateHarnessProfile", name=fresh("harness")),
            await rpc.call("CreateSandboxProfile", name=fresh("sandbox"), max_duration_seconds=60),
            agent := await rpc.call("CreateAgent", name=fresh("agent")),
            await rpc.call("PublishAgentVersion", agent_id=agent.agent.agent_id, instructions="Help."),
            await rpc.call("CreateDeployment", name=fresh("deployment")),
        ]
        pinned = await rpc.call("GetDeploymentRevision", agent_deployment_id=space.deployment_id, revision_number=1)
        made.append(pinned)
        sessions = await asyncio.gather(
            *(
                space.session("hello" if at < WITH_RUN else "", reusable=at % 7 != 6, labels={"round": str(round_no)})
                for at in range(SESSIONS)
            )
        )
        self.sessions = [each.session.session_id for each in sessions]
        made.extend(sessions)
        made.append(await rpc.call("ListEvents", session_id=self.sessions[1]))
        for answer in made:
            answer.ClearField("secret") if "secret" in answer.DESCRIPTOR.fields_by_name else None
            names.learn(answer)
        async with space.runner() as runner:
            names.note("runner_id", runner.runner_id)
        # What a caller may say of causes, and not what the server says.
        names.by_field["kind"] = [event_pb2.CausedBy.KIND_API]
        self._forget_own(names)
        self.names = names

    def _forget_own(self, names: Names) -> None:
        """The callers' own: without a role they could not call."""
        for known in names.by_prefix.values():
            if self.space.subject in known:
                known.remove(self.space.subject)

    def log_faults(self) -> list[str]:
        """What the server's log holds of errors since the last look."""
        lines = self.live.log.read_text(errors="replace").splitlines()
        new, self._logged = lines[self._logged :], len(lines)
        return [line[:2000] for line in new if '"level":"error"' in line.replace(" ", "") or "Traceback" in line]

    def warnings(self) -> dict[str, int]:
        """What it warned of, and how often."""
        counts: dict[str, int] = {}
        for line in self.live.log.read_text(errors="replace").splitlines():
            said = json.loads(line)["message"] if line.startswith("{") else line[:80]
            counts[said] = counts.get(said, 0) + 1
        return counts


@asynccontextmanager
async def world(dsn: str, folder: Path) -> AsyncIterator[World]:
    """A server on this database, furnished for the first round by `furnish`."""
    meter = folder / "callbacks.jsonl"
    program = (sys.executable, str(Path(__file__).with_name("launcher.py")), str(meter))
    async with live_replica(dsn, *QUICK, *PATIENT, program=program) as live:
        space, yard, cage = await make_space(live), await make_space(live), await make_space(live)
        canary = Canary(cage)
        await canary.start()
        try:
            live.kill(signal.SIGUSR1)
            yield World(live, space, yard, canary, Meter(meter))
        finally:
            canary.stop()


async def replayed(dsn: str) -> tuple[int, str]:
    """What `turnlog-server check --replay` makes of the database, however much it holds: exit code and output."""
    with tempfile.TemporaryDirectory() as folder:
        process = await ServerProcess.start("check", "--replay", cwd=Path(folder), database_url=dsn)
        await process.process.wait()
        return await process.ends(), process.said
