"""A harness in a process of its own: JSON lines over its stdin and stdout, and the end of all it started."""

import array
import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from turnlog_client.harness import limits
from turnlog_client.harness.payloads import encode_line
from turnlog_client.runner import keeper, proctree
from turnlog_client.runner.harness_lines import LineReader
from turnlog_client.runner.harness_outputs import PROTOCOL_ERROR, OutputParser
from turnlog_client.runner.outputs import Exited, Output, ProtocolError, Settle

log = logging.getLogger("turnlog.runner.harness")

_CHUNK = 64 << 10
_STDERR_TAIL = 4 << 10

# How long a harness that has closed its stdout may take to exit, and a keeper to kill its tree.
_EXIT_PATIENCE = 5.0

_POLL = 0.02


class HarnessProcess:
    """One attempt in one process. See `HarnessRun` for what its users may rely on."""

    @classmethod
    async def spawn(
        cls, argv: Sequence[str], *, runner_id: str, attempt_id: str, workdir: Path, env: Mapping[str, str]
    ) -> "HarnessProcess":
        """Starts a harness.

        argv: the command. A name is looked up on the `PATH` of `env`; a path with a slash in it is relative to the
            runner's folder, not to workdir.
        workdir: an existing folder, the harness's working folder.
        env: all of its environment, but for the marks that are added; see `proctree.harness_environment`.
        Raises FileNotFoundError or PermissionError when the command cannot be started.
        """
        self = cls(argv, runner_id, attempt_id, workdir, env)
        try:
            await self._connect()
        except BaseException:
            # Without its lifeline the keeper kills the harness and itself.
            self._cut_lifeline()
            if sys.platform != "linux":
                self._process.kill()
            raise
        return self

    def __init__(
        self, argv: Sequence[str], runner_id: str, attempt_id: str, workdir: Path, env: Mapping[str, str]
    ) -> None:
        self._name = f"{Path(argv[0]).name} {attempt_id}"
        self._mark = secrets.token_hex(16)
        self._parser = OutputParser(self._log, self._complain)
        self._iterated = False
        self._stderr_tail = b""
        self._exited = asyncio.Event()
        self._hurry = asyncio.Event()
        self._killing: asyncio.Task[None] | None = None
        self._reading = False
        marks = {proctree.RUNNER: runner_id, proctree.ATTEMPT: attempt_id, proctree.SPAWN: self._mark}
        command = [find_program(argv[0], env), *argv[1:]]
        self._lifeline, keepers_end = -1, -1
        if sys.platform == "linux":
            keepers_end, self._lifeline = os.pipe()
            command = [sys.executable, "-I", "-S", keeper.__file__, str(keepers_end), "--", *command]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=workdir,
                env={**env, **marks},
                start_new_session=True,
                pass_fds=(keepers_end,) if keepers_end >= 0 else (),
            )
        except BaseException:
            self._cut_lifeline()
            raise
        finally:
            if keepers_end >= 0:
                os.close(keepers_end)

    @property
    def pid(self) -> int:
        """The process that the runner started: on Linux the harness's keeper, elsewhere the harness."""
        return self._process.pid

    @property
    def stderr_tail(self) -> str:
        """The last that the harness wrote to stderr, at most 4 KiB."""
        return self._stderr_tail.decode("utf-8", "replace")

    async def send(self, message: dict[str, Any]) -> None:
        """Writes one message and waits while the harness does not read. A harness that is gone is no error."""
        self._write(message)
        await self._stdin.drained()

    async def interrupt(self, reason: str = "") -> None:
        """Asks the harness to come to an end. Does not wait, not even for the pipe."""
        self._write({"type": "interrupt", "reason": reason})

    async def cancel(self, reason: str = "", grace: float = 5.0) -> None:
        """Sends `cancel`, waits up to `grace` seconds for the harness to exit, then kills the whole tree.

        Something must go on reading the outputs meanwhile, or a harness that still writes cannot get to its end.
        """
        self._write({"type": "cancel", "reason": reason})
        await self._exit_within(grace)
        await self.kill()

    async def close(self, grace: float = 2.0) -> None:
        """Closes the harness's stdin, waits up to `grace` seconds for it to exit, then kills what is left."""
        self._stdin.close()
        await self._exit_within(grace)
        await self.kill(0)

    async def kill(self, grace: float = 1.0) -> None:
        """SIGTERM to the whole tree, SIGKILL after `grace` seconds. Returns when all of it is gone.

        May be called again, also meanwhile: a grace of 0 then ends the grace of the call before.
        """
        if grace <= 0:
            self._hurry.set()
        if self._killing is None:
            self._killing = asyncio.create_task(self._kill(grace))
        # Shielded: a caller that is cancelled must not leave a tree half killed.
        await asyncio.shield(self._killing)

    async def __aiter__(self) -> AsyncIterator[Output]:
        if self._iterated:
            raise RuntimeError("The outputs of a harness can be read only once.")
        self._iterated = self._reading = True
        try:
            async with contextlib.aclosing(self._outputs()) as outputs:
                async for output in outputs:
                    yield output
                    if isinstance(output, Settle | ProtocolError):
                        return
        finally:
            self._reading = False

    async def _outputs(self) -> AsyncGenerator[Output, None]:
        reader = LineReader()
        while chunk := await self._stdout.read(_CHUNK):
            for line in reader.feed(chunk):
                for output in self._parser.parse(line):
                    yield output
        if not await self._exit_within(_EXIT_PATIENCE):
            yield ProtocolError(PROTOCOL_ERROR, "The harness closed its stdout without settling, and did not exit.")
            return
        # A last line that breaks off says less than how the harness ended; whole, it may be the settle.
        for line in reader.end():
            for output in self._parser.parse(line):
                if not isinstance(output, ProtocolError):
                    yield output
        await asyncio.wait([self._stderr_pump], timeout=_EXIT_PATIENCE)
        yield Exited(self._process.returncode, self.stderr_tail)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._stdout = asyncio.StreamReader(limit=_CHUNK)
        self._stderr = asyncio.StreamReader(limit=_CHUNK)
        self._stdin = _Stdin()
        self._pipes: list[asyncio.BaseTransport] = []
        for stream, pipe in ((self._stdout, process.stdout), (self._stderr, process.stderr)):
            protocol = asyncio.StreamReaderProtocol(stream)
            self._pipes.append((await loop.connect_read_pipe(lambda protocol=protocol: protocol, pipe))[0])
        await loop.connect_write_pipe(lambda: self._stdin, process.stdin)
        self._stderr_pump = asyncio.create_task(self._pump_stderr())
        self._watch_exit(loop)

    def _watch_exit(self, loop: asyncio.AbstractEventLoop) -> None:
        def ended() -> None:
            self._process.poll()
            self._exited.set()

        if hasattr(os, "pidfd_open"):
            pidfd = os.pidfd_open(self._process.pid)

            def readable() -> None:
                loop.remove_reader(pidfd)
                os.close(pidfd)
                ended()

            loop.add_reader(pidfd, readable)
            return

        def wait() -> None:
            self._process.wait()
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ended)

        threading.Thread(target=wait, name="harness-exit", daemon=True).start()

    async def _exit_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._exited.wait(), seconds)
        return self._exited.is_set()

    async def _kill(self, grace: float) -> None:
        if not self._hurry.is_set() and not self._exited.is_set():
            await asyncio.to_thread(self._terminate)
            waits = [asyncio.create_task(event.wait()) for event in (self._exited, self._hurry)]
            await asyncio.wait(waits, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        # The keeper kills by descent, which finds what has wiped its environment. What is left then, because somebody
        # killed the keeper, carries the mark.
        self._cut_lifeline()
        if sys.platform == "linux":
            await self._exit_within(_EXIT_PATIENCE)
        _, stuck = await asyncio.to_thread(proctree.kill_all, lambda: proctree.marked(proctree.SPAWN, self._mark))
        if stuck:
            log.error("Processes %s of %s cannot be killed.", stuck, self._name)
        await self._exit_within(_EXIT_PATIENCE)
        self._stdin.abort()
        self._ending = asyncio.create_task(self._end_pipes())

    async def _end_pipes(self) -> None:
        """Closes the pipes once what is in them has been read, or nobody reads any more.

        Mostly they have ended by themselves. They have not where a process that could not be found holds them open.
        """
        for pipe, readable in zip(self._pipes, (self._process.stdout, self._process.stderr), strict=True):
            # Nothing gives a sign when a pipe has been emptied.
            while self._reading and not pipe.is_closing() and _unread(readable):  # noqa: ASYNC110
                await asyncio.sleep(_POLL)
            pipe.close()

    def _terminate(self) -> None:
        processes = proctree.marked(proctree.SPAWN, self._mark)
        if sys.platform == "linux":
            # The keeper stays until the others are gone.
            processes = [each for each in processes if each.pid != self.pid]
        proctree.signal_all(processes, signal.SIGTERM)

    def _cut_lifeline(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _write(self, message: dict[str, Any]) -> None:
        self._stdin.write(encode_line(message))

    def _complain(self, text: str) -> None:
        # Only where there is room: a harness that does not read must not make the runner keep its complaints.
        if not self._stdin.paused:
            self._write({"type": "log", "level": "error", "message": text})

    def _log(self, level: int, text: str) -> None:
        log.log(level, "%s: %s", self._name, text)

    async def _pump_stderr(self) -> None:
        while chunk := await self._stderr.read(_CHUNK):
            self._stderr_tail = (self._stderr_tail + chunk)[-_STDERR_TAIL:]
            # A chunk of many lines is one record: a harness that floods stderr costs the runner's log its size, not a
            # record a line.
            text = chunk[: limits.MAX_LOG_BYTES].decode("utf-8", "replace").rstrip()
            left_out = len(chunk) - limits.MAX_LOG_BYTES
            self._log(logging.INFO, text + (f" [and {left_out} bytes]" if left_out > 0 else ""))


class _Stdin(asyncio.BaseProtocol):
    """The writing end of a pipe, with the flow control that asyncio keeps private."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def paused(self) -> bool:
        return not self._writable.is_set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def drained(self) -> None:
        await self._writable.wait()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _unread(pipe: IO[bytes] | None) -> int:
    """Bytes that are in a pipe."""
    count = array.array("i", [0])
    if pipe is not None and not pipe.closed:
        fcntl.ioctl(pipe.fileno(), termios.FIONREAD, count)
    return count[0]


def find_program(program: str, env: Mapping[str, str]) -> str:
    """The program's absolute path. Found here, so that a wrong name is an error and not a process that exits."""
    found = shutil.which(program, path=env.get("PATH", os.defpath))
    if found is None:
        if os.path.exists(program) and os.sep in program:
            raise PermissionError(f"{program} is not an executable file.")
        raise FileNotFoundError(f"{program} was not found.")
    return os.path.abspath(found)


__all__ = ["HarnessProcess", "find_program"]
