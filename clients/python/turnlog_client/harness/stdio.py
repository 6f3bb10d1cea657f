"""The harness's end of the two pipes."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class Stdio:
    """Stdin and stdout, kept for the protocol alone.

    From `take` on, `print` and child processes write to stderr and read nothing, so that no stray line breaks the
    protocol.
    """

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        # One thread, so that lines stay in order. A pipe that the runner does not empty blocks it, and not the loop:
        # an interrupt is still seen.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="harness-stdout")

    @classmethod
    def take(cls) -> "Stdio":
        """Takes over descriptors 0 and 1 of this process."""
        source, sink = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        sys.stdout.flush()
        os.dup2(2, 1)
        return cls(source, sink)

    async def write(self, line: bytes) -> None:
        """Writes one line, whole. Raises BrokenPipeError when the runner is gone."""
        # Shielded: a line that is cut off by a cancel would spoil the settle that follows it.
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._writer, self._write_all, line))

    def read_lines(self, on_line: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Calls back in the running loop for each line, without its line break, and once at the end of the input."""
        loop = asyncio.get_running_loop()

        def pump() -> None:
            rest = bytearray()
            try:
                while chunk := os.read(self._source, 1 << 16):
                    rest += chunk
                    if b"\n" in chunk:
                        *lines, last = rest.split(b"\n")
                        rest = last
                        for line in lines:
                            loop.call_soon_threadsafe(on_line, bytes(line))
                if rest:
                    loop.call_soon_threadsafe(on_line, bytes(rest))
                loop.call_soon_threadsafe(on_end)
            except (OSError, RuntimeError):
                # The loop is closed: the harness is on its way out.
                return

        # A daemon thread, because nothing can wake it from a read, and the harness exits while it reads.
        threading.Thread(target=pump, name="harness-stdin", daemon=True).start()

    def _write_all(self, line: bytes) -> None:
        view = memoryview(line)
        while view:
            view = view[os.write(self._sink, view) :]
