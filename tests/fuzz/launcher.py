"""`turnlog-server` with a meter on its event loop: each callback that takes too much thread CPU time becomes a line.

python launcher.py FILE ARGUMENTS…, where FILE gets the lines. CPU time and not the clock, so that a busy machine makes
no callback long. On asyncio's own loop, for nobody can get between uvloop and its callbacks; the callbacks are the
same. SIGUSR1 empties it: coming up may take its time.
"""

import asyncio
import gc
import json
import os
import signal
import sys
import time
from collections import Counter
from typing import Any, TextIO

LIMIT_SECONDS = 0.05

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
sys.modules["uvloop"] = None  # type: ignore[assignment]


class Meter:
    """longest: of any callback so far, in seconds."""

    def __init__(self, out: TextIO) -> None:
        self.longest = 0.0
        self._out = out
        self._collecting = self._collected = 0.0
        self._checked = ""

    def install(self) -> None:
        """From now on every callback of every loop is measured."""
        import protovalidate

        run, check = asyncio.Handle._run, protovalidate.collect_violations

        def metered(handle: asyncio.Handle) -> None:
            self._collected, self._checked = 0.0, ""
            began = time.thread_time()
            run(handle)
            took = time.thread_time() - began
            if took > LIMIT_SECONDS or took > self.longest:
                self.longest = max(self.longest, took)
                self._note(handle, took, within=took <= LIMIT_SECONDS)

        def checked(message: Any, **options: Any) -> Any:
            self._checked = f"{message.DESCRIPTOR.full_name} of {message.ByteSize()} bytes"
            return check(message, **options)

        asyncio.Handle._run = metered  # type: ignore[method-assign]
        protovalidate.collect_violations = checked
        gc.callbacks.append(self._collection)
        signal.signal(signal.SIGUSR1, lambda *_: self._forget())

    def _forget(self) -> None:
        self.longest = 0.0
        self._out.truncate(0)

    def _collection(self, phase: str, _info: dict[str, int]) -> None:
        now = time.thread_time()
        if phase == "start":
            self._collecting = now
        else:
            self._collected += now - self._collecting

    def _note(self, handle: asyncio.Handle, took: float, *, within: bool) -> None:
        callback = handle._callback  # type: ignore[attr-defined]
        task = getattr(callback, "__self__", None)
        what = task.get_coro().__qualname__ if isinstance(task, asyncio.Task) else repr(callback)[:200]
        line: dict[str, Any] = {
            "within": within,
            "ms": round(took * 1000, 1),
            "collector_ms": round(self._collected * 1000, 1),
            "what": what,
            "checked": self._checked,
        }
        if self._collected > LIMIT_SECONDS / 2:
            line["objects"] = Counter(type(each).__qualname__ for each in gc.get_objects()).most_common(8)
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()


if __name__ == "__main__":
    target = sys.argv.pop(1)
    Meter(open(target, "a")).install()  # noqa: SIM115
    from turnlog_server.app.cli import main

    sys.argv[0] = "turnlog-server"
    main()
