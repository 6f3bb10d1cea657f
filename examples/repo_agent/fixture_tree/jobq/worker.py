"""Takes jobs and runs their handlers."""

import signal
import threading
import traceback
from collections.abc import Callable
from typing import Any

from .errors import LeaseExpired, UnknownKind
from .job import Job
from .queue import LEASE_SECONDS, Queue

Handler = Callable[[Any], None]


class Worker:
    """One thread that works until it is told to stop. The job at hand is always finished first."""

    def __init__(self, queue: Queue, *, poll: float = 1.0) -> None:
        self._queue = queue
        self._poll = poll
        self._handlers: dict[str, Handler] = {}
        self._stopping = threading.Event()

    def handles(self, kind: str) -> Callable[[Handler], Handler]:
        """Registers a handler for a kind of job; to be used as a decorator."""

        def register(handler: Handler) -> Handler:
            self._handlers[kind] = handler
            return handler

        return register

    def stop_on_signals(self) -> None:
        """SIGTERM and SIGINT end the loop after the job at hand."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopping.set())

    def run(self) -> None:
        """Works until it is told to stop."""
        while not self._stopping.is_set():
            job = self._queue.claim()
            if job is None:
                self._stopping.wait(self._poll)
            else:
                self.run_one(job)

    def run_one(self, job: Job) -> None:
        """Runs one claimed job and records how it ended."""
        try:
            handler = self._handlers.get(job.kind)
            if handler is None:
                raise UnknownKind(job.kind)
            with _KeptAlive(self._queue, job):
                handler(job.payload)
        except Exception:
            self._record(lambda: self._queue.fail(job, traceback.format_exc()))
        else:
            self._record(lambda: self._queue.complete(job))

    def _record(self, action: Callable[[], object]) -> None:
        try:
            action()
        except LeaseExpired:
            # Somebody else has the job by now, and its result will be theirs.
            traceback.print_exc()


class _KeptAlive:
    """Renews a job's lease three times per period while its handler runs."""

    def __init__(self, queue: Queue, job: Job) -> None:
        self._queue = queue
        self._job = job
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _renew(self) -> None:
        while not self._done.wait(LEASE_SECONDS / 3):
            try:
                self._queue.heartbeat(self._job)
            except LeaseExpired:
                return
