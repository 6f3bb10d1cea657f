"""PostgreSQL in a folder, as a process to be killed: `python postgres_process.py FOLDER DSN_FILE SETTINGS`.

It ends when PostgreSQL has ended, and PostgreSQL outlives it when it is killed, as after an accident.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from turnlog_server.app.embedded import EmbeddedError, EmbeddedPostgres


async def main(folder: str, dsn_file: str, settings: str) -> int:
    try:
        # With fsync, so that a slow disk can be told to it; below is memory, where that costs nothing.
        server = await EmbeddedPostgres.start(Path(folder), settings=json.loads(settings))
    except EmbeddedError as error:
        print(error, flush=True)
        return 1
    written = Path(dsn_file).with_suffix(".new")
    written.write_text(json.dumps({"dsn": server.dsn, "pid": server.pid}))
    os.replace(written, dsn_file)
    code = await server.exited()
    await server.stop()
    print(f"PostgreSQL ended with {code}", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
