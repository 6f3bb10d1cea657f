"""DBOS: a workflow without steps. Started directly it runs in the process that starts it; by a queue a worker takes it.

argv: the URL of its database.
"""

import sys
from importlib.metadata import version
from typing import Any

import uvloop
from closed import Call, closed, serve
from dbos import DBOS

# What a queue looks for work every second by default would make of each Run, nobody would put up with.
QUEUE_SECONDS = 0.02
RESULT_SECONDS = 0.01
INPUT = "x" * 200

DBOS(
    config={
        "name": "bench",
        "system_database_url": sys.argv[1],
        "sys_db_pool_size": 20,
        "log_level": "ERROR",
        "console_log_level": "ERROR",
    }
)


@DBOS.workflow()
async def answer(_: str) -> str:
    """Does nothing."""
    return "ok"


async def main() -> None:
    DBOS.launch()
    queue = await DBOS.register_queue_async("bench", polling_interval_sec=QUEUE_SECONDS)

    async def direct() -> None:
        handle = await DBOS.start_workflow_async(answer, INPUT)
        await handle.get_result(polling_interval_sec=RESULT_SECONDS)

    async def queued() -> None:
        handle = await DBOS.enqueue_workflow_async(queue.name, answer, INPUT)
        await handle.get_result(polling_interval_sec=RESULT_SECONDS)

    async def measure(job: dict[str, Any]) -> dict[str, Any]:
        call: Call = queued if job["queue"] else direct
        return await closed(job, lambda _: call)

    await serve(measure, version=version("dbos"))
    DBOS.destroy()


uvloop.run(main())
