"""The runner daemon: claims Runs, executes them in harnesses, reports and settles, and never goes away by itself."""

import asyncio
import logging
import secrets
import signal
import time
from collections.abc import Callable
from importlib import metadata

from turnlog.runner.v1 import runner_service_pb2 as pb

from turnlog_client.runner.attempt import Attempt, Launch, Surroundings
from turnlog_client.runner.channel import Cause, End
from turnlog_client.runner.folder import RunnerFolder
from turnlog_client.runner.holdings import Holdings
from turnlog_client.runner.launcher import check_programs, launcher
from turnlog_client.runner.lease import LeaseClock
from turnlog_client.runner.options import OptionsError, RunnerOptions
from turnlog_client.runner.outbox import Outbox
from turnlog_client.runner.proctree import kill_leftovers
from turnlog_client.runner.reconnect import keep_connected
from turnlog_client.runner.stream import Stream

log = logging.getLogger("turnlog.runner")


async def run_runner(options: RunnerOptions) -> int:
    """Runs a runner until it is told to go. Returns its exit code: 0 when it went as told, 2 when it cannot start; with
    `exit_when_refused` 4 when its key was refused, 2 when something else of it was."""
    try:
        options.read_key()
        check_programs(options)
        folder = RunnerFolder(options.data_dir, options.work_dir)
    except OptionsError as error:
        log.error("%s", error)
        return 2
    try:
        killed = await kill_leftovers(folder.runner_id)
        if killed:
            log.warning("Killed %d processes that an earlier life left behind.", killed)
        folder.remove_work_dirs()
        runner = Runner(options, folder, launcher(options, folder.runner_id))
        if options.handle_signals:
            runner.handle_signals()
        return await runner.run()
    except TimeoutError as error:
        log.error("%s", error)
        return 2
    finally:
        folder.close()


