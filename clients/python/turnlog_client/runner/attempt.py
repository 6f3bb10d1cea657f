"""One attempt's life in the runner: from the Offer that was accepted to the acknowledged end."""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog.v1 import content_pb2, error_pb2, run_pb2

from turnlog_client.runner.attempt_queue import AttemptKey, AttemptQueue
from turnlog_client.runner.events import EventError, runner_event
from turnlog_client.runner.logs import About
from turnlog_client.runner.offers import start_of
from turnlog_client.runner.outputs import (
    Exited,
    HarnessEvent,
    HarnessRun,
    Output,
    Preview,
    ProtocolError,
    Ready,
    Settle,
)

log = logging.getLogger("turnlog.runner")

Launch = Callable[[str, str, Path], Awaitable[HarnessRun]]
"""Starts a harness: profile name, a name for the attempt, working folder. Raises OSError when it cannot."""

# Of the time that the server leaves for a stop, the harness gets this part; killing it and saying so take the rest.
_GRACE_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every attempt of a runner needs.

    make_work_dir: gives an empty folder. gone: called once, when nothing of the attempt is left.
    """

    launch: Launch
    make_work_dir: Callable[[], Path]
    clock: Callable[[], float]
    cancel_grace: float
    gone: Callable[["Attempt"], None]


class Attempt:
    """An attempt that the runner accepted.

    It waits until the server has made it an attempt, runs the harness, queues what the harness says, and is over when
    the server has acknowledged the end, or has taken the attempt away.
    """

    def __init__(self, offer: pb.Offer, queue: AttemptQueue, surroundings: Surroundings) -> None:
        self.key = AttemptKey.of(offer)
        self.queue = queue
        self.accepted_at = surroundings.clock()
        self._offer = offer
        self._around = surroundings
        self._time_allowed = _seconds(offer.startup_allowance) + _seconds(offer.max_duration)
        self._harness: HarnessRun | None = None
        self._accepted = asyncio.Event()
        self._over = asyncio.Event()
        self._quiet = asyncio.Event()
        self._lost = False
        self._stop_as: run_pb2.RunStatus | None = None
        self._given_up = ""
        self._condemned = ""
        self._ends_refused = False
        self._telling: asyncio.Task[None] | None = None
        self._helpers: set[asyncio.Task[None]] = set()
        self._log = About(log, self.key._asdict())
        self._life = asyncio.create_task(self._live())

    @property
    def lost(self) -> bool:
        """It is not the runner's any more; what is left of it is being killed."""
        return self._lost

    @property
    def ended(self) -> bool:
        """Its end has been said, or is not to be said any more."""
        return self._lost or self.queue.ended

    @property
    def condemned(self) -> bool:
        """A message of it ends every stream."""
        return bool(self._condemned)

    def held(self) -> pb.HeldAttempt:
        """It, as Hello announces it."""
        return pb.HeldAttempt(**self.key._asdict(), lease_token=self._offer.lease_token)

    def accept(self, deadline_remaining: float | None = None) -> None:
        """The server made it an attempt."""
        if deadline_remaining is not None and not self._accepted.is_set():
            self._time_allowed = self._around.clock() - self.accepted_at + deadline_remaining
        self._accepted.set()

    def stop(self, stop_as: run_pb2.RunStatus, grace: float) -> None:
        """The server wants the turn to end: interrupted or canceled, within `grace` seconds."""
        if self.ended or self._stop_as in (stop_as, run_pb2.RUN_STATUS_CANCELED):
            return
        self._stop_as = stop_as
        self._log.info("Told to stop: %s.", run_pb2.RunStatus.Name(stop_as))
        self._help(self._stop_harness(grace * _GRACE_SHARE))

    def lose(self, why: str) -> None:
        """The attempt is another's, or nobody's: kill all of it at once and say nothing more."""
        if self._lost:
            return
        if self.queue.ended:
            # All was said and only the acknowledgement is missing: the usual way of hearing that it arrived.
            self._log.info("Over: %s.", why)
        else:
            self._log.warning("Lost: %s. Its harness is killed.", why)
        self._lost = True
        self._accepted.set()
        self._over.set()
        self._help(self._kill(0))

    def give_up(self, reason: str) -> None:
        """Kills the harness and gives the Run back, unless its end has been said already."""
        if self.ended or self._given_up:
            return
        self._given_up = reason
        self._log.warning("Given back: %s", reason)
        # Before the server has made it an attempt there is nothing to give back: `_must_not_run` does it then.
        if self._accepted.is_set():
            self._help(self._give_back())

    def condemn(self, why: str) -> None:
        """A message of it ended the stream, and no other can have."""
        self._condemned = why

    def fail_as_condemned(self) -> None:
        """Kills the harness and fails the Run, now that what it said is forgotten."""
        text = f"The server does not take what the harness said: {self._condemned}"
        self._settle_failed("runner.message_refused", text)
        self._condemned = ""
        self._help(self._kill(0))

    def over(self) -> None:
        """The server has acknowledged the end."""
        self._over.set()

    def refused(self, rejection: pb.Rejection, what: pb.ConnectRequest | None) -> None:
        """The server refused something that was said. The harness is told; the attempt goes on."""
        reason = error_pb2.ErrorReason.Name(rejection.reason).removeprefix("ERROR_REASON_")
        text = f"The server refused {_name(what, rejection)}: {reason}: {rejection.message}"
        self._log.warning("%s", text, extra={"message_no": rejection.message_no, "reason": reason})
        # One at a time: a harness that does not read must not make the runner keep what it has to tell it.
        if self._harness is not None and (self._telling is None or self._telling.done()):
            told = {"type": "log", "level": "error", "message": text[:4096]}
            self._telling = self._help(self._harness.send(told))

    def end_otherwise(self) -> bool:
        """The server refused the end that was said: says one that it can take. False if that was refused as well.

        A Run whose runner has nothing more to say would go on until its deadline.
        """
        if self._ends_refused:
            return False
        self._ends_refused = True
        self.queue.reopen()
        self._settle_failed("runner.end_refused", "The server refused the end that the runner reported.")
        return True

    async def gone(self) -> None:
        """Returns when nothing of it is left."""
        await asyncio.wait([self._life])

    async def _live(self) -> None:
        try:
            await self._accepted.wait()
            await self._work()
            await self._over.wait()
        except Exception:
            self._log.exception("The attempt failed in the runner.")
            self.queue.abandon("The runner failed; its log says how.")
            await self._over.wait()
        finally:
            # A lost harness may be being killed at this moment: its place is free only when that is done.
            if self._helpers:
                await asyncio.wait(self._helpers)
            self._around.gone(self)

    async def _work(self) -> None:
        if self._must_not_run():
            return
        try:
            work_dir = self._around.make_work_dir()
        except OSError as error:
            self._cannot_start(error)
            return
        try:
            await self._run_harness(work_dir)
        finally:
            await asyncio.to_thread(shutil.rmtree, work_dir, True)

    async def _run_harness(self, work_dir: Path) -> None:
        profile = self._offer.harness_profile
        try:
            self._harness = await self._around.launch(profile, f"{self.key.run_id}/{self.key.attempt_no}", work_dir)
        except OSError as error:
            self._cannot_start(error)
            return
        self._log.info("Harness started.", extra={"harness_profile": profile})
        settled = False
        try:
            if not self._must_not_run():
                settled = await self._converse(self._harness, work_dir)
        finally:
            self._quiet.set()
            # One that settled may exit by itself.
            await (self._harness.close() if settled and not self._lost else self._harness.kill(0))

    def _must_not_run(self) -> bool:
        """Whether the attempt ended before its harness was told anything; says what there is to say then."""
        if not self.ended and (self._stop_as is not None or self._given_up):
            self._say_end()
        return self.ended

    def _cannot_start(self, error: OSError) -> None:
        # Another runner may be able to.
        self._log.error("The harness cannot be started: %s", error)
        self.queue.abandon(_cut(f"The harness cannot be started: {error}"))

    async def _converse(self, harness: HarnessRun, work_dir: Path) -> bool:
        """Tells the harness its turn and hears it out. True if it settled."""
        left = self._time_allowed - (self._around.clock() - self.accepted_at)
        start = start_of(self._offer, deadline_seconds=left, workdir=str(work_dir))
        self._offer.ClearField("history")
        # A harness may speak before it has read everything: neither side may wait for the other.
        sending = asyncio.create_task(harness.send(start))
        try:
            async for output in harness:
                await self.queue.room.wait()
                if self._lost or self._given_up:
                    return False
                self._take(output)
                if self.queue.ended:
                    return isinstance(output, Settle)
            return False
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending

    def _take(self, output: Output) -> None:
        match output:
            case Ready():
                self.queue.ready()
            case HarnessEvent():
                try:
                    self.queue.append(runner_event(output.type, output.payload))
                except EventError as error:
                    self._end_as("failed", "harness.protocol_error", str(error))
            case Preview():
                self.queue.preview(output.text)
            case Settle():
                self._end_as(output.outcome, output.error_code, output.message)
            case ProtocolError() | Exited():
                self._end_as("failed", output.error_code, output.message)

    def _end_as(self, outcome: str, error_code: str, message: str) -> None:
        if self._stop_as is not None:
            self._settle_stopped()
        elif outcome == "succeeded":
            self._log.info("Succeeded.")
            self.queue.settle(pb.Settle(outcome=pb.Settle.OUTCOME_SUCCEEDED))
        else:
            self._settle_failed(error_code, message)

    def _settle_failed(self, code: str, message: str) -> None:
        self._log.warning("Failed: %s: %s", code, message)
        error = content_pb2.RunError(code=code, message=_cut(message))
        self.queue.settle(pb.Settle(outcome=pb.Settle.OUTCOME_FAILED, error=error))

    def _settle_stopped(self) -> None:
        self._log.info("Stopped.")
        self.queue.settle(pb.Settle(outcome=pb.Settle.OUTCOME_STOPPED))

    async def _stop_harness(self, patience: float) -> None:
        if self._harness is None:
            return
        if self._stop_as == run_pb2.RUN_STATUS_CANCELED:
            await self._harness.cancel("The Run was canceled.", min(self._around.cancel_grace, patience))
            return
        await self._harness.interrupt("The turn was interrupted.")
        try:
            async with asyncio.timeout(patience):
                await self._quiet.wait()
        except TimeoutError:
            self._log.warning("The harness did not end in %.1f s of the interrupt and is killed.", patience)
            await self._kill(0)

    async def _give_back(self) -> None:
        await self._kill(1)
        self._say_end()

    def _say_end(self) -> None:
        """Stopped if the server asked for that, else given back."""
        if self._stop_as is not None:
            self._settle_stopped()
        else:
            self.queue.abandon(_cut(self._given_up))

    async def _kill(self, grace: float) -> None:
        if self._harness is not None:
            await self._harness.kill(grace)

    def _help(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._helpers.add(task)
        task.add_done_callback(self._helped)
        return task

    def _helped(self, task: asyncio.Task[None]) -> None:
        self._helpers.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._log.error("The attempt could not be stopped as it should.", exc_info=error)


def _name(what: pb.ConnectRequest | None, rejection: pb.Rejection) -> str:
    kind = what.WhichOneof("message") if what else None
    if what is None or kind is None:
        return "a message"
    if kind != "append" or not rejection.HasField("event_index"):
        return kind
    events = what.append.events
    arm = events[rejection.event_index].WhichOneof("payload") if rejection.event_index < len(events) else None
    return f"the event {(arm or 'unknown').replace('_', '.', 1)}"


def _cut(text: str) -> str:
    """At most 1 KiB of it, as the contract has it."""
    return text.encode("utf-8", "replace")[:1024].decode("utf-8", "ignore")


def _seconds(duration: Any) -> float:
    return duration.ToTimedelta().total_seconds()
