"""procrastinate: a job is deferred, a worker in this process takes it by LISTEN and SKIP LOCKED.

It has no results: the task tells its caller itself, which is before the job is marked as done, to procrastinate's
advantage. argv: the conninfo of its database.
"""

import asyncio
import itertools
import logging
import sys
from importlib.metadata import version
from typing import Any

import uvloop
from closed import Call, closed, serve
from procrastinate import App, PsycopgConnector

INPUT = "x" * 200
# A notification that comes while the worker looks for jobs is forgotten, and with the default it would sleep 5 seconds.
POLL_SECONDS = 0.02
logging.disable(logging.CRITICAL)
app = App(connector=PsycopgConnector(conninfo=sys.argv[1], min_size=4, max_size=24))
waiting: dict[int, asyncio.Future[None]] = {}
numbers = itertools.count()


@app.task(queue="bench", name="answer")
async def answer(number: int, text: str) -> None:
    """Tells its caller."""
    del text
    if (caller := waiting.pop(number, None)) is not None:
        caller.set_result(None)


async def call() -> None:
    number = next(numbers)
    done = waiting[number] = asyncio.get_running_loop().create_future()
    await answer.defer_async(number=number, text=INPUT)
    await done


def caller(_: int) -> Call:
    return call


async def measure(job: dict[str, Any]) -> dict[str, Any]:
    """With a worker that executes as many jobs at once as there are callers."""
    working = app.run_worker_async(
        queues=["bench"],
        concurrency=job["callers"],
        install_signal_handlers=False,
        fetch_job_polling_interval=POLL_SECONDS,
        delete_jobs="never",
    )
    worker = asyncio.create_task(working)
    await asyncio.sleep(0.5)
    try:
        return await closed(job, caller)
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def main() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await serve(measure, version=version("procrastinate"))


uvloop.run(main())
