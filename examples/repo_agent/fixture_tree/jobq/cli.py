"""The command line: add, dead, revive, serve."""

import argparse
import json
import os
import sys

from .http import make_server
from .queue import Queue
from .store import Store

DEFAULT_PORT = 8401


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns the exit code."""
    parser = argparse.ArgumentParser(prog="jobq")
    parser.add_argument("--file", default=os.environ.get("JOBQ_FILE", "jobs.db"))
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add")
    add.add_argument("kind")
    add.add_argument("payload", nargs="?", default="null")
    commands.add_parser("dead")
    revive = commands.add_parser("revive")
    revive.add_argument("job_id", type=int)
    serve = commands.add_parser("serve")
    serve.add_argument("--port", type=int, default=DEFAULT_PORT)
    options = parser.parse_args(arguments)
    if options.command == "serve":
        secret = os.environ.get("JOBQ_TOKEN")
        if not secret:
            print("set JOBQ_TOKEN to the token that clients must send", file=sys.stderr)
            return 2
        make_server(options.file, secret, options.port).serve_forever()
    store = Store(options.file)
    queue = Queue(store)
    try:
        if options.command == "add":
            print(queue.add(options.kind, json.loads(options.payload)))
        elif options.command == "dead":
            for job in queue.dead():
                print(job.job_id, job.kind, (job.last_error or "").strip().splitlines()[-1:])
        elif not queue.revive(options.job_id):
            print(f"job {options.job_id} is not dead", file=sys.stderr)
            return 1
    finally:
        store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
