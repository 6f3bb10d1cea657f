"""The fault campaign: load on two replicas while everything is killed, cut, stopped and filled, and then the checker.

`make faults ARGS="--minutes 60 --seed 7"`. It prints its seed, and the same seed lets the same faults fall in the same
order. What it found is in `summary.json` of its folder, beside the history and all logs. Exit code 1: something is
broken.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import psycopg
import turnlog_server
from support.replicas import Rpc
from support.server_process import ran

from campaign import network
from campaign.checker import Verdict, check
from campaign.clients import Client, World
from campaign.faults import KINDS
from campaign.followers import Follower, FollowerOfAll
from campaign.history import History, lines_of
from campaign.key_holders import KeyHolder
from campaign.plan import Storm
from campaign.scene import LEASE_SECONDS, Scene
from campaign.scripted import Scripted

# After so many faults, faults stop until so many Runs have ended: each stretch is to meet work.
STRETCH, RUNS_BETWEEN = 30, 10
PATIENCE = 240.0


class Stalled(Exception):
    """Nothing moved although nothing was broken any more."""


class Campaign:
    """One run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._seed = str(options.seed)
        self._folder: Path = options.out
        self._scene = Scene(self._folder, self._seed, options.runners, options.weather)
        self._history = History(self._folder / "history.jsonl")
        self._stack = AsyncExitStack()
        self._workers: list[asyncio.Task[None]] = []
        self._followers: list[Follower] = []
        self._following: list[asyncio.Task[None]] = []
        self._of_all: FollowerOfAll
        self._began = time.monotonic()
        self._stalled = ""
        self._world: World
        self._storm: Storm

    async def run(self) -> dict[str, Any]:
        """Returns the summary."""
        try:
            await self._scene.start()
            self._storm = Storm(self._scene, self._history, self._options.rate, self._options.kinds)
            if self._storm.skipped:
                print(f"not possible here: {', '.join(self._storm.skipped)}", file=sys.stderr, flush=True)
            self._world = self._load()
            try:
                await self._faults()
                await self._settle()
            except (Stalled, TimeoutError) as stalled:
                self._stalled = str(stalled) or "the replicas did not come back"
            await self._end_load()
            verdict = await asyncio.to_thread(self._check)
            code, said = await ran("check", "--replay", "--database-url", self._scene.dsn, cwd=self._folder)
            return self._summary(verdict, "" if code == 0 else said)
        finally:
            await self._end_load()
            await self._scene.stop()
            self._scene.clean()

    def _load(self) -> World:
        space = self._scene.space
        world = World(
            self._scene.addresses, space.key, space.subject, space.deployment_id, self._history, self._seed,
            most_turns=self._options.turns,
        )  # fmt: skip
        for number in range(self._options.clients):
            client = Client(world, f"client-{number}")
            self._stack.push_async_callback(client.close)
            self._work(client.run())
        for number in range(self._options.key_holders):
            holder = KeyHolder(world, f"holder-{number}")
            self._stack.push_async_callback(holder.close)
            self._work(holder.run())
        for number in range(self._options.scripted):
            scripted = Scripted(world, f"scripted-{number}", space.runner_key, space.harness, LEASE_SECONDS)
            self._work(scripted.run())
        self._work(self._follow(world))
        return world

    def _work(self, coroutine: Any) -> None:
        self._workers.append(asyncio.create_task(coroutine))

    async def _follow(self, world: World) -> None:
        """Each Session that is made gets a follower, and every third another one."""
        rpcs = [Rpc(address, world.key) for address in world.addresses]
        for rpc in rpcs:
            self._stack.push_async_callback(rpc.close)
        self._of_all = FollowerOfAll(world, "follower-of-all", rpcs)
        self._work(self._of_all.run())
        while True:
            session = await world.opened.get()
            for copy in range(2 if len(world.sessions) % 3 == 0 else 1):
                name = f"follower-{len(self._followers)}"
                follower = Follower(world, session, name, rpcs, reports=copy == 0)
                self._followers.append(follower)
                self._following.append(asyncio.create_task(follower.run()))

    async def _faults(self) -> None:
        end = self._began + self._options.minutes * 60
        plan = self._storm.plan()
        fell = 0
        while time.monotonic() < end and (not self._options.faults or fell < self._options.faults):
            if fell % STRETCH == 0:
                await self._progress(RUNS_BETWEEN)
                print(f"{time.monotonic() - self._began:6.0f} s  {self._line()}", file=sys.stderr, flush=True)
            await self._storm.fall(next(plan))
            fell += 1
            self._raise()
        await self._storm.over()

    async def _progress(self, runs: int) -> None:
        """Waits until so many more Runs have ended."""
        await self._storm.over()
        await self._scene.healthy(PATIENCE)
        wanted, until = self._world.ended + runs, time.monotonic() + PATIENCE
        while self._world.ended < wanted:
            if time.monotonic() > until:
                raise Stalled(f"in {PATIENCE:.0f} s without faults only {self._world.ended - wanted + runs} Runs ended")
            self._raise()
            await asyncio.sleep(0.02)

    async def _settle(self) -> None:
        """Nothing new is begun; everything that was comes to its end, and followers read it."""
        self._world.paused.set()
        for proxy in self._scene.proxies:
            proxy.calm()
        await self._scene.healthy()
        until = time.monotonic() + PATIENCE
        while self._world.busy or self._world.waiting or await self._behind():
            if time.monotonic() > until:
                behind = len(await self._behind())
                raise Stalled(f"{self._world.waiting} turns do not end, {behind} followers are behind")
            self._raise()
            await asyncio.sleep(0.1)

    async def _behind(self) -> list[str]:
        """The Sessions of followers that have not read all that is stored."""

        def read() -> dict[str, int]:
            with self._scene.admin() as conn:
                return dict(
                    conn.execute("SELECT session_id, head_seq FROM session_heads WHERE head_seq >= 0").fetchall()
                )

        heads = await asyncio.to_thread(read)
        for session_id in heads:
            # Whoever made it never heard of that.
            self._world.open(session_id)
        behind = [each.session_id for each in self._followers if each.last < heads.get(each.session_id, 0)]
        return behind + [each for each, head in heads.items() if self._of_all.cursors.get(each, 0) < head]

    def _raise(self) -> None:
        """What the campaign itself does wrong ends it."""
        self._storm.raise_if_broken()
        for task in (*self._workers, *self._following):
            if task.done() and not task.cancelled():
                task.result()

    async def _end_load(self) -> None:
        tasks = [*self._workers, *self._following]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._stack.aclose()
        self._history.close()

    def _check(self) -> Verdict:
        with psycopg.connect(self._scene.dsn) as conn:
            return check(lines_of(self._folder / "history.jsonl"), conn)

    def _line(self) -> str:
        cuts = sum(sum(proxy.fell.values()) for proxy in self._scene.proxies)
        return (
            f"{sum(self._storm.counts.values())} faults and {cuts} on the wire, {self._history.counts['call']} calls, "
            f"{self._world.ended} Runs, {len(self._world.sessions)} Sessions"
        )

    def _summary(self, verdict: Verdict, replay: str) -> dict[str, Any]:
        faults = Counter(self._storm.counts)
        # Those are only stretches in which the proxies break more, and what they break they count.
        del faults["cut-after-commit"], faults["cut-before-commit"]
        for proxy in self._scene.proxies:
            faults += proxy.fell
        kept = [*self._scene.servers, *self._scene.runners, self._scene.postgres]
        return {
            "seed": self._options.seed,
            "arguments": " ".join(_without_folder(sys.argv[1:])),
            "commit": _commit(),
            "minutes": round((time.monotonic() - self._began) / 60, 1),
            "faults": sum(faults.values()),
            "process_kills": self._storm.kills,
            "faults_by_kind": dict(sorted(faults.items())),
            "kinds_not_possible_here": self._storm.skipped,
            "calls": {name: count for name, count in sorted(self._history.counts.items())},
            "followers_cut": sum(follower.cuts for follower in self._followers),
            "stored": verdict.counts,
            "lives": {each.name: each.lives for each in kept},
            "server_defects": _defects(self._scene),
            "stalled": self._stalled,
            "replay": replay,
            "broken_guarantees": dict(Counter(each.guarantee for each in verdict.broken)),
            "broken": [str(each) for each in verdict.broken[:200]],
        }