def boot_clock() -> float:
    """Seconds of a clock that never goes back and, where the system has one, also counts while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Runner:
    """Keeps a stream to the server and a lease, and goes when it is told to.

    clock: the monotonic clock that the lease goes by.
    """

    def __init__(
        self, options: RunnerOptions, folder: RunnerFolder, launch: Launch, clock: Callable[[], float] = boot_clock
    ) -> None:
        timing = options.timing
        self._options = options
        self._folder = folder
        self._clock = clock
        self._instance_id = secrets.token_hex(16)
        self._outbox = Outbox()
        self._lease = LeaseClock(timing.arrival)
        surroundings = Surroundings(launch, folder.make_work_dir, clock, timing.cancel_grace, self._gone)
        self._holdings = Holdings(options, self._outbox, self._lease, surroundings)
        self._stream: Stream | None = None
        self._connects = 0
        self._hurry = asyncio.Event()
        self._leaving: asyncio.Task[None] | None = None
        self._connecting: asyncio.Task[End] | None = None

    async def run(self) -> int:
        """Connects and works until told to go. Returns the exit code."""
        log.info(
            "runner %s serving pools %s, harnesses %s",
            self._folder.runner_id,
            ", ".join(self._options.served_pools),
            ", ".join(self._options.harnesses),
            extra={"runner_id": self._folder.runner_id, "address": self._options.address},
        )
        watch = asyncio.create_task(self._watch_lease())
        self._connecting = asyncio.create_task(
            keep_connected(
                self._connect,
                is_final=self._is_final,
                is_holding=lambda: len(self._holdings) > 0,
                timing=self._options.timing,
            )
        )
        try:
            # It is cancelled where the runner leaves and has no stream to say Goodbye on.
            await asyncio.wait([self._connecting])
            cancelled = self._connecting.cancelled()
        finally:
            for task in (watch, self._connecting, self._leaving):
                if task is not None:
                    task.cancel()
            self._holdings.lose_all("the runner ends")
            await self._holdings.empty.wait()
        log.info("runner %s is gone", self._folder.runner_id)
        if self._leaving is not None or cancelled:
            return 0
        end = self._connecting.result()
        log.error("%s It gives up, as it was told to.", end.refusal, extra={"end": str(end)})
        return end.exit_code

    def drain(self, grace: float | None = None) -> None:
        """Takes no new Runs, lets those it holds end within `grace` seconds (None: whatever it takes), then goes."""
        if grace is not None:
            asyncio.get_running_loop().call_later(grace, self._hurry.set)
        if self._leaving is None:
            log.info("Draining: no new Runs, %d to end.", len(self._holdings), extra={"grace_seconds": grace})
            self._holdings.take_no_more()
            self._leaving = asyncio.create_task(self._leave())

    def stop(self) -> None:
        """Gives back at once what the runner holds, then goes."""
        self.drain()
        self._hurry.set()

    def handle_signals(self) -> None:
        """SIGTERM and SIGINT drain; the second one stops."""
        signaled = False

        def told_to_go() -> None:
            nonlocal signaled
            if signaled:
                log.warning("Told to go once more: giving back what is held.")
                self.stop()
            signaled = True
            self.drain(self._options.drain_grace)

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, told_to_go)

    def hello(self) -> pb.Hello:
        """Who the runner is and what it holds at this moment."""
        return pb.Hello(
            runner_id=self._folder.runner_id,
            instance_id=self._instance_id,
            display_name=self._options.shown_name,
            version=_version(),
            pools=self._options.served_pools,
            harness_profiles=list(self._options.harnesses),
            held=self._holdings.announce(),
        )

    def welcomed(self, welcome: pb.Welcome) -> None:
        """The server took the runner in."""
        ttl, interval = welcome.lease_ttl.ToTimedelta(), welcome.heartbeat_interval.ToTimedelta()
        log.info("Connected.", extra={"lease_seconds": ttl.total_seconds()})
        if ttl.total_seconds() <= self._options.timing.arrival + interval.total_seconds():
            log.warning("A lease of %s is shorter than what a dead connection takes to notice.", ttl)
        self._holdings.welcomed(welcome)

    def received(self, response: pb.ConnectResponse) -> None:
        """Does what a message says."""
        if response.WhichOneof("message") != "drain":
            self._holdings.received(response)
        elif response.drain.reason != pb.Drain.REASON_SERVER:
            self.drain()
        elif self._stream is not None:
            self._stream.end(Cause.DRAIN)

    def lease_expired(self) -> None:
        """Stops all work: the server may have given it to others by now."""
        if len(self._holdings):
            log.error("The lease could not be renewed in time; %d Runs are stopped.", len(self._holdings))
        # To the server this is another life: whatever it still believes to be held ends with the next Hello.
        self._instance_id = secrets.token_hex(16)
        self._lease.given_up()
        self._holdings.lose_all("the lease could not be renewed in time")
        if self._stream is not None:
            self._stream.end(Cause.LEASE)

    async def _connect(self) -> End:
        # What was lost may not be touched any more when the server hears that it is not held.
        await self._holdings.losses_gone()
        address = self._options.addresses[self._connects % len(self._options.addresses)]
        self._connects += 1
        self._stream = Stream(self._options, self._outbox, self._lease, self, self._clock)
        end = End(Cause.SERVER)
        try:
            end = await self._stream.run(address)
        except Exception as error:
            log.exception("The stream failed in the runner.")
            end = End(Cause.SERVER, details=str(error))
        finally:
            self._stream = None
            self._lease.ended(self._clock())
            self._holdings.disconnected(end)
        return end

    def _is_final(self, end: End) -> bool:
        return end.cause is Cause.GOODBYE or (end.refused and self._options.exit_when_refused)

    async def _watch_lease(self) -> None:
        while True:
            await asyncio.sleep(self._options.timing.tick)
            now = self._clock()
            if self._stream is not None and self._stream.welcomed:
                self._lease.alive(now)
            if self._lease.expired(now):
                self.lease_expired()

    async def _leave(self) -> None:
        assert self._connecting is not None
        empty = asyncio.create_task(self._holdings.empty.wait())
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait([empty, hurry], return_when=asyncio.FIRST_COMPLETED)
        if not empty.done():
            self._holdings.give_up_all("The runner stops.")
            await asyncio.wait([empty], timeout=self._options.timing.farewell)
        for task in (empty, hurry):
            task.cancel()
        if self._stream is not None and self._stream.welcomed:
            self._stream.leave()
            await asyncio.wait([self._connecting], timeout=self._options.timing.farewell)
        self._connecting.cancel()

    def _gone(self, attempt: Attempt) -> None:
        self._holdings.gone(attempt)


def _version() -> str:
    try:
        return metadata.version("turnlog")
    except metadata.PackageNotFoundError:
        return "unknown"
