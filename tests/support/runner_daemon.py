"""A runner in a process of its own: `python runner_daemon.py ADDRESS DATA_DIR OPTIONS`, and how tests start it."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from turnlog_client.runner.daemon import run_runner
from turnlog_client.runner.logs import configure
from turnlog_client.runner.options import RunnerOptions, Timing


@asynccontextmanager
async def daemon(address: str, data_dir: Path, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process; its log is JSON lines on stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, address, str(data_dir), json.dumps(options), stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def logged(process: asyncio.subprocess.Process, text: str) -> dict[str, Any]:
    """The next record whose message has `text` in it."""
    assert process.stderr is not None
    async with asyncio.timeout(20):
        while line := await process.stderr.readline():
            record: dict[str, Any] = json.loads(line)
            if text in record["message"]:
                return record
    raise AssertionError(f"The runner ended and never said {text!r}.")


def main() -> int:
    """The process's side."""
    address, data_dir, more = sys.argv[1:]
    options: dict[str, Any] = json.loads(more)
    timing = Timing(backoff_first=0.02, backoff_most=0.1, tick=0.05, **options.pop("timing", {}))
    configure(as_json=True)
    return asyncio.run(run_runner(RunnerOptions(address, data_dir=Path(data_dir), timing=timing, **options)))


if __name__ == "__main__":
    sys.exit(main())