def _commit() -> str:
    """Of the server that was run; empty where it is no checkout."""
    folder = Path(turnlog_server.__file__).parent
    ran = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=folder, capture_output=True, text=True)
    return ran.stdout.strip()


def _without_folder(arguments: list[str]) -> list[str]:
    at = arguments.index("--out") if "--out" in arguments else len(arguments)
    return arguments[:at] + arguments[at + 2 :]


def _defects(scene: Scene) -> list[str]:
    """What the replicas logged as errors."""
    found = []
    for server in scene.servers:
        for line in server.log.read_text().splitlines():
            if '"level": "error"' in line or '"level":"error"' in line or line.startswith("Traceback"):
                found.append(f"{server.name}: {line[:2000]}")
    return found[:50]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The fault campaign.")
    parser.add_argument("--minutes", type=float, default=60.0, help="How long faults fall.")
    parser.add_argument("--faults", type=int, default=0, help="Stop after so many instead, cuts of a stretch as one.")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--rate", type=float, default=1.0, help="Faults a second, on average.")
    parser.add_argument("--weather", type=float, default=0.05, help="The share of writing statements that break.")
    parser.add_argument("--kinds", nargs="*", choices=sorted(KINDS), help="Only these.")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--runners", type=int, default=2, help="Real runners.")
    parser.add_argument("--scripted", type=int, default=2, help="Runners that misbehave.")
    parser.add_argument("--key-holders", type=int, default=1, help="Who write with keys that are revoked.")
    parser.add_argument("--turns", type=int, default=24, help="Most turns that wait at a time.")
    parser.add_argument("--out", type=Path, help="A folder for history, logs and summary; a new one by default.")
    options = parser.parse_args(arguments)
    if options.out is None:
        options.out = Path(tempfile.mkdtemp(prefix="turnlog-faults-"))
    options.out.mkdir(parents=True, exist_ok=True)
    options.out.chmod(0o755)
    return options


async def _until_told(campaign: Campaign) -> dict[str, Any]:
    """Whoever ends it by SIGTERM leaves nothing running."""
    task = asyncio.ensure_future(campaign.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def main() -> int:
    """Runs a campaign; 0 where nothing is broken."""
    network.enter_own()
    options = _options(sys.argv[1:])
    print(f"seed {options.seed}, in {options.out}", file=sys.stderr, flush=True)
    summary = asyncio.run(_until_told(Campaign(options)))
    text = json.dumps(summary, indent=2)
    (options.out / "summary.json").write_text(text + "\n")
    print(text)
    wrong = summary["broken"] or summary["replay"] or summary["stalled"] or summary["server_defects"]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
