"""The kinds of faults. Each is a coroutine of a Scene and a source of chance; it returns when the fault is over, and
False where it did not fall, for who is dead already cannot be killed; or how many processes were killed.

What it needs is said beside it: two faults that need the same thing do not last at once. Kills need nothing.
"""

import asyncio
import contextlib
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import psutil
import psycopg

from campaign import network
from campaign.kept import Kept
from campaign.scene import FAKETIME, LEASE_SECONDS, Scene

Act = Callable[[Scene, random.Random], Awaitable[bool | int | None]]


@dataclass(frozen=True)
class Kind:
    """weight: how often, against others. needs: what nobody else may break meanwhile. kills: whether a process dies."""

    name: str
    act: Act
    weight: float
    needs: str
    kills: bool = False
    possible: Callable[[Scene], bool] = lambda _: True


KINDS: dict[str, Kind] = {}


def kind(
    weight: float, needs: str, *, kills: bool = False, possible: Callable[[Scene], bool] = lambda _: True
) -> Callable[[Act], Act]:
    """Declares the function's name, with dashes, as a kind."""

    def declare(act: Act) -> Act:
        name = act.__name__.replace("_", "-")
        KINDS[name] = Kind(name, act, weight, needs, kills, possible)
        return act

    return declare


def _own_network(scene: Scene) -> bool:
    return scene.own_network


def _has_clocks(_: Scene) -> bool:
    return bool(FAKETIME)


@kind(6, "", kills=True)
async def kill_server(scene: Scene, chance: random.Random) -> bool:
    return chance.choice(scene.servers).signal(signal.SIGKILL)


@kind(8, "", kills=True)
async def kill_runner(scene: Scene, chance: random.Random) -> bool:
    return chance.choice(scene.runners).signal(signal.SIGKILL)


@kind(24, "", kills=True)
async def kill_harness(scene: Scene, chance: random.Random) -> bool:
    """One that works at this moment; where none does, the next that is seen within a second."""
    for _ in range(50):
        found = [each for runner in scene.runners for each in runner.children() if _is_harness(each)]
        if found:
            with contextlib.suppress(psutil.Error):
                chance.choice(found).kill()
                return True
        await asyncio.sleep(0.02)
    return False


@kind(3, "", kills=True)
async def kill_postmaster(scene: Scene, chance: random.Random) -> bool:
    """And the one who started it: a new one comes, while the old one's children may not have noticed yet."""
    postmaster, alone = scene.postmaster(), chance.random() < 0.5
    if postmaster is None:
        return False
    postmaster.kill()
    if not alone:
        scene.postgres.signal(signal.SIGKILL)
    return True


@kind(5, "", kills=True)
async def kill_backend(scene: Scene, chance: random.Random) -> bool:
    """PostgreSQL takes down all the others and recovers."""
    if backends := scene.backends():
        with contextlib.suppress(psutil.Error):
            chance.choice(backends).kill()
            return True
    return False


@kind(1, "", kills=True)
async def kill_everything(scene: Scene, chance: random.Random) -> int:
    """At once, as when a machine dies."""
    killed = sum(kept.signal(signal.SIGKILL) for kept in [*scene.servers, *scene.runners, scene.postgres])
    if (postmaster := scene.postmaster()) is not None:
        postmaster.kill()
        killed += 1
    return killed


@kind(3, "runner")
async def freeze_runner_past_its_lease(scene: Scene, chance: random.Random) -> bool:
    return await chance.choice(scene.runners).frozen(LEASE_SECONDS + chance.uniform(0.5, 3))


@kind(3, "server")
async def freeze_server(scene: Scene, chance: random.Random) -> bool:
    return await chance.choice(scene.servers).frozen(chance.choice([0.5, 2, LEASE_SECONDS + 2]))


