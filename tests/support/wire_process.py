"""The wire proxy as a process: one socket that is calm, one with weather. It ends when its input does.

usage: wire_process.py UPSTREAM FOLDER EVERY SEED
"""

import asyncio
import contextlib
import json
import sys
from pathlib import Path

import uvloop
from support.weather import Weather
from support.wire import CRDB_VERSION, WireProxy

# Statements of a test's own connections are its own business.
SERVERS = "turnlog/"


async def main(upstream: str, folder: str, every: str, seed: str) -> None:
    calm, rough = (WireProxy(upstream, Path(folder), port) for port in (5432, 5433))
    rough.fault = Weather(int(every), int(seed))
    for proxy in (calm, rough):
        proxy.crdb_version, proxy.only = CRDB_VERSION, SERVERS
        await proxy.start()
    print(json.dumps({"calm": calm.dsn, "rough": rough.dsn}), flush=True)
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.to_thread(sys.stdin.read)
    for proxy in (calm, rough):
        await proxy.stop()
    faults = {str(fault): times for fault, times in rough.done.items()}
    print(json.dumps({"faults": faults, "statements": sorted(calm.heard | rough.heard)}), flush=True)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