@kind(2, "postgres")
async def freeze_postgres(scene: Scene, chance: random.Random) -> None:
    """All of its processes, or some that work for replicas."""
    backends, all_of_them = scene.backends(), chance.random() < 0.5
    stopped = backends if all_of_them else chance.sample(backends, len(backends) // 2)
    try:
        _each(stopped, signal.SIGSTOP)
        await asyncio.sleep(chance.uniform(0.5, 4))
    finally:
        _each(stopped, signal.SIGCONT)


@kind(20, "wire")
async def cut_after_commit(scene: Scene, chance: random.Random) -> None:
    await _cut(scene, chance, "cut-after")


@kind(10, "wire")
async def cut_before_commit(scene: Scene, chance: random.Random) -> None:
    await _cut(scene, chance, "cut-before")


async def _cut(scene: Scene, chance: random.Random, fault: str) -> None:
    """So many statements of one replica, one soon after the other; each is counted as a fault by the proxy."""
    proxy = chance.choice(scene.proxies)
    proxy.arm(fault, chance.choice([1, 5, 20]))  # type: ignore[arg-type]
    await asyncio.sleep(chance.uniform(0.5, 2))
    proxy.disarm()


@kind(2, "wire")
async def half_open_database(scene: Scene, chance: random.Random) -> None:
    """Connections stand and nothing comes back on them."""
    await chance.choice(scene.proxies).hush(chance.uniform(0.5, 5))


@kind(3, "wire")
async def cut_all_database_connections(scene: Scene, chance: random.Random) -> None:
    chance.choice(scene.proxies).cut_all()


@kind(3, "network", possible=_own_network)
async def partition(scene: Scene, chance: random.Random) -> None:
    """Nothing comes to a replica, and nothing from it."""
    ip = _ip(scene, chance)
    await network.rule(chance.uniform(1, 7), f"INPUT -d {ip} -j DROP", f"INPUT -s {ip} -j DROP")


@kind(3, "network", possible=_own_network)
async def half_open_peers(scene: Scene, chance: random.Random) -> None:
    """One direction is lost."""
    way = chance.choice(["-d", "-s"])
    await network.rule(chance.uniform(1, 7), f"INPUT {way} {_ip(scene, chance)} -j DROP")


@kind(2, "network", possible=_own_network)
async def lossy_network(scene: Scene, chance: random.Random) -> None:
    """Every third packet is lost."""
    await network.rule(chance.uniform(1, 5), "INPUT -p tcp -m statistic --mode random --probability 0.33 -j DROP")


@kind(4, "network", possible=_own_network)
async def reset_connections(scene: Scene, chance: random.Random) -> None:
    """Whoever says something to a replica is told that nobody is there."""
    reset = f"INPUT -p tcp -d {_ip(scene, chance)} -j REJECT --reject-with tcp-reset"
    await network.rule(0.3, reset)


@kind(4, "clock", possible=_has_clocks)
async def set_clock(scene: Scene, chance: random.Random) -> None:
    """Of a replica or a runner, away from the others'; it stays so until it is set again."""
    kept: Kept = chance.choice([*scene.servers, *scene.runners])
    file = scene.clock_file(kept)
    written = file.with_suffix(".new")
    written.write_text(chance.choice(["+0", "-2", "+3", "-40", "+75", "-4000", "+90000"]))
    written.replace(file)


@kind(2, "postgres", possible=_own_network)
async def disk_full(scene: Scene, chance: random.Random) -> None:
    """Whatever is left is taken; then it is given back."""
    ballast = scene.disk / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(1 << 20)):
                pass
        await asyncio.sleep(chance.uniform(0.5, 4))
    finally:
        ballast.unlink(missing_ok=True)


@kind(2, "postgres")
async def slow_disk(scene: Scene, chance: random.Random) -> None:
    """Every commit waits a tenth of a second for its flush."""
    await _tell(scene, "ALTER SYSTEM SET commit_delay = 100000", "SELECT pg_reload_conf()")
    try:
        await asyncio.sleep(chance.uniform(1, 4))
    finally:
        await _tell(scene, "ALTER SYSTEM RESET commit_delay", "SELECT pg_reload_conf()")


@kind(2, "postgres")
async def exhaust_pools(scene: Scene, chance: random.Random) -> None:
    """Somebody locks a table: what reads or writes it holds its connection until the end."""
    table = chance.choice(["sessions", "session_heads", "runners", "run_queue", "api_keys"])
    await asyncio.to_thread(_lock, scene, table, chance.uniform(0.5, 3))


@kind(2, "postgres")
async def exhaust_connections(scene: Scene, chance: random.Random) -> None:
    """PostgreSQL has no place for those that come back."""
    await asyncio.to_thread(_occupy, scene)


@kind(2, "postgres")
async def terminate_backends(scene: Scene, chance: random.Random) -> None:
    """An administrator throws everybody out."""
    await _tell(scene, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


@kind(4, "server")
async def drain_server(scene: Scene, chance: random.Random) -> bool:
    """SIGTERM; another takes its place when it is gone."""
    server, wait = chance.choice(scene.servers), chance.uniform(0, 4)
    fell = server.signal(signal.SIGTERM)
    # The next fault of a server may well fall in the middle of it.
    await asyncio.sleep(wait)
    return fell


@kind(2, "runner")
async def drain_runner(scene: Scene, chance: random.Random) -> bool:
    return chance.choice(scene.runners).signal(signal.SIGTERM)


async def _tell(scene: Scene, *statements: str) -> None:
    """As far as PostgreSQL is there to hear it."""

    def tell() -> None:
        with contextlib.suppress(psycopg.Error), scene.admin() as conn:
            for statement in statements:
                conn.execute(statement.encode())

    await asyncio.to_thread(tell)


def _lock(scene: Scene, table: str, seconds: float) -> None:
    with contextlib.suppress(psycopg.Error), scene.admin() as conn, conn.transaction():
        conn.execute("SET LOCAL lock_timeout = '2s'")
        conn.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
        conn.execute("SELECT pg_sleep(%s)", [seconds])


def _occupy(scene: Scene) -> None:
    with contextlib.ExitStack() as stack, contextlib.suppress(psycopg.Error):
        first = stack.enter_context(scene.admin())
        first.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        with contextlib.suppress(psycopg.Error):
            for _ in range(70):
                stack.enter_context(scene.admin())
        first.execute("SELECT pg_sleep(2)")


def _each(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def _ip(scene: Scene, chance: random.Random) -> str:
    return chance.choice(scene.addresses).rpartition(":")[0]


def _is_harness(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return "harness.py" in " ".join(process.cmdline()[1:5])
    return False
